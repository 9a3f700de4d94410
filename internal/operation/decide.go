package operation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// MaxItems is how many items a step with forEach may have.
const MaxItems = 100

// machine is one decision. It works on its own copy of the status.
type machine struct {
	in  Input
	run *Run
	op  *program.Operation
	st  *v1alpha1.OperationRunStatus
	now time.Time
	out Decision
	// closing: the run is to end. What has come to its end is noted; nothing begins.
	closing bool
	// removing: steps of onRemove are done, until they succeed.
	removing bool
	// uncertain are the steps that were stopped, and of which nobody knows whether they had their effect.
	uncertain []string
}

// Decide computes what is to be done next for a run.
func Decide(in Input) Decision {
	m := &machine{in: in, run: in.Run, op: in.Operation, st: in.Run.Status.DeepCopy(), now: in.Now}
	if in.Removing {
		m.remove()
	} else {
		m.decide()
	}
	m.finish()
	return m.out
}

// decide goes as far as it can go at this moment.
func (m *machine) decide() {
	m.retried()
	if m.st.State.Ended() {
		return
	}
	if m.st.State == "" {
		m.st.State = v1alpha1.RunPending
	}
	m.rewind()
	begun := m.st.State != v1alpha1.RunPending
	switch why := m.cancelled(); {
	case m.in.Turn.Fail != "":
		m.halt(m.in.Turn.Fail)
		m.end(v1alpha1.RunFailed, ReasonImpossible, m.in.Turn.Fail)
		return
	case begun && m.changed():
		return
	case why != "":
		m.cancel(why)
		return
	}
	if !begun {
		if !m.mayBegin() {
			return
		}
		m.begin()
	}
	if m.st.State == v1alpha1.RunUndoing {
		m.undo()
		return
	}
	m.proceed()
}

// mayBegin tells whether a pending run has its turn.
func (m *machine) mayBegin() bool {
	switch {
	case m.paused():
		return false
	case !m.in.Turn.Begin:
		m.st.Reason, m.st.Message = m.in.Turn.Reason, bounded(m.in.Turn.Message)
		if m.st.Reason == "" {
			m.st.Reason = ReasonWaitsForTurn
		}
		return false
	}
	return true
}

// paused tells whether nothing may begin because a user said so. Why a run is undone is kept; and one that is to end does not
// wait for anybody.
func (m *machine) paused() bool {
	if !m.run.Spec.Paused || m.cancelled() != "" {
		return false
	}
	if m.st.State != v1alpha1.RunUndoing {
		m.st.Reason, m.st.Message = ReasonPaused, "spec.paused is true"
	}
	return true
}

// begin starts the run, or starts it again.
func (m *machine) begin() {
	start := micro(m.now)
	m.st.State, m.st.Reason, m.st.Message = v1alpha1.RunRunning, "", ""
	m.st.StartTime, m.st.CompletionTime, m.st.Duration = &start, nil, ""
	m.st.Revision, m.st.Program = m.in.Revision, m.op.Hash
	m.st.Tries++
}

// retried obeys a new spec.retry: what succeeded before the step to begin with stays as it is.
func (m *machine) retried() {
	r := m.run.Spec.Retry
	if !Waits(m.run) || !m.st.State.Ended() || m.in.Turn.Cancel != "" || m.in.Turn.Fail != "" {
		return
	}
	from := 0
	if r.From != "" {
		from = m.index(r.From)
		if from < 0 {
			m.refuse(fmt.Sprintf("operation %s has no step %q", m.op.Name, r.From))
			return
		}
		for _, s := range m.op.Steps[:from] {
			if old := m.status(s.Name); old != nil && old.State == v1alpha1.StepUndone {
				m.refuse(fmt.Sprintf("step %s has been undone; begin with it", s.Name))
				return
			}
		}
	} else {
		for from < len(m.op.Steps) && m.settled(m.op.Steps[from].Name) {
			from++
		}
	}
	m.st.Retry = r.ID
	kept := m.st.Steps[:0:0]
	for _, s := range m.op.Steps[:from] {
		if old := m.status(s.Name); old != nil && old.State.Ended() {
			kept = append(kept, *old)
			continue
		}
		at := micro(m.now)
		kept = append(kept, v1alpha1.StepStatus{Name: s.Name, State: v1alpha1.StepSkipped, EndTime: &at, Message: "left out: the run was begun again at " + r.From})
	}
	if from < len(m.op.Steps) {
		if old := m.status(m.op.Steps[from].Name); old != nil {
			if again, ok := m.resumed(m.op.Steps[from], old); ok {
				kept = append(kept, again)
			}
		}
	}
	m.st.Steps, m.st.Output = kept, nil
	m.st.State, m.st.Reason, m.st.Message, m.st.CompletionTime, m.st.Duration = v1alpha1.RunPending, "", "", nil, ""
	m.st.Program = m.op.Hash
}

