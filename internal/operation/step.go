package operation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// worker works on one step.
type worker struct {
	m        *machine
	step     *program.Step
	s        *v1alpha1.StepStatus
	deadline time.Time
	// prefix of the step's name in IDs.
	prefix string
	// bind adds to the variables that the step sees; nil: nothing.
	bind func(vars map[string]any)
}

// unit is what is attempted: a step, or one item of it.
type unit struct {
	attempts *[]v1alpha1.Attempt
	state    *v1alpha1.StepState
	message  *string
	output   **v1alpha1.JSONValue
	// item is the index of the item; -1: none.
	item  int
	value any
	// try of the run whose idempotency key is kept; 0: the present one.
	try int32
}

// unitOf is the step as a whole.
func unitOf(s *v1alpha1.StepStatus) unit {
	return unit{attempts: &s.Attempts, state: &s.State, message: &s.Message, output: &s.Output, item: -1, try: s.Try}
}

// unitOfItem is an item of a step.
func unitOfItem(s *v1alpha1.StepStatus, i int) unit {
	item := &s.Items[i]
	u := unit{attempts: &item.Attempts, state: &item.State, message: &item.Message, output: &item.Output, item: i, try: item.Try}
	if item.Value != nil {
		u.value = item.Value.Value
	}
	return u
}

func (m *machine) worker(step *program.Step, s *v1alpha1.StepStatus, deadline time.Time, prefix string) *worker {
	return &worker{m: m, step: step, s: s, deadline: deadline, prefix: prefix}
}

// advance goes as far as the step can go. It tells whether the step has ended.
func (w *worker) advance() bool {
	if w.s.State == v1alpha1.StepPending && w.m.closing {
		return false
	}
	if w.s.State == v1alpha1.StepPending && !w.enter() {
		return w.s.State.Ended()
	}
	if w.s.State.Ended() {
		return true
	}
	if w.step.ForEach == nil {
		if !w.try(unitOf(w.s)) {
			return false
		}
		w.m.endStep(w.s, w.s.State, w.s.Message)
		return true
	}
	return w.items()
}

// enter finds out whether the step is to be done, and with which items. It tells whether the step has begun.
func (w *worker) enter() bool {
	m := w.m
	vars := w.vars(-1, nil)
	ok, err := m.in.Eval.Bool(w.step.When, vars)
	if err != nil {
		w.unready("when: ", err)
		return false
	}
	if !ok {
		m.endStep(w.s, v1alpha1.StepSkipped, "")
		return false
	}
	if w.step.ForEach != nil && w.s.Items == nil { // a retry goes on with the items that there were
		values, err := m.in.Eval.Items(w.step.ForEach, MaxItems, vars)
		if err != nil {
			w.unready("", err)
			return false
		}
		if n := size(values); n > maxRemembered {
			m.endStep(w.s, v1alpha1.StepFailed, fmt.Sprintf("forEach: the items have %d bytes as JSON, at most %d are kept", n, maxRemembered))
			return false
		}
		w.s.Items = make([]v1alpha1.ItemStatus, len(values))
		for i, v := range values {
			w.s.Items[i] = v1alpha1.ItemStatus{Value: (&v1alpha1.JSONValue{Value: v}).DeepCopy(), State: v1alpha1.StepPending}
		}
	}
	start := micro(m.now)
	w.s.State, w.s.StartTime, w.s.Message = v1alpha1.StepRunning, &start, ""
	return true
}

// unready says why a step cannot begin: a value is not there yet, or an expression failed.
func (w *worker) unready(what string, err error) {
	var pending *expr.PendingError
	if !errors.As(err, &pending) && !w.m.removing {
		w.m.endStep(w.s, v1alpha1.StepFailed, what+err.Error())
		return
	}
	if w.m.removing {
		w.m.wake(w.m.now.Add(removalRetry))
	}
	if !w.m.now.Before(w.deadline) {
		w.m.endStep(w.s, v1alpha1.StepFailed, "time is over: "+what+err.Error())
		return
	}
	w.s.Message = bounded(what + err.Error())
	w.m.wake(w.deadline)
}

// items works on the items, so many at once as the step says. After a failure no further one is begun.
func (w *worker) items() bool {
	running, failed := 0, false
	for i := range w.s.Items {
		item := &w.s.Items[i]
		if item.State == v1alpha1.StepRunning {
			running++
		}
		failed = failed || item.State == v1alpha1.StepFailed || item.State == v1alpha1.StepUnknown
	}
	for i := range w.s.Items {
		item := &w.s.Items[i]
		if item.State.Ended() {
			continue
		}
		if item.State == v1alpha1.StepPending {
			if failed && w.step.OnFailure != v1alpha1.StepFailureContinue || w.m.closing || running >= max(w.step.Parallel, 1) {
				continue
			}
			item.State = v1alpha1.StepRunning
			running++
		}
		if w.try(unitOfItem(w.s, i)) {
			running--
			failed = failed || item.State != v1alpha1.StepSucceeded
		}
	}
	if running > 0 {
		return false
	}
	return w.sumUp()
}

// sumUp ends a step with items, if none is left to be done.
func (w *worker) sumUp() bool {
	if w.step.OnFailure == v1alpha1.StepFailureContinue && slices.ContainsFunc(w.s.Items, func(i v1alpha1.ItemStatus) bool { return !i.State.Ended() }) {
		return false // all are tried
	}
	for _, state := range []v1alpha1.StepState{v1alpha1.StepUnknown, v1alpha1.StepFailed} {
		for i := range w.s.Items {
			if item := &w.s.Items[i]; item.State == state {
				w.leaveRest()
				w.m.endStep(w.s, state, fmt.Sprintf("item %d: %s", i, item.Message))
				return true
			}
		}
	}
	outputs := make([]any, 0, len(w.s.Items))
	for i := range w.s.Items {
		item := &w.s.Items[i]
		switch item.State {
		case v1alpha1.StepSucceeded:
		case v1alpha1.StepPending, v1alpha1.StepRunning, v1alpha1.StepSkipped, v1alpha1.StepCancelled, v1alpha1.StepUndone,
			v1alpha1.StepFailed, v1alpha1.StepUnknown:
			return false
		}
		var output any
		if item.Output != nil {
			output = item.Output.Value
		}
		outputs = append(outputs, output)
	}
	if n := size(outputs); n > MaxOutput {
		w.m.endStep(w.s, v1alpha1.StepFailed, fmt.Sprintf("the outputs of the items have %d bytes as JSON, at most %d are kept; select what matters with output", n, MaxOutput))
		return true
	}
	w.s.Output = (&v1alpha1.JSONValue{Value: outputs}).DeepCopy()
	w.m.endStep(w.s, v1alpha1.StepSucceeded, "")
	return true
}

// leaveRest ends the items that are not begun any more.
func (w *worker) leaveRest() {
	for i := range w.s.Items {
		if item := &w.s.Items[i]; !item.State.Ended() {
			item.State, item.Message = v1alpha1.StepCancelled, "it was not begun: an item before it failed"
		}
	}
}

// vars are the variables that the expressions of the step see.
func (w *worker) vars(item int, value any) map[string]any {
	vars := Vars(w.m.op, w.m.withStatus())
	if item >= 0 && w.step.ForEach != nil {
		vars[w.step.ForEach.Var] = value
	}
	if w.bind != nil {
		w.bind(vars)
	}
	return vars
}

// endStep ends a step.
func (m *machine) endStep(s *v1alpha1.StepStatus, state v1alpha1.StepState, message string) {
	at := micro(m.now)
	s.State, s.Message, s.EndTime = state, bounded(message), &at
}
