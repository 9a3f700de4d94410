package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/watch"
)

// runPriority is that of runs that have begun, and of instances whose run has changed: what is under way goes before what is
// only looked at again.
const runPriority = 50

// operationChanged turns a change of an operation object into work on it, and on its instance.
func (r *Run) operationChanged(ev watch.Event) {
	o := ev.Object()
	if !ev.Own {
		priority := runPriority
		if ev.Initial {
			priority = handler.LowPriority
		}
		if ev.New == nil || !settledRun(ev.New) {
			r.EnqueueRun(Request{Namespace: o.Namespace, Name: o.Name}, priority, 0)
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
	r.enqueue(runPriority, 0, req)
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
				r.EnqueueRun(Request{Namespace: o.Namespace, Name: o.Name}, runPriority, 0)
			}
		}
	}
}

// wakeRun works on the run with the UID: something that it made has changed.
func (r *Run) wakeRun(uid types.UID) {
	if o := r.set.OperationByUID(uid); o != nil && !settledRun(o) {
		r.EnqueueRun(Request{Namespace: o.Namespace, Name: o.Name}, runPriority, 0)
	}
}

// wakeAllRuns works on all runs that have not ended.
func (r *Run) wakeAllRuns() {
	if r.runs.Load() == nil {
		return
	}
	for _, o := range r.set.Operations() {
		if !settledRun(o) {
			r.EnqueueRun(Request{Namespace: o.Namespace, Name: o.Name}, handler.LowPriority, 0)
		}
	}
}

// EnqueueRun works on an operation object, after a while.
func (r *Run) EnqueueRun(req Request, priority int, after time.Duration) {
	add(r.runs.Load(), priority, after, req)
}