// refuse says why a retry is not obeyed, beside how the run ended.
func (m *machine) refuse(why string) {
	const mark = " (spec.retry was refused: "
	message, _, _ := strings.Cut(m.st.Message, mark)
	m.st.Retry, m.st.Message = m.run.Spec.Retry.ID, bounded(message+mark+why+")")
}

// resumed is a step that is begun again with something to keep: its items that have had their effect, and the idempotency key of
// what nobody knows the outcome of.
func (m *machine) resumed(step *program.Step, old *v1alpha1.StepStatus) (v1alpha1.StepStatus, bool) {
	out := v1alpha1.StepStatus{Name: old.Name, State: v1alpha1.StepPending}
	if old.State == v1alpha1.StepSucceeded || old.State == v1alpha1.StepUndone {
		return out, false
	}
	if step.ForEach == nil {
		if attemptsMayHaveHadEffect(old.Attempts) {
			out.Try = cmp.Or(old.Try, m.st.Tries)
		}
		return out, out.Try > 0
	}
	for i := range old.Items {
		item := old.Items[i]
		if item.State == v1alpha1.StepSucceeded {
			out.Items = append(out.Items, item)
			continue
		}
		again := v1alpha1.ItemStatus{Value: item.Value, State: v1alpha1.StepPending}
		if item.State != v1alpha1.StepUndone && attemptsMayHaveHadEffect(item.Attempts) {
			again.Try = cmp.Or(item.Try, m.st.Tries)
		}
		out.Items = append(out.Items, again)
	}
	return out, len(out.Items) > 0
}

// Waits tells whether a run waits for its turn: it has not begun, or is to begin again.
func Waits(r *Run) bool {
	switch r.Status.State {
	case "", v1alpha1.RunPending:
		return true
	case v1alpha1.RunFailed, v1alpha1.RunUnknown, v1alpha1.RunCancelled:
		return r.Spec.Retry != nil && r.Spec.Retry.ID != r.Status.Retry && !r.Spec.Cancel
	case v1alpha1.RunRunning, v1alpha1.RunUndoing, v1alpha1.RunSucceeded:
	}
	return false
}

// settled tells whether a retry without a step passes this one over.
func (m *machine) settled(name string) bool {
	s := m.status(name)
	return s != nil && (s.State == v1alpha1.StepSucceeded || s.State == v1alpha1.StepSkipped)
}

func (m *machine) index(name string) int {
	for i, s := range m.op.Steps {
		if s.Name == name {
			return i
		}
	}
	return -1
}

func (m *machine) status(name string) *v1alpha1.StepStatus { return find(m.st.Steps, name) }

func find(list []v1alpha1.StepStatus, name string) *v1alpha1.StepStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// cancelled says why the run has to end.
func (m *machine) cancelled() string {
	switch {
	case m.run.Spec.Cancel:
		return "spec.cancel is true"
	case m.run.Deleting && !m.isDelete():
		return "its object is being deleted"
	}
	return m.in.Turn.Cancel
}

// isDelete: the garbage collector deletes the object of a Delete run with the instance; the run goes on to its end.
func (m *machine) isDelete() bool {
	return m.run.Spec.Trigger != nil && m.run.Spec.Trigger.Type == v1alpha1.TriggerTypeDelete
}

