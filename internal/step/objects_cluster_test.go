package step_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
	"github.com/libretto-dev/libretto/internal/testkit"
)

func contextOf() context.Context { return context.Background() }

func replaced(text, group string) string { return strings.ReplaceAll(text, "GROUP", group) }

func applying(name string, data map[string]any) program.Action {
	return program.Action{Apply: &program.ApplyAction{Kind: configMap, Template: static(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data})}}
}

func TestApply(t *testing.T) {
	w := newWorld(t)
	req := w.request(applying("made", map[string]any{"a": "1"}))
	r := w.finish(req)
	expect(t, r, operation.Succeeded)
	made := w.get("v1", "ConfigMap", "made")
	if got := r.Output.(map[string]any); got["uid"] != string(made.GetUID()) || got["name"] != "made" || got["namespace"] != w.namespace {
		t.Errorf("output %v", got)
	}
	if l := made.GetLabels(); l[v1alpha1.LabelRun] != string(w.run.UID) || l[v1alpha1.LabelInstance] != "" || l[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID("shop") {
		t.Errorf("labels %v", l)
	}
	if refs := made.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != w.instance.GetUID() {
		t.Errorf("owners %v", refs)
	}
	if len(w.wrote) != 1 {
		t.Errorf("told of %v, want the ConfigMap", w.wrote)
	}

	// The same attempt, after a crash, finds what it made.
	w.restart()
	w.recorder.Reset()
	req.Start.Resume = true
	expect(t, w.finish(req), operation.Succeeded)
	if again := w.get("v1", "ConfigMap", "made"); again.GetResourceVersion() != made.GetResourceVersion() {
		t.Error("it was written again")
	}

	// Another run changes it.
	w.run.UID = "another"
	expect(t, w.do(applying("made", map[string]any{"b": "2"})), operation.Succeeded)
	changed := w.get("v1", "ConfigMap", "made")
	if diff := cmp.Diff(map[string]any{"b": "2"}, changed.Object["data"]); diff != "" {
		t.Error(diff)
	}
}

func TestApplyConflicts(t *testing.T) {
	w := newWorld(t)
	uid := string(w.instance.GetUID())
	for name, tc := range map[string]struct {
		labels, message string
		outcome         operation.Outcome
	}{
		"foreign":  {"{}", "was not made by an operation", operation.FailedForGood},
		"resource": {"{libretto.dev/instance: " + uid + "}", "is resource web of the definition: use patch", operation.FailedForGood},
		"child":    {"{libretto.dev/instance: x}", "belongs to instance", operation.FailedForGood},
		"other":    {"{libretto.dev/run: x, libretto.dev/target: z}", "was made by an operation of", operation.FailedForGood},
		"own":      {"{libretto.dev/run: x, libretto.dev/target: " + uid + "}", "", operation.Succeeded},
	} {
		w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", annotations: {libretto.dev/resource: web}, labels: " + tc.labels + "}, data: {a: x}}")
		r := w.do(applying(name, map[string]any{"b": "1"}))
		if r.Outcome != tc.outcome || !strings.Contains(r.Message, tc.message) {
			t.Errorf("%s: %d %s", name, r.Outcome, r.Message)
		}
		if _, changed := w.get("v1", "ConfigMap", name).Object["data"].(map[string]any)["b"]; changed != (tc.outcome == operation.Succeeded) {
			t.Errorf("%s: changed: %v", name, changed)
		}
	}
	invalid := applying("invalid", map[string]any{"a b": "1"})
	expect(t, w.do(invalid), operation.FailedForGood)
	expect(t, w.do(program.Action{Apply: &program.ApplyAction{Kind: configMap, Template: static(map[string]any{})}}), operation.FailedForGood)
	missing := w.do(program.Action{Apply: &program.ApplyAction{Kind: program.Kind{GroupVersionKind: w.program.Instance.GroupVersion().WithKind("No")}, Template: static(map[string]any{})}})
	expect(t, missing, operation.Failed)
}

