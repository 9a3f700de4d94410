package operation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// keptAttempts is how many attempts of a step or item are kept.
const keptAttempts = 10

// grace is how long an attempt may take to notice that its time is over.
const grace = 2 * time.Second

// worker works on one step.
type worker struct {
	m        *machine
	step     *program.Step
	s        *v1alpha1.StepStatus
	deadline time.Time
	// prefix of the step's name in IDs.
	prefix string
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
}

func (m *machine) worker(step *program.Step, s *v1alpha1.StepStatus, _ []v1alpha1.StepStatus, deadline time.Time, prefix string) *worker {
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
		u := unit{attempts: &w.s.Attempts, state: &w.s.State, message: &w.s.Message, output: &w.s.Output, item: -1}
		if !w.try(u) {
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
	if w.step.ForEach != nil {
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
			if failed || w.m.closing || running >= max(w.step.Parallel, 1) {
				continue
			}
			item.State = v1alpha1.StepRunning
			running++
		}
		u := unit{attempts: &item.Attempts, state: &item.State, message: &item.Message, output: &item.Output, item: i}
		if item.Value != nil {
			u.value = item.Value.Value
		}
		if w.try(u) {
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

// try works on a unit. It tells whether that has ended.
func (w *worker) try(u unit) bool {
	for range 4 { // an attempt that ends may make way for the next at once
		if len(*u.attempts) == 0 {
			if !w.attempt(u, false, 1) {
				return u.state.Ended()
			}
			return false
		}
		a := &(*u.attempts)[len(*u.attempts)-1]
		if a.State == v1alpha1.StepRunning {
			if !w.look(u, a) {
				return false
			}
			continue
		}
		if u.state.Ended() {
			return true
		}
		if !w.again(u, a) {
			return u.state.Ended()
		}
		return false
	}
	return u.state.Ended()
}

// again makes the attempt after one that has ended, when it is time. It tells whether one was made.
func (w *worker) again(u unit, a *v1alpha1.Attempt) bool {
	if a.RetryTime != nil && w.m.now.Before(a.RetryTime.Time) {
		w.m.wake(a.RetryTime.Time)
		return false
	}
	verify := a.State == v1alpha1.StepUnknown && !a.Verify && w.policy() == v1alpha1.UnknownPolicyVerify ||
		a.Verify && a.State == v1alpha1.StepUnknown
	if verify {
		return w.attempt(u, true, a.Number)
	}
	return w.attempt(u, false, a.Number+1)
}

// attempt makes an attempt, which is begun once the status is persisted.
func (w *worker) attempt(u unit, verify bool, number int32) bool {
	m := w.m
	if m.closing {
		return false
	}
	if !m.now.Before(w.deadline) {
		w.giveUp(u, "time is over")
		return false
	}
	if m.run.Spec.Paused {
		m.st.Reason, m.st.Message = ReasonPaused, "spec.paused is true"
		m.wake(w.deadline)
		return false
	}
	if verify && w.step.Verify.Condition != nil {
		return w.verifyByCondition(u)
	}
	if !verify && !w.ready(u) {
		return false
	}
	a := v1alpha1.Attempt{Number: number, Verify: verify, State: v1alpha1.StepRunning, StartTime: micro(m.now)}
	a.ID = w.id(u, number)
	if verify {
		a.ID = fmt.Sprintf("%s.v%d", a.ID, asked(*u.attempts, number)+1)
	}
	*u.attempts = append(*u.attempts, a)
	if extra := len(*u.attempts) - w.kept(u); extra > 0 {
		*u.attempts = append([]v1alpha1.Attempt(nil), (*u.attempts)[extra:]...)
	}
	*u.message = ""
	w.start(u, &(*u.attempts)[len(*u.attempts)-1], false)
	return true
}

// kept is how many attempts are remembered. Many items have fewer each, so that the whole stays small.
func (w *worker) kept(u unit) int {
	if u.item < 0 || len(w.s.Items) <= keptAttempts {
		return keptAttempts
	}
	return max(2, keptAttempts*keptAttempts/len(w.s.Items))
}

// asked is how often it was asked whether an attempt had its effect.
func asked(attempts []v1alpha1.Attempt, number int32) int {
	for i := len(attempts) - 1; i >= 0; i-- {
		if a := &attempts[i]; a.Verify && a.Number == number {
			n, err := strconv.Atoi(a.ID[strings.LastIndex(a.ID, ".v")+2:])
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// ready tells whether all that the action reads is there. If not, no attempt is begun: the step waits, or has failed.
func (w *worker) ready(u unit) bool {
	vars := w.vars(u.item, u.value)
	for _, t := range templatesOf(&w.step.Action) {
		_, err := w.m.in.Eval.Template(t, vars)
		var pending *expr.PendingError
		switch {
		case err == nil:
			continue
		case w.m.removing:
			w.m.wake(w.m.now.Add(removalRetry))
		case !errors.As(err, &pending):
			w.giveUp(u, err.Error())
			return false
		default:
			w.m.wake(w.deadline)
		}
		*u.message = bounded(err.Error())
		return false
	}
	return true
}

// id of an attempt: unique among all runs, tries, steps, items and attempts.
func (w *worker) id(u unit, number int32) string {
	return fmt.Sprintf("%s.%d", w.key(u), number)
}

// key of a unit, in this try of the run.
func (w *worker) key(u unit) string {
	id := fmt.Sprintf("%s.%d.%s%s", w.m.run.UID, w.m.st.Tries, w.prefix, w.step.Name)
	if u.item >= 0 {
		id += fmt.Sprintf(".%d", u.item)
	}
	return id
}

func (w *worker) start(u unit, a *v1alpha1.Attempt, resume bool) {
	w.m.out.Start = append(w.m.out.Start, w.begun(u, a, resume))
	if at := w.attemptDeadline(a); at.Before(w.deadline) {
		w.m.wake(at)
	}
}

func (w *worker) begun(u unit, a *v1alpha1.Attempt, resume bool) Start {
	action := &w.step.Action
	if a.Verify {
		action = &program.Action{Exec: w.step.Verify.Exec, HTTP: w.step.Verify.HTTP}
	}
	return Start{
		Step: w.step, Action: action, Attempt: *a, Item: u.item, Vars: w.vars(u.item, u.value), Resume: resume, Key: w.key(u),
		Deadline: w.attemptDeadline(a),
	}
}

func (w *worker) attemptDeadline(a *v1alpha1.Attempt) time.Time {
	timeout := w.step.Timeout
	if timeout <= 0 && w.m.removing {
		timeout = cmp.Or(w.m.op.Timeout, time.Hour)
	}
	if timeout > 0 {
		if at := a.StartTime.Add(timeout); at.Before(w.deadline) {
			return at
		}
	}
	return w.deadline
}

// look finds out how a running attempt stands. It tells whether it has ended.
func (w *worker) look(u unit, a *v1alpha1.Attempt) bool {
	standing, result := w.m.in.Known(a.ID)
	deadline := w.attemptDeadline(a)
	switch standing {
	case Done:
		if result.Outcome == Waiting {
			if result.Ref != "" {
				a.Ref = result.Ref
			}
			*u.message = bounded(result.Message)
			if w.m.now.Before(deadline) {
				w.start(u, a, true)
				return false
			}
			break
		}
		w.ended(u, a, result)
		return true
	case Active:
		if at := deadline.Add(grace); w.m.now.Before(at) {
			w.m.wake(at)
			return false
		}
	case NotBegun:
		if w.m.now.Before(deadline) {
			w.start(u, a, false)
			return false
		}
		w.ended(u, a, Result{Outcome: Failed, Message: "time is over before it was begun"})
		return true
	case Absent:
		if !w.canLook(a) {
			w.ended(u, a, Result{Outcome: Unknown, Message: "it was under way when the engine ended: nobody knows whether it had its effect"})
			return true
		}
		if w.m.now.Before(deadline) {
			w.start(u, a, true)
			return false
		}
	}
	w.m.out.Stop = append(w.m.out.Stop, w.begun(u, a, true))
	outcome := Failed
	if !w.canLook(a) {
		outcome = Unknown
	}
	message := fmt.Sprintf("it did not end within %s", deadline.Sub(a.StartTime.Time).Round(time.Millisecond))
	if *u.message != "" {
		message += ": " + *u.message
	}
	w.ended(u, a, Result{Outcome: outcome, Message: message})
	return true
}

// canLook tells whether the attempt can find out by itself what it has done.
func (w *worker) canLook(a *v1alpha1.Attempt) bool {
	return a.Verify || a.Ref != "" || w.step.Action.Knows()
}

// ended notes how an attempt ended, and what that means for the unit.
func (w *worker) ended(u unit, a *v1alpha1.Attempt, r Result) {
	end := micro(w.m.now)
	a.EndTime, a.Message = &end, bounded(r.Message)
	if a.Verify {
		w.verified(u, a, r)
		return
	}
	switch r.Outcome {
	case Succeeded:
		a.State = v1alpha1.StepSucceeded
		w.yield(u, r)
	case Failed:
		a.State = v1alpha1.StepFailed
		w.retry(u, a, r)
	case FailedForGood:
		a.State = v1alpha1.StepFailed
		if w.m.removing {
			w.retry(u, a, r)
			return
		}
		w.failUnit(u, r.Message)
	case Unknown, Waiting:
		a.State = v1alpha1.StepUnknown
		w.unknown(u, a, r)
	}
}

// retry plans the next attempt, if there is one. After one of which nobody knows whether it had its effect there is at least one,
// whatever retries says: the step asks for it by its policy.
func (w *worker) retry(u unit, a *v1alpha1.Attempt, r Result) {
	pause := max(w.backoff(a.Number), r.RetryAfter)
	most := w.step.Retries
	if a.State == v1alpha1.StepUnknown {
		most = max(most, 1)
	}
	if int(a.Number) > most {
		if !w.m.removing {
			if w.step.Retries > 0 {
				r.Message = fmt.Sprintf("%s (after %d attempts)", r.Message, a.Number)
			}
			w.giveUp(u, r.Message)
			return
		}
		pause = max(pause, removalRetry)
	}
	at := micro(w.m.now.Add(pause))
	if !at.Time.Before(w.deadline) {
		w.giveUp(u, r.Message+"; there is no time left for another attempt")
		return
	}
	a.RetryTime = &at
	*u.message = bounded(r.Message)
	w.m.wake(at.Time)
}

func (w *worker) backoff(number int32) time.Duration {
	pause := w.step.BackoffInitial
	for range number - 1 {
		if pause *= 2; pause >= w.step.BackoffMax {
			return w.step.BackoffMax
		}
	}
	return pause
}

// policy is what happens when nobody knows.
func (w *worker) policy() v1alpha1.UnknownPolicy {
	switch {
	case w.step.OnUnknown != "":
		return w.step.OnUnknown
	case w.step.Action.Knows():
		return v1alpha1.UnknownPolicyRetry
	}
	return v1alpha1.UnknownPolicyFail
}

func (w *worker) unknown(u unit, a *v1alpha1.Attempt, r Result) {
	switch w.policy() {
	case v1alpha1.UnknownPolicyRetry:
		w.retry(u, a, r)
	case v1alpha1.UnknownPolicyVerify:
		at := micro(w.m.now)
		a.RetryTime = &at
		*u.message = bounded(r.Message)
	case v1alpha1.UnknownPolicyFail:
		*u.state, *u.message = v1alpha1.StepUnknown, bounded(r.Message)
	}
}

// verified obeys what a verifying attempt has found.
func (w *worker) verified(u unit, a *v1alpha1.Attempt, r Result) {
	switch {
	case r.Outcome == Succeeded:
		a.State = v1alpha1.StepSucceeded
		*u.state, *u.message = v1alpha1.StepSucceeded, ""
	case hadNoEffect(r):
		a.State = v1alpha1.StepFailed
		a.Message = "it has had no effect"
		if w.spent(a.Number) {
			w.failUnit(u, "the attempt before has had no effect")
			return
		}
		at := micro(w.m.now)
		a.RetryTime = &at
	default:
		a.State = v1alpha1.StepUnknown
		failures := asked(*u.attempts, a.Number)
		if r.Outcome == FailedForGood || failures > w.step.Retries {
			*u.state, *u.message = v1alpha1.StepUnknown, bounded("verify: "+r.Message)
			return
		}
		at := micro(w.m.now.Add(max(w.backoff(int32(failures)), r.RetryAfter))) //nolint:gosec // at most 10
		a.RetryTime = &at
		*u.message = bounded("verify: " + r.Message)
		w.m.wake(at.Time)
	}
}

// hadNoEffect tells whether the answer to a verifying attempt is no: another exit code than 0, status 404.
func hadNoEffect(r Result) bool {
	result, ok := r.Result.(map[string]any)
	if !ok || r.Outcome != Failed && r.Outcome != FailedForGood {
		return false
	}
	if code, exited := result["exitCode"]; exited {
		// The command that was to tell could not be run: that is no answer.
		return fmt.Sprint(code) != "0" && fmt.Sprint(code) != "126" && fmt.Sprint(code) != "127"
	}
	return fmt.Sprint(result["status"]) == "404"
}

func (w *worker) verifyByCondition(u unit) bool {
	had, err := w.m.in.Eval.Bool(w.step.Verify.Condition, w.vars(u.item, u.value))
	var pending *expr.PendingError
	switch {
	case errors.As(err, &pending):
		*u.message = bounded("verify: " + err.Error())
		w.m.wake(w.deadline)
		return false
	case err != nil:
		*u.state, *u.message = v1alpha1.StepUnknown, bounded("verify: "+err.Error())
		return false
	case had:
		*u.state, *u.message = v1alpha1.StepSucceeded, ""
		return false
	}
	last := &(*u.attempts)[len(*u.attempts)-1]
	last.State = v1alpha1.StepFailed
	last.Message = bounded(last.Message + "; it has had no effect")
	if w.spent(last.Number) {
		w.failUnit(u, last.Message)
		return false
	}
	return w.attempt(u, false, last.Number+1)
}

// spent tells whether an attempt that is known to have had no effect was the last one.
func (w *worker) spent(number int32) bool {
	return !w.m.removing && int(number) > max(w.step.Retries, 1)
}

// yield keeps what a unit yields.
func (w *worker) yield(u unit, r Result) {
	output := r.Output
	if w.step.Output != nil {
		vars := w.vars(u.item, u.value)
		result, _, err := plain(r.Result)
		if err != nil {
			w.failUnit(u, "result: "+err.Error()+" (the step itself has had its effect)")
			return
		}
		vars[program.VarResult] = result
		if output, err = w.m.in.Eval.Template(w.step.Output, vars); err != nil {
			w.failUnit(u, "output: "+err.Error()+" (the step itself has had its effect)")
			return
		}
	}
	if expr.IsOmit(output) {
		output = nil
	}
	output, n, err := plain(output)
	if err != nil {
		w.failUnit(u, "output: "+err.Error()+" (the step itself has had its effect)")
		return
	}
	if n += w.yielded(); n > MaxOutput {
		w.failUnit(u, fmt.Sprintf("output: it has %d bytes as JSON, at most %d are kept; select what matters with output (the step itself has had its effect)", n, MaxOutput))
		return
	}
	if output != nil {
		*u.output = &v1alpha1.JSONValue{Value: output}
	}
	*u.state, *u.message = v1alpha1.StepSucceeded, ""
}

// yielded is the size of what the items of the step have yielded: together they are the output of the step.
func (w *worker) yielded() int {
	n := 0
	for i := range w.s.Items {
		if o := w.s.Items[i].Output; o != nil {
			n += size(o.Value)
		}
	}
	return n
}

// giveUp ends a unit: as unknown if nobody knows whether the last attempt has had its effect.
func (w *worker) giveUp(u unit, message string) {
	w.failUnit(u, message)
	if n := len(*u.attempts); n > 0 && (*u.attempts)[n-1].State == v1alpha1.StepUnknown {
		*u.state = v1alpha1.StepUnknown
	}
}

func (w *worker) failUnit(u unit, message string) {
	*u.state, *u.message = v1alpha1.StepFailed, bounded(message)
}

// vars are the variables that the expressions of the step see.
func (w *worker) vars(item int, value any) map[string]any {
	vars := Vars(w.m.op, w.m.withStatus())
	if item >= 0 && w.step.ForEach != nil {
		vars[w.step.ForEach.Var] = value
	}
	return vars
}

// endStep ends a step.
func (m *machine) endStep(s *v1alpha1.StepStatus, state v1alpha1.StepState, message string) {
	at := micro(m.now)
	s.State, s.Message, s.EndTime = state, bounded(message), &at
}

// stopAll stops every attempt that is under way.
func (m *machine) stopAll(why string) {
	steps := slices.Clone(m.op.Steps)
	for i := range m.st.Steps {
		// What the operation does not have any more is stopped all the same.
		if name := m.st.Steps[i].Name; m.op.Step(name) == nil {
			steps = append(steps, &program.Step{Name: name})
		}
	}
	m.stopList(steps, m.st.Steps, "", why)
}

func (m *machine) stopList(steps []*program.Step, list []v1alpha1.StepStatus, prefix, why string) {
	for _, step := range steps {
		s := find(list, step.Name)
		if s == nil {
			continue
		}
		w := m.worker(step, s, list, m.now, prefix)
		if s.Items == nil {
			w.stopUnit(unit{attempts: &s.Attempts, state: &s.State, message: &s.Message, item: -1}, why)
		}
		for i := range s.Items {
			item := &s.Items[i]
			u := unit{attempts: &item.Attempts, state: &item.State, message: &item.Message, item: i}
			if item.Value != nil {
				u.value = item.Value.Value
			}
			w.stopUnit(u, why)
			if !item.State.Ended() {
				item.State = v1alpha1.StepCancelled
			}
		}
		m.stopList(step.Undo, s.Undo, prefix+step.Name+".undo.", why)
	}
}

func (w *worker) stopUnit(u unit, why string) {
	for i := range *u.attempts {
		a := &(*u.attempts)[i]
		if a.State != v1alpha1.StepRunning {
			continue
		}
		w.m.out.Stop = append(w.m.out.Stop, w.begun(u, a, true))
		end := micro(w.m.now)
		a.State, a.EndTime, a.Message = v1alpha1.StepCancelled, &end, bounded(why)
	}
}
