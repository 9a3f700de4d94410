package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/status"
	"github.com/libretto-dev/libretto/internal/trigger"
	"github.com/libretto-dev/libretto/internal/watch"
)

// terminatingTimeout is how long a Delete run may take in a namespace that is being deleted: what it would wait for goes too.
const terminatingTimeout = time.Minute

// againForValues is when a Delete run that waits for a value is looked at again, if nothing wakes it before.
const againForValues = 10 * time.Second

// lastOperations runs the operations of event: Delete, before what the instance stands for is removed. It tells whether they
// have come to their end; until then after is when to look again.
func (s *scope) lastOperations(ctx context.Context) (done bool, after time.Duration, err error) {
	if !s.program.HasDelete() || s.obj.Annotations[v1alpha1.AnnotationForceDelete] == "true" {
		return true, 0, nil
	}
	if len(s.program.Externals) > 0 { // their steps may read them, also when the engine was started after the deletion began
		refs, _ := s.externals()
		s.watchExternals(refs)
	}
	if len(s.was.Deletion) > 0 {
		if s.run.Set().OperationState().HasSynced {
			s.readRuns()
		}
		return s.runWithoutObjects(ctx)
	}
	if !s.readRuns() {
		return s.cannotRun(s.problems[len(s.problems)-1])
	}
	out := trigger.Evaluate(trigger.Input{
		Now: s.run.Clock().Now(), Operations: s.program.Operations, Self: s.obj.Unstructured().Object, Revision: s.revision,
		Memory: s.was.Operations, Known: true, Memoryless: s.program.CRD == nil, Runs: s.operations.runs,
		EngineStart: s.run.Began(), Eval: runner.NewEvaluator(s.run, s.program, s.obj), Watched: func(string) (any, bool) { return nil, false },
	})
	for _, f := range out.Fire {
		err := s.fire(ctx, f)
		var terminating *apply.NamespaceTerminatingError
		switch {
		case errors.As(err, &terminating):
			return s.runWithoutObjects(ctx)
		case err != nil:
			p := classify("", fmt.Errorf("cannot begin operation %s: %w", f.Operation.Name, err))
			if p.transient {
				return false, 0, err
			}
			return s.cannotRun(s.explain(p, err))
		}
	}
	for _, p := range out.Problems {
		return s.cannotRun(evaluationProblem("", fmt.Errorf("operation %s: %w", p.Operation, p.Err)))
	}
	if err := s.awaited(); err != nil {
		if s.sinceDeletion() < abandonAfter {
			s.problem(evaluationProblem("", err))
			return false, againForValues, nil
		}
		s.recordOnce(v1alpha1.ReasonAbandoned, "it was not run, for a value that did not come: "+err.Error())
	}
	done = true
	for _, op := range s.program.Operations {
		newest := s.deleteRun(op)
		if newest != nil && !s.ended(op, newest.Status, operation.FailedMessage(op, newest)) {
			done = false
		}
	}
	return done, 0, nil
}

// ended tells whether a Delete run keeps the instance no longer, and notes what it does if it does.
func (s *scope) ended(op *program.Operation, st v1alpha1.OperationRunStatus, failed string) bool {
	switch {
	case st.State == v1alpha1.RunSucceeded:
		return true
	case st.State == v1alpha1.RunPending && st.Message != "":
		s.problem(problem{reason: v1alpha1.ReasonDeleting, message: "operation " + op.Name + " waits: " + st.Message})
		return false
	case !st.State.Ended():
		s.problem(problem{reason: v1alpha1.ReasonDeleting, message: "operation " + op.Name + " is under way"})
		return false
	case op.OnFailure == v1alpha1.OperationFailureContinue:
		s.recordOnce(v1alpha1.ReasonOperationFailed, failed+"; the instance goes all the same")
		return true
	}
	s.problem(problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: failed +
		"; or let the instance go without it: " + s.letGoCommand()})
	return false
}

// letGoCommand is what a user types to let the instance go.
func (s *scope) letGoCommand() string {
	kind := s.program.Instance
	command := "kubectl annotate " + strings.TrimSuffix(kind.Resource+"."+kind.Group, ".") + " " + s.obj.Name
	if s.obj.Namespace != "" {
		command += " -n " + s.obj.Namespace
	}
	return command + " " + v1alpha1.AnnotationForceDelete + "=true"
}

