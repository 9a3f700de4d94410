package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/diag"
)

// silent is how long nothing has to have been written to a run, where something should have been, before that is said.
const silent = 30 * time.Second

// operationOf is the operation of a run, in the revision that its instance follows; nil: it cannot be read. Not every user may, and
// `libretto run` keeps no revisions.
func (c *operationClient) operationOf(ctx context.Context, run *operationRun) *v1alpha1.Operation {
	if c.client == nil {
		return nil
	}
	revision := run.status.Revision
	if instance, err := c.resource(run.kind.Instances).Get(ctx, run.spec.Target, metav1.GetOptions{}); err == nil {
		if now, _, _ := unstructured.NestedString(instance.Object, "status", "revision"); now != "" {
			revision = now
		}
	}
	if revision == "" {
		return nil
	}
	o, err := c.client.Resource(v1alpha1.GroupVersion.WithResource("operatorrevisions")).Get(ctx, revision, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	text, _, _ := unstructured.NestedString(o.Object, "spec", "snapshot")
	var spec v1alpha1.OperatorDefinitionSpec
	if json.Unmarshal([]byte(text), &spec) != nil {
		return nil
	}
	for i := range spec.Operations {
		if string(spec.Operations[i].Name) == run.spec.Operation {
			return &spec.Operations[i]
		}
	}
	return nil
}

// stepsOf are the names of the steps of a run's operation; known is false if they are only those that have begun.
func (c *operationClient) stepsOf(ctx context.Context, run *operationRun) (names []string, known bool) {
	if op := c.operationOf(ctx, run); op != nil {
		return compile.StepNames(op.Steps), true
	}
	for i := range run.status.Steps {
		names = append(names, run.status.Steps[i].Name)
	}
	return names, false
}

func (r *operationRun) step(name string) *v1alpha1.StepStatus {
	for i := range r.status.Steps {
		if r.status.Steps[i].Name == name {
			return &r.status.Steps[i]
		}
	}
	return nil
}

// mayBeginWith refuses to begin a run again with a step that there is not, or after one whose effect is not there. After one that has
// been undone Libretto does not do it, even by force.
func (r *operationRun) mayBeginWith(from string, names []string, known, force bool) error {
	at := slices.Index(names, from)
	if at < 0 && force {
		return nil
	}
	if at < 0 {
		return r.noStep(from, names, known)
	}
	for i, name := range names[:at] {
		s := r.step(name)
		if s == nil {
			continue
		}
		// A step that did not succeed, and after which others were done, is one that may fail: onFailure is Continue.
		passed := slices.ContainsFunc(names[i+1:], func(later string) bool {
			l := r.step(later)
			return l != nil && l.State != v1alpha1.StepPending
		})
		how := ""
		switch s.State {
		case v1alpha1.StepUndone:
			return fmt.Errorf("step %s has been undone: begin with --from %s", name, name)
		case v1alpha1.StepFailed:
			how = "has failed"
		case v1alpha1.StepCancelled:
			how = "was cancelled"
		case v1alpha1.StepUnknown:
			if r.unknownStep() != name { // of that one the user has been asked to find it out
				how = "is Unknown"
			}
		case v1alpha1.StepPending, v1alpha1.StepRunning, v1alpha1.StepSucceeded, v1alpha1.StepSkipped:
		}
		if how != "" && !passed && !force {
			return fmt.Errorf("step %s %s: begin with --from %s; if its effect is there all the same, add --force", name, how, name)
		}
	}
	return nil
}

func (r *operationRun) noStep(name string, names []string, known bool) error {
	hint := diag.DidYouMean(name, names)
	if hint == "" && len(names) > 0 {
		hint = "there is " + diag.OneOf(names, 20)
	}
	if hint != "" {
		hint = "; " + hint
	}
	if known {
		return fmt.Errorf("operation %s has no step %q%s", r.spec.Operation, name, hint)
	}
	return fmt.Errorf("no step %q has begun in %s%s; of the steps to come nothing is known here: if operation %s has that one, add --force",
		name, r.kind.Runs.ref(r.name()), hint, r.spec.Operation)
}

// unknownStep is the step of which nobody knows whether it had its effect; empty: the run is not Unknown.
func (r *operationRun) unknownStep() string {
	if r.status.State != v1alpha1.RunUnknown {
		return ""
	}
	if s := r.step(r.status.Step); s != nil && s.State == v1alpha1.StepUnknown {
		return s.Name
	}
	for i := len(r.status.Steps) - 1; i >= 0; i-- {
		if s := &r.status.Steps[i]; s.State == v1alpha1.StepUnknown {
			return s.Name
		}
	}
	return r.status.Step
}

// ways are the two ways on from an Unknown run: if the step had its effect, and if not.
func (c *operationClient) ways(run *operationRun, names []string, known bool) (had, not string) {
	step := run.unknownStep()
	retry := c.command("retry", run.kind, run.name()) + " --from "
	at := slices.Index(names, step)
	switch {
	case at >= 0 && at+1 < len(names):
		had = retry + names[at+1]
	case known && at >= 0:
		had = "nothing is left to do, for it is the last step"
	default:
		had = retry + "NEXT --force, where NEXT is the step after it"
	}
	return had, retry + step
}

// next says what to do about a run that did not succeed; empty: nothing.
func (c *operationClient) next(ctx context.Context, run *operationRun) string {
	switch s := &run.status; {
	case !s.State.Ended() || s.State == v1alpha1.RunSucceeded || run.spec.Cancel:
		return ""
	case run.unknownStep() != "":
		names, known := c.stepsOf(ctx, run)
		had, not := c.ways(run, names, known)
		return fmt.Sprintf("look whether step %s had its effect.\n  If it had: %s\n  If not:    %s", run.unknownStep(), had, not)
	}
	return c.command("retry", run.kind, run.name())
}

// stateText is how the run stands, for people.
func (r *operationRun) stateText() string {
	text := string(stateOrPending(r.status.State))
	if r.spec.Paused && !r.status.State.Ended() {
		text += " (paused)"
	}
	return text
}

// silence says that nobody seems to work on the run, if so.
func (r *operationRun) silence(now time.Time) string {
	if !r.due(now) {
		return ""
	}
	since := r.object.GetCreationTimestamp().Time
	for _, m := range r.object.GetManagedFields() {
		if m.Time != nil && m.Time.After(since) {
			since = m.Time.Time
		}
	}
	d := now.Sub(since)
	if since.IsZero() || d <= silent {
		return ""
	}
	return fmt.Sprintf("nothing has been written for %s: is Libretto at work?", shortDuration(d))
}

// due tells whether it is Libretto's turn to do something about the run.
func (r *operationRun) due(now time.Time) bool {
	s := &r.status
	if s.State.Ended() {
		return r.spec.Retry != nil && r.spec.Retry.ID != s.Retry && !r.spec.Cancel && s.State != v1alpha1.RunSucceeded
	}
	switch {
	case s.ObservedGeneration < r.object.GetGeneration(): // what is wanted has not been seen
		return true
	case r.spec.Paused || s.Reason != "":
		return false
	case s.State == v1alpha1.RunRunning:
		return !slices.ContainsFunc(s.Steps, func(step v1alpha1.StepStatus) bool { return underWay(&step, now) })
	}
	return stateOrPending(s.State) == v1alpha1.RunPending
}

// underWay tells whether an attempt of a step is being made, or the time of the next one has not come.
func underWay(s *v1alpha1.StepStatus, now time.Time) bool {
	attempts := slices.Clone(s.Attempts)
	for i := range s.Items {
		attempts = append(attempts, s.Items[i].Attempts...)
	}
	return slices.ContainsFunc(attempts, func(a v1alpha1.Attempt) bool {
		return !a.State.Ended() || a.RetryTime != nil && a.RetryTime.After(now)
	})
}

// shownState is the state of a step; one that has been reached, and not begun, is Pending for people.
func shownState(s *v1alpha1.StepStatus) v1alpha1.StepState {
	if s.State != v1alpha1.StepRunning || len(s.Attempts) > 0 {
		return s.State
	}
	for i := range s.Items {
		if item := &s.Items[i]; len(item.Attempts) > 0 || item.State != v1alpha1.StepPending {
			return s.State
		}
	}
	return v1alpha1.StepPending
}
