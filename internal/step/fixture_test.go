package step_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
	"github.com/libretto-dev/libretto/internal/testkit"
)

const testTimeout = 40 * time.Second

// evaluator computes templates without expressions, and expressions by what the test says.
type evaluator struct {
	bools map[*expr.Expr]func(vars map[string]any) (bool, error)
	texts map[*program.Template]func(vars map[string]any) (string, error)
}

func (e *evaluator) Bool(x *expr.Expr, vars map[string]any) (bool, error) {
	if x == nil {
		return true, nil
	}
	return e.bools[x](vars)
}

func (e *evaluator) Items(*program.ForEach, int, map[string]any) ([]any, error) { return nil, nil }

func (e *evaluator) Template(t *program.Template, vars map[string]any) (any, error) {
	if t == nil {
		return nil, nil
	}
	if f := e.texts[t]; f != nil {
		return f(vars)
	}
	return t.Root.Static, nil
}

func (e *evaluator) Text(t *program.Template, vars map[string]any) (string, error) {
	v, err := e.Template(t, vars)
	if err != nil || v == nil {
		return "", err
	}
	return program.FormatText(v)
}

func static(v any) *program.Template { return program.StaticTemplate(v) }

// world is an instance with one run, on a real API server.
type world struct {
	t         *testing.T
	namespace string
	recorder  *testkit.Recorder
	admin     *testkit.Client
	options   step.Options
	executor  *step.Executor
	program   *program.Program
	instance  *unstructured.Unstructured
	run       *operation.Run
	eval      *evaluator
	attempts  int
	wrote     []string
}

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Shop, plural: shops, singular: shop, listKind: ShopList}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shopoperations.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: ShopOperation, plural: shopoperations, singular: shopoperation, listKind: ShopOperationList}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := testkit.Config(t)
	w := &world{t: t, namespace: testkit.Namespace(t, cfg), recorder: testkit.NewRecorder(), admin: testkit.NewClient(t, cfg), eval: &evaluator{
		bools: map[*expr.Expr]func(map[string]any) (bool, error){}, texts: map[*program.Template]func(map[string]any) (string, error){}}}
	group := testkit.Group(t)
	w.admin.Apply(t, "", replaced(crds, group))
	t.Cleanup(func() {
		for _, name := range []string{"shops.", "shopoperations."} {
			if err := w.admin.Delete(contextOf(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name+group); err != nil {
				t.Log(err)
			}
		}
	})
	kind := func(kind, resource string) program.Kind {
		return program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Resource: resource, Namespaced: true}
	}
	w.program = &program.Program{Name: "shop", Instance: kind("Shop", "shops"), WriteStatus: true,
		OperationKind: &program.OperationKinds{Kind: kind("ShopOperation", "shopoperations")},
		Operations:    []*program.Operation{{Name: "other", HasParams: true}, {Name: "main"}}}
	w.instance = w.create(fmt.Sprintf("{apiVersion: %s/v1, kind: Shop, metadata: {name: shop}, spec: {}}", group))
	made := w.create(fmt.Sprintf("{apiVersion: %s/v1, kind: ShopOperation, metadata: {name: shop-main-1}, spec: {target: shop, operation: main}}", group))
	w.run = &operation.Run{Namespace: w.namespace, Name: made.GetName(), UID: made.GetUID(),
		Spec: v1alpha1.OperationRunSpec{Target: "shop", Operation: "main"}}
	factory, err := identity.NewFactory(w.recorder.Wrap(cfg))
	if err != nil {
		t.Fatal(err)
	}
	client, err := factory.For(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.options = step.Options{Client: client, Wrote: func(_ program.Kind, o *unstructured.Unstructured) {
		w.wrote = append(w.wrote, o.GetKind()+"/"+o.GetName())
	}}
	w.restart()
	return w
}

// restart stands for another process.
func (w *world) restart() { w.executor = step.New(w.options) }

// create applies an object as the administrator, as soon as its kind is served.
func (w *world) create(text string) *unstructured.Unstructured {
	w.t.Helper()
	obj := testkit.Objects(w.t, text)[0]
	var out *unstructured.Unstructured
	testkit.Eventually(w.t, testTimeout, "it can be applied", func() (err error) {
		out, err = w.admin.TryApply(w.t.Context(), w.namespace, obj)
		return err
	})
	return out
}

func (w *world) get(apiVersion, kind, name string) *unstructured.Unstructured {
	w.t.Helper()
	out, err := w.admin.Get(w.t.Context(), apiVersion, kind, w.namespace, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// request is a new attempt.
func (w *world) request(a program.Action) step.Request {
	w.attempts++
	key := fmt.Sprintf("%s.1.it", w.run.UID)
	return step.Request{Program: w.program, Instance: w.instance, Run: w.run, Eval: w.eval, Start: operation.Start{
		Step: &program.Step{Name: "it"}, Action: &a, Item: -1, Key: key, Vars: map[string]any{},
		Attempt:  v1alpha1.Attempt{ID: fmt.Sprintf("%s.%d", key, w.attempts), Number: int32(w.attempts), StartTime: metav1.NowMicro()},
		Deadline: time.Now().Add(time.Hour),
	}}
}

// again looks at an attempt again, as the machine does.
func again(req step.Request, r operation.Result) step.Request {
	if r.Ref != "" {
		req.Start.Attempt.Ref = r.Ref
	}
	req.Start.Resume = true
	return req
}

// finish looks at an attempt until it has ended.
func (w *world) finish(req step.Request) operation.Result {
	w.t.Helper()
	end := time.Now().Add(testTimeout)
	for {
		r := w.executor.Do(w.t.Context(), req)
		if r.Outcome != operation.Waiting {
			return r
		}
		if time.Now().After(end) {
			w.t.Fatalf("it still waits: %s", r.Message)
		}
		time.Sleep(min(r.Again, 200*time.Millisecond))
		req = again(req, r)
	}
}

func (w *world) do(a program.Action) operation.Result {
	w.t.Helper()
	return w.finish(w.request(a))
}

func expect(t *testing.T, r operation.Result, want operation.Outcome) {
	t.Helper()
	if r.Outcome != want {
		t.Fatalf("outcome %d, want %d: %s", r.Outcome, want, r.Message)
	}
}

var (
	configMap  = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true}
	deployment = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true}
)

func object(kind program.Kind, name string) program.ObjectReference {
	return program.ObjectReference{Kind: kind, Name: static(name)}
}

var errStill = errors.New("it is still there")

// as is a client with the identity of a ServiceAccount without rights.
func (w *world) as(name string) *identity.Client {
	w.t.Helper()
	cfg := testkit.Config(w.t)
	testkit.ServiceAccount(w.t, cfg, w.namespace, name)
	factory, err := identity.NewFactory(w.recorder.Wrap(cfg))
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := factory.For(&v1alpha1.ServiceAccountReference{Namespace: w.namespace, Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}
