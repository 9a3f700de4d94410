package operation

import (
	"fmt"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// undo takes back, latest first, the steps that have had their effect, or may have had it: the one that failed too, if its outcome
// is unknown or some of its items were done. An undo step that fails does not keep the others from being done. The undo steps have
// the operation's timeout once more.
func (m *machine) undo() {
	m.closing = false
	deadline := m.now.Add(time.Hour)
	if m.op.Timeout > 0 {
		deadline = m.deadline().Add(m.op.Timeout)
	}
	failed, undone, unknown := "", false, false
	for i := len(m.op.Steps) - 1; i >= 0; i-- {
		step := m.op.Steps[i]
		s := m.status(step.Name)
		if s == nil {
			continue
		}
		undone = undone || s.State == v1alpha1.StepUndone
		if len(step.Undo) == 0 || !mayHaveHadEffect(s) {
			unknown = unknown || s.State == v1alpha1.StepUnknown && step.OnFailure != v1alpha1.StepFailureContinue
			continue
		}
		done, problem := m.undoStep(step, s, deadline)
		if !done {
			m.wake(deadline)
			return
		}
		if problem == "" {
			s.State, undone = v1alpha1.StepUndone, true
			continue
		}
		failed, unknown = problem, unknown || s.State == v1alpha1.StepUnknown
	}
	state := v1alpha1.RunFailed
	switch {
	case m.st.Reason == ReasonCancelled:
		state = v1alpha1.RunCancelled
	case m.st.Reason == ReasonOutcomeUnknown && unknown:
		state = v1alpha1.RunUnknown
	}
	message := m.st.Message
	if failed == "" && undone && state != v1alpha1.RunUnknown {
		message += "; what was done has been undone"
	}
	reason := m.st.Reason
	if failed != "" && state == v1alpha1.RunFailed {
		reason = ReasonUndoFailed
	}
	m.end(state, reason, message+failed)
}

// undoStep takes back one step, or each of its items that may have had an effect, the latest first. It tells whether that has come
// to its end, and what went wrong.
func (m *machine) undoStep(step *program.Step, s *v1alpha1.StepStatus, deadline time.Time) (done bool, problem string) {
	if step.ForEach == nil {
		if !m.list(step.Undo, &s.Undo, deadline, step.Name+".undo.", nil) {
			return false, ""
		}
		return true, undoProblem(step.Name, s.Undo)
	}
	for i := len(s.Items) - 1; i >= 0; i-- {
		item := &s.Items[i]
		if item.State == v1alpha1.StepUndone || !itemMayHaveHadEffect(item) {
			continue
		}
		bind := func(vars map[string]any) {
			about := map[string]any{"state": string(item.State)}
			if item.Output != nil {
				about["output"] = item.Output.Value
			}
			if steps, ok := vars[program.VarSteps].(map[string]any); ok {
				steps[step.Name] = about
			}
			if item.Value != nil {
				vars[step.ForEach.Var] = item.Value.Value
			}
		}
		if !m.list(step.Undo, &item.Undo, deadline, fmt.Sprintf("%s.%d.undo.", step.Name, i), bind) {
			return false, ""
		}
		if why := undoProblem(fmt.Sprintf("%s, item %d,", step.Name, i), item.Undo); why != "" {
			problem = why
		} else {
			item.State = v1alpha1.StepUndone
		}
	}
	return true, problem
}

func undoProblem(what string, undo []v1alpha1.StepStatus) string {
	for i := range undo {
		if u := &undo[i]; u.State == v1alpha1.StepFailed || u.State == v1alpha1.StepUnknown {
			return fmt.Sprintf("; undoing step %s failed: %s", what, u.Message)
		}
	}
	return ""
}

func itemMayHaveHadEffect(item *v1alpha1.ItemStatus) bool {
	return item.State == v1alpha1.StepSucceeded || item.State == v1alpha1.StepUnknown || attemptsMayHaveHadEffect(item.Attempts)
}

// mayHaveHadEffect: it had it, or was under way when it was cancelled, or nobody knows; or one of its items.
func mayHaveHadEffect(s *v1alpha1.StepStatus) bool {
	switch s.State {
	case v1alpha1.StepSucceeded, v1alpha1.StepUnknown:
		return true
	case v1alpha1.StepSkipped, v1alpha1.StepUndone:
		return false
	case v1alpha1.StepPending, v1alpha1.StepRunning, v1alpha1.StepFailed, v1alpha1.StepCancelled:
	}
	for i := range s.Items {
		if itemMayHaveHadEffect(&s.Items[i]) {
			return true
		}
	}
	return attemptsMayHaveHadEffect(s.Attempts)
}

// attemptsMayHaveHadEffect: one succeeded (though its output did not), was cancelled, or nobody knows, even by asking.
func attemptsMayHaveHadEffect(attempts []v1alpha1.Attempt) bool {
	unknown := false
	for i := range attempts {
		switch a := &attempts[i]; {
		case a.Verify:
			unknown = unknown && a.State != v1alpha1.StepFailed
		case a.State == v1alpha1.StepSucceeded, a.State == v1alpha1.StepCancelled:
			return true
		case a.State == v1alpha1.StepUnknown:
			unknown = true
		}
	}
	return unknown
}

// list does cleanup steps one after the other; a failed one does not keep the next from being done. It tells whether all have
// ended.
func (m *machine) list(steps []*program.Step, list *[]v1alpha1.StepStatus, deadline time.Time, prefix string, bind func(map[string]any)) bool {
	for _, step := range steps {
		s := find(*list, step.Name)
		if s == nil {
			*list = append(*list, v1alpha1.StepStatus{Name: step.Name, State: v1alpha1.StepPending})
			s = &(*list)[len(*list)-1]
		}
		if s.State.Ended() {
			continue
		}
		w := m.worker(step, s, deadline, prefix)
		if w.bind = bind; !w.advance() {
			return false
		}
	}
	return true
}

// remove does the steps of onRemove.
func (m *machine) remove() {
	if m.st.State != v1alpha1.RunSucceeded || len(m.op.OnRemove) == 0 {
		m.out.Removed = true
		return
	}
	m.removing = true
	m.rewind()
	m.out.Removed = m.list(m.op.OnRemove, &m.st.Removal, m.now.Add(forever), "remove.", nil)
	if s := m.removal(); s != nil {
		m.st.Reason = ReasonRemovalFailed
		m.st.Message = bounded(fmt.Sprintf("onRemove: step %s: %s; it is tried again; to remove the record without it, annotate it with %s=true", s.Name, s.Message, v1alpha1.AnnotationForceDelete))
	} else {
		m.st.Reason, m.st.Message = ReasonSucceeded, ""
	}
}

// removal is the step of onRemove that cannot be done at the moment; nil: none.
func (m *machine) removal() *v1alpha1.StepStatus {
	for i := range m.st.Removal {
		if s := &m.st.Removal[i]; !s.State.Ended() && s.Message != "" {
			return s
		}
	}
	return nil
}
