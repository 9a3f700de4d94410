package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

const (
	// pollInterval is how often a run is looked at. Reading it needs no right but get.
	pollInterval = 400 * time.Millisecond
	// unattended is how long nobody has to have worked on a run before that is said.
	unattended = 10 * time.Second
	// goneWithin is how long an instance may take to go whose run is gone.
	goneWithin = 5 * time.Second
)

// waitFor says for what to wait.
type waitFor struct {
	// timeout of 0: none.
	timeout time.Duration
	// retry is the ID of the retry whose end is waited for.
	retry string
}

// ended tells whether the run has come to the end that is waited for.
func (w waitFor) ended(r *operationRun) bool {
	if !r.status.State.Ended() {
		return false
	}
	return w.retry == "" || r.status.Retry == w.retry || r.status.ObservedGeneration >= r.object.GetGeneration()
}

// view shows how a run goes.
type view interface {
	show(run *operationRun, now time.Time)
	// after says how the run stood before the try that is to be shown.
	after(before *v1alpha1.OperationRunStatus)
	// note says something beside the steps.
	note(text string)
}

// wait shows the steps of a run until it has ended. The error tells how it ended, if not well.
func (c *operationClient) wait(ctx context.Context, out io.Writer, run *operationRun, w waitFor) (*operationRun, error) {
	v := newView(out)
	fmt.Fprintf(out, "%s of %s %s: %s\n", run.spec.Operation, run.kind.Instances.Kind, run.spec.Target, run.kind.Runs.ref(run.name()))
	if w.retry != "" {
		v.after(&run.status)
	}
	start := time.Now()
	said := false
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var lost error
	for {
		v.show(run, time.Now())
		if w.ended(run) {
			return run, c.verdict(ctx, out, run)
		}
		if !said && run.status.State == "" && time.Since(start) > unattended {
			said = true
			v.note("nobody works on it: is Libretto at work for definition " + run.kind.Definition + "?")
		}
		select {
		case <-ctx.Done():
			return run, fmt.Errorf("no longer waiting; the run goes on. See: %s; end it: %s", c.command("describe", run.kind, run.name()), c.command("cancel", run.kind, run.name()))
		case <-tick.C:
		}
		if w.timeout > 0 && time.Since(start) > w.timeout {
			return run, errors.Join(c.notEnded(run, w, time.Now()), lost)
		}
		o, err := c.resource(run.kind.Runs).Get(ctx, run.name(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return run, c.gone(ctx, out, run, w)
		case apierrors.IsForbidden(err):
			return run, fmt.Errorf("cannot read %s: %w", run.kind.Runs.ref(run.name()), err)
		case err != nil:
			lost = fmt.Errorf("the last look failed: %w", err) // it may pass
			continue
		}
		lost = nil
		if run, err = newOperationRun(run.kind, o); err != nil {
			return nil, err
		}
	}
}

// notEnded says that the time to wait is over.
func (c *operationClient) notEnded(run *operationRun, w waitFor, now time.Time) error {
	text := fmt.Sprintf("not ended after %s: it is %s%s, and goes on. See: %s", w.timeout, run.stateText(), atStep(run), c.command("describe", run.kind, run.name()))
	if silence := run.silence(now); silence != "" {
		text += "\n  " + silence
	}
	return errors.New(text)
}

// gone says what it means that the run is not there any more. The run of a Delete operation goes with its instance, and that goes when
// the run has succeeded: perhaps between two looks.
func (c *operationClient) gone(ctx context.Context, out io.Writer, run *operationRun, w waitFor) error {
	ref, target := run.kind.Runs.ref(run.name()), run.kind.Instances.ref(run.spec.Target)
	lost := fmt.Errorf("%s is gone: somebody has deleted it, or its instance", ref)
	t, state := run.spec.Trigger, run.status.State
	if t == nil || t.Type != v1alpha1.TriggerTypeDelete || state == v1alpha1.RunUndoing || w.ended(run) && state != v1alpha1.RunSucceeded {
		return lost
	}
	if !c.targetGone(ctx, run) {
		return lost
	}
	if op := c.operationOf(ctx, run); op != nil && op.OnFailure == v1alpha1.OperationFailureContinue && state != v1alpha1.RunSucceeded {
		return fmt.Errorf("%s is gone with %s, which goes also if the operation fails (onFailure: Continue): how it ended was not seen", ref, target)
	}
	fmt.Fprintf(out, "succeeded; %s is gone\n", target)
	return nil
}

// targetGone tells whether the instance of a run is gone, or goes in a moment.
func (c *operationClient) targetGone(ctx context.Context, run *operationRun) bool {
	for deadline := time.Now().Add(goneWithin); ; {
		o, err := c.resource(run.kind.Instances).Get(ctx, run.spec.Target, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && o.GetDeletionTimestamp() == nil: // another one has its name
			return true
		case apierrors.IsForbidden(err), time.Now().After(deadline):
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollInterval):
		}
	}
}

