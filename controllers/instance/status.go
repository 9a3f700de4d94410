package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/status"
	"github.com/libretto-dev/libretto/internal/watch"
)

// statusOf reads our part of the status of an instance. What is not as we write it counts as not there.
func statusOf(o *watch.Object) v1alpha1.InstanceStatus {
	var out v1alpha1.InstanceStatus
	content, ok := o.Content["status"].(map[string]any)
	if !ok {
		return out
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &out); err != nil {
		return v1alpha1.InstanceStatus{}
	}
	return out
}

// finish writes the status, once, and says when to come back.
func (s *scope) finish(ctx context.Context) (reconcile.Result, error) {
	if s.program.WriteStatus {
		s.computeStatus()
	}
	summary := s.summarize()
	return s.write(ctx, summary, true)
}

// computeStatus computes the author's status fields and conditions.
func (s *scope) computeStatus() {
	s.run.Computing.Lock()
	defer s.run.Computing.Unlock()
	fields, err := s.eval.StatusFields()
	if err != nil {
		s.problem(evaluationProblem("", err))
	}
	s.fields = fields
	for _, c := range s.eval.Conditions() {
		s.conditions = append(s.conditions, metav1.Condition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: bounded(c.Message),
		})
	}
}

// finishDeleting writes the status of an instance that is being deleted.
func (s *scope) finishDeleting(ctx context.Context) (reconcile.Result, error) {
	message := "waits for " + joinSome(s.leaving, 10) + " to go"
	for i := range s.problems {
		message = s.problems[i].message
	}
	stalled := slices.ContainsFunc(s.problems, func(p problem) bool { return p.stalled })
	return s.write(ctx, status.Summary{Reason: v1alpha1.ReasonDeleting, Message: bounded(message), Stalled: stalled}, false)
}

// summarize sums up how the instance stands.
func (s *scope) summarize() status.Summary {
	if worst, ok := s.worst(); ok {
		return status.Summary{Reason: worst.reason, Message: worst.message, Stalled: worst.stalled}
	}
	if !s.walk.AllReady() {
		for _, n := range s.program.Nodes {
			if st := s.walk.State(n); st != plan.Ready && st != plan.Excluded {
				return status.Summary{Reason: v1alpha1.ReasonProgressing,
					Message: bounded(fmt.Sprintf("resource %s: %s", n.Name, s.resources[n.Index].Message))}
			}
		}
	}
	if len(s.leaving) > 0 {
		return status.Summary{Reason: v1alpha1.ReasonProgressing, Message: bounded("waits for " + joinSome(s.leaving, 10) + " to go")}
	}
	return status.Summary{Ready: true, Reason: v1alpha1.ReasonReady, Message: s.readyMessage()}
}

func (s *scope) readyMessage() string {
	made := 0
	for _, n := range s.program.Nodes {
		if s.walk.State(n) == plan.Ready {
			made++
		}
	}
	if made == 1 {
		return "1 resource is ready"
	}
	return fmt.Sprintf("%d resources are ready", made)
}

// worst returns the problem that the condition Ready tells of: one that somebody has to mend before one that passes.
func (s *scope) worst() (problem, bool) {
	if len(s.problems) == 0 {
		return problem{}, false
	}
	worst := s.problems[0]
	for _, p := range s.problems[1:] {
		if p.stalled && !worst.stalled {
			worst = p
		}
	}
	if worst.resource != "" {
		worst.message = bounded("resource " + worst.resource + ": " + worst.message)
	}
	return worst, true
}

// write writes the status, events and the report. full: all phases ran, and resources and fields are known.
func (s *scope) write(ctx context.Context, sum status.Summary, full bool) (reconcile.Result, error) {
	transient := slices.ContainsFunc(s.problems, func(p problem) bool { return p.transient })
	report := engine.Report{UID: s.obj.UID, Ready: sum.Ready, Stalled: sum.Stalled, Reason: sum.Reason, Message: sum.Message, Stale: s.operations.stale}
	for _, p := range s.problems {
		report.Denied = append(report.Denied, p.denied...)
	}
	if sum.Stalled {
		report.Failures = s.last.Failures + 1
	}
	if s.program.WriteStatus {
		wanted := s.wantedStatus(sum, full, transient)
		updated, err := s.run.Writer().PatchStatus(ctx, s.obj, wanted)
		var stale *apply.StaleError
		switch {
		case errors.As(err, &stale):
			return reconcile.Result{}, nil // the watch brings the newer object, and with it the next pass
		case err != nil && !isForbidden(err):
			return reconcile.Result{}, err
		case err != nil:
			p := s.explain(classify("", err), err)
			report.Stalled, report.Ready, report.Reason, report.Message = true, false, p.reason, bounded(p.message)
			report.Denied = append(report.Denied, p.denied...)
			report.Failures = s.last.Failures + 1
		case updated != nil:
			s.run.CountStatusWrite()
			s.wrote(updated)
		}
	}
	s.transition(report)
	s.run.Report(s.req, report)
	switch {
	case transient:
		return reconcile.Result{}, errTransient{s.firstTransient()}
	case report.Stalled:
		after := retryAfter(report.Failures)
		if wake := s.wakeAfter(); wake > 0 {
			after = min(after, wake)
		}
		return reconcile.Result{RequeueAfter: after}, nil
	}
	return reconcile.Result{RequeueAfter: s.wakeAfter()}, nil
}

// errTransient makes the queue try again with growing pauses.
type errTransient struct{ message string }

func (e errTransient) Error() string { return e.message }

func (s *scope) firstTransient() string {
	for _, p := range s.problems {
		if p.transient {
			return p.message
		}
	}
	return ""
}

// wantedStatus is the status as it should be: ours, the author's fields, and whatever others have put there.
func (s *scope) wantedStatus(sum status.Summary, full, transient bool) map[string]any {
	old, _ := s.obj.Content["status"].(map[string]any)
	wanted := make(map[string]any, len(old)+6)
	for k, v := range old {
		wanted[k] = v
	}
	is := v1alpha1.InstanceStatus{
		ObservedGeneration: s.obj.Generation, Revision: s.revision, Resources: s.was.Resources, Inventory: inventory.Entries(s.made()),
		Operations: s.was.Operations, Deletion: s.operations.deletion,
	}
	if len(s.program.Operations) > 0 && !s.operations.evaluated && s.was.Revision == "" {
		is.Revision = "" // with a revision, the instance counts as known to the triggers, and Create would not fire any more
	}
	if s.operations.evaluated && s.program.CRD != nil {
		is.Operations = s.operations.memory
	}
	if transient {
		is.ObservedGeneration = s.was.ObservedGeneration
	}
	if full {
		is.Resources = s.resources
	}
	for k, v := range s.fields {
		if wanted[k] = v; v == nil {
			delete(wanted, k)
		}
	}
	is.Conditions = status.Conditions(s.was.Conditions, sum, s.conditions, s.obj.Generation, metav1.NewTime(s.run.Clock().Now()))
	ours := map[string]any{}
	data, err := json.Marshal(is)
	if err == nil {
		err = json.Unmarshal(data, &ours)
	}
	if err != nil {
		panic(fmt.Sprintf("cannot encode a status: %v", err)) // plain structs of ours
	}
	for _, k := range []string{"conditions", "observedGeneration", "revision", "resources", "inventory", "operations", "deletion"} {
		delete(wanted, k)
		if v, ok := ours[k]; ok {
			wanted[k] = v
		}
	}
	return wanted
}

func joinSome(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
