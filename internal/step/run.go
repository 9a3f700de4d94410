package step

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// run begins another operation of the instance and waits for its end. Its name is that of the attempt: one that is there was begun
// by it.
func (e *Executor) run(ctx context.Context, req Request, a *program.RunAction) (operation.Result, error) {
	t, err := e.child(req, a)
	if err != nil {
		return operation.Result{}, err
	}
	if e.options.Live != nil {
		if live := e.options.Live(t.Kind, t.Namespace, t.Name); live != nil {
			return e.childResult(req, t, live)
		}
	}
	if req.Start.Resume {
		live, err := e.get(ctx, t)
		if err != nil {
			return operation.Result{}, e.lookAgain(req, err)
		}
		if live != nil {
			return e.childResult(req, t, live)
		}
		if req.Start.Attempt.Ref != "" {
			return operation.Result{}, permanent("operation object %s was deleted before it ended", t.Name)
		}
	}
	obj, err := e.childObject(req, a, t)
	if err != nil {
		return operation.Result{}, err
	}
	made, err := e.writer.Create(ctx, t.Kind, obj)
	if err != nil {
		return operation.Result{}, e.lookAgain(req, err)
	}
	e.wrote(t.Kind, made)
	return e.childResult(req, t, made)
}

// child is the operation object that the attempt begins.
func (e *Executor) child(req Request, a *program.RunAction) (apply.Target, error) {
	if req.Program.OperationKind == nil {
		return apply.Target{}, permanent("the definition has no operation objects")
	}
	kind, err := e.served(req.Program.OperationKind.Kind)
	return apply.Target{Kind: kind, Namespace: req.Instance.GetNamespace(),
		Name: operation.NameFor(req.Instance.GetName(), a.Operation, childID(req))}, err
}

// childID is what the other run is begun for: the attempt, or the one that it takes the place of after a retry by a user, when
// nobody knew what came of that: what has been found out about the other run since then holds.
func childID(req Request) string {
	return fmt.Sprintf("%s.%d", req.Start.Key, req.Start.Attempt.Number)
}

func (e *Executor) childObject(req Request, a *program.RunAction, t apply.Target) (*unstructured.Unstructured, error) {
	op := req.Program.Operation(a.Operation)
	if op == nil {
		return nil, permanent("the definition has no operation %s", a.Operation)
	}
	var params map[string]any
	if a.Params != nil {
		value, err := req.Eval.Template(a.Params, req.Start.Vars)
		if err != nil {
			return nil, err
		}
		if params, err = plainObject(value); err != nil {
			return nil, err
		}
	}
	at := metav1.NewTime(req.Start.Attempt.StartTime.Time)
	trigger := &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeRun, Time: &at, Generation: req.Instance.GetGeneration(),
		Revision: req.Run.Status.Revision, Parent: req.Run.Name}
	obj := &unstructured.Unstructured{Object: operation.NewObject(req.Program, operation.InstanceOf(req.Instance.Object), op, trigger, params, t.Name)}
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1alpha1.LabelRun], annotations[v1alpha1.AnnotationAttempt] = string(req.Run.UID), childID(req)
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
	return obj, nil
}

// childResult tells how the other run stands.
func (e *Executor) childResult(req Request, t apply.Target, live *unstructured.Unstructured) (operation.Result, error) {
	if live.GetAnnotations()[v1alpha1.AnnotationAttempt] != childID(req) {
		return operation.Result{}, permanent("operation object %s exists and was not made by this step", t.Name)
	}
	child, err := operation.Parse(live.Object)
	if err != nil {
		return operation.Result{}, permanent("cannot read operation object %s: %v", t.Name, err)
	}
	st := &child.Status
	what := "operation object " + t.Name
	if !st.State.Ended() {
		message := what
		if st.State != "" {
			message = fmt.Sprintf("%s: %s", what, st.State)
		}
		if st.Step != "" {
			message += " at step " + st.Step
		}
		return operation.Result{Outcome: operation.Waiting, Ref: t.Name, Again: 2 * againLate, Message: message}, nil
	}
	output := any(nil)
	if st.Output != nil {
		output = map[string]any(st.Output)
	}
	out := operation.Result{Outcome: operation.Succeeded, Output: output,
		Result: map[string]any{"name": t.Name, "state": string(st.State), "output": output}}
	if st.State == v1alpha1.RunSucceeded {
		return out, nil
	}
	out.Output, out.Message = nil, bounded(fmt.Sprintf("%s is %s: %s", what, st.State, st.Message), maxMessage)
	out.Outcome = operation.Failed
	switch st.State {
	case v1alpha1.RunUnknown:
		out.Outcome = operation.Unknown
		out.Message += "; look what came of it, retry that one if need be, and then this one"
	case v1alpha1.RunCancelled: // on purpose: it is not begun anew behind somebody's back
		out.Outcome = operation.FailedForGood
	case v1alpha1.RunFailed, v1alpha1.RunPending, v1alpha1.RunRunning, v1alpha1.RunUndoing, v1alpha1.RunSucceeded:
	}
	return out, nil
}

// stopRun cancels the run that an attempt has begun.
func (e *Executor) stopRun(ctx context.Context, req Request, a *program.RunAction) error {
	t, err := e.child(req, a)
	if err != nil {
		return err
	}
	live, err := e.begun(ctx, req, t)
	if err != nil || live == nil {
		return err
	}
	child, err := operation.Parse(live.Object)
	if err != nil || child.Status.State.Ended() || child.Spec.Cancel {
		return err
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID()}, "spec": map[string]any{"cancel": true}})
	if err != nil {
		return fmt.Errorf("cannot encode a patch of %s: %w", t, err)
	}
	out, err := e.resource(t).Patch(ctx, t.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return e.writer.Explain(err, "patch", t)
	}
	e.wrote(t.Kind, out)
	return nil
}