// Whatever request is lost or refused, an attempt that is looked at again has its effect once.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: there}, data: {a: x}}")
	actions := map[string]program.Action{
		"apply": applying("applied", map[string]any{"a": "1"}),
		"merge": {Patch: &program.PatchAction{Object: object(configMap, "there"), Merge: static(map[string]any{"data": map[string]any{"m": "1"}})}},
		"event": {Event: &program.EventAction{Reason: static("Done"), Message: static("it is done")}},
		"set":   {Set: static(map[string]any{"phase": "x"})},
		"job": {Job: &program.JobAction{Template: static(map[string]any{"spec": map[string]any{"suspend": true, "template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "a", "image": "b"}}}}}})}},
		"run": {Run: &program.RunAction{Operation: "other"}},
	}
	for name, action := range actions {
		for _, verdict := range []testkit.Verdict{testkit.Refuse, testkit.Lose} {
			for at := 1; at <= 3; at++ {
				w.restart()
				req := w.request(action)
				req.Start.Key = req.Start.Attempt.ID // an event each
				w.recorder.Inject(func(n int, _ testkit.Request) testkit.Verdict {
					if n == at {
						return verdict
					}
					return testkit.Pass
				})
				r := w.executor.Do(t.Context(), req)
				w.recorder.Inject(nil)
				if r.Outcome != operation.Waiting && r.Outcome != operation.Succeeded {
					t.Errorf("%s, request %d: outcome %d: %s", name, at, r.Outcome, r.Message)
					continue
				}
				w.restart()
				req = again(req, r)
				for range 3 {
					r = w.executor.Do(t.Context(), req)
					req = again(req, r)
				}
				if name != "job" && name != "run" {
					expect(t, r, operation.Succeeded)
				} else if r.Outcome != operation.Waiting || r.Ref == "" {
					t.Errorf("%s, request %d: outcome %d %s", name, at, r.Outcome, r.Message)
				}
			}
		}
	}
	for kind, want := range map[string]int{"batch/v1 Job": 6, "v1 Event": 6, w.program.Instance.GroupVersion().String() + " ShopOperation": 7} {
		version, kind, _ := strings.Cut(kind, " ")
		list, err := w.admin.List(t.Context(), version, kind, w.namespace, "")
		if err != nil || len(list) < want || kind != "Event" && len(list) != want {
			t.Errorf("%d %s, want %d (%v)", len(list), kind, want, err)
		}
	}
}

func TestPatch(t *testing.T) {
	w := newWorld(t)
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: it}, data: {a: x, b: z}}")
	patch := func(p program.PatchAction) program.Action {
		if p.Object.Name == nil {
			p.Object = object(configMap, "it")
		}
		return program.Action{Patch: &p}
	}
	data := func() any { return w.get("v1", "ConfigMap", "it").Object["data"] }
	expect(t, w.do(patch(program.PatchAction{Merge: static(map[string]any{"data": map[string]any{"a": "1", "b": nil}})})), operation.Succeeded)
	if diff := cmp.Diff(map[string]any{"a": "1"}, data()); diff != "" {
		t.Error(diff)
	}
	add := []any{map[string]any{"op": "add", "path": "/data/c", "value": "3"}}
	expect(t, w.do(patch(program.PatchAction{JSON: static(add)})), operation.Succeeded)
	if diff := cmp.Diff(map[string]any{"a": "1", "c": "3"}, data()); diff != "" {
		t.Error(diff)
	}
	wrong := []any{map[string]any{"op": "test", "path": "/data/c", "value": "4"}}
	expect(t, w.do(patch(program.PatchAction{JSON: static(wrong)})), operation.FailedForGood)
	expect(t, w.do(patch(program.PatchAction{Object: object(configMap, "absent"), Merge: static(map[string]any{})})), operation.Failed)

	// The answer to a JSON patch is lost: nobody knows. So it is when the engine ends; a merge patch is just repeated.
	w.recorder.Inject(func(_ int, r testkit.Request) testkit.Verdict {
		if r.Verb == "patch" {
			return testkit.Lose
		}
		return testkit.Pass
	})
	expect(t, w.executor.Do(t.Context(), w.request(patch(program.PatchAction{JSON: static(add)}))), operation.Unknown)
	w.recorder.Inject(nil)
	req := w.request(patch(program.PatchAction{JSON: static(add)}))
	req.Start.Resume = true
	expect(t, w.executor.Do(t.Context(), req), operation.Unknown)

	w.create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
	scale := patch(program.PatchAction{Object: object(deployment, "web"), Subresource: "scale", Merge: static(map[string]any{"spec": map[string]any{"replicas": int64(0)}})})
	expect(t, w.do(scale), operation.Succeeded)
	if n, _, _ := unstructured.NestedInt64(w.get("apps/v1", "Deployment", "web").Object, "spec", "replicas"); n != 0 {
		t.Errorf("%d replicas", n)
	}
	status := patch(program.PatchAction{Object: object(w.program.Instance, "shop"), Subresource: "status", Merge: static(map[string]any{"status": map[string]any{"x": "y"}})})
	expect(t, w.do(status), operation.Succeeded)
	if x, _, _ := unstructured.NestedString(w.get(w.instance.GetAPIVersion(), "Shop", "shop").Object, "status", "x"); x != "y" {
		t.Errorf("status.x is %q", x)
	}
}

// A resource of the definition is named by its template, and must be the instance's own.
func TestNode(t *testing.T) {
	w := newWorld(t)
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: own, labels: {libretto.dev/instance: " + string(w.instance.GetUID()) + "}}}")
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign}}")
	for name, want := range map[string]operation.Outcome{"own": operation.Succeeded, "foreign": operation.FailedForGood} {
		node := &program.Node{Name: "data", Kinds: []program.Kind{configMap}, Template: static(map[string]any{"metadata": map[string]any{"name": name}})}
		a := program.Action{Delete: &program.DeleteAction{Object: program.ObjectReference{Node: node}}}
		if r := w.do(a); r.Outcome != want {
			t.Errorf("%s: outcome %d: %s", name, r.Outcome, r.Message)
		}
	}
	w.get("v1", "ConfigMap", "foreign")
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	a := program.Action{Delete: &program.DeleteAction{Object: object(configMap, "it")}}
	expect(t, w.do(a), operation.Succeeded)
	text := "{apiVersion: v1, kind: ConfigMap, metadata: {name: it, finalizers: [example.com/hold]}}"
	w.create(text)
	req := w.request(a)
	r := w.executor.Do(t.Context(), req) // the UID is persisted first
	expect(t, r, operation.Waiting)
	if r.Ref == "" || w.get("v1", "ConfigMap", "it").GetDeletionTimestamp() != nil {
		t.Fatalf("ref %q", r.Ref)
	}
	req = again(req, r)
	expect(t, w.executor.Do(t.Context(), req), operation.Waiting)
	r = w.executor.Do(t.Context(), req)
	if expect(t, r, operation.Waiting); !strings.Contains(r.Message, "example.com/hold") {
		t.Errorf("message %q", r.Message)
	}
	maps, err := w.admin.Resource("v1", "ConfigMap", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Patch(t.Context(), "it", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// Another one by the same name is there before anybody looks again.
	testkit.Eventually(t, testTimeout, "it is gone", func() error {
		_, err := w.admin.Get(t.Context(), "v1", "ConfigMap", w.namespace, "it")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errStill
	})
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: it}}")
	w.restart()
	expect(t, w.executor.Do(t.Context(), req), operation.Succeeded)
	w.get("v1", "ConfigMap", "it")
}

