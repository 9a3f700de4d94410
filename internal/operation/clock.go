package operation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// rewind takes times that are ahead of the clock back to it: the clock was set back, and no deadline or pause may grow by that.
func (m *machine) rewind() {
	m.clamp(m.st.StartTime)
	m.rewindSteps(m.st.Steps)
	m.rewindSteps(m.st.Removal)
}

func (m *machine) rewindSteps(steps []v1alpha1.StepStatus) {
	for i := range steps {
		s := &steps[i]
		m.clamp(s.StartTime)
		m.clamp(s.EndTime)
		m.rewindAttempts(s.Attempts)
		for j := range s.Items {
			m.rewindAttempts(s.Items[j].Attempts)
		}
		m.rewindSteps(s.Undo)
	}
}

func (m *machine) rewindAttempts(attempts []v1alpha1.Attempt) {
	for i := range attempts {
		a := &attempts[i]
		m.clamp(&a.StartTime)
		if ahead := m.clamp(a.EndTime); ahead > 0 && a.RetryTime != nil {
			at := micro(a.RetryTime.Add(-ahead))
			a.RetryTime = &at
		}
	}
}

// clamp takes a time back to now, and tells by how much.
func (m *machine) clamp(t *metav1.MicroTime) time.Duration {
	now := micro(m.now)
	if t == nil || !t.After(now.Time) {
		return 0
	}
	ahead := t.Sub(now.Time)
	*t = now
	return ahead
}

// templatesOf lists what is computed before an action acts: all but what reads the answer.
func templatesOf(a *program.Action) []*program.Template {
	object := func(r *program.ObjectReference) []*program.Template {
		if r == nil {
			return nil
		}
		return []*program.Template{r.Name, r.Namespace}
	}
	switch {
	case a.Apply != nil:
		return []*program.Template{a.Apply.Template}
	case a.Patch != nil:
		return append(object(&a.Patch.Object), a.Patch.Merge, a.Patch.JSON)
	case a.Delete != nil:
		return object(&a.Delete.Object)
	case a.Wait != nil:
		return object(a.Wait.Object)
	case a.Exec != nil:
		return []*program.Template{a.Exec.Pod, a.Exec.Selector, a.Exec.Command, a.Exec.Stdin}
	case a.Job != nil:
		return []*program.Template{a.Job.Template}
	case a.HTTP != nil:
		h := a.HTTP
		list := []*program.Template{h.URL, h.Headers, h.Body, h.Basic, h.ClientCertificate}
		for _, key := range []*program.SecretKey{h.Bearer, h.CA} {
			if key != nil {
				list = append(list, key.Secret)
			}
		}
		return list
	case a.Event != nil:
		return []*program.Template{a.Event.Reason, a.Event.Message}
	case a.Log != nil:
		return []*program.Template{a.Log}
	case a.Set != nil:
		return []*program.Template{a.Set}
	case a.Run != nil:
		return []*program.Template{a.Run.Params}
	}
	return nil
}
