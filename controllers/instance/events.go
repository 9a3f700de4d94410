package instance

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/watch"
)

// wrote takes over what the API server answered to a write to the instance.
func (s *scope) wrote(updated *unstructured.Unstructured) {
	if updated != nil {
		s.obj = s.run.Set().Observe(watch.RoleInstance, s.program.Instance, updated)
	}
}

// record writes a Kubernetes event about the instance.
func (s *scope) record(eventType, reason, action, note string) {
	s.run.Record(reference(s.obj), nil, eventType, reason, action, bounded(note))
}

func reference(o *watch.Object) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		},
	}
}

// told tells of what was done to an object.
func (s *scope) told(n *program.Node, a *applied) {
	if a.err != nil {
		return
	}
	if a.outcome.Action == apply.Unchanged {
		s.run.CountWrite("")
		return
	}
	s.run.CountWrite(string(a.outcome.Action))
	name := a.desired.GetKind() + " " + a.desired.GetName()
	ev := engine.Event{
		Instance: s.r.ref(s.req), Resource: n.Name,
		Object: engine.Ref{Kind: a.desired.Kind, Namespace: a.desired.GetNamespace(), Name: a.desired.GetName()},
	}
	switch a.outcome.Action {
	case apply.Created:
		ev.Action = engine.ActionCreated
		if _, replaced := s.r.replacing.LoadAndDelete(circuitKey{s.obj.UID, keyOf(a.desired)}); s.listed[keyOf(a.desired)] && !replaced {
			ev.Action, ev.Message = engine.ActionRecreated, "somebody had deleted it"
			if n.CreateOnce {
				ev.Message += "; what is made once has new values"
			}
			s.record(corev1.EventTypeWarning, v1alpha1.ReasonDriftRepaired, "Repair", name+" was made anew: "+ev.Message)
		}
	case apply.Updated:
		ev.Action = engine.ActionUpdated
	case apply.Adopted:
		ev.Action = engine.ActionAdopted
	case apply.Deleted:
		s.r.replacing.Store(circuitKey{s.obj.UID, keyOf(a.desired)}, true)
		ev.Action = engine.ActionRecreated
		ev.Message = "a field that cannot change was to change" + fieldsOf(a.outcome.Fields)
		s.record(corev1.EventTypeNormal, v1alpha1.ReasonRecreated, "Recreate", name+": "+ev.Message)
	case apply.Repaired:
		ev.Action = engine.ActionRepaired
		ev.Message = fmt.Sprintf("changed by %s%s, changed back", who(a.outcome.DriftBy), fieldsOf(a.outcome.Fields))
		s.record(corev1.EventTypeWarning, v1alpha1.ReasonDriftRepaired, "Repair", name+" was "+ev.Message)
	case apply.Unchanged:
	}
	s.run.Tell(ev)
}

// toldOf tells of what was done to an object that is no longer wanted.
func (s *scope) toldOf(i inventory.Item, action engine.Action, message string) {
	s.run.CountWrite(strings.ToUpper(string(action[:1])) + string(action[1:]))
	kind, _ := s.run.Kind(i.GVK())
	s.run.Tell(engine.Event{
		Instance: s.r.ref(s.req), Resource: i.Resource, Action: action, Message: message,
		Object: engine.Ref{Kind: kind, Namespace: i.Namespace, Name: i.Name},
	})
}

// transition tells of a change of the instance as a whole.
func (s *scope) transition(now engine.Report) {
	last, known := s.run.Last(s.req)
	if known && last.UID == now.UID && last.Ready == now.Ready && last.Stalled == now.Stalled && last.Reason == now.Reason &&
		(now.Ready || last.Message == now.Message) {
		return
	}
	ev := engine.Event{Instance: s.r.ref(s.req), Message: now.Message}
	was := s.readyBefore()
	switch {
	case now.Ready:
		ev.Action = engine.ActionReady
		if !was {
			s.record(corev1.EventTypeNormal, v1alpha1.ReasonReady, "Reconcile", now.Message)
		}
	case now.Stalled:
		ev.Action = engine.ActionFailed
		if !known || last.Reason != now.Reason || !last.Stalled {
			s.record(corev1.EventTypeWarning, now.Reason, "Reconcile", now.Message)
		}
	default:
		ev.Action = engine.ActionWaiting
	}
	s.run.Tell(ev)
}

// readyBefore tells whether the instance was ready when the pass began.
func (s *scope) readyBefore() bool {
	if !s.program.WriteStatus {
		return s.last.Ready
	}
	return s.wasReady
}