func TestWait(t *testing.T) {
	w := newWorld(t)
	x := &expr.Expr{}
	w.eval.bools[x] = func(vars map[string]any) (bool, error) {
		o, _ := vars["object"].(map[string]any)
		if o["data"] == nil {
			return false, &expr.EvalError{Message: "no such key: data"}
		}
		return o["data"].(map[string]any)["a"] == "1", nil
	}
	ref := object(configMap, "it")
	req := w.request(program.Action{Wait: &program.WaitAction{Until: x, Object: &ref}})
	r := w.executor.Do(t.Context(), req)
	if expect(t, r, operation.Waiting); r.Again != time.Second || !strings.Contains(r.Message, "is not there") {
		t.Errorf("again %s, message %q", r.Again, r.Message)
	}
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: it}}")
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Waiting)
	// What is watched lags: it may say that it is not so without a request, but that it is so is asked.
	lag := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "1"}}}
	w.options.Live = func(program.Kind, string, string) *unstructured.Unstructured { return lag }
	w.restart()
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Waiting)
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: it}, data: {a: '1'}}")
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Succeeded)

	now := time.Now()
	w.options.Now = func() time.Time { return now }
	w.restart()
	req = w.request(program.Action{Wait: &program.WaitAction{Duration: time.Hour}})
	if r := w.executor.Do(t.Context(), req); r.Outcome != operation.Waiting || r.Again < 59*time.Minute {
		t.Errorf("%+v", r)
	}
	now = now.Add(time.Hour + time.Minute)
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Succeeded)
}

