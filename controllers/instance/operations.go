package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/trigger"
	"github.com/libretto-dev/libretto/internal/watch"
)

// operations is what a pass finds out about the operations of the instance.
type operations struct {
	// runs are the operation objects of the instance.
	runs []*operation.Run
	// memory is what the triggers remember, once they are evaluated.
	memory    []v1alpha1.OperationMemory
	evaluated bool
	// wake is when triggers, or a stale bound, have to be looked at again; zero: when something changes.
	wake time.Time
	// stale are the names of the operations whose last success is too old.
	stale []string
	// deletion are the Delete runs without an object, in a namespace that is being deleted.
	deletion []v1alpha1.DeletionRun
}

// operate is a phase: it begins the runs whose triggers fire, removes those that are not kept, and sums up how they stand.
func (s *scope) operate(ctx context.Context) error {
	if len(s.program.Operations) == 0 {
		return nil
	}
	if !s.readRuns() {
		return nil
	}
	if err := s.evaluateTriggers(ctx); err != nil {
		return err
	}
	if err := s.retain(ctx); err != nil {
		return err
	}
	s.sumUpRuns()
	s.sumUpStale()
	return nil
}

// readRuns reads the operation objects of the instance. It tells whether they can be seen.
func (s *scope) readRuns() bool {
	kind := s.program.OperationKind.Kind
	if state := s.run.Set().OperationState(); !state.HasSynced {
		s.watchProblem("", kind, state)
		return false
	}
	s.operations.runs = nil
	for _, o := range s.run.Set().OperationsOf(s.req) {
		if uid := o.Labels[v1alpha1.LabelTarget]; uid != "" && uid != string(s.obj.UID) {
			continue // of an earlier instance of that name
		}
		run, err := operation.Parse(o.Unstructured().Object)
		if err != nil {
			continue // whoever works on it says so
		}
		s.operations.runs = append(s.operations.runs, run)
	}
	return true
}

// evaluateTriggers begins the runs whose triggers fire.
func (s *scope) evaluateTriggers(ctx context.Context) error {
	resumed, _ := s.r.resumed.Load(s.req)
	memory := s.was.Operations
	out := trigger.Evaluate(trigger.Input{
		Now: s.run.Clock().Now(), Operations: s.program.Operations, Self: s.obj.Unstructured().Object, Revision: s.revision,
		Memory: memory, Known: s.was.Revision != "", Memoryless: s.program.CRD == nil, Runs: s.operations.runs,
		Engine: s.run.Began().UTC().Format(time.RFC3339Nano), Resumed: resumed == s.obj.UID, EngineStart: s.run.Began(),
		Eval: runner.EvaluatorOf(s.run, s.eval), Watched: s.eval.Bound,
	})
	s.operations.memory, s.operations.evaluated, s.operations.wake = out.Memory, true, out.Wake
	for _, p := range out.Problems {
		problem := evaluationProblem("", p.Err)
		problem.message = fmt.Sprintf("operation %s: trigger %d: %s", p.Operation, p.Trigger, problem.message)
		s.problem(problem)
	}
	fired := true
	for _, f := range out.Fire {
		if err := s.fire(ctx, f); err != nil {
			fired = false
			if err := s.notFired(f.Operation, err); err != nil {
				return err
			}
		}
	}
	for _, name := range out.Cancel {
		if err := s.cancelRun(ctx, name); err != nil {
			return err
		}
	}
	for _, n := range out.Notes {
		eventType := corev1.EventTypeNormal
		if n.Warning {
			eventType = corev1.EventTypeWarning
		}
		s.record(eventType, n.Reason, "Trigger", n.Message)
	}
	if out.Resumed && fired {
		s.r.resumed.Store(s.req, s.obj.UID)
	}
	return nil
}

// fire makes the operation object of a run. One that is there already was made by a pass that did not come to its end.
func (s *scope) fire(ctx context.Context, f trigger.Firing) error {
	instance := operation.InstanceOf(s.obj.Unstructured().Object)
	content := operation.NewObject(s.program, instance, f.Operation, &f.Trigger, f.Params, f.Name)
	kind := s.program.OperationKind.Kind
	made, err := s.run.Writer().Create(ctx, kind, &unstructured.Unstructured{Object: content})
	if err != nil {
		return err
	}
	o := s.run.Set().Observe(watch.RoleOperation, kind, made)
	s.run.RunChanged(nil, o)
	s.run.EnqueueRun(reqOf(o), 0, 0)
	if run, err := operation.Parse(o.Unstructured().Object); err == nil {
		s.operations.runs = append(s.operations.runs, run)
	}
	return nil
}

// notFired notes why a run could not be begun. What its operation remembers stays as it was, so that it fires again.
func (s *scope) notFired(op *program.Operation, err error) error {
	p := classify("", fmt.Errorf("cannot begin operation %s: %w", op.Name, err))
	if p.transient {
		return err
	}
	s.problem(s.explain(p, err))
	if s.was.Revision == "" {
		s.operations.evaluated = false // the instance stays a new one, so that Create fires again
	}
	s.operations.memory = slices.DeleteFunc(s.operations.memory, func(m v1alpha1.OperationMemory) bool { return m.Name == op.Name })
	for _, m := range s.was.Operations {
		if m.Name == op.Name {
			s.operations.memory = append(s.operations.memory, m)
		}
	}
	return nil
}

