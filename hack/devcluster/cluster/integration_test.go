package cluster_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/hack/devcluster/cluster"
)

// devcluster runs the built program, whose path is in DEVCLUSTER; without it the test is skipped, for building it takes
// minutes the first time:
//
//	DEVCLUSTER=$(hack/devcluster/build.sh) go test ./cluster
func devcluster(t *testing.T, args ...string) string {
	t.Helper()
	program := os.Getenv("DEVCLUSTER")
	if program == "" {
		t.Skip("DEVCLUSTER is not set; set it to the path that hack/devcluster/build.sh prints")
	}
	cmd := exec.Command(program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("devcluster %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

func namespaces(t *testing.T, dir string) string {
	t.Helper()
	return devcluster(t, "kubectl", "--dir", dir, "--", "get", "namespaces", "-o", "name")
}

func status(t *testing.T, dir string) cluster.Status {
	t.Helper()
	var s cluster.Status
	if err := json.Unmarshal([]byte(devcluster(t, "status", "--dir", dir, "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLifeOfACluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	audit := filepath.Join(t.TempDir(), "audit.log")
	devcluster(t, "up", "--dir", dir, "--audit-log", audit, "--apiserver-arg=--profiling=false")
	t.Cleanup(func() { devcluster(t, "down", "--dir", dir) })

	if got := namespaces(t, dir); !strings.Contains(got, "namespace/default\n") {
		t.Errorf("namespaces: %s", got)
	}
	if data, err := os.ReadFile(audit); err != nil || !bytes.Contains(data, []byte("/api/v1/namespaces")) {
		t.Errorf("the audit log does not show the request: %v", err)
	}

	t.Run("a second up changes nothing", func(t *testing.T) {
		before := status(t, dir)
		devcluster(t, "up", "--dir", dir)
		after := status(t, dir)
		if !after.Healthy || len(before.Components) != len(after.Components) {
			t.Fatalf("before %+v, after %+v", before, after)
		}
		for i := range before.Components {
			if before.Components[i] != after.Components[i] {
				t.Errorf("before %+v, after %+v", before.Components[i], after.Components[i])
			}
		}
	})
	t.Run("a killed API server comes back where it was", func(t *testing.T) {
		devcluster(t, "kubectl", "--dir", dir, "--", "create", "namespace", "kept")
		devcluster(t, "restart-apiserver", "--dir", dir)
		if got := namespaces(t, dir); !strings.Contains(got, "namespace/kept\n") {
			t.Errorf("namespaces: %s", got)
		}
	})
	t.Run("down --keep and up keep the data", func(t *testing.T) {
		devcluster(t, "down", "--dir", dir, "--keep")
		devcluster(t, "up", "--dir", dir)
		if got := namespaces(t, dir); !strings.Contains(got, "namespace/kept\n") {
			t.Errorf("namespaces: %s", got)
		}
	})
	devcluster(t, "down", "--dir", dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestRunGivesTheExitCodeAndCleansUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	devcluster(t, "run", "--quiet", "--dir", dir, "--", "kubectl", "get", "--raw", "/readyz")
	cmd := exec.Command(os.Getenv("DEVCLUSTER"), "run", "--quiet", "--dir", dir, "--", "sh", "-c", "exit 42")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 42 {
		t.Errorf("%v, want exit code 42", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestPodsRunOnANode(t *testing.T) {
	if os.Getenv("DEVCLUSTER_NODE") == "" {
		t.Skip("DEVCLUSTER_NODE is not set; set it where root may make namespaces and the node's packages are installed")
	}
	// Not t.TempDir, whose path is too long for a socket in it.
	parent, err := os.MkdirTemp("", "dc")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "c")
	devcluster(t, "up", "--node", "--dir", dir)
	defer devcluster(t, "down", "--dir", dir)

	kubectl := func(args ...string) string {
		return devcluster(t, append([]string{"kubectl", "--dir", dir, "--"}, args...)...)
	}
	kubectl("run", "web", "--image=localhost/busybox:1", "--port=8080", "--expose", "--", "httpd", "-f", "-p", "8080", "-h", "/etc")
	kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	if got := kubectl("exec", "web", "--", "hostname"); got != "web\n" {
		t.Errorf("exec: %q", got)
	}

	// An image made here, running as a pod, that reaches the other pod through its Service.
	root := filepath.Join(parent, "root")
	for _, d := range []string{root, filepath.Join(root, "bin")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(parent, "image.tar")
	devcluster(t, "make-image", "--name", "localhost/client:1", "--root", root, "--out", archive,
		"--entrypoint", "/bin/busybox", "--entrypoint", "wget")
	devcluster(t, "load-image", "--dir", dir, archive)
	address := strings.TrimSpace(kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	kubectl("create", "job", "client", "--image=localhost/client:1", "--", "/bin/busybox", "wget", "-q", "-O", "-", "http://"+address+":8080/passwd")
	kubectl("wait", "--for=condition=Complete", "job/client", "--timeout=60s")
	if got := kubectl("logs", "job/client"); !strings.Contains(got, "root:x:0:0") {
		t.Errorf("through the Service came %q", got)
	}
}