// cancel stops what is under way. Steps that took effect are undone where they say so.
func (m *machine) cancel(why string) {
	if m.st.State == v1alpha1.RunUndoing {
		m.undo()
		return
	}
	if m.st.State == v1alpha1.RunRunning {
		m.closing = true // what has come to its end by now is noted, and nothing begins
		if m.proceed(); m.st.State.Ended() {
			return
		}
	}
	if m.st.State == v1alpha1.RunUndoing {
		return
	}
	m.halt(why)
	why += m.uncertainty()
	undo := false
	for i := range m.st.Steps {
		s := &m.st.Steps[i]
		step := m.op.Step(s.Name)
		undo = undo || step != nil && step.OnFailure == v1alpha1.StepFailureUndo && mayHaveHadEffect(s)
	}
	if undo {
		if m.st.State == v1alpha1.RunPending {
			m.st.Program, m.st.Revision = m.op.Hash, m.in.Revision // as if it had begun again
		}
		m.st.State, m.st.Reason, m.st.Message = v1alpha1.RunUndoing, ReasonCancelled, bounded(why)
		m.undo()
		return
	}
	m.end(v1alpha1.RunCancelled, ReasonCancelled, why)
}

// uncertainty names the steps that were stopped of which nobody knows whether they had their effect.
func (m *machine) uncertainty() string {
	if len(m.uncertain) == 0 {
		return ""
	}
	return fmt.Sprintf("; step %s was under way, and nobody knows whether it had its effect", strings.Join(m.uncertain, ", "))
}

// halt stops what is under way, and ends the steps that have not ended.
func (m *machine) halt(why string) {
	m.out.Start = nil
	m.stopAll(why)
	for i := range m.st.Steps {
		s := &m.st.Steps[i]
		if !s.State.Ended() {
			message := why
			if slices.Contains(m.uncertain, s.Name) {
				message += "; " + sent
			}
			m.endStep(s, v1alpha1.StepCancelled, message)
		}
		for j := range s.Undo {
			if u := &s.Undo[j]; !u.State.Ended() {
				m.endStep(u, v1alpha1.StepCancelled, why)
			}
		}
	}
}

// changed ends a run whose operation is not any more the one that it began with.
func (m *machine) changed() bool {
	if m.st.Program == m.op.Hash {
		return false
	}
	if !slices.ContainsFunc(m.st.Steps, func(s v1alpha1.StepStatus) bool { return s.State != v1alpha1.StepPending }) {
		m.st.Program, m.st.Revision, m.st.Steps = m.op.Hash, m.in.Revision, nil
		return false
	}
	m.halt("the operation changed")
	m.end(v1alpha1.RunFailed, ReasonDefinitionChanged, "the definition of the operation changed while the run was under way"+m.uncertainty()+
		"; retry it to run the operation as it is now")
	return true
}

// proceed does one step after the other.
func (m *machine) proceed() {
	deadline := m.deadline()
	for _, step := range m.op.Steps {
		s := m.status(step.Name)
		if s != nil && s.State.Ended() {
			continue
		}
		expired := !m.now.Before(deadline)
		if s == nil {
			if m.closing {
				return
			}
			if expired {
				m.end(v1alpha1.RunFailed, ReasonTimeout, fmt.Sprintf("the run did not end within %s", m.op.Timeout))
				return
			}
			if m.paused() {
				m.wake(deadline)
				return
			}
			m.st.Steps = append(m.st.Steps, v1alpha1.StepStatus{Name: step.Name, State: v1alpha1.StepPending})
			s = &m.st.Steps[len(m.st.Steps)-1]
		}
		w := m.worker(step, s, deadline, "")
		if !w.advance() {
			m.wake(deadline)
			return
		}
		if !m.passed(step, m.status(step.Name)) {
			return
		}
	}
	m.succeed()
}

