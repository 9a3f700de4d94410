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

// sent is what is said of an attempt that was stopped and cannot tell.
const sent = "it was under way, and nobody knows whether it had its effect"

// grace is how long an attempt may take to notice that its time is over.
const grace = 2 * time.Second

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
	if m.paused() {
		m.wake(w.deadline)
		return false
	}
	if verify && w.step.Verify.Condition != nil {
		return w.verifyByCondition(u)
	}
	if !verify && !w.ready(u) {
		return false
	}
	a := v1alpha1.Attempt{Number: number, Verify: verify, Engine: m.in.Engine, State: v1alpha1.StepRunning, StartTime: micro(m.now)}
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
	return fmt.Sprintf("%s.%d", w.keyIn(u, w.m.st.Tries), number)
}

func (w *worker) keyIn(u unit, try int32) string {
	id := fmt.Sprintf("%s.%d.%s%s", w.m.run.UID, try, w.prefix, w.step.Name)
	if u.item >= 0 {
		id += fmt.Sprintf(".%d", u.item)
	}
	return id
}

// key of a unit: the same for all attempts of a try of the run, and for those of a later try if it is not known what came of it.
func (w *worker) key(u unit) string {
	return w.keyIn(u, cmp.Or(u.try, w.m.st.Tries))
}

func (w *worker) start(u unit, a *v1alpha1.Attempt, resume bool) {
	w.m.out.Start = append(w.m.out.Start, w.begun(u, a, resume))
	if at := w.attemptDeadline(a); at.Before(w.deadline) {
		w.m.wake(at)
	}
}

func (w *worker) begun(u unit, a *v1alpha1.Attempt, resume bool) Start {
	action := &w.step.Action
	switch {
	case a.Verify && w.step.Verify == nil: // the definition has changed since, and the step asks no more
		action = &program.Action{}
	case a.Verify:
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
	if standing == NotBegun && a.Engine != w.m.in.Engine {
		standing = Absent // another process has written, and begun, the attempt that this one was about to begin
	}
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

// notBegun tells whether this process was about to begin an attempt, and has not.
func (w *worker) notBegun(a *v1alpha1.Attempt) bool {
	if w.m.in.Known == nil {
		return false
	}
	standing, _ := w.m.in.Known(a.ID)
	return standing == NotBegun && a.Engine == w.m.in.Engine
}

// canLook tells whether the attempt can find out by itself what it has done. A request that may be repeated does not find out:
// where the step says what to do when nobody knows, that is done.
func (w *worker) canLook(a *v1alpha1.Attempt) bool {
	if w.step.Action.HTTP != nil && w.step.OnUnknown != "" {
		return a.Verify || a.Ref != ""
	}
	return a.Verify || a.Ref != "" || w.step.Action.Knows()
}

// EachAttempt calls f with each attempt that a status holds.
func EachAttempt(st *v1alpha1.OperationRunStatus, f func(*v1alpha1.Attempt)) {
	for _, list := range [][]v1alpha1.StepStatus{st.Steps, st.Removal} {
		for i := range list {
			s := &list[i]
			visitAttempts(s.Attempts, f)
			for j := range s.Items {
				visitAttempts(s.Items[j].Attempts, f)
				for k := range s.Items[j].Undo {
					visitAttempts(s.Items[j].Undo[k].Attempts, f)
				}
			}
			for j := range s.Undo {
				visitAttempts(s.Undo[j].Attempts, f)
			}
		}
	}
}

func visitAttempts(attempts []v1alpha1.Attempt, f func(*v1alpha1.Attempt)) {
	for i := range attempts {
		f(&attempts[i])
	}
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
		w := m.worker(step, s, m.now, prefix)
		if s.Items == nil {
			w.stopUnit(unitOf(s), why)
		}
		for i := range s.Items {
			item := &s.Items[i]
			w.stopUnit(unitOfItem(s, i), why)
			if !item.State.Ended() {
				item.State = v1alpha1.StepCancelled
			}
			m.stopList(step.Undo, item.Undo, fmt.Sprintf("%s%s.%d.undo.", prefix, step.Name, i), why)
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
		if !w.canLook(a) && !w.notBegun(a) {
			a.Message = bounded(why + "; " + sent)
			if !slices.Contains(w.m.uncertain, w.step.Name) {
				w.m.uncertain = append(w.m.uncertain, w.step.Name)
			}
		}
	}
}