func atStep(r *operationRun) string {
	if r.status.Step == "" {
		return ""
	}
	return " at step " + r.status.Step
}

// verdict prints the output of a run that has succeeded; of any other it is the error, with what to do.
func (c *operationClient) verdict(ctx context.Context, out io.Writer, run *operationRun) error {
	s := &run.status
	if s.State == v1alpha1.RunSucceeded {
		if len(s.Output) > 0 {
			fmt.Fprintln(out, "output:")
			printFields(out, "  ", s.Output)
		}
		return nil
	}
	return errors.New(c.failure(ctx, run))
}

// failure says how a run ended that did not succeed, and what to do.
func (c *operationClient) failure(ctx context.Context, run *operationRun) string {
	s := &run.status
	how := map[v1alpha1.RunState]string{
		v1alpha1.RunFailed: "failed", v1alpha1.RunCancelled: "was cancelled",
		v1alpha1.RunUnknown: "ended without anybody knowing whether a step had its effect",
	}[s.State]
	text := run.spec.Operation + " " + how + atStep(run)
	if s.Message != "" {
		text += ": " + s.Message
	}
	text += "\n  see:   " + c.command("describe", run.kind, run.name())
	switch {
	case run.spec.Cancel:
	case run.unknownStep() != "":
		text += "\n  next:  " + strings.ReplaceAll(c.next(ctx, run), "\n", "\n       ")
	default:
		text += "\n  retry: " + c.command("retry", run.kind, run.name()) + "   (when the cause is mended)"
	}
	return text
}

// newView returns what suits the output: on a terminal lines are drawn anew, elsewhere each thing that happens is a line.
func newView(out io.Writer) view {
	if f, isFile := out.(*os.File); isFile && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		width := func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
				return w
			}
			return 80
		}
		return &liveView{out: out, paint: newPainter(out), width: width}
	}
	return &lineView{out: out}
}

// lineView prints a line for each thing that happens.
type lineView struct {
	out  io.Writer
	seen v1alpha1.OperationRunStatus
}

func (v *lineView) note(text string) { fmt.Fprintln(v.out, "  "+text) }

func (v *lineView) after(before *v1alpha1.OperationRunStatus) { v.seen = *before }

func (v *lineView) show(run *operationRun, _ time.Time) {
	if number, kept, again := anotherTry(&v.seen, &run.status); again {
		fmt.Fprintf(v.out, "try %d:\n", number)
		v.seen = v1alpha1.OperationRunStatus{Tries: number, Retry: run.status.Retry, Steps: kept}
	}
	for _, line := range changes(&v.seen, &run.status) {
		fmt.Fprintln(v.out, "  "+line)
	}
	v.seen = run.status
}