// passed says whether the run goes on after a step that has ended.
func (m *machine) passed(step *program.Step, s *v1alpha1.StepStatus) bool {
	switch s.State {
	case v1alpha1.StepFailed, v1alpha1.StepUnknown:
	case v1alpha1.StepPending, v1alpha1.StepRunning, v1alpha1.StepSucceeded, v1alpha1.StepSkipped, v1alpha1.StepCancelled, v1alpha1.StepUndone:
		return true
	}
	reason := ReasonStepFailed
	switch {
	case s.State == v1alpha1.StepUnknown:
		reason = ReasonOutcomeUnknown
	case !m.now.Before(m.deadline()):
		reason = ReasonTimeout
	}
	switch step.OnFailure {
	case v1alpha1.StepFailureContinue:
		return true
	case v1alpha1.StepFailureUndo:
		m.st.State, m.st.Reason, m.st.Message = v1alpha1.RunUndoing, reason, s.Message
		m.undo()
		return false
	case v1alpha1.StepFailureFail:
	}
	state := v1alpha1.RunFailed
	if s.State == v1alpha1.StepUnknown {
		state = v1alpha1.RunUnknown
	}
	m.end(state, reason, s.Message)
	return false
}

const (
	// removalRetry is how long after its last retry a step of onRemove is tried again, until it is done: what it is to remove must
	// not be forgotten. Whoever wants the record gone all the same takes its finalizer off.
	removalRetry = 5 * time.Minute
	// forever is longer than anything lasts.
	forever = 100 * 365 * 24 * time.Hour
)

// succeed ends the run well, if its output can be computed.
func (m *machine) succeed() {
	value, err := m.in.Eval.Template(m.op.Output, Vars(m.op, m.withStatus()))
	var pending *expr.PendingError
	switch {
	case errors.As(err, &pending):
		m.st.Reason, m.st.Message = ReasonWaitsForValue, bounded("output: "+err.Error())
		if deadline := m.deadline(); m.now.Before(deadline) {
			m.wake(deadline)
			return
		}
		m.end(v1alpha1.RunFailed, ReasonTimeout, "output: "+err.Error())
		return
	case err != nil:
		m.end(v1alpha1.RunFailed, ReasonOutputFailed, "output: "+err.Error())
		return
	}
	value, n, err := plain(value)
	object, ok := value.(map[string]any)
	switch {
	case err != nil:
		m.end(v1alpha1.RunFailed, ReasonOutputFailed, "output: "+err.Error())
		return
	case value != nil && !ok:
		m.end(v1alpha1.RunFailed, ReasonOutputFailed, "output: it has to be an object")
		return
	case n > MaxOutput:
		m.end(v1alpha1.RunFailed, ReasonOutputFailed, fmt.Sprintf("output: it has %d bytes as JSON, at most %d are kept; select what matters", n, MaxOutput))
		return
	}
	m.st.Output = object
	m.end(v1alpha1.RunSucceeded, ReasonSucceeded, m.imperfect())
}

// imperfect names the steps that have not succeeded, of a run that has.
func (m *machine) imperfect() string {
	var steps []string
	for i := range m.st.Steps {
		if s := &m.st.Steps[i]; s.State == v1alpha1.StepFailed || s.State == v1alpha1.StepUnknown {
			steps = append(steps, fmt.Sprintf("%s: %s", s.Name, s.State))
		}
	}
	if len(steps) == 0 {
		return ""
	}
	return "not all steps have succeeded: " + strings.Join(steps, ", ")
}

// deadline is when the run has to have ended.
func (m *machine) deadline() time.Time {
	if m.op.Timeout <= 0 || m.st.StartTime == nil {
		return m.now.Add(forever)
	}
	return m.st.StartTime.Add(m.op.Timeout)
}

// end ends the run.
func (m *machine) end(state v1alpha1.RunState, reason, message string) {
	at := micro(m.now)
	m.st.State, m.st.Reason, m.st.Message, m.st.CompletionTime = state, reason, bounded(message), &at
	if m.st.StartTime != nil {
		m.st.Duration = human(at.Sub(m.st.StartTime.Time))
	}
	if r := m.run.Spec.Retry; r != nil {
		m.st.Retry = r.ID // asked for before the run had ended: it means nothing
	}
	m.out.Wake = time.Time{}
	m.out.Start = nil
}

// wake asks to decide again at a time.
func (m *machine) wake(at time.Time) {
	if !at.After(m.now) || at.Sub(m.now) >= forever {
		return // it has been dealt with, or never will be
	}
	if m.out.Wake.IsZero() || at.Before(m.out.Wake) {
		m.out.Wake = at
	}
}

func (m *machine) withStatus() *Run {
	run := *m.run
	run.Status = *m.st
	return &run
}
