package olm

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "libretto-system"
	patience  = 4 * time.Minute
)

// lifecycleManager is OLM at work on the cluster of KUBECONFIG, its two operators running beside it, and a catalogue.
type lifecycleManager struct {
	dir   string // where hack/e2e-olm.sh put bundles and catalogues
	port  string
	serve *exec.Cmd
	began time.Time
}

// startOLM installs OLM's kinds and starts it. It ends with the test.
func startOLM(t *testing.T) *lifecycleManager {
	t.Helper()
	if os.Getenv("LIBRETTO_TEST_OLM") == "" {
		t.Skip("hack/e2e-olm.sh runs this on a cluster of its own")
	}
	m := &lifecycleManager{dir: os.Getenv("OLM_TEST_DIR"), port: freePort(t), began: time.Now()}
	for _, get := range []func() *apiextensionsv1.CustomResourceDefinition{
		crds.CatalogSource, crds.ClusterServiceVersion, crds.InstallPlan, crds.OLMConfig, crds.OperatorCondition, crds.OperatorGroup,
		crds.Operator, crds.Subscription,
	} {
		apply(t, get())
	}
	kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	applyText(t, `
apiVersion: v1
kind: Namespace
metadata: {name: olm}
---
apiVersion: operators.coreos.com/v1
kind: OLMConfig
metadata: {name: cluster}
spec: {features: {disableCopiedCSVs: true}}
`)
	m.start(t, "olm", os.Getenv("OLM_BIN"), "--watchedNamespaces", "", "--namespace", "olm")
	m.start(t, "catalog", os.Getenv("CATALOG_BIN"), "--namespace", "olm", "--interval", "15s",
		"--opmImage", "localhost/olm-opm:1", "--util-image", "localhost/olm-util:1", "--set-workload-user-id")
	return m
}

// start runs a program until the test ends, and shows the end of its log if the test failed.
func (m *lifecycleManager) start(t *testing.T, name, path string, args ...string) *exec.Cmd {
	t.Helper()
	log := filepath.Join(t.TempDir(), name+".log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	t.Cleanup(func() {
		stop(cmd)
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log) // for people alone
			lines := strings.Split(string(text), "\n")
			t.Logf("the end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	return cmd
}

func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}

// publish serves the catalogue that has the releases up to version.
func (m *lifecycleManager) publish(t *testing.T, version string) {
	t.Helper()
	if m.serve != nil {
		stop(m.serve)
	}
	m.serve = m.start(t, "opm-"+version, os.Getenv("OPM_BIN"), "serve", filepath.Join(m.dir, "catalog-"+version), "-p", m.port,
		"--cache-dir", t.TempDir(), "--cache-enforce-integrity=false", "--pprof-addr", "")
	// The text of the CatalogSource changes, so that it is looked at at once.
	before, after, ok := strings.Cut(readme(t), "  image: ghcr.io/libretto-dev/libretto-catalog:latest\n")
	if !ok {
		t.Fatal("the README does not name the image of the catalogue")
	}
	applyText(t, fmt.Sprintf("%s  address: \"127.0.0.1:%s\"\n  displayName: Libretto up to %s\n%s", before, m.port, version, after))
	m.log(t, "published %s", version)
}

// readme is what the README tells people to paste.
func readme(t *testing.T) string {
	t.Helper()
	_, text, _ := strings.Cut(string(read(t, filepath.Join(root, "README.md"))), "\n**With OLM**")
	_, text, _ = strings.Cut(text, "\n```yaml\n")
	text, _, ok := strings.Cut(text, "\n```\n")
	if !ok {
		t.Fatal("the README has nothing to paste for OLM")
	}
	return text + "\n"
}

// log prints how long the test has been at work.
func (m *lifecycleManager) log(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%6.1fs  %s", time.Since(m.began).Seconds(), fmt.Sprintf(format, args...))
}

// succeeded waits until the ClusterServiceVersion of a version has succeeded.
func (m *lifecycleManager) succeeded(t *testing.T, version string) {
	t.Helper()
	name := "libretto.v" + version
	last := ""
	eventually(t, patience, func() error {
		csv, err := get("csv", "-n", namespace, name)
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
		if line := phase + ": " + message; line != last {
			m.log(t, "%s %s", name, line)
			last = line
		}
		if phase != "Succeeded" {
			return fmt.Errorf("%s is %s: %s", name, phase, message)
		}
		return nil
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func command(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), nil, "kubectl", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func libretto(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), nil, os.Getenv("LIBRETTO_BIN"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func apply(t *testing.T, object any) {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, string(data))
}

func applyText(t *testing.T, text string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		_, err := command(t.Context(), strings.NewReader(text), "kubectl", "apply", "--server-side", "-f", "-")
		return err
	})
}

func get(args ...string) (*unstructured.Unstructured, error) {
	out, err := command(context.Background(), nil, "kubectl", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(out), &u.Object); err != nil {
		return nil, err
	}
	return u, nil
}

// items are the objects that `kubectl get` with these arguments finds, sorted by kind and name.
func items(t *testing.T, args ...string) []unstructured.Unstructured {
	t.Helper()
	list, err := get(args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := list.ToList()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all.Items, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetKind()+a.GetName(), b.GetKind()+b.GetName())
	})
	return all.Items
}

func eventually(t *testing.T, timeout time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", timeout, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// metrics reads /metrics of each pod of the manager that is there, by its name, with a token. Pods come and go while a Deployment
// rolls out, so they are looked for anew at each try.
func metrics(t *testing.T, token string) map[string]string {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // signed by the pod itself
	var out map[string]string
	eventually(t, patience, func() error {
		out = map[string]string{}
		for _, p := range items(t, "pods", "-n", namespace, "-l", "control-plane=controller-manager") {
			if p.GetDeletionTimestamp() != nil {
				continue
			}
			ip, _, _ := unstructured.NestedString(p.Object, "status", "podIP")
			text, err := scrape(t, client, ip, token)
			if err != nil {
				return fmt.Errorf("pod %s: %w", p.GetName(), err)
			}
			out[p.GetName()] = text
		}
		if len(out) == 0 {
			return errors.New("there is no pod")
		}
		return nil
	})
	return out
}

func scrape(t *testing.T, client *http.Client, ip, token string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(ip, "8443")+"/metrics", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("/metrics: %s", res.Status)
	}
	return string(body), err
}
