package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// patience is how long a test waits for something that takes well below a second on an idle machine.
const patience = 60 * time.Second

// binary returns the path of libretto: that of LIBRETTO_BIN, or one that is built once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("LIBRETTO_BIN"); path != "" {
		return path
	}
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "libretto-e2e")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "libretto")
	out, err := exec.Command("go", "build", "-o", path, "github.com/libretto-dev/libretto").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build libretto: %w\n%s", err, out)
	}
	return path, nil
})

// libretto runs the binary and returns its standard output.
func libretto(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("libretto %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// cluster is the cluster under test with `libretto run` at work on an example's definitions.
type cluster struct {
	*testkit.Client
	*engine
	clientset *kubernetes.Clientset
	namespace string
}

// run starts `libretto run` on the example, in which the definitions act as the administrator, and ends it with the test.
// Its pods become ready.
func run(t *testing.T, example string) *cluster {
	t.Helper()
	c := runWithoutPods(t, example)
	c.standInForKubelet(t)
	return c
}

// runWithoutPods is run in a cluster whose pods do not become ready.
func runWithoutPods(t *testing.T, example string) *cluster {
	t.Helper()
	return begin(t, example, false)
}

// runAlone is runWithoutPods for the instances of the test's namespace alone, beside other tests of the same example.
func runAlone(t *testing.T, example string) *cluster {
	t.Helper()
	return begin(t, example, true)
}

func begin(t *testing.T, example string, alone bool) *cluster {
	t.Helper()
	cfg := testkit.Config(t)
	c := &cluster{Client: testkit.NewClient(t, cfg), namespace: testkit.Namespace(t, cfg)}
	var err error
	if c.clientset, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	c.engine = &engine{
		args: []string{"run", filepath.Join("../../examples", example, "definition.yaml"), "--kubeconfig", testkit.Kubeconfig(t)},
		log:  &syncBuffer{},
	}
	if alone {
		c.args = append(c.args, "--namespace", c.namespace)
	}
	c.start(t)
	t.Cleanup(func() {
		c.interrupt(t)
		if t.Failed() {
			t.Logf("what libretto run printed:\n%s", c.log)
		}
	})
	return c
}

// runOnNode is run in a cluster with a node, on which pods run by themselves. Without one the test is skipped.
func runOnNode(t *testing.T, example string) *cluster {
	t.Helper()
	if os.Getenv("LIBRETTO_TEST_NODE") == "" {
		t.Skip("the cluster has no node: `make test-node` starts one that has, and runs this test")
	}
	return runWithoutPods(t, example)
}

// engine is a `libretto run` that can be killed and started again.
type engine struct {
	args []string
	log  *syncBuffer
	cmd  *exec.Cmd
	done chan error
	// from is where in log the output of the process begins.
	from int
}

func (e *engine) start(t *testing.T) {
	t.Helper()
	e.from = len(e.log.String())
	e.cmd = exec.Command(binary(t), e.args...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, done := e.cmd, make(chan error, 1)
	e.done = done
	go func() { done <- cmd.Wait() }()
}

// kill ends it as a machine that loses its power would.
func (e *engine) kill(t *testing.T) {
	t.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		t.Fatalf("cannot kill libretto run: %v", err)
	}
	<-e.done
	_, _ = e.log.Write([]byte("--- killed ---\n"))
}

// restart kills it and starts it again.
func (e *engine) restart(t *testing.T) {
	t.Helper()
	e.kill(t)
	e.start(t)
}

// interrupt ends it as Ctrl-C does, not before it serves.
func (e *engine) interrupt(t *testing.T) {
	t.Helper()
	for range 100 {
		if strings.Contains(e.log.String()[e.from:], ": serving ") || len(e.done) > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = e.cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-e.done:
		if err != nil {
			t.Errorf("libretto run ended with %v after an interrupt", err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("libretto run did not end within 30s of an interrupt")
		_ = e.cmd.Process.Kill()
		<-e.done
	}
}

// create applies YAML once its kinds are served.
func (c *cluster) create(t *testing.T, text string) {
	t.Helper()
	for _, obj := range testkit.Objects(t, text) {
		testkit.Eventually(t, patience, "kind "+obj.GetKind()+" is served", func() error {
			_, err := c.TryApply(t.Context(), c.namespace, obj)
			return err
		})
	}
}

// example returns the text of a file of an example.
func example(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"../../examples"}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitReady waits until an object's condition Ready is True for its generation.
func (c *cluster) waitReady(t *testing.T, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	testkit.Eventually(t, patience, kind+" "+name+" is Ready", func() error {
		var err error
		if got, err = c.Get(t.Context(), apiVersion, kind, c.namespace, name); err != nil {
			return err
		}
		if s := conditionStatus(got, "Ready"); s != "True" {
			return fmt.Errorf("Ready is %q; status: %v", s, got.Object["status"])
		}
		observed, _, _ := unstructured.NestedInt64(got.Object, "status", "observedGeneration")
		if observed != got.GetGeneration() {
			return fmt.Errorf("observedGeneration is %d, generation %d", observed, got.GetGeneration())
		}
		return nil
	})
	return got
}

func conditionStatus(obj *unstructured.Unstructured, conditionType string) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == conditionType {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// waitField waits until a field of an object has a value; nil: until it is absent.
func (c *cluster) waitField(t *testing.T, apiVersion, kind, name string, want any, path ...string) {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprintf("%s %s has %s = %v", kind, name, strings.Join(path, "."), want), func() error {
		obj, err := c.Get(t.Context(), apiVersion, kind, c.namespace, name)
		if err != nil {
			return err
		}
		got, _, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// waitGone waits until an object does not exist.
func (c *cluster) waitGone(t *testing.T, apiVersion, kind, name string) {
	t.Helper()
	testkit.Eventually(t, patience, kind+" "+name+" is gone", func() error {
		obj, err := c.Get(t.Context(), apiVersion, kind, c.namespace, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is there, with finalizers %v and status %v", obj.GetFinalizers(), obj.Object["status"])
	})
}

// patch changes an object as somebody else, named by the field manager, would.
func (c *cluster) patch(t *testing.T, apiVersion, kind, name, manager, patch string) {
	t.Helper()
	ri, err := c.Resource(apiVersion, kind, c.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ri.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}); err != nil {
		t.Fatalf("cannot patch %s %s: %v", kind, name, err)
	}
}

// remove deletes an object.
func (c *cluster) remove(t *testing.T, apiVersion, kind, name string) {
	t.Helper()
	if err := c.Delete(t.Context(), apiVersion, kind, c.namespace, name); err != nil {
		t.Fatalf("cannot delete %s %s: %v", kind, name, err)
	}
}

// standInForKubelet marks the pods of the test's namespace as ready, for the cluster under test has no node.
func (c *cluster) standInForKubelet(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	pods := c.clientset.CoreV1().Pods(c.namespace)
	markReady := func(pod *corev1.Pod) {
		if pod.Status.Phase != corev1.PodRunning {
			ready := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			_, _ = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, ready, metav1.PatchOptions{}, "status") // the next event brings it again
		}
	}
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			w, err := pods.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for event := range w.ResultChan() {
				if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted {
					markReady(pod)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-stopped })
}

// syncBuffer is a bytes.Buffer for several writers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String implements fmt.Stringer.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
