// Package status makes the conditions of instances and definitions: kstatus' Ready, Reconciling and Stalled, and those of the
// author. It is pure, and deterministic but for the times of transitions.
package status

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// Summary says how an object stands as a whole.
type Summary struct {
	Ready bool
	// Stalled: somebody has to act. If neither Ready nor Stalled, it goes on by itself.
	Stalled         bool
	Reason, Message string
}

// Conditions returns the conditions of an object: Ready always, Reconciling and Stalled while they are true, those of the
// author, and last those that others have put there. A condition that did not change keeps its time.
func Conditions(was []metav1.Condition, sum Summary, authors []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: sum.Reason, Message: sum.Message}
	ours := []metav1.Condition{ready}
	switch {
	case sum.Ready:
		ours[0].Status = metav1.ConditionTrue
	case sum.Stalled:
		ours = append(ours, metav1.Condition{
			Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: sum.Reason, Message: sum.Message,
		})
	default:
		ours = append(ours, metav1.Condition{
			Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: sum.Reason, Message: sum.Message,
		})
	}
	ours = append(ours, authors...)
	out := make([]metav1.Condition, 0, len(ours)+len(was))
	for _, c := range ours {
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		if old := find(was, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	for _, c := range was {
		if find(ours, c.Type) == nil && c.Type != v1alpha1.ConditionReconciling && c.Type != v1alpha1.ConditionStalled {
			out = append(out, c)
		}
	}
	return out
}

func find(list []metav1.Condition, conditionType string) *metav1.Condition {
	i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &list[i]
}
