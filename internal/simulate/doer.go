package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

// managerStep is the field manager of what steps apply.
const managerStep = "step"

func succeeded(output any) operation.Result {
	return operation.Result{Outcome: operation.Succeeded, Output: output, Result: output}
}

func failed(permanent bool, format string, args ...any) operation.Result {
	outcome := operation.Failed
	if permanent {
		outcome = operation.FailedForGood
	}
	return operation.Result{Outcome: outcome, Message: fmt.Sprintf(format, args...)}
}

func waiting(format string, args ...any) operation.Result {
	return operation.Result{Outcome: operation.Waiting, Message: fmt.Sprintf(format, args...)}
}

// do does the action of a step in the world. It returns how long it takes, too.
func (w *world) do(req step.Request) (operation.Result, time.Duration) {
	if req.Instance == nil {
		return failed(true, "the instance is gone"), 0
	}
	a := req.Start.Action
	if a.Exec != nil || a.HTTP != nil || a.Job != nil {
		return w.ask(req)
	}
	result, err := w.act(req)
	var pending *expr.PendingError
	switch {
	case errors.As(err, &pending):
		return waiting("%s", err), 0
	case err != nil:
		return failed(true, "%s", err), 0
	}
	return result, 0
}

func (w *world) act(req step.Request) (operation.Result, error) {
	a := req.Start.Action
	switch {
	case a.Apply != nil:
		return w.doApply(req, a.Apply)
	case a.Patch != nil:
		return w.doPatch(req, a.Patch)
	case a.Delete != nil:
		return w.doDelete(req, a.Delete)
	case a.Wait != nil:
		return w.doWait(req, a.Wait)
	case a.Event != nil:
		return w.doEvent(req, a.Event)
	case a.Log != nil:
		line, err := req.Eval.Text(a.Log, req.Start.Vars)
		if err != nil {
			return operation.Result{}, err
		}
		w.happened.logs = append(w.happened.logs, line)
		return succeeded(nil), nil
	case a.Set != nil:
		return w.doSet(req, a.Set)
	case a.Run != nil:
		return w.doRun(req, a.Run)
	}
	return failed(true, "the step has no action"), nil
}

func (w *world) doApply(req step.Request, a *program.ApplyAction) (operation.Result, error) {
	content, err := objectOf(req, a.Template)
	if err != nil {
		return operation.Result{}, err
	}
	o := &unstructured.Unstructured{Object: content}
	if o.GetName() == "" {
		return failed(true, "the name of the %s is empty", a.Kind.Kind), nil
	}
	if a.Kind.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(req.Instance.GetNamespace())
	}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1alpha1.LabelRun], annotations[v1alpha1.AnnotationAttempt] = string(req.Run.UID), req.Start.Attempt.ID
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	if !a.Retain && (o.GetNamespace() == req.Instance.GetNamespace() || req.Instance.GetNamespace() == "") {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: req.Instance.GetAPIVersion(), Kind: req.Instance.GetKind(), Name: req.Instance.GetName(), UID: req.Instance.GetUID(),
		}))
	}
	Normalize(o)
	made, _ := w.store.apply(managerStep, o)
	return succeeded(identity(made)), nil
}

// identity is what apply and patch yield.
func identity(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName(), "uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion()}
	if o.GetNamespace() != "" {
		out["namespace"] = o.GetNamespace()
	}
	return out
}

// find finds the object that a step names.
func (w *world) find(req step.Request, r *program.ObjectReference) (*unstructured.Unstructured, string, error) {
	if r.Node != nil {
		objects, err := w.evaluation(req.Instance).Render(r.Node)
		if err != nil {
			return nil, r.Node.Name, err
		}
		if len(objects) != 1 {
			return nil, r.Node.Name, fmt.Errorf("resource %s is no single object", r.Node.Name)
		}
		k := keyOfObject(objects[0].Unstructured)
		return w.store.get(k), k.String(), nil
	}
	name, err := req.Eval.Text(r.Name, req.Start.Vars)
	if err != nil {
		return nil, r.Kind.Kind, err
	}
	namespace := ""
	if r.Kind.Namespaced || r.Kind.Pending {
		if namespace, err = req.Eval.Text(r.Namespace, req.Start.Vars); err != nil {
			return nil, r.Kind.Kind, err
		}
		if namespace == "" {
			namespace = req.Instance.GetNamespace()
		}
	}
	k := key{r.Kind.Group, r.Kind.Kind, namespace, name}
	return w.store.get(k), k.String(), nil
}

func (w *world) doPatch(req step.Request, a *program.PatchAction) (operation.Result, error) {
	o, name, err := w.find(req, &a.Object)
	if err != nil {
		return operation.Result{}, err
	}
	if o == nil {
		return failed(false, "%s is not there", name), nil
	}
	patched := o.DeepCopy()
	switch {
	case a.Merge != nil:
		patch, err := objectOf(req, a.Merge)
		if err != nil {
			return operation.Result{}, err
		}
		mergePatch(patched.Object, patch)
	default:
		value, err := req.Eval.Template(a.JSON, req.Start.Vars)
		if err != nil {
			return operation.Result{}, err
		}
		if patched.Object, err = jsonPatch(o.Object, value); err != nil {
			return failed(true, "%s: %s", name, err), nil
		}
	}
	Normalize(patched)
	if a.Subresource == "status" { // nothing else is changed
		status := patched.Object["status"]
		patched = o.DeepCopy()
		patched.Object["status"] = status
	}
	patched, _ = w.store.update(patched)
	return succeeded(identity(patched)), nil
}