// cannotRun holds the instance because a Delete run could not be begun: for a lack of rights at most abandonAfter.
func (s *scope) cannotRun(p problem) (bool, time.Duration, error) {
	waited := s.sinceDeletion()
	if len(p.denied) == 0 && p.reason != v1alpha1.ReasonImpersonationDenied && p.reason != v1alpha1.ReasonForbidden && p.reason != v1alpha1.ReasonKindNotFound {
		p.message += "; or let the instance go without it: " + s.letGoCommand()
		s.problem(p)
		return false, min(retryAfter(s.failures()), 30*time.Second), nil
	}
	if waited < abandonAfter {
		s.problem(p)
		return false, min(abandonAfter-waited+time.Second, 30*time.Second), nil
	}
	s.recordOnce(v1alpha1.ReasonAbandoned, "the operations of event: Delete were not run: "+p.message)
	return true, 0, nil
}

// sinceDeletion is how long this engine has had for the Delete runs.
func (s *scope) sinceDeletion() time.Duration {
	return min(s.run.Clock().Since(s.obj.DeletionTimestamp.Time), s.run.Clock().Since(s.run.Began()))
}

// awaited says which Delete run has not begun because a value is not there (yet): when the engine has just started, what it reads is
// not known yet.
func (s *scope) awaited() error {
	eval := runner.NewEvaluator(s.run, s.program, s.obj)
	for _, op := range s.program.Operations {
		if s.deleteRun(op) != nil {
			continue
		}
		for _, t := range op.Triggers {
			if t.Type != v1alpha1.TriggerTypeDelete {
				continue
			}
			yes, err := eval.Bool(t.When, nil)
			if err == nil && yes {
				_, err = eval.Template(t.Params, nil)
			}
			var pending *expr.PendingError
			if errors.As(err, &pending) {
				return fmt.Errorf("operation %s: %w", op.Name, err)
			}
		}
	}
	return nil
}

// deleteRun is the Delete run of an operation; nil: there is none.
func (s *scope) deleteRun(op *program.Operation) *operation.Run {
	return newestRun(s.operations.runs, func(r *operation.Run) bool {
		return r.Spec.Operation == op.Name && r.Spec.Trigger != nil && r.Spec.Trigger.Type == v1alpha1.TriggerTypeDelete
	})
}

// runWithoutObjects runs the Delete operations in a namespace that is being deleted: it takes no new objects, so the runs are
// kept in the status of the instance. Steps that would make objects are left out, with a word.
func (s *scope) runWithoutObjects(ctx context.Context) (bool, time.Duration, error) {
	if !s.program.WriteStatus || s.program.CRD == nil {
		s.recordOnce(v1alpha1.ReasonOperationSkipped,
			"the namespace is being deleted and takes no operation objects, and the status of a foreign kind holds no runs: the operations of event: Delete were not run")
		return true, 0, nil
	}
	s.operations.deletion = s.was.Deletion
	done, after := true, time.Duration(0)
	for _, op := range s.program.Operations {
		if !op.On(v1alpha1.EventTriggerDelete) {
			continue
		}
		if begun := s.deleteRun(op); begun != nil { // it has an object, made before the namespace was deleted
			if !s.ended(op, begun.Status, operation.FailedMessage(op, begun)) {
				done = false
				break
			}
			continue
		}
		ended, next, err := s.runWithoutObject(ctx, op)
		if err != nil {
			return false, 0, ignoreStale(err)
		}
		if next > 0 && (after == 0 || next < after) {
			after = next
		}
		if !ended {
			done = false
			break // one after the other
		}
	}
	return done, after, nil
}

