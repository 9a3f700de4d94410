package operation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
)

// tell tells of what has changed in how a run stands.
func (s *scope) tell(was, now *v1alpha1.OperationRunStatus) {
	if (was.State == "" || was.State == v1alpha1.RunPending || was.State.Ended()) && now.State == v1alpha1.RunRunning {
		s.observe(engine.ActionStarted, "", s.because())
	}
	ended := map[string]v1alpha1.StepState{}
	for _, step := range was.Steps {
		ended[step.Name] = step.State
	}
	for i := range now.Steps {
		step := &now.Steps[i]
		if step.State.Ended() && !ended[step.Name].Ended() {
			s.observe(engine.ActionStep, step.Name, stepMessage(step))
		}
	}
	if was.State == now.State || !now.State.Ended() {
		return
	}
	s.run.CountOperation(s.parsed.Spec.Operation, string(now.State))
	message := now.Message
	if now.Step != "" && message != "" {
		message = "step " + now.Step + ": " + message
	}
	switch now.State {
	case v1alpha1.RunSucceeded:
		s.observe(engine.ActionSucceeded, "", "in "+now.Duration)
	case v1alpha1.RunFailed:
		s.observe(engine.ActionOperationFailed, "", message)
		s.warn(fmt.Sprintf("operation %s (%s) failed: %s", s.parsed.Spec.Operation, s.req.Name, message))
	case v1alpha1.RunUnknown:
		s.observe(engine.ActionUnknown, "", message)
		s.warn(fmt.Sprintf("operation %s (%s) ended without anybody knowing whether a step had its effect: %s", s.parsed.Spec.Operation, s.req.Name, message))
	case v1alpha1.RunCancelled:
		s.observe(engine.ActionCancelled, "", message)
	case v1alpha1.RunPending, v1alpha1.RunRunning, v1alpha1.RunUndoing:
	}
}

func stepMessage(step *v1alpha1.StepStatus) string {
	message := ""
	if step.State != v1alpha1.StepSucceeded {
		message = string(step.State)
	}
	if step.Message != "" {
		if message != "" {
			message += ": "
		}
		message += step.Message
	}
	if step.StartTime != nil && step.EndTime != nil && message == "" {
		message = "in " + step.EndTime.Sub(step.StartTime.Time).Round(1000000).String()
	}
	return message
}

// because says what began the run.
func (s *scope) because() string {
	t := s.parsed.Spec.Trigger
	if t == nil {
		return "by " + s.req.Name
	}
	switch t.Type {
	case v1alpha1.TriggerTypeRun:
		return "by a step of " + t.Parent
	case v1alpha1.TriggerTypeSchedule:
		if t.Time != nil {
			return "by schedule, for " + t.Time.UTC().Format("2006-01-02 15:04:05Z")
		}
	case v1alpha1.TriggerTypeManual, v1alpha1.TriggerTypeCreate, v1alpha1.TriggerTypeUpdate, v1alpha1.TriggerTypeDelete, v1alpha1.TriggerTypeResume,
		v1alpha1.TriggerTypeEvery, v1alpha1.TriggerTypeCondition, v1alpha1.TriggerTypeWatch:
	}
	return "by " + string(t.Type)
}

func (s *scope) observe(action engine.Action, step, message string) {
	s.run.Tell(engine.Event{
		Instance:  engine.Ref{Kind: s.entry.Program.Instance, Namespace: s.req.Namespace, Name: s.parsed.Spec.Target},
		Operation: s.parsed.Spec.Operation, Run: s.req.Name, Step: step, Action: action, Message: message,
	})
}

// warn writes a Kubernetes event about the instance.
func (s *scope) warn(note string) {
	if s.instance == nil {
		return
	}
	const most = 1000
	if len(note) > most {
		note = note[:most-3] + "…"
	}
	regarding := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: s.instance.Kind.GroupVersion().String(), Kind: s.instance.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.instance.Namespace, Name: s.instance.Name, UID: s.instance.UID, ResourceVersion: s.instance.ResourceVersion,
		},
	}
	s.run.Record(regarding, nil, corev1.EventTypeWarning, v1alpha1.ReasonOperationFailed, "Operate", note)
}
