package definition

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// action is what all events of this controller are about.
const action = "Reconcile"

// record records the events of a reconcile: its notes, and that the condition Ready has changed. It is called when the status
// has been written, so that a transition is told once.
func (r *Reconciler) record(s *scope) {
	for _, n := range s.notes {
		r.Events.Eventf(s.def, nil, eventType(n.warning), n.reason, action, "%s", n.message)
	}
	was := meta.FindStatusCondition(s.before.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(s.def.Status.Conditions, v1alpha1.ConditionReady)
	if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message) {
		return
	}
	// What comes by itself is told by the condition alone.
	stalled := meta.IsStatusConditionTrue(s.def.Status.Conditions, v1alpha1.ConditionStalled)
	if is.Status == metav1.ConditionTrue || stalled {
		r.Events.Eventf(s.def, nil, eventType(stalled), is.Reason, action, "%s", is.Message)
	}
}

func eventType(warning bool) string {
	if warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
