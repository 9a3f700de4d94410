package operation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// Limits, in bytes.
const (
	// MaxOutput is the size of the output of a step, or of a run, as JSON.
	MaxOutput = 8 * 1024
	// maxMessage is how long a message may be.
	maxMessage = 1024
	// maxStatus is how large the status of a run may become. An object of more than 1.5 MB cannot be stored.
	maxStatus = 768 * 1024
	// maxRemembered is the size of the items of a forEach, as JSON.
	maxRemembered = 16 * 1024
)

// conditionSucceeded is the condition of operation objects.
const conditionSucceeded = "Succeeded"

// finish fills in what follows from the rest, and finds out whether anything has changed.
func (m *machine) finish() {
	m.st.ObservedGeneration = m.run.Generation
	done := 0
	m.st.Step = ""
	if m.st.State == v1alpha1.RunRunning && m.st.Reason == ReasonPaused && !m.run.Spec.Paused {
		m.st.Reason = ""
	}
	if m.st.State == v1alpha1.RunRunning && m.st.Reason == "" {
		m.st.Message = ""
	}
	for i := range m.st.Steps {
		s := &m.st.Steps[i]
		switch {
		case !s.State.Ended():
			m.st.Step = s.Name
			if m.st.State == v1alpha1.RunRunning && m.st.Reason == "" {
				m.st.Message = s.Message
			}
		case s.State == v1alpha1.StepSucceeded, s.State == v1alpha1.StepSkipped:
			done++
		default:
			if m.st.State.Ended() && m.st.State != v1alpha1.RunSucceeded || m.st.State == v1alpha1.RunUndoing {
				m.st.Step = s.Name
			}
		}
	}
	if len(m.op.Steps) > 0 {
		m.st.Progress = fmt.Sprintf("%d/%d", done, len(m.op.Steps))
	}
	m.condition()
	text := encoded(m.st)
	if len(text) > maxStatus {
		m.bound()
		m.condition()
		text = encoded(m.st)
	}
	if m.out.Changed = !bytes.Equal(encoded(&m.in.Run.Status), text); m.out.Changed {
		m.out.Status = m.st
	} else {
		m.out.Status = &m.in.Run.Status
	}
}

// bound keeps the status so small that it can be stored: of steps that have ended, what is known of attempts and items goes first;
// if that is not enough, the run ends.
func (m *machine) bound() {
	for i := range m.st.Steps {
		if s := &m.st.Steps[i]; s.State.Ended() && m.st.State != v1alpha1.RunUndoing {
			s.Attempts, s.Items = nil, nil
		}
	}
	if size(m.st) <= maxStatus || m.st.State.Ended() {
		return
	}
	m.halt("the run became too large")
	m.end(v1alpha1.RunFailed, ReasonTooLarge, fmt.Sprintf("what is kept of the steps has more than %d KiB; yield less, or do it in several operations", maxStatus/1024))
	for i := range m.st.Steps {
		m.st.Steps[i].Items = nil
	}
}

func (m *machine) condition() {
	c := metav1.Condition{Type: conditionSucceeded, Status: metav1.ConditionUnknown, Reason: m.st.Reason, Message: m.st.Message,
		ObservedGeneration: m.run.Generation, LastTransitionTime: metav1.NewTime(m.now.Truncate(time.Second))}
	switch m.st.State {
	case v1alpha1.RunSucceeded:
		c.Status = metav1.ConditionTrue
	case v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunUnknown:
		c.Status = metav1.ConditionFalse
	case v1alpha1.RunPending, v1alpha1.RunRunning, v1alpha1.RunUndoing:
	}
	if c.Reason == "" {
		c.Reason = string(m.st.State)
	}
	for _, old := range m.st.Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	m.st.Conditions = []metav1.Condition{c}
}

// StatusContent returns a status as plain JSON values.
func StatusContent(st *v1alpha1.OperationRunStatus) (map[string]any, error) {
	data, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("cannot encode how a run stands: %w", err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("cannot encode how a run stands: %w", err)
	}
	return out, nil
}

// encoded is a status as whoever reads it sees it: as JSON, which has microseconds and nothing empty.
func encoded(st *v1alpha1.OperationRunStatus) []byte {
	text, err := json.Marshal(st)
	if err != nil {
		return nil // plain values: the machine lets nothing else in
	}
	return text
}

// Vars are the variables that the expressions of a run see beside those of the instance, without result, object and items.
func Vars(op *program.Operation, run *Run) map[string]any {
	steps := map[string]any{}
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		if !s.State.Ended() {
			continue
		}
		one := map[string]any{"state": string(s.State)}
		if s.Output != nil {
			one["output"] = s.Output.Value
		}
		if s.Message != "" {
			one["message"] = s.Message
		}
		steps[s.Name] = one
	}
	about := map[string]any{"name": run.Name, "uid": string(run.UID), "operation": op.Name}
	if run.Namespace != "" {
		about["namespace"] = run.Namespace
	}
	if run.Status.StartTime != nil {
		about["startTime"] = run.Status.StartTime.UTC().Format(time.RFC3339)
	}
	if run.Status.State.Ended() && run.Status.Output != nil {
		about["output"] = map[string]any(run.Status.Output)
	}
	params := run.Params
	if params == nil {
		params = map[string]any{}
	}
	vars := map[string]any{
		program.VarParams: params, program.VarSteps: steps, program.VarRun: about, program.VarTrigger: triggerContent(run.Spec.Trigger),
	}
	if t := run.Spec.Trigger; t != nil && t.Old != nil {
		vars[program.VarOld] = map[string]any(t.Old)
	}
	return vars
}

func triggerContent(t *v1alpha1.RunTrigger) map[string]any {
	if t == nil {
		return map[string]any{"type": string(v1alpha1.TriggerTypeManual)}
	}
	data, err := json.Marshal(t)
	if err != nil {
		return map[string]any{"type": string(t.Type)}
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return map[string]any{"type": string(t.Type)}
	}
	return out
}

func micro(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

// plain makes a value of what JSON has alone, which shares nothing with it, and tells its size as JSON. What is left out is nil.
func plain(value any) (any, int, error) {
	if value == nil || expr.IsOmit(value) {
		return nil, 0, nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot be written as JSON: %w", err)
	}
	var out any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, 0, fmt.Errorf("cannot be written as JSON: %w", err)
	}
	return out, len(data), nil
}

// size of a value as JSON, in bytes; 0 for none.
func size(value any) int {
	if value == nil {
		return 0
	}
	data, err := json.Marshal(value)
	if err != nil {
		return maxRemembered + 1
	}
	return len(data)
}

func bounded(message string) string {
	message = strings.TrimSpace(message)
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len("…")], "") + "…"
}

// human prints a duration as people read it.
func human(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
