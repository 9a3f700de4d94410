package status_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/internal/status"
)

func TestConditionsFollowKstatus(t *testing.T) {
	before := metav1.NewTime(time.Unix(1000, 0))
	now := metav1.NewTime(time.Unix(2000, 0))
	cond := func(ct string, st metav1.ConditionStatus, at metav1.Time, gen int64, reason string) metav1.Condition {
		return metav1.Condition{Type: ct, Status: st, LastTransitionTime: at, ObservedGeneration: gen, Reason: reason}
	}
	for name, tc := range map[string]struct {
		was     []metav1.Condition
		sum     status.Summary
		authors []metav1.Condition
		want    []metav1.Condition
	}{
		"first": {
			sum:  status.Summary{Reason: "Progressing"},
			want: []metav1.Condition{cond("Ready", "False", now, 2, "Progressing"), cond("Reconciling", "True", now, 2, "Progressing")},
		},
		"ready drops Reconciling and keeps what others wrote": {
			was: []metav1.Condition{cond("Ready", "False", before, 1, "Progressing"), cond("Reconciling", "True", before, 1, "x"),
				cond("Theirs", "True", before, 1, "y")},
			sum:  status.Summary{Ready: true, Reason: "Ready"},
			want: []metav1.Condition{cond("Ready", "True", now, 2, "Ready"), cond("Theirs", "True", before, 1, "y")},
		},
		"a status that stays keeps its time": {
			was:     []metav1.Condition{cond("Ready", "True", before, 1, "Ready"), cond("Serving", "True", before, 1, "Serving")},
			sum:     status.Summary{Ready: true, Reason: "Ready"},
			authors: []metav1.Condition{{Type: "Serving", Status: "False", Reason: "NotServing"}},
			want:    []metav1.Condition{cond("Ready", "True", before, 2, "Ready"), cond("Serving", "False", now, 2, "NotServing")},
		},
		"stalled excludes Reconciling": {
			was:  []metav1.Condition{cond("Ready", "False", before, 1, "Progressing"), cond("Reconciling", "True", before, 1, "x")},
			sum:  status.Summary{Stalled: true, Reason: "Forbidden"},
			want: []metav1.Condition{cond("Ready", "False", before, 2, "Forbidden"), cond("Stalled", "True", now, 2, "Forbidden")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := status.Conditions(tc.was, tc.sum, tc.authors, 2, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
