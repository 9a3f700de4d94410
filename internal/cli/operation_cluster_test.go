package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/internal/testkit"
)

const boardDefinition = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: boards.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Board, plural: boards, shortNames: [brd]}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, default: {}, properties: {text: {type: string, default: hello}}}}}}
  namespaces: {names: [NAMESPACE]}
  serviceAccount: {namespace: NAMESPACE, name: boards}
  external:
  - name: copies
    apiVersion: v1
    kind: ConfigMap
    selector: {matchLabels: {example.com/board: "${self.metadata.name}"}}
  operations:
  - name: greet
    triggers: [{event: Create}]
    steps:
    - log: "hello ${self.metadata.name}"
    - name: mark
      apply:
        template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}-mark"}, data: {text: "${self.spec.text}"}}
  - name: restore
    parameters:
      openAPIV3Schema:
        type: object
        required: [copy]
        properties:
          copy: {type: string, minLength: 1, description: Name of a copy.}
          lines: {type: integer}
          dry: {type: boolean}
          mode: {type: string, enum: [full, partial], default: full}
          tags: {type: array, items: {type: string}}
          options: {type: object, properties: {force: {type: boolean}, dry: {type: boolean}}}
    steps:
    - name: found
      wait: {until: "copies.exists(c, c.metadata.name == params.copy)"}
      timeout: 2s
      retries: 0
    - name: write
      apply:
        template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}-restored"}, data: {copy: "${params.copy}"}}
    output: {copy: "${params.copy}", lines: "${params.?lines.orValue(0)}"}
    columns: [copy]
  - name: linger
    steps:
    - wait: {duration: 1h}
    - event: {reason: Lingered, message: over}
  - name: archive
    triggers: [{event: Delete, when: "self.metadata.name == 'old'"}]
    steps:
    - log: "archiving ${self.metadata.name}"
    - name: copied
      wait: {until: "copies.exists(c, c.metadata.name == 'old-archive')"}
      timeout: 1s
      retries: 0
