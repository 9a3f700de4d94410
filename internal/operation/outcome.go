package operation

import (
	"errors"
	"fmt"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

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
