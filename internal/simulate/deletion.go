package simulate

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/status"
	"github.com/libretto-dev/libretto/internal/trigger"
)

func labelSet(m map[string]string) labels.Set { return m }

// delete runs the operations of event: Delete, removes what the instance has made, the highest wave first, and lets it go.
func (s *pass) delete() {
	if !slices.Contains(s.obj.GetFinalizers(), s.finalizer()) {
		return
	}
	force := s.obj.GetAnnotations()[v1alpha1.AnnotationForceDelete] == "true"
	if !force && !s.lastOperations() {
		worst := problem{reason: v1alpha1.ReasonDeleting, message: "operations are under way"}
		for _, p := range s.problems {
			if worst = p; p.stalled {
				break
			}
		}
		s.resources = s.was.Resources
		s.write(status.Summary{Reason: worst.reason, Message: worst.message, Stalled: worst.stalled})
		return
	}
	for !force {
		children := slices.DeleteFunc(s.children(), func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
		if len(children) == 0 {
			break
		}
		last := waveOf(children[0])
		for _, o := range children {
			last = max(last, waveOf(o))
		}
		for _, o := range children {
			if waveOf(o) == last {
				s.removeChild(o)
			}
		}
	}
	if left := s.children(); len(left) > 0 && !force {
		s.resources = s.was.Resources
		s.write(status.Summary{Reason: v1alpha1.ReasonDeleting, Message: fmt.Sprintf("waits for %s to go", keyOfObject(left[0]))})
		return
	}
	free := s.obj.DeepCopy()
	free.SetFinalizers(slices.DeleteFunc(free.GetFinalizers(), func(f string) bool { return f == s.finalizer() }))
	s.w.store.update(free)
}

func waveOf(o *unstructured.Unstructured) int {
	n, err := strconv.Atoi(o.GetAnnotations()[v1alpha1.AnnotationWave])
	if err != nil {
		return 0
	}
	return n
}

// lastOperations tells whether the operations of event: Delete have come to their end.
func (s *pass) lastOperations() bool {
	p := s.w.program
	if !p.HasDelete() {
		return true
	}
	s.readRuns()
	out := trigger.Evaluate(trigger.Input{
		Now: s.w.now, Operations: p.Operations, Self: s.obj.Object, Revision: revision, Memory: s.was.Operations, Known: true,
		Memoryless: p.CRD == nil, Runs: s.runs, EngineStart: s.w.began, Eval: evaluator{s.w.evaluation(s.obj)},
		Watched: func(string) (any, bool) { return nil, false },
	})
	s.fire(out.Fire)
	for _, problem := range out.Problems {
		s.evaluation("", fmt.Errorf("operation %s: %w", problem.Operation, problem.Err))
		return false
	}
	done := true
	for _, op := range p.Operations {
		run := newest(s.runs, func(r *operation.Run) bool {
			return r.Spec.Operation == op.Name && r.Spec.Trigger != nil && r.Spec.Trigger.Type == v1alpha1.TriggerTypeDelete
		})
		switch {
		case run == nil || run.Status.State == v1alpha1.RunSucceeded:
		case !run.Status.State.Ended():
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonDeleting, message: "operation " + op.Name + " is under way"})
			done = false
		case op.OnFailure == v1alpha1.OperationFailureContinue:
		default:
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: operation.FailedMessage(op, run) +
				"; or let the instance go without it: kubectl annotate … " + v1alpha1.AnnotationForceDelete + "=true"})
			done = false
		}
	}
	return done
}