func (s *scope) runWithoutObject(ctx context.Context, op *program.Operation) (ended bool, after time.Duration, err error) {
	i := slices.IndexFunc(s.operations.deletion, func(d v1alpha1.DeletionRun) bool { return d.Operation == op.Name })
	if i < 0 {
		s.operations.deletion = append(slices.Clone(s.operations.deletion), v1alpha1.DeletionRun{Operation: op.Name})
		i = len(s.operations.deletion) - 1
	}
	st := s.operations.deletion[i].Status
	if st.State.Ended() {
		return true, 0, nil
	}
	reduced, left := withoutCreation(op)
	if st.State == "" && len(left) > 0 {
		s.recordOnce(v1alpha1.ReasonOperationSkipped, fmt.Sprintf(
			"the namespace is being deleted and takes no new objects: operation %s runs without its steps %s", op.Name, strings.Join(left, ", ")))
	}
	if len(reduced.Steps) == 0 {
		s.operations.deletion[i].Status.State = v1alpha1.RunSucceeded
		return true, 0, nil
	}
	run := &operation.Run{
		Namespace: s.obj.Namespace, Name: s.obj.Name, UID: s.obj.UID + types.UID("-"+op.Name), Generation: 1, Created: s.obj.DeletionTimestamp.Time,
		Spec: v1alpha1.OperationRunSpec{Target: s.obj.Name, Operation: op.Name, Trigger: &v1alpha1.RunTrigger{
			Type: v1alpha1.TriggerTypeDelete, Time: s.obj.DeletionTimestamp, Generation: s.obj.Generation, Revision: s.revision,
		}},
		Status: st,
	}
	out, err := s.r.runner.Advance(ctx, runner.Record{
		Run: run, Program: s.program, Operation: reduced, Revision: s.revision, Instance: s.obj, Turn: operation.Turn{Begin: true}, Woken: true,
		Persist: func(ctx context.Context, now *v1alpha1.OperationRunStatus) error {
			s.operations.deletion = slices.Clone(s.operations.deletion)
			s.operations.deletion[i].Status = *now
			wanted := s.wantedStatus(status.Summary{Reason: v1alpha1.ReasonDeleting, Message: "operation " + op.Name + " is under way"}, false, false)
			updated, err := s.run.Writer().PatchStatus(ctx, s.obj, wanted)
			s.wrote(updated)
			return err
		},
		Wake: func() { s.run.Enqueue(s.req, 0) },
	})
	if err != nil {
		return false, 0, fmt.Errorf("cannot write how operation %s stands: %w", op.Name, err)
	}
	if !out.Status.State.Ended() {
		s.problem(problem{reason: v1alpha1.ReasonDeleting, message: "operation " + op.Name + " is under way"})
		return false, out.After, nil
	}
	if out.Status.State != v1alpha1.RunSucceeded {
		s.recordOnce(v1alpha1.ReasonOperationFailed, fmt.Sprintf(
			"operation %s failed at step %s: %s; the namespace is being deleted, and the instance goes all the same", op.Name, out.Status.Step, out.Status.Message))
	}
	return true, 0, nil
}

// note is a warning about a Delete run of an instance.
type note struct {
	req     engine.Request
	uid     types.UID
	message string
}

// recordOnce writes a warning about the instance, if this process has not written it yet. It is logged, too: a namespace that is
// being deleted takes no events.
func (s *scope) recordOnce(reason, message string) {
	if _, written := s.r.noted.LoadOrStore(note{s.req, s.obj.UID, message}, true); !written {
		s.record(corev1.EventTypeWarning, reason, "Delete", message)
		s.run.Log().Info("An operation of event: Delete did not do all that it says", "instance", s.req.String(), "reason", reason, "message", message)
		s.run.Tell(engine.Event{Instance: s.r.ref(s.req), Action: engine.ActionFailed, Message: message})
	}
}

// withoutCreation returns the operation without the steps that make objects, and the names of these.
func withoutCreation(op *program.Operation) (*program.Operation, []string) {
	reduced := *op
	reduced.Timeout = min(op.Timeout, terminatingTimeout)
	reduced.Steps = nil
	var left []string
	for _, step := range op.Steps {
		if step.Action.NeedsCreate() {
			left = append(left, step.Name)
			continue
		}
		reduced.Steps = append(reduced.Steps, step)
	}
	return &reduced, left
}

// holdForOperations writes the status of an instance that is held by its Delete runs.
func (s *scope) holdForOperations(ctx context.Context, after time.Duration) (reconcile.Result, error) {
	worst, _ := s.worst()
	result, err := s.write(ctx, status.Summary{Reason: worst.reason, Message: worst.message, Stalled: worst.stalled}, false)
	if after > 0 && err == nil && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
		result.RequeueAfter = after
	}
	return result, err
}

func reqOf(o *watch.Object) engine.Request {
	return engine.Request{Namespace: o.Namespace, Name: o.Name}
}