func TestEventSetLogRun(t *testing.T) {
	w := newWorld(t)
	var lines []string
	w.options.Log = func(_ step.Request, line string) { lines = append(lines, line) }
	w.restart()
	expect(t, w.do(program.Action{Log: static("hello")}), operation.Succeeded)
	if diff := cmp.Diff([]string{"hello"}, lines); diff != "" {
		t.Error(diff)
	}
	event := program.Action{Event: &program.EventAction{Reason: static("Greeted"), Message: static("hello"), Type: "Warning"}}
	expect(t, w.do(event), operation.Succeeded)
	expect(t, w.do(event), operation.Succeeded) // another attempt of the same step
	list, err := w.admin.List(t.Context(), "v1", "Event", w.namespace, v1alpha1.LabelRun+"="+string(w.run.UID))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d events, %v", len(list), err)
	}
	if about, _, _ := unstructured.NestedString(list[0].Object, "involvedObject", "uid"); about != string(w.instance.GetUID()) {
		t.Errorf("event about %q", about)
	}

	set := program.Action{Set: static(map[string]any{"address": map[string]any{"host": "x"}, "old": nil})}
	expect(t, w.do(set), operation.Succeeded)
	w.recorder.Reset()
	expect(t, w.do(set), operation.Succeeded)
	w.recorder.ExpectWrites(t, map[string]int{})

	req := w.request(program.Action{Run: &program.RunAction{Operation: "other", Params: static(map[string]any{"n": int64(1)})}})
	r := w.executor.Do(t.Context(), req)
	expect(t, r, operation.Waiting)
	version := w.instance.GetAPIVersion()
	child := w.get(version, "ShopOperation", r.Ref)
	if got, err := operation.Parse(child.Object); err != nil || got.Spec.Trigger.Parent != w.run.Name || got.Params["n"] != int64(1) {
		t.Errorf("child %v %v", got, err)
	}
	runs, err := w.admin.Resource(version, "ShopOperation", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	end := func(state string) {
		patch := []byte(`{"status":{"state":"` + state + `","message":"so it is","output":{"x":1}}}`)
		if _, err := runs.Patch(t.Context(), r.Ref, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	for state, want := range map[string]operation.Outcome{"Running": operation.Waiting, "Failed": operation.Failed, "Unknown": operation.Unknown, "Cancelled": operation.FailedForGood} {
		end(state)
		expect(t, w.executor.Do(t.Context(), again(req, r)), want)
	}
	end("Running")
	if err := w.executor.Stop(t.Context(), again(req, r)); err != nil {
		t.Fatal(err)
	}
	if cancel, _, _ := unstructured.NestedBool(w.get(version, "ShopOperation", r.Ref).Object, "spec", "cancel"); !cancel {
		t.Error("the other run is not cancelled")
	}
	end("Succeeded")
	done := w.executor.Do(t.Context(), again(req, r))
	expect(t, done, operation.Succeeded)
	if diff := cmp.Diff(map[string]any{"x": int64(1)}, done.Output); diff != "" {
		t.Error(diff)
	}
}

// A value that is not there yet makes the attempt wait, and it is known to have begun nothing.
func TestPending(t *testing.T) {
	w := newWorld(t)
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: it}}")
	body := static([]any{map[string]any{"op": "add", "path": "/data", "value": map[string]any{"a": "1"}}})
	name := static("it")
	pending := true
	w.eval.texts[name] = func(map[string]any) (string, error) {
		if pending {
			return "", &expr.PendingError{Variable: "db"}
		}
		return "it", nil
	}
	a := program.Action{Patch: &program.PatchAction{Object: program.ObjectReference{Kind: configMap, Name: name}, JSON: body}}
	req := w.request(a)
	r := w.executor.Do(t.Context(), req)
	expect(t, r, operation.Waiting)
	pending = false
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Succeeded)
	// Another process cannot know.
	expect(t, w.executor.Do(t.Context(), again(req, r)), operation.Unknown)
	pending = true
	req.Start.Deadline = time.Now().Add(100 * time.Millisecond)
	req.Start.Resume = false
	expect(t, w.executor.Do(t.Context(), req), operation.Failed)
}

// What the ServiceAccount may not do is told by verb and resource.
func TestForbidden(t *testing.T) {
	w := newWorld(t)
	w.options.Client = w.as("nobody")
	w.restart()
	r := w.do(applying("it", nil))
	if expect(t, r, operation.Failed); !strings.Contains(r.Message, "configmaps") || !strings.Contains(r.Message, "nobody") {
		t.Errorf("message %q", r.Message)
	}
}