// anotherTry tells whether the run has been begun again between two looks, or waits for that, which try it is, and which steps it has
// kept of those before.
func anotherTry(was, now *v1alpha1.OperationRunStatus) (number int32, kept []v1alpha1.StepStatus, again bool) {
	if was.Retry == now.Retry || now.Tries == was.Tries && now.State.Ended() { // a retry that was refused is none
		return 0, nil, false
	}
	for _, s := range now.Steps {
		same := func(old v1alpha1.StepStatus) bool {
			return old.Name == s.Name && old.State == s.State && old.EndTime.Equal(s.EndTime)
		}
		if s.State.Ended() && slices.ContainsFunc(was.Steps, same) {
			kept = append(kept, s)
		}
	}
	return max(was.Tries+1, now.Tries), kept, true
}

// changes says, a line each, what has happened between two looks at a run.
func changes(was, now *v1alpha1.OperationRunStatus) []string {
	var out []string
	if now.State == v1alpha1.RunPending && now.Message != "" && now.Message != was.Message {
		out = append(out, "waits: "+now.Message)
	}
	if now.State == v1alpha1.RunUndoing && was.State != now.State {
		out = append(out, "undoing: "+now.Message)
	}
	before := map[string]v1alpha1.StepStatus{}
	for _, s := range was.Steps {
		before[s.Name] = s
	}
	for _, s := range now.Steps {
		old := before[s.Name]
		out = append(out, stepChanges(&old, &s)...)
	}
	if now.State.Ended() && was.State != now.State {
		line := string(now.State)
		if now.Duration != "" {
			line += " in " + now.Duration
		}
		out = append(out, line)
	}
	return out
}

func stepChanges(was, now *v1alpha1.StepStatus) []string {
	var out []string
	if was.State == now.State && was.Message == now.Message && len(was.Attempts) == len(now.Attempts) {
		return nil
	}
	if (was.State == "" || was.State == v1alpha1.StepPending) && now.State == v1alpha1.StepRunning {
		out = append(out, now.Name+": running")
	}
	known := map[string]v1alpha1.StepState{}
	for _, a := range was.Attempts {
		known[a.ID] = a.State
	}
	for i := range now.Attempts {
		a := &now.Attempts[i]
		if a.State.Ended() && a.State != v1alpha1.StepSucceeded && !known[a.ID].Ended() && (!now.State.Ended() || i < len(now.Attempts)-1) {
			out = append(out, fmt.Sprintf("%s: attempt %d: %s%s", now.Name, a.Number, a.State, messageOf(a.Message)))
		}
	}
	switch {
	case now.State.Ended() && was.State != now.State:
		line := now.Name + ": " + string(now.State)
		if d := stepDuration(now, time.Time{}); d != "" {
			line += " in " + d
		}
		out = append(out, line+messageOf(now.Message))
	case now.State == v1alpha1.StepRunning && now.Message != "" && now.Message != was.Message && len(out) == 0:
		out = append(out, now.Name+": "+now.Message)
	}
	return out
}

func messageOf(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// stepDuration is how long a step took, or takes until now.
func stepDuration(s *v1alpha1.StepStatus, now time.Time) string {
	switch {
	case s.StartTime == nil:
		return ""
	case s.EndTime != nil:
		return shortDuration(s.EndTime.Sub(s.StartTime.Time))
	case now.IsZero():
		return ""
	}
	return shortDuration(now.Sub(s.StartTime.Time))
}

// shortDuration prints what a person wants to read: 0.2s, 14s, 3m20s, 5h12m, 3d4h.
func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// liveView draws the steps anew at each look.
type liveView struct {
	out   io.Writer
	paint painter
	width func() int
	drawn int
	notes []string
	// before is how the run stood before the try that is shown; nil: there is no such.
	before *v1alpha1.OperationRunStatus
}

func (v *liveView) note(text string) { v.notes = append(v.notes, text) }

func (v *liveView) after(before *v1alpha1.OperationRunStatus) { v.before = before.DeepCopy() }

func (v *liveView) show(run *operationRun, now time.Time) {
	lines := v.frame(run, now)
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn) // to the first line that was drawn
	}
	b.WriteString("\x1b[J") // what is below goes
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	v.drawn = len(lines)
	_, _ = io.WriteString(v.out, b.String()) // a terminal that has gone ends the command by signal
}