`

// boardTest has an engine that serves Boards in a namespace of its own.
type boardTest struct {
	kubeconfig, group, namespace string
	client                       dynamic.Interface
	runs                         dynamic.ResourceInterface
}

func newBoardTest(t *testing.T) *boardTest {
	t.Helper()
	b := &boardTest{kubeconfig: testkit.Kubeconfig(t), group: testkit.Group(t), namespace: testkit.Namespace(t, testkit.Config(t))}
	client, err := dynamic.NewForConfig(testkit.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	b.client = client
	b.runs = client.Resource(runtimeschema.GroupVersionResource{Group: b.group, Version: "v1", Resource: "boardoperations"}).Namespace(b.namespace)
	file := filepath.Join(t.TempDir(), "definition.yaml")
	content := strings.NewReplacer("GROUP", b.group, "NAMESPACE", b.namespace).Replace(boardDefinition)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, code := &screen{}, make(chan int, 1)
	go func() {
		code <- Execute(ctx, []string{"run", file, "--kubeconfig", b.kubeconfig, "--namespace", b.namespace}, nil, out, out)
	}()
	t.Cleanup(func() {
		cancel()
		<-code
		if t.Failed() {
			t.Log(out)
		}
	})
	out.wait(t, "serving Board")
	board := &unstructured.Unstructured{Object: map[string]any{"apiVersion": b.group + "/v1", "kind": "Board", "metadata": map[string]any{"name": "team"}}}
	boards := client.Resource(runtimeschema.GroupVersionResource{Group: b.group, Version: "v1", Resource: "boards"}).Namespace(b.namespace)
	if _, err := boards.Create(t.Context(), board, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"started greet: by Create", "log greet/log: hello team", "step greet/mark", "succeeded greet"} {
		out.wait(t, want)
	}
	return b
}

// operation runs a command about operations in the test's namespace. KIND stands for the kind with its group, as other tests declare
// the same one.
func (b *boardTest) operation(t *testing.T, args ...string) result {
	t.Helper()
	for i := range args {
		args[i] = strings.NewReplacer("BOARD/", "brd."+b.group+"/", "RUN/", "boardoperations."+b.group+"/").Replace(args[i])
	}
	args = append(append([]string{"operation"}, args...), "-n", b.namespace, "--kubeconfig", b.kubeconfig)
	return libretto(t, "", args...)
}

func (b *boardTest) configMap(t *testing.T, board, name string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"example.com/board": board}}}}
	configMaps := b.client.Resource(runtimeschema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(b.namespace)
	if _, err := configMaps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// has fails the test unless the result has the code and the texts.
func (r result) has(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("%q is not in %s", text, r)
		}
	}
}

func TestOperationInCluster(t *testing.T) {
	b := newBoardTest(t)
	t.Run("start", func(t *testing.T) { b.testStart(t) })
	t.Run("retry", func(t *testing.T) { b.testRetry(t) })
	t.Run("cancel", func(t *testing.T) { b.testCancel(t) })
	t.Run("delete", func(t *testing.T) { b.testDelete(t) })
	t.Run("few rights", func(t *testing.T) { b.testFewRights(t) })
}

func (b *boardTest) testStart(t *testing.T) {
	b.operation(t, "start", "BOARD/team", "restor", "-p", "copy=x").has(t, ExitFailure, `no operation "restor"; did you mean "restore"?`)
	b.operation(t, "start", "BOARD/teem", "restore", "-p", "copy=x").has(t, ExitFailure, `there is no Board teem`, `did you mean "team"?`)
	b.operation(t, "start", "board."+b.group+"x/team", "restore").has(t, ExitFailure, "there is no kind")
	b.operation(t, "start", "BOARD/team", "greet", "-p", "copy=x").has(t, ExitFailure, "takes no parameters")
	b.operation(t, "start", "BOARD/team", "restore", "-p", "cpy=x", "-p", "lines=many", "-p", "dry=yes", "-p", "mode=ful").has(t, ExitFailure,
		`there is no parameter "cpy"; did you mean "copy"?`, `parameter lines: "many" is no whole number`, `parameter dry: "yes" is neither`,
		`did you mean "full"?`, "the parameter copy is missing", "Name of a copy.")
	twice := b.operation(t, "start", "BOARD/team", "restore", "-p", "copy=x", "-p", "copy=y", "-p", "mode=zzzzzzzz", "-p", "options.dry=yes", "-p", "options.dri=true")
	twice.has(t, ExitFailure, "parameter copy is given twice", `"zzzzzzzz" is not one of full, partial`, `parameter options.dry: "yes" is neither`,
		`there is no parameter "options.dri"; did you mean "options.dry"?`)
	if strings.Contains(twice.err, "partial;") {
		t.Errorf("a semicolon, and nothing behind it: %s", twice)
	}

	b.configMap(t, "team", "monday")
	params := filepath.Join(t.TempDir(), "params.yaml")
	if err := os.WriteFile(params, []byte("copy: tuesday\nlines: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := b.operation(t, "start", "BOARD/team", "restore", "--params-file", params, "-p", "copy=monday", "-p", "lines=7", "-p", "dry=true", "-p", "tags=a", "-p", "tags=b",
		"-p", "options.force=true", "--name", "restore-monday", "--wait", "--timeout", "1m")
	got.has(t, ExitOK, "restore of Board team: boardoperation/restore-monday", "write: Succeeded", "output:", "copy: monday", "lines: 7")
	o, err := b.runs.Get(t.Context(), "restore-monday", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := unstructured.NestedMap(o.Object, "spec", "restore")
	data, _ := json.Marshal(given)
	if string(data) != `{"copy":"monday","dry":true,"lines":7,"mode":"full","options":{"force":true},"tags":["a","b"]}` {
		t.Errorf("parameters %s", data)
	}
	b.operation(t, "start", "BOARD/team", "restore", "-p", "copy=monday", "--name", "restore-monday").has(t, ExitFailure, "an object runs once")
	started := b.operation(t, "start", "BOARD/team", "restore", "-p", "copy=monday")
	started.has(t, ExitOK, "boardoperation/team-restore-")
	b.operation(t, "describe", strings.TrimPrefix(strings.TrimSpace(started.out), "boardoperation/")).has(t, ExitOK, "Target:", "board/team", "copy: monday")
	b.operation(t, "describe", "RUN/restore-monday").has(t, ExitOK, "Trigger:    Manual", "State:      Succeeded", "Parameters:", "✓ found", "✓ write", "Output:")
	b.operation(t, "describe", "RUN/restore-mundy").has(t, ExitFailure, `did you mean "restore-monday"?`)
	b.operation(t, "list", "BOARD/team").has(t, ExitOK, "NAME", "team-greet-", "Create", "restore-monday", "Manual", "Succeeded")
	b.operation(t, "list", "BOARD/team", "--operation", "greet", "-o", "name").has(t, ExitOK, "boardoperation/team-greet-")
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(b.operation(t, "list", "BOARD/team", "-o", "json").out), &list); err != nil || len(list.Items) != 3 {
		t.Errorf("%d runs, %v", len(list.Items), err)
	}
	b.operation(t, "list", "BOARD/other").has(t, ExitFailure, "there is no Board other")
	b.operation(t, "retry", "RUN/restore-monday").has(t, ExitFailure, "has succeeded")
	b.operation(t, "cancel", "RUN/restore-monday").has(t, ExitFailure, "has ended already: Succeeded")
}

func (b *boardTest) testRetry(t *testing.T) {
	failed := b.operation(t, "start", "BOARD/team", "restore", "-p", "copy=friday", "--name", "restore-friday", "--wait")
	failed.has(t, ExitFailure, "restore failed at step found", "retry: libretto operation retry boardoperation/restore-friday -n "+b.namespace, "see:   libretto operation describe")
	b.operation(t, "describe", "BOARD/team").has(t, ExitOK, "Operations: greet, restore, linger, archive", "restore-friday", "✗ found", "Next: libretto operation retry")
	b.operation(t, "retry", "restore-friday", "--from", "fund").has(t, ExitFailure, `no step "fund"`, `did you mean "found"?`, "add --force")
	b.operation(t, "retry", "restore-friday", "--force").has(t, ExitUsage, "--force goes with --from")
	b.operation(t, "retry", "restore-friday", "--from", "nowhere", "--force", "--wait", "--timeout", "30s").has(t, ExitFailure, "nowhere")
	b.configMap(t, "team", "friday")
	again := b.operation(t, "retry", "restore-friday", "--wait", "--timeout", "1m")
	again.has(t, ExitOK, "\ntry 2:\n", "found: Succeeded", "Succeeded in", "copy: friday")
	if strings.Contains(again.out, "Failed") {
		t.Errorf("what the try before did is shown: %s", again)
	}
	b.operation(t, "describe", "restore-friday").has(t, ExitOK, "try 2")
}

func (b *boardTest) testCancel(t *testing.T) {
	b.operation(t, "start", "BOARD/team", "linger", "--name", "long", "--wait", "--timeout", "2s").has(t, ExitFailure, "not ended after 2s: it is Running at step wait, and goes on")
	b.operation(t, "retry", "RUN/long").has(t, ExitFailure, "has not ended")
	b.operation(t, "pause", "RUN/long").has(t, ExitOK, "boardoperation/long is paused")
	b.operation(t, "describe", "long").has(t, ExitOK, "(paused)")
	b.operation(t, "list", "BOARD/team", "--operation", "linger").has(t, ExitOK, "Running (paused)")
	b.operation(t, "resume", "RUN/long").has(t, ExitOK, "boardoperation/long goes on")
	b.operation(t, "cancel", "RUN/long").has(t, ExitOK, "is being cancelled")
	testkit.Eventually(t, 20*time.Second, "the run is cancelled", func() error {
		if got := b.operation(t, "describe", "long"); !strings.Contains(got.out, "Cancelled") {
			return errText(got.String())
		}
		return nil
	})
	b.operation(t, "retry", "RUN/long").has(t, ExitFailure, "cannot be taken back")
	b.operation(t, "cancel", "BOARD/team").has(t, ExitUsage, "is an instance; name one of its runs")
}

// testDelete: an instance goes with the run of its Delete operation as soon as that has succeeded.
func (b *boardTest) testDelete(t *testing.T) {
	boards := b.client.Resource(runtimeschema.GroupVersionResource{Group: b.group, Version: "v1", Resource: "boards"}).Namespace(b.namespace)
	old := &unstructured.Unstructured{Object: map[string]any{"apiVersion": b.group + "/v1", "kind": "Board", "metadata": map[string]any{"name": "old"}}}
	if _, err := boards.Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "the Create run has ended", func() error {
		if got := b.operation(t, "list", "BOARD/old"); !strings.Contains(got.out, "Succeeded") {
			return errText(got.String())
		}
		return nil
	})
	if err := boards.Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	name := ""
	testkit.Eventually(t, 20*time.Second, "the Delete run has failed", func() error {
		name = strings.TrimSpace(b.operation(t, "list", "BOARD/old", "--operation", "archive", "-o", "name").out)
		if got := b.operation(t, "describe", "BOARD/old"); !strings.Contains(got.out, "✗ copied") {
			return errText(got.String())
		}
		return nil
	})
	b.operation(t, "describe", "BOARD/old").has(t, ExitOK, "being deleted for", "not ready, OperationFailed")
	b.operation(t, "start", "BOARD/old", "linger").has(t, ExitFailure, "board/old is being deleted: no operation can be started any more")
	run := strings.TrimPrefix(name, "boardoperation/")
	b.operation(t, "retry", run, "--from", "copied", "--wait", "--timeout", "20s").has(t, ExitFailure, "try 2:", "copied: Failed")
	b.configMap(t, "old", "old-archive")
	// The try may be over, and the instance gone, before the first look.
	b.operation(t, "retry", run, "--wait", "--timeout", "1m").has(t, ExitOK, "ucceeded")
	testkit.Eventually(t, 20*time.Second, "the instance is gone", func() error {
		if got := b.operation(t, "describe", "BOARD/old"); !strings.Contains(got.err, "there is no Board old") {
			return errText(got.String())
		}
		return nil
	})
}

type errText string

func (e errText) Error() string { return string(e) }

// testFewRights: who may work with operation objects alone needs no right to CustomResourceDefinitions or instances.
func (b *boardTest) testFewRights(t *testing.T) {
	admin := testkit.Config(t)
	cfg := testkit.ServiceAccount(t, admin, b.namespace, "starter")
	client := testkit.NewClient(t, admin)
	client.Apply(t, b.namespace, strings.NewReplacer("GROUP", b.group, "NAMESPACE", b.namespace).Replace(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: starter}
rules: [{apiGroups: [GROUP], resources: [boardoperations], verbs: [create, get, list, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: starter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: starter}
subjects: [{kind: ServiceAccount, name: starter, namespace: NAMESPACE}]
`))
	own := *b
	own.kubeconfig = testkit.WriteKubeconfig(t, cfg)
	testkit.Eventually(t, 10*time.Second, "the right is there", func() error {
		if got := own.operation(t, "list", "BOARD/team"); got.code != ExitOK {
			return errText(got.String())
		}
		return nil
	})
	own.operation(t, "start", "BOARD/team", "restore", "-p", "copy=monday", "--name", "by-starter", "--wait").has(t, ExitOK, "Succeeded")
	own.operation(t, "start", "BOARD/team", "restore", "-p", "lines=many").has(t, ExitFailure, "no whole number")
}
