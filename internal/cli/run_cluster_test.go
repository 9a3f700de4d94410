package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// screen is what a command prints, safe for a command that runs beside the test.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// wait fails the test unless the text appears.
func (s *screen) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(s.String(), text) {
			return
		}
	}
	t.Fatalf("%q was not printed, but:\n%s", text, s)
}

const noteDefinition = `apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: notes.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Note}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object}}
  serviceAccount: {namespace: NAMESPACE, name: notes}
  resources:
  - name: config
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-note"}
      data: {text: TEXT}
`

// noteTest is a definition of the kind Note in a file, with a group and a namespace of its own.
type noteTest struct {
	kubeconfig, group, namespace, file string
	notes, configMaps                  dynamic.ResourceInterface
}

func newNoteTest(t *testing.T) *noteTest {
	t.Helper()
	n := &noteTest{kubeconfig: testkit.Kubeconfig(t), group: testkit.Group(t), namespace: testkit.Namespace(t, testkit.Config(t))}
	client, err := dynamic.NewForConfig(testkit.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	n.notes = client.Resource(runtimeschema.GroupVersionResource{Group: n.group, Version: "v1", Resource: "notes"}).Namespace(n.namespace)
	n.configMaps = client.Resource(runtimeschema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(n.namespace)
	n.file = filepath.Join(t.TempDir(), "definition.yaml")
	n.write(t, "hello")
	return n
}

func (n *noteTest) write(t *testing.T, text string) {
	t.Helper()
	content := strings.NewReplacer("GROUP", n.group, "NAMESPACE", n.namespace, "TEXT", text).Replace(noteDefinition)
	if err := os.WriteFile(n.file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// create makes an instance, as soon as the kind is served.
func (n *noteTest) create(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": n.group + "/v1", "kind": "Note", "metadata": map[string]any{"name": name}}}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, err := n.notes.Create(t.Context(), o, metav1.CreateOptions{})
		if err == nil || !apierrors.IsNotFound(err) || time.Now().After(end) {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

func (n *noteTest) text(t *testing.T, name string) string {
	t.Helper()
	o, err := n.configMaps.Get(t.Context(), name+"-note", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", "text")
	return text
}

func (n *noteTest) args(more ...string) []string {
	return append([]string{"run", n.file, "--kubeconfig", n.kubeconfig, "--namespace", n.namespace}, more...)
}

func TestRunInCluster(t *testing.T) {
	n := newNoteTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &screen{}
	code := make(chan int, 1)
	go func() { code <- Execute(ctx, n.args(), nil, out, out) }()
	out.wait(t, "serving Note")
	n.create(t, "a")
	out.wait(t, "created ConfigMap a-note")
	out.wait(t, "ready")

	patch := []byte(`{"data":{"text":"drifted"}}`)
	if _, err := n.configMaps.Patch(t.Context(), "a-note", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "repaired ConfigMap a-note: changed by somebody")

	n.write(t, "[")
	out.wait(t, "the last good version stays at work")
	n.write(t, "changed")
	out.wait(t, "files changed: taking over")
	out.wait(t, "updated ConfigMap a-note")
	if got := n.text(t, "a"); got != "changed" {
		t.Errorf("the text is %q", got)
	}
	cancel()
	if got := <-code; got != ExitOK {
		t.Errorf("exit code %d:\n%s", got, out)
	}
	out.wait(t, "ended; instances and their resources stay as they are")
	if got := n.text(t, "a"); got != "changed" {
		t.Errorf("after the end, the text is %q", got)
	}
}

func TestRunOnce(t *testing.T) {
	n := newNoteTest(t)
	if got := libretto(t, "", n.args("--once", "--timeout", "30s")...); got.code != ExitOK {
		t.Fatal(got)
	}
	n.create(t, "a")
	if got := libretto(t, "", n.args("--once", "--timeout", "30s")...); got.code != ExitOK || !strings.Contains(got.out, "created ConfigMap a-note") {
		t.Fatal(got)
	}
	denied := libretto(t, "", n.args("--once", "--timeout", "3s", "--impersonate")...)
	if denied.code != ExitFailure || !strings.Contains(denied.err, "may not watch") {
		t.Fatalf("without rights: %s", denied)
	}
	if got := libretto(t, "", "rbac", n.file, "--apply", "--kubeconfig", n.kubeconfig); got.code != ExitOK {
		t.Fatal(got)
	}
	t.Cleanup(func() { n.removeRights(t) })
	n.write(t, "changed")
	allowed := libretto(t, "", n.args("--once", "--timeout", "30s", "--impersonate")...)
	if allowed.code != ExitOK || n.text(t, "a") != "changed" {
		t.Fatalf("with rights: %s", allowed)
	}
}

// removeRights removes what is outside the test's namespace.
func (n *noteTest) removeRights(t *testing.T) {
	client, err := dynamic.NewForConfig(testkit.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"clusterroles", "clusterrolebindings"} {
		gvr := runtimeschema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		name := fmt.Sprintf("libretto:notes.%s", n.group)
		if err := client.Resource(gvr).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