// cancelRun asks a run to end, because a newer one takes its place.
func (s *scope) cancelRun(ctx context.Context, name string) error {
	o := s.run.Set().Operation(s.req.Namespace, name)
	if o == nil {
		return nil
	}
	updated, err := s.run.Writer().PatchSpec(ctx, o, map[string]any{"cancel": true})
	if err != nil {
		var stale *apply.StaleError
		if errors.As(err, &stale) {
			s.run.Enqueue(s.req, time.Second)
			return nil
		}
		return s.instanceError("cannot cancel run "+name+" of", err)
	}
	s.run.Set().Observe(watch.RoleOperation, o.Kind, updated)
	s.run.EnqueueRun(reqOf(o), 0, 0)
	return nil
}

// retain removes runs that are not kept any longer.
func (s *scope) retain(ctx context.Context) error {
	for _, op := range s.program.Operations {
		mine := slices.DeleteFunc(slices.Clone(s.operations.runs), func(r *operation.Run) bool { return r.Spec.Operation != op.Name })
		for _, name := range operation.Keep(s.run.Clock().Now(), mine, op.Retain) {
			o := s.run.Set().Operation(s.req.Namespace, name)
			if o == nil || o.Deleting() || s.remembers(mine, name) {
				continue
			}
			err := s.run.Writer().Delete(ctx, apply.Deletion{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID})
			if err != nil {
				if err := s.instanceError("cannot remove run "+name+" of", err); err != nil {
					return err
				}
				continue
			}
			s.run.Set().Forget(watch.RoleOperation, o.Kind, o.Namespace, o.Name, o.UID)
		}
	}
	return nil
}

// remembers tells whether a run is all that tells that it has been: of an instance of a foreign kind nothing else does.
func (s *scope) remembers(runs []*operation.Run, name string) bool {
	return s.program.CRD == nil && slices.ContainsFunc(runs, func(r *operation.Run) bool {
		return r.Name == name && r.Spec.Trigger != nil && r.Spec.Trigger.Type == v1alpha1.TriggerTypeCreate
	})
}

// sumUpRuns notes as problems those runs that belong to the life of the instance and have not come to a good end.
func (s *scope) sumUpRuns() {
	for _, op := range s.program.Operations {
		newest := operation.Vital(op, s.operations.runs)
		if newest == nil {
			continue
		}
		switch newest.Status.State {
		case v1alpha1.RunFailed, v1alpha1.RunUnknown:
			s.problem(problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: operation.FailedMessage(op, newest)})
		case v1alpha1.RunCancelled:
			s.problem(problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: operation.CancelledMessage(op, newest, s.kindName())})
		case v1alpha1.RunSucceeded:
		default:
			s.problem(problem{reason: v1alpha1.ReasonProgressing, message: "operation " + op.Name + " is under way"})
		}
	}
}

// kindName is the instance as libretto and kubectl take it: KIND/NAME.
func (s *scope) kindName() string {
	return strings.ToLower(s.program.Instance.Kind) + "/" + s.obj.Name
}

func newestRun(runs []*operation.Run, among func(*operation.Run) bool) *operation.Run {
	var newest *operation.Run
	for _, r := range runs {
		if among(r) && (newest == nil || operation.Older(newest, r) < 0) {
			newest = r
		}
	}
	return newest
}

// sumUpStale finds out which operations have not succeeded for too long.
func (s *scope) sumUpStale() {
	now := s.run.Clock().Now()
	bound := false
	var messages []string
	for _, op := range s.program.Operations {
		if op.Stale == 0 {
			continue
		}
		bound = true
		since := s.obj.CreationTimestamp.Time
		for _, m := range s.operations.memory {
			if m.Name == op.Name && m.Since.After(since) {
				since = m.Since.Time
			}
		}
		stale, last := operation.Stale(now, op, since, s.operations.runs)
		if stale {
			s.operations.stale = append(s.operations.stale, op.Name)
			messages = append(messages, fmt.Sprintf("operation %s has not succeeded for more than %s", op.Name, op.Stale))
			continue
		}
		if last.IsZero() {
			last = since
		}
		if at := last.Add(op.Stale + time.Second); s.operations.wake.IsZero() || at.Before(s.operations.wake) {
			s.operations.wake = at
		}
	}
	if !bound {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionOperationStale, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFresh,
		Message: "no operation has gone without success for too long"}
	if len(messages) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonStale, bounded(strings.Join(messages, "; "))
	}
	s.conditions = append(s.conditions, c)
}

// wakeAfter is how long until a trigger or a bound has to be looked at; 0: not by time.
func (s *scope) wakeAfter() time.Duration {
	if s.operations.wake.IsZero() {
		return 0
	}
	return max(s.operations.wake.Sub(s.run.Clock().Now()), time.Millisecond)
}
