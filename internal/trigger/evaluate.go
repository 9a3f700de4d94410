package trigger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Reasons of notes.
const (
	// ReasonMissedSchedule: times of a schedule passed without a run.
	ReasonMissedSchedule = "MissedSchedule"
)

// evaluation evaluates the triggers of one instance.
type evaluation struct {
	in   Input
	self *unstructured.Unstructured
	// now in whole seconds, as memory keeps time.
	now time.Time
	// waiting: a Resume has not fired yet, for want of a value.
	waiting bool
	out     Output
}

// subject is one operation of an evaluation.
type subject struct {
	*evaluation
	op *program.Operation
	// memory of the operation; fresh: there was none.
	memory v1alpha1.OperationMemory
	fresh  bool
	runs   []*operation.Run
}

// Evaluate decides which operations are to run by themselves.
func Evaluate(in Input) Output {
	e := &evaluation{in: in, self: &unstructured.Unstructured{Object: in.Self}, now: in.Now.UTC().Truncate(time.Second)}
	if e.self.GetDeletionTimestamp() != nil {
		for _, op := range in.Operations {
			e.subject(op).deleted()
		}
		e.out.Memory = in.Memory
		return e.out
	}
	for _, op := range in.Operations {
		s := e.subject(op)
		s.evaluate()
		if s.remembers() {
			e.out.Memory = append(e.out.Memory, s.memory)
		}
	}
	e.out.Resumed = !e.waiting
	return e.out
}

func (e *evaluation) subject(op *program.Operation) *subject {
	s := &subject{evaluation: e, op: op, fresh: true, memory: v1alpha1.OperationMemory{Name: op.Name, Since: metav1.NewTime(e.now)}}
	for i := range e.in.Memory {
		if e.in.Memory[i].Name == op.Name {
			e.in.Memory[i].DeepCopyInto(&s.memory)
			s.fresh = false
		}
	}
	if s.fresh && e.in.Memoryless {
		s.memory.Since = e.self.GetCreationTimestamp()
	}
	for _, r := range e.in.Runs {
		if r.Spec.Operation == op.Name {
			s.runs = append(s.runs, r)
		}
	}
	return s
}

// remembers tells whether the operation has anything to remember.
func (s *subject) remembers() bool {
	if len(s.memory.Triggers) > 0 || s.memory.Count > 0 || s.op.Stale > 0 {
		return true
	}
	// An interval counts from Since, and a Create that waits for a value must not be taken for that of an instance that was there
	// before the operation.
	return slices.ContainsFunc(s.op.Triggers, func(t *program.Trigger) bool {
		return t.Type == v1alpha1.TriggerTypeEvery || t.Type == v1alpha1.TriggerTypeCreate
	})
}

// of returns what a trigger remembers; nil: nothing.
func (s *subject) of(t *program.Trigger) *v1alpha1.TriggerMemory {
	for i := range s.memory.Triggers {
		if int(s.memory.Triggers[i].Index) == t.Index {
			return &s.memory.Triggers[i]
		}
	}
	return nil
}

// note returns what a trigger remembers, to be changed.
func (s *subject) note(t *program.Trigger) *v1alpha1.TriggerMemory {
	if m := s.of(t); m != nil {
		return m
	}
	s.memory.Triggers = append(s.memory.Triggers, v1alpha1.TriggerMemory{Index: int32(t.Index), Type: t.Type}) //nolint:gosec // at most 10 triggers
	slices.SortFunc(s.memory.Triggers, func(a, b v1alpha1.TriggerMemory) int { return int(a.Index - b.Index) })
	return s.of(t)
}

// forget drops what a trigger remembers.
func (s *subject) forget(t *program.Trigger) {
	s.memory.Triggers = slices.DeleteFunc(s.memory.Triggers, func(m v1alpha1.TriggerMemory) bool { return int(m.Index) == t.Index })
}

