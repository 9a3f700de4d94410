package operation

import (
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// copies is a step over three items, each of which can be undone, before one that fails.
func copies(t *testing.T) (*scene, *program.Step) {
	t.Helper()
	each := execStep("copy")
	each.ForEach, each.Parallel, each.OnFailure = &program.ForEach{Var: "x"}, 1, v1alpha1.StepFailureUndo
	each.Undo = []*program.Step{applyStep("back")}
	s := newScene(t, each)
	s.eval.items[each.ForEach] = []any{"p", "q", "r"}
	return s, each
}

// Each item that may have had an effect is undone by itself, the latest first, and sees itself and what it yielded.
func TestItemsAreUndone(t *testing.T) {
	s, _ := copies(t)
	s.begins("uid.1.copy.0.1")
	s.results["uid.1.copy.0.1"] = Result{Outcome: Succeeded, Output: "one"}
	s.begins("uid.1.copy.1.1")
	s.results["uid.1.copy.1.1"] = Result{Outcome: Succeeded, Output: "two"}
	s.begins("uid.1.copy.2.1")
	s.done("uid.1.copy.2.1", FailedForGood)
	starts := s.decide()
	if len(starts) != 1 || starts[0].Attempt.ID != "uid.1.copy.1.undo.back.1" || starts[0].Vars["x"] != "q" ||
		starts[0].Vars["steps"].(map[string]any)["copy"].(map[string]any)["output"] != "two" {
		t.Fatalf("%+v", starts)
	}
	s.done("uid.1.copy.1.undo.back.1", Succeeded)
	s.begins("uid.1.copy.0.undo.back.1")
	s.done("uid.1.copy.0.undo.back.1", FailedForGood)
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonUndoFailed)
	items := s.run.Status.Steps[0].Items
	if items[0].State != v1alpha1.StepSucceeded || items[1].State != v1alpha1.StepUndone || items[2].State != v1alpha1.StepFailed ||
		!strings.Contains(s.run.Status.Message, "item 0") {
		t.Fatal(toText(s.run.Status))
	}
}

// A retry goes on with the items that there were: those that have had their effect are not done again, and what nobody knows the
// outcome of keeps its idempotency key.
func TestRetryKeepsItemsAndKeys(t *testing.T) {
	s, step := copies(t)
	step.OnFailure = v1alpha1.StepFailureFail
	s.begins("uid.1.copy.0.1")
	s.done("uid.1.copy.0.1", Succeeded)
	s.begins("uid.1.copy.1.1")
	s.done("uid.1.copy.1.1", Unknown)
	s.begins()
	s.is(v1alpha1.RunUnknown, ReasonOutcomeUnknown)
	s.run.Spec.Retry = &v1alpha1.RunRetry{ID: "1"}
	s.eval.items[step.ForEach] = []any{"other"}
	starts := s.decide()
	if len(starts) != 1 || starts[0].Attempt.ID != "uid.2.copy.1.1" || starts[0].Key != "uid.1.copy.1" || starts[0].Vars["x"] != "q" {
		t.Fatalf("%+v", starts)
	}
	s.done("uid.2.copy.1.1", Succeeded)
	starts = s.decide()
	if len(starts) != 1 || starts[0].Attempt.ID != "uid.2.copy.2.1" || starts[0].Key != "uid.2.copy.2" {
		t.Fatalf("%+v", starts)
	}
}

// What was undone is not there for the steps behind it.
func TestRetryBehindWhatWasUndone(t *testing.T) {
	first, second := execStep("lock"), execStep("move")
	first.Undo, second.OnFailure = []*program.Step{applyStep("free")}, v1alpha1.StepFailureUndo
	s := newScene(t, first, second)
	s.begins("uid.1.lock.1")
	s.done("uid.1.lock.1", Succeeded)
	s.begins("uid.1.move.1")
	s.done("uid.1.move.1", FailedForGood)
	s.begins("uid.1.lock.undo.free.1")
	s.run.Spec.Paused = true
	s.begins() // a pause tells nothing of why it is undone
	s.is(v1alpha1.RunUndoing, ReasonStepFailed)
	s.run.Spec.Paused = false
	s.done("uid.1.lock.undo.free.1", Succeeded)
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)
	s.run.Spec.Retry = &v1alpha1.RunRetry{ID: "1", From: "move"}
	s.begins()
	if s.is(v1alpha1.RunFailed, ReasonStepFailed); !strings.Contains(s.run.Status.Message, "because") || !strings.Contains(s.run.Status.Message, "lock has been undone") {
		t.Fatal(s.run.Status.Message)
	}
	s.run.Spec.Retry = &v1alpha1.RunRetry{ID: "2"}
	s.begins("uid.2.lock.1")
}

// A command that was stopped is said to be of unknown effect; and a pause keeps nothing from ending.
func TestCancelTellsWhatWasUnderWay(t *testing.T) {
	s := newScene(t, execStep("call"), applyStep("note"))
	s.begins("uid.1.call.1")
	s.run.Spec.Cancel, s.run.Spec.Paused = true, true
	s.begins()
	s.is(v1alpha1.RunCancelled, ReasonCancelled)
	s.stops("uid.1.call.1")
	for _, text := range []string{s.run.Status.Message, s.run.Status.Steps[0].Message} {
		if !strings.Contains(text, "nobody knows") {
			t.Error(text)
		}
	}
}

// An attempt that another process has written is not begun, though this one was about to begin one of the same name.
func TestAttemptOfAnotherEngine(t *testing.T) {
	s := newScene(t, execStep("call"))
	s.begins("uid.1.call.1")
	s.run.Status.Steps[0].Attempts[0].Engine = "other"
	d := Decide(Input{Now: s.now, Operation: s.op, Run: s.run, Turn: s.turn, Eval: s.eval, Revision: "r", Engine: "mine",
		Known: func(string) (Standing, Result) { return NotBegun, Result{} }})
	if len(d.Start) != 0 || d.Status.State != v1alpha1.RunUnknown {
		t.Fatalf("%+v", d)
	}
}