// frame is what is shown: a line for each step, and one for the run.
func (v *liveView) frame(run *operationRun, now time.Time) []string {
	s := &run.status
	width := v.width()
	steps := s.Steps
	var lines []string
	if v.before != nil {
		number, kept, again := anotherTry(v.before, s)
		if !again {
			return append(lines, "  "+v.paint.paint(bold, cut("to begin again", width-3)))
		}
		lines = append(lines, fmt.Sprintf("try %d:", number))
		steps = slices.DeleteFunc(slices.Clone(steps), func(step v1alpha1.StepStatus) bool {
			return slices.ContainsFunc(kept, func(k v1alpha1.StepStatus) bool { return k.Name == step.Name })
		})
	}
	longest := 0
	for _, step := range steps {
		longest = max(longest, len(step.Name))
	}
	for i := range steps {
		step := &steps[i]
		mark, colour := stepMark(step.State)
		text := fmt.Sprintf("%-*s  %6s", longest, step.Name, stepDuration(step, now))
		if n := len(step.Attempts); n > 0 && step.Attempts[n-1].Number > 1 {
			text += fmt.Sprintf("  attempt %d", step.Attempts[n-1].Number)
		}
		if step.Message != "" {
			text += "  " + strings.ReplaceAll(step.Message, "\n", " ")
		}
		lines = append(lines, "  "+v.paint.paint(colour, mark)+" "+cut(text, width-5))
	}
	lines = append(lines, "  "+v.paint.paint(stateColour(s.State), cut(stateLine(run, now), width-3)))
	for _, n := range v.notes {
		lines = append(lines, "  "+v.paint.paint(yellow, cut(n, width-3)))
	}
	return lines
}

// stateLine is how the run stands, in one line.
func stateLine(run *operationRun, now time.Time) string {
	s := &run.status
	text := run.stateText()
	if s.StartTime != nil {
		end := now
		if s.CompletionTime != nil {
			end = s.CompletionTime.Time
		}
		text += " " + shortDuration(end.Sub(s.StartTime.Time))
	}
	if s.Progress != "" && !s.State.Ended() {
		text += ", " + s.Progress + " steps done"
	}
	said := slices.ContainsFunc(s.Steps, func(step v1alpha1.StepStatus) bool { return step.Message == s.Message })
	if s.Message != "" && !s.State.Ended() && !said {
		text += ": " + strings.ReplaceAll(s.Message, "\n", " ")
	}
	return text
}

// cut shortens a line to what fits, so that each is one row.
func cut(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width || width < 2 {
		return s
	}
	return string(runes[:width-1]) + "…"
}

func stepMark(s v1alpha1.StepState) (mark, colour string) {
	switch s {
	case v1alpha1.StepSucceeded:
		return "✓", green
	case v1alpha1.StepFailed:
		return "✗", red
	case v1alpha1.StepUnknown:
		return "?", yellow
	case v1alpha1.StepSkipped, v1alpha1.StepCancelled, v1alpha1.StepUndone:
		return "-", dim
	case v1alpha1.StepRunning:
		return "●", blue
	case v1alpha1.StepPending:
	}
	return "○", dim
}

func stateColour(s v1alpha1.RunState) string {
	switch s {
	case v1alpha1.RunSucceeded:
		return green
	case v1alpha1.RunFailed:
		return red
	case v1alpha1.RunUnknown, v1alpha1.RunUndoing, v1alpha1.RunCancelled:
		return yellow
	case v1alpha1.RunRunning:
		return blue
	case v1alpha1.RunPending:
	}
	return bold
}
