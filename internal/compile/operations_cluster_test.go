package compile_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// operationWorld is a cluster that serves the kinds of a definition.
type operationWorld struct {
	t         *testing.T
	cfg       *rest.Config
	program   *program.Program
	namespace string
	runs      dynamic.ResourceInterface
}

// newOperationWorld declares the kinds of a definition in testdata, in a group of the test's own.
func newOperationWorld(t *testing.T, file string) *operationWorld {
	t.Helper()
	cfg := testkit.Config(t)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	group := testkit.Group(t)
	docs, _, list := load.Parse(file, []byte(strings.ReplaceAll(string(data), "group: example.com", "group: "+group)))
	if len(docs) != 1 || list.HasErrors() {
		t.Fatal(list)
	}
	p, list := compile.Compile(docs[0].Definition, compile.Options{})
	if p == nil {
		t.Fatal(list)
	}
	c := testkit.NewClient(t, cfg)
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{p.CRD, p.OperationKind.CRD} {
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, "", string(text))
		t.Cleanup(func() {
			_ = c.Delete(context.Background(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd.Name)
		})
	}
	w := &operationWorld{t: t, cfg: cfg, program: p, namespace: testkit.Namespace(t, cfg)}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.runs = dyn.Resource(p.OperationKind.Kind.GVR()).Namespace(w.namespace)
	testkit.Eventually(t, 20*time.Second, "the API server serves operation objects", func() error {
		_, err := w.runs.List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
	return w
}

// create creates an operation object, and fails unless fields that the kind does not have are refused.
func (w *operationWorld) create(spec string) (*unstructured.Unstructured, error) {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("spec: "+spec), &u.Object); err != nil {
		w.t.Fatalf("cannot parse %s: %v", spec, err)
	}
	u.SetGroupVersionKind(w.program.OperationKind.Kind.GroupVersionKind)
	u.SetName(testkit.Unique("run"))
	return w.runs.Create(w.t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// says checks an answer; nothing: no error.
func says(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("accepted; it should be refused with %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

func TestOperationKindIsValidatedByTheAPIServer(t *testing.T) {
	w := newOperationWorld(t, "testdata/operations/definition.yaml")
	for _, tc := range []struct {
		name, spec string
		want       []string
	}{
		{"with parameters", `{target: shop, operation: backup, backup: {comment: x, level: 3, labels: {a: b}}}`, nil},
		{"without parameters", `{target: shop, operation: heal}`, nil},
		{"by a trigger", `{target: shop, operation: change, trigger: {type: Update, index: 0, time: "2026-01-01T00:00:00Z", old: {spec: {plan: free}}, fields: [spec.plan], object: {apiVersion: v1, kind: Pod, name: a}}}`, nil},
		{"no target", `{operation: heal}`, []string{"spec.target", "Required"}},
		{"no operation", `{target: shop}`, []string{"spec.operation", "Required"}},
		{"wrong operation", `{target: shop, operation: bakup}`, []string{"spec.operation", `"backup"`, `"heal"`}},
		{"no parameters where one is required", `{target: shop, operation: backup}`, []string{"spec.backup", "spec.backup is missing: operation backup requires comment"}},
		{"parameter missing", `{target: shop, operation: backup, backup: {level: 3}}`, []string{"spec.backup.comment", "Required"}},
		{"parameter of another type", `{target: shop, operation: backup, backup: {comment: 5}}`, []string{"spec.backup.comment", "string"}},
		{"parameter out of bounds", `{target: shop, operation: backup, backup: {comment: x, level: 12}}`, []string{"spec.backup.level", "9"}},
		{"unknown parameter", `{target: shop, operation: backup, backup: {comment: x, lvl: 1}}`, []string{"spec.backup.lvl"}},
		{"parameters of another operation", `{target: shop, operation: heal, backup: {comment: x}}`, []string{"spec.backup", "operation is another one"}},
		{"parameters of an operation without any", `{target: shop, operation: heal, heal: {x: 1}}`, []string{"spec.heal"}},
		{"retry without an id", `{target: shop, operation: heal, retry: {from: a}}`, []string{"spec.retry.id"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := w.create(tc.spec)
			says(t, err, tc.want)
		})
	}
}

func TestOperationObjectsCannotBeRewritten(t *testing.T) {
	w := newOperationWorld(t, "testdata/operations/definition.yaml")
	const spec = `{target: shop, operation: backup, backup: {comment: x}, trigger: {type: Update, old: {spec: {plan: free}}}}`
	for _, tc := range []struct {
		name, before, patch string
		want                []string
	}{
		{"cancel", "", `{cancel: true}`, nil},
		{"pause", "", `{paused: true}`, nil},
		{"go on", "{paused: true}", `{paused: false}`, nil},
		{"retry", "", `{retry: {id: a}}`, nil},
		{"retry again", "{retry: {id: a}}", `{retry: {id: b, from: pack}}`, nil},
		{"cancel stays", "{cancel: true}", `{cancel: true, paused: true}`, nil},
		{"cancel taken back", "{cancel: true}", `{cancel: false}`, []string{"spec.cancel", "cannot be taken back"}},
		{"cancel removed", "{cancel: true}", `{cancel: null}`, []string{"spec.cancel", "cannot be taken back"}},
		{"target", "", `{target: other}`, []string{"spec.target", "cannot change"}},
		{"operation", "", `{operation: heal, backup: null}`, []string{"spec.operation", "cannot change"}},
		{"parameter", "", `{backup: {comment: other}}`, []string{"spec.backup", "cannot change"}},
		{"parameter added", "", `{backup: {labels: {a: b}}}`, []string{"spec.backup", "cannot change"}},
		{"trigger", "", `{trigger: {type: Manual}}`, []string{"spec.trigger", "cannot change"}},
		{"trigger removed", "", `{trigger: null}`, []string{"spec.trigger", "cannot change"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u, err := w.create(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, patch := range []string{tc.before, tc.patch} {
				if patch == "" {
					continue
				}
				body, err := yaml.YAMLToJSON([]byte("spec: " + patch))
				if err != nil {
					t.Fatal(err)
				}
				_, err = w.runs.Patch(t.Context(), u.GetName(), "application/merge-patch+json", body, metav1.PatchOptions{})
				if patch == tc.before && err != nil && tc.before != tc.patch {
					t.Fatal(err)
				}
				if patch == tc.patch {
					says(t, err, tc.want)
				}
			}
		})
	}
}

// TestOperationColumns looks at what kubectl get prints.
func TestOperationColumns(t *testing.T) {
	w := newOperationWorld(t, "testdata/operations/definition.yaml")
	u, err := w.create(`{target: shop, operation: backup, backup: {comment: x}}`)
	if err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"state":"Succeeded","step":"exec2","progress":"3/3","duration":"12s","output":{"file":"a.tar"},
"steps":[{"name":"pack","state":"Succeeded","output":{"any":[1,{"x":null}]},"attempts":[{"id":"a","number":1,"state":"Succeeded","startTime":"2026-01-01T00:00:00.000000Z"}],"items":[{"value":5,"state":"Succeeded"}]}],
"conditions":[{"type":"Succeeded","status":"True","reason":"Done","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	got, err := w.runs.Patch(t.Context(), u.GetName(), "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	steps, _, _ := unstructured.NestedSlice(got.Object, "status", "steps")
	if text := fmt.Sprint(steps); !strings.Contains(text, "attempts") || !strings.Contains(text, "any") || !strings.Contains(text, "value:5") {
		t.Errorf("something of the status is gone: %s", text)
	}
	client, err := rest.HTTPClientFor(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	gvr := w.program.OperationKind.Kind.GVR()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/%s", w.cfg.Host, gvr.Group, gvr.Version, w.namespace, gvr.Resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := yaml.Unmarshal(data, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, data)
	}
	var shown []string
	for i, c := range table.ColumnDefinitions {
		shown = append(shown, fmt.Sprintf("%s=%v/%d", c.Name, table.Rows[0].Cells[i], c.Priority))
	}
	want := []string{"Name=" + u.GetName() + "/0", "Target=shop/0", "Operation=backup/0", "State=Succeeded/0", "Step=exec2/0", "Progress=3/3/1", "File=a.tar/0"}
	if len(shown) < len(want) || !slices.Equal(shown[:len(want)], want) {
		t.Errorf("shown: %v", shown)
	}
}

// TestStatusOfInstanceWithOperations: what triggers remember is kept.
func TestStatusOfInstanceWithOperations(t *testing.T) {
	w := newOperationWorld(t, "testdata/operations/definition.yaml")
	dyn, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	instances := dyn.Resource(w.program.Instance.GVR()).Namespace(w.namespace)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetGroupVersionKind(w.program.Instance.GroupVersionKind)
	u.SetName("shop")
	if _, err := instances.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const status = `{"status":{"account":"a","step":1,"planSince":"2026-01-01T00:00:00Z",
"operations":[{"name":"change","since":"2026-01-01T00:00:00Z","generation":3,"values":{"spec":{"plan":"free"}},"hash":"abc","triggers":[{"index":0,"hash":"x","time":"2026-01-01T00:00:00Z","fired":true}]}],
"deletion":[{"operation":"goodbye","status":{"state":"Running","steps":[{"name":"apply","state":"Running","attempts":[{"id":"a"}]}]}}]}}`
	got, err := instances.Patch(t.Context(), "shop", "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"planSince", "plan:free", "fired:true", "hash:x", "attempts"} {
		if text := fmt.Sprint(got.Object["status"]); !strings.Contains(text, want) {
			t.Errorf("%s is gone: %s", want, text)
		}
	}
}