func (s *subject) evaluate() {
	s.memory.Triggers = slices.DeleteFunc(s.memory.Triggers, func(m v1alpha1.TriggerMemory) bool {
		return int(m.Index) >= len(s.op.Triggers) || m.Type != s.op.Triggers[m.Index].Type // the definition has others by now
	})
	s.takeOver()
	s.updated()
	for _, t := range s.op.Triggers {
		switch t.Type {
		case v1alpha1.TriggerTypeCreate:
			s.created(t)
		case v1alpha1.TriggerTypeResume:
			s.resumed(t)
		case v1alpha1.TriggerTypeSchedule:
			s.scheduled(t)
		case v1alpha1.TriggerTypeEvery:
			s.interval(t)
		case v1alpha1.TriggerTypeCondition:
			s.condition(t)
		case v1alpha1.TriggerTypeWatch:
			s.watched(t)
		case v1alpha1.TriggerTypeUpdate, v1alpha1.TriggerTypeDelete, v1alpha1.TriggerTypeManual, v1alpha1.TriggerTypeRun:
		}
	}
}

// verdict is what came of trying to fire.
type verdict int

const (
	// held: a value is not there yet, or an expression failed: it is tried again.
	held verdict = iota
	// passed: when says no.
	passed
	fired
)

// fire begins a run, if the trigger's when allows it. cause tells it apart from all others of the operation and instance.
func (s *subject) fire(t *program.Trigger, rt v1alpha1.RunTrigger, cause string) verdict {
	vars := map[string]any{}
	if rt.Old != nil {
		vars[program.VarOld] = map[string]any(rt.Old)
	}
	ok, err := s.in.Eval.Bool(t.When, vars)
	if err != nil {
		return s.hold(t, "when", err)
	}
	if !ok {
		return passed
	}
	f := Firing{Operation: s.op, Trigger: rt, Name: operation.NameFor(s.self.GetName(), s.op.Name, fmt.Sprintf("%s %d %s %s", s.self.GetUID(), t.Index, t.Type, cause))}
	if t.Params != nil {
		value, err := s.in.Eval.Template(t.Params, vars)
		if err != nil {
			return s.hold(t, "params", err)
		}
		f.Params, _ = value.(map[string]any)
	}
	f.Trigger.Type, f.Trigger.Index, f.Trigger.Revision = t.Type, int32(t.Index), s.in.Revision //nolint:gosec // at most 10 triggers
	f.Trigger.Generation = s.self.GetGeneration()
	if f.Trigger.Time == nil {
		at := metav1.NewTime(s.now)
		f.Trigger.Time = &at
	}
	s.replace(f.Name)
	for _, r := range s.in.Runs {
		if r.Name == f.Name {
			return fired // the pass that made it did not come to its end
		}
	}
	s.out.Fire = append(s.out.Fire, f)
	return fired
}

// replace ends the runs of which one takes the place, if the operation says so.
func (s *subject) replace(by string) {
	if s.op.Concurrency != v1alpha1.ConcurrencyReplace {
		return
	}
	for _, r := range s.runs {
		if under(r) && operation.Replaceable(r) && !r.Spec.Cancel && r.Name != by {
			s.out.Cancel = append(s.out.Cancel, r.Name)
		}
	}
}

func (s *subject) hold(t *program.Trigger, what string, err error) verdict {
	var pending *expr.PendingError
	if !errors.As(err, &pending) {
		s.problem(t, fmt.Errorf("%s: %w", what, err))
	}
	return held
}

func (s *subject) problem(t *program.Trigger, err error) {
	s.out.Problems = append(s.out.Problems, Problem{Operation: s.op.Name, Trigger: t.Index, Err: err})
}

func (s *subject) wake(at time.Time) {
	if s.out.Wake.IsZero() || at.Before(s.out.Wake) {
		s.out.Wake = at
	}
}

// under tells whether a run is under way, or waits for its turn.
func under(r *operation.Run) bool { return !r.Status.State.Ended() || operation.Waits(r) }

// busy tells whether a run of the operation is under way that another one may not overlap.
func (s *subject) busy() bool {
	return s.op.Concurrency != v1alpha1.ConcurrencyAllow && s.op.Concurrency != v1alpha1.ConcurrencyReplace && slices.ContainsFunc(s.runs, under)
}

// lastEnd is when the last run of the operation ended; zero: there was none.
func (s *subject) lastEnd() time.Time {
	var last time.Time
	for _, r := range s.runs {
		if r.Ended().After(last) {
			last = r.Ended()
		}
	}
	return last
}

// has tells whether there is a run that a trigger of the type began.
func (s *subject) has(t v1alpha1.TriggerType) bool {
	return slices.ContainsFunc(s.runs, func(r *operation.Run) bool { return r.Spec.Trigger != nil && r.Spec.Trigger.Type == t })
}