func jsonPatch(object map[string]any, operations any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("not a JSON patch: %w", err)
	}
	if data, err = patch.Apply(data); err != nil {
		return nil, fmt.Errorf("the JSON patch cannot be applied: %w", err)
	}
	var out map[string]any
	return out, utiljson.Unmarshal(data, &out)
}

func (w *world) doDelete(req step.Request, a *program.DeleteAction) (operation.Result, error) {
	o, name, err := w.find(req, &a.Object)
	if err != nil {
		return operation.Result{}, err
	}
	if o == nil {
		return succeeded(nil), nil
	}
	w.store.remove(keyOfObject(o))
	if w.store.get(keyOfObject(o)) != nil {
		return waiting("waits for %s to go", name), nil
	}
	return succeeded(nil), nil
}

func (w *world) doWait(req step.Request, a *program.WaitAction) (operation.Result, error) {
	if a.Until == nil {
		if left := req.Start.Attempt.StartTime.Add(a.Duration).Sub(w.now); left > 0 {
			r := waiting("waits until %s", w.now.Add(left).Format(time.RFC3339))
			r.Again = left
			return r, nil
		}
		return succeeded(nil), nil
	}
	vars := maps.Clone(req.Start.Vars)
	if a.Object != nil {
		o, name, err := w.find(req, a.Object)
		if err != nil {
			return operation.Result{}, err
		}
		if o == nil {
			return waiting("%s is not there", name), nil
		}
		vars[program.VarObject] = o.Object
	}
	reached, err := req.Eval.Bool(a.Until, vars)
	switch {
	case err != nil:
		return waiting("%s", err), nil
	case !reached:
		return waiting("waiting until %s", a.Until.Source()), nil
	}
	return succeeded(nil), nil
}

func (w *world) doEvent(req step.Request, a *program.EventAction) (operation.Result, error) {
	reason, err := req.Eval.Text(a.Reason, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	message, err := req.Eval.Text(a.Message, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	kind := a.Type
	if kind == "" {
		kind = corev1.EventTypeNormal
	}
	w.happened.events = append(w.happened.events, event{kind, reason, message})
	return succeeded(nil), nil
}

func (w *world) doSet(req step.Request, t *program.Template) (operation.Result, error) {
	fields, err := objectOf(req, t)
	if err != nil {
		return operation.Result{}, err
	}
	o := w.store.get(keyOfObject(req.Instance))
	if o == nil {
		return failed(true, "the instance is gone"), nil
	}
	o = o.DeepCopy()
	mergePatch(o.Object, map[string]any{"status": fields})
	Normalize(o)
	if w.program.CRD != nil {
		if list := Admit(w.ctx, w.program.CRD, o, w.store.get(keyOfObject(o))); list.HasErrors() {
			return failed(true, "set: %s", list.Err()), nil
		}
	}
	w.store.update(o)
	return succeeded(nil), nil
}

// doRun begins another operation and waits for its end.
func (w *world) doRun(req step.Request, a *program.RunAction) (operation.Result, error) {
	kind := w.program.OperationKind.Kind
	name := operation.NameFor(req.Instance.GetName(), a.Operation, req.Start.Attempt.ID)
	live := w.store.live(kind, req.Instance.GetNamespace(), name)
	if live == nil {
		op := w.program.Operation(a.Operation)
		if op == nil {
			return failed(true, "the definition has no operation %s", a.Operation), nil
		}
		var params map[string]any
		if a.Params != nil {
			var err error
			if params, err = objectOf(req, a.Params); err != nil {
				return operation.Result{}, err
			}
		}
		at := metav1.NewTime(w.now)
		t := &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeRun, Time: &at, Generation: req.Instance.GetGeneration(), Revision: revision, Parent: req.Run.Name}
		o := &unstructured.Unstructured{Object: operation.NewObject(w.program, operation.InstanceOf(req.Instance.Object), op, t, params, name)}
		Normalize(o)
		if list := Admit(w.ctx, w.program.OperationKind.CRD, o, nil); list.HasErrors() {
			return failed(true, "%s", list.Err()), nil
		}
		var err error
		if live, err = w.store.create(o); err != nil {
			return failed(true, "%s", err), nil
		}
	}
	child, err := operation.Parse(live.Object)
	if err != nil {
		return operation.Result{}, err
	}
	st := &child.Status
	if !st.State.Ended() {
		r := waiting("operation object %s: %s", name, st.State)
		r.Ref = name
		return r, nil
	}
	var output any
	if st.Output != nil {
		output = map[string]any(st.Output)
	}
	if st.State != v1alpha1.RunSucceeded {
		return failed(st.State != v1alpha1.RunFailed, "operation object %s is %s: %s", name, st.State, st.Message), nil
	}
	return operation.Result{Outcome: operation.Succeeded, Output: output, Result: map[string]any{"name": name, "state": string(st.State), "output": output}}, nil
}

// objectOf computes a template that yields an object.
func objectOf(req step.Request, t *program.Template) (map[string]any, error) {
	value, err := req.Eval.Template(t, req.Start.Vars)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("the value cannot be written as JSON: %w", err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, errors.New("the value is no object")
	}
	return out, nil
}
