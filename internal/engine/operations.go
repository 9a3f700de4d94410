package engine

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/watch"
)

// RunPriority is that of runs that have begun, and of instances whose run has changed: what is under way goes before what is
// only looked at again.
const RunPriority = 50

// operationChanged turns a change of an operation object into work on it, and on its instance.
func (r *Run) operationChanged(ev watch.Event) {
	o := ev.Object()
	if ev.New == nil { // also when we have deleted it: what is kept of it is dropped
		r.wake(Request{Namespace: o.Namespace, Name: o.Name}, 0)
	}
	if !ev.Own {
		priority := RunPriority
		if ev.Initial {
			priority = handler.LowPriority
		}
		if ev.New != nil && !settledRun(ev.New) {
			r.wake(Request{Namespace: o.Namespace, Name: o.Name}, priority)
		}
		if !ev.Initial {
			r.RunChanged(ev.Old, ev.New)
		}
	}
}

// RunChanged wakes what an operation object's change concerns: its instance, and the other runs of the instance, of which one
// may have its turn now, or waits for this one. It does nothing if the run stands as before.
func (r *Run) RunChanged(old, now *watch.Object) {
	if old != nil && now != nil && stateOf(old) == stateOf(now) && old.Deleting() == now.Deleting() && stepOf(old) == stepOf(now) {
		return
	}
	o := now
	if o == nil {
		o = old
	}
	req := Request{Namespace: o.Namespace, Name: watch.TargetOf(o)}
	r.enqueue(RunPriority, 0, req)
	if now == nil || stateOf(now).Ended() || now.Deleting() {
		r.wakeOperations(req)
	}
}

// settledRun tells whether nothing is to be done about an operation object.
func settledRun(o *watch.Object) bool {
	status, _ := o.Content["status"].(map[string]any)
	seen, _ := status["observedGeneration"].(int64)
	return stateOf(o).Ended() && !o.Deleting() && seen == o.Generation
}

func stateOf(o *watch.Object) v1alpha1.RunState {
	status, _ := o.Content["status"].(map[string]any)
	state, _ := status["state"].(string)
	return v1alpha1.RunState(state)
}

func stepOf(o *watch.Object) string {
	status, _ := o.Content["status"].(map[string]any)
	step, _ := status["step"].(string)
	return step
}

// wakeOperations works on the runs of instances that have not ended.
func (r *Run) wakeOperations(instances ...Request) {
	if r.runs.Load() == nil {
		return
	}
	for _, instance := range instances {
		for _, o := range r.set.OperationsOf(instance) {
			if !settledRun(o) {
				r.wake(Request{Namespace: o.Namespace, Name: o.Name}, RunPriority)
			}
		}
	}
}

// wakeRun works on the run with the UID: something that it made has changed.
func (r *Run) wakeRun(uid types.UID) {
	if o := r.set.OperationByUID(uid); o != nil && !settledRun(o) {
		r.wake(Request{Namespace: o.Namespace, Name: o.Name}, RunPriority)
	}
}

// wakeAllRuns works on all runs that have not ended.
func (r *Run) wakeAllRuns() {
	if r.runs.Load() == nil {
		return
	}
	for _, o := range r.set.Operations() {
		if !settledRun(o) {
			r.wake(Request{Namespace: o.Namespace, Name: o.Name}, handler.LowPriority)
		}
	}
}

// wake works on an operation object because something has changed that it may wait for.
func (r *Run) wake(req Request, priority int) {
	if r.runs.Load() == nil {
		return // the controller has not started: it begins with all that have not ended
	}
	r.woken.Store(req, true)
	r.EnqueueRun(req, priority, 0)
}

// TakeWoken tells whether something has changed, since the last call, that a run may wait for.
func (r *Run) TakeWoken(req Request) bool {
	_, woken := r.woken.LoadAndDelete(req)
	return woken
}

// EnqueueRun works on an operation object, after a while.
func (r *Run) EnqueueRun(req Request, priority int, after time.Duration) {
	add(r.runs.Load(), priority, after, req)
}

// Evaluate returns an evaluation for an instance to which all is bound that is known of its externals and resources. It must be
// called, and what it returns be used, with Computing held. A nil instance has no fields.
func (r *Run) Evaluate(p *program.Program, instance *watch.Object) *render.Evaluation {
	if instance == nil {
		return render.New(p, map[string]any{})
	}
	e := render.New(p, instance.Unstructured().Object)
	if len(p.Externals) > 0 {
		refs, _ := e.Externals() // one that cannot be told is an error to what reads it
		for _, ref := range refs {
			r.bindExternal(e, p, ref)
		}
	}
	e.Observe(func(kind program.Kind, namespace, name string) *unstructured.Unstructured {
		if o := r.set.Get(kind, namespace, name); o != nil && o.Labels[v1alpha1.LabelInstance] == string(instance.UID) {
			return o.Unstructured()
		}
		return nil
	})
	return e
}

func (r *Run) bindExternal(e *render.Evaluation, p *program.Program, ref render.ExternalRef) {
	if !ref.List && ref.ObjectName == "" {
		e.BindExternal(ref.Name, nil)
		return
	}
	objects, state := r.set.External(r.Watched(p, ref))
	if !state.HasSynced {
		e.AwaitExternal(ref.Name)
		return
	}
	values := make([]map[string]any, len(objects))
	for i, o := range objects {
		values[i] = o.Unstructured().Object
	}
	e.BindExternal(ref.Name, values)
}

// Watched is what to watch of an external.
func (r *Run) Watched(p *program.Program, ref render.ExternalRef) watch.External {
	return watch.External{
		Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.ObjectName, Labels: ref.Labels, Fields: r.ExternalFields(p, ref.Name),
	}
}

// Panicked notes a panic that did not reach the controller.
func (r *Run) Panicked(p any) {
	r.log.Error(fmt.Errorf("panic: %v", p), "A step panicked", "stack", stack())
	panicked(r.Spec().Definition)
}

// Log is the logger of the definition.
func (r *Run) Log() logr.Logger { return r.log }
