package engine

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/watch"
)

// onEvent turns a change of an object into work on the instance that it belongs to.
func (r *Run) onEvent(ev watch.Event) {
	if ev.Role == watch.RoleOperation {
		r.operationChanged(ev)
		return
	}
	if ev.Own {
		return
	}
	priority := 0
	if ev.Initial {
		priority = handler.LowPriority
	}
	switch ev.Role {
	case watch.RoleInstance:
		o := ev.Object()
		req := Request{Namespace: o.Namespace, Name: o.Name}
		if ev.New == nil {
			r.orphans.add(req, o.UID)
		}
		r.enqueue(priority, 0, req)
		r.wakeOperations(req)
		if ev.New == nil || ev.Old == nil {
			r.changed()
		}
	case watch.RoleChild:
		r.enqueueOwner(ev.New, priority)
		if ev.New == nil || ev.Old != nil && ev.Old.Labels[v1alpha1.LabelInstance] != ev.New.Labels[v1alpha1.LabelInstance] {
			r.enqueueOwner(ev.Old, priority)
		}
	case watch.RoleExternal:
		r.enqueue(priority, 0, ev.Readers...)
		r.wakeOperations(ev.Readers...)
	case watch.RoleOperation:
	}
}

// enqueueOwner works on the instance that a child belongs to. If that is not seen, it is named by an annotation, and work on
// an instance that is not there looks for what it left.
func (r *Run) enqueueOwner(child *watch.Object, priority int) {
	if child == nil {
		return
	}
	if run := child.Labels[v1alpha1.LabelRun]; run != "" {
		r.wakeRun(types.UID(run))
		return
	}
	if o := r.set.InstanceByUID(childOf(child)); o != nil {
		req := Request{Namespace: o.Namespace, Name: o.Name}
		r.enqueue(priority, 0, req)
		r.wakeOperations(req)
		return
	}
	if req, ok := OwnerOf(child); ok {
		r.orphans.add(req, childOf(child))
		r.enqueue(priority, 0, req)
	}
}
