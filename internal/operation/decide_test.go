package operation

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// scene drives one run by hand.
type scene struct {
	t       *testing.T
	op      *program.Operation
	run     *Run
	now     time.Time
	turn    Turn
	eval    *fakeEval
	results map[string]Result
	// lost: this process knows nothing of what was begun.
	lost     bool
	removing bool
	last     Decision
}

func newScene(t *testing.T, steps ...*program.Step) *scene {
	t.Helper()
	return &scene{t: t, now: noon, turn: Turn{Begin: true}, eval: newEval(), results: map[string]Result{},
		op:  &program.Operation{Name: "op", Hash: "h", Timeout: time.Hour, Steps: steps},
		run: &Run{Name: "run", UID: "uid", Generation: 1, Spec: v1alpha1.OperationRunSpec{Target: "x", Operation: "op"}}}
}

// decide persists a decision, and returns what is begun.
func (s *scene) decide() []Start {
	s.t.Helper()
	s.last = Decide(Input{Now: s.now, Operation: s.op, Run: s.run, Turn: s.turn, Eval: s.eval, Removing: s.removing, Revision: "r",
		Known: func(id string) (Standing, Result) {
			if r, ok := s.results[id]; ok {
				return Done, r
			}
			if s.lost {
				return Absent, Result{}
			}
			return Active, Result{}
		}})
	s.run.Status = *s.last.Status
	return s.last.Start
}

// begins decides, and wants exactly these attempts to begin.
func (s *scene) begins(ids ...string) {
	s.t.Helper()
	var got []string
	for _, start := range s.decide() {
		got = append(got, start.Attempt.ID)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		s.t.Fatalf("begun: %v; want %v; %s", got, ids, toText(s.run.Status))
	}
}

func (s *scene) stops(ids ...string) {
	s.t.Helper()
	var got []string
	for _, stop := range s.last.Stop {
		got = append(got, stop.Attempt.ID)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		s.t.Fatalf("stopped: %v; want %v", got, ids)
	}
}

func (s *scene) done(id string, outcome Outcome) {
	s.results[id] = Result{Outcome: outcome, Message: "because"}
}

func (s *scene) is(state v1alpha1.RunState, reason string) {
	s.t.Helper()
	if s.run.Status.State != state || s.run.Status.Reason != reason {
		s.t.Fatalf("%s %s; want %s %s: %s", s.run.Status.State, s.run.Status.Reason, state, reason, toText(s.run.Status))
	}
}

func (s *scene) stepIs(i int, state v1alpha1.StepState) {
	s.t.Helper()
	if got := s.run.Status.Steps[i].State; got != state {
		s.t.Fatalf("step %d is %s, want %s", i, got, state)
	}
}

func execStep(name string) *program.Step {
	return &program.Step{Name: name, BackoffInitial: time.Second, BackoffMax: 4 * time.Second, Action: program.Action{Exec: &program.ExecAction{}}}
}

func applyStep(name string) *program.Step {
	return &program.Step{Name: name, BackoffInitial: time.Second, BackoffMax: 4 * time.Second, Action: program.Action{Apply: &program.ApplyAction{}}}
}

func TestDecideOneStepAfterTheOther(t *testing.T) {
	s := newScene(t, execStep("a"), applyStep("b"))
	s.op.Output = program.StaticTemplate(nil)
	s.eval.templates[s.op.Output] = func(vars map[string]any) (any, error) {
		return map[string]any{"of": vars["steps"].(map[string]any)["b"].(map[string]any)["output"]}, nil
	}
	s.begins("uid.1.a.1")
	if s.is(v1alpha1.RunRunning, ""); s.run.Status.Step != "a" || s.run.Status.Progress != "0/2" {
		t.Fatal(toText(s.run.Status))
	}
	s.results["uid.1.a.1"] = Result{Outcome: Succeeded}
	s.begins("uid.1.b.1") // the end of one and the attempt of the next are one write
	s.results["uid.1.b.1"] = Result{Outcome: Succeeded, Output: map[string]any{"n": 3}}
	s.now = s.now.Add(90 * time.Second)
	s.begins()
	s.is(v1alpha1.RunSucceeded, ReasonSucceeded)
	st := s.run.Status
	if st.Duration != "1m30s" || st.Progress != "2/2" || toText(st.Output) != `{"of":{"n":3}}` || string(st.Conditions[0].Status) != "True" || st.Tries != 1 {
		t.Fatal(toText(st))
	}
	if s.decide(); s.last.Changed {
		t.Fatal("an ended run changes")
	}
}

func TestDecideTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		set    func(*scene)
		state  v1alpha1.RunState
		reason string
	}{
		"waits":     {func(s *scene) { s.turn = Turn{Message: "another"} }, v1alpha1.RunPending, ReasonWaitsForTurn},
		"paused":    {func(s *scene) { s.run.Spec.Paused = true }, v1alpha1.RunPending, ReasonPaused},
		"cancelled": {func(s *scene) { s.run.Spec.Cancel = true }, v1alpha1.RunCancelled, ReasonCancelled},
		"replaced":  {func(s *scene) { s.turn = Turn{Cancel: "a newer one"} }, v1alpha1.RunCancelled, ReasonCancelled},
		"deleted":   {func(s *scene) { s.run.Deleting = true }, v1alpha1.RunCancelled, ReasonCancelled},
		"no target": {func(s *scene) { s.turn = Turn{Fail: "there is none"} }, v1alpha1.RunFailed, ReasonImpossible},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, execStep("a"))
			tc.set(s)
			s.begins()
			s.is(tc.state, tc.reason)
		})
	}
}

func TestDecideRetries(t *testing.T) {
	step := execStep("a")
	step.Retries = 2
	s := newScene(t, step)
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Failed)
	s.begins()
	if want := noon.Add(time.Second); !s.last.Wake.Equal(want) {
		t.Fatalf("wakes at %s, want %s", s.last.Wake, want)
	}
	s.now = s.last.Wake
	s.begins("uid.1.a.2")
	s.results["uid.1.a.2"] = Result{Outcome: Failed, Message: "busy", RetryAfter: time.Minute}
	s.begins()
	if want := s.now.Add(time.Minute); !s.last.Wake.Equal(want) {
		t.Fatalf("Retry-After is not heeded: %s", s.last.Wake)
	}
	s.now = s.last.Wake
	s.begins("uid.1.a.3")
	s.done("uid.1.a.3", Failed)
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)

	s = newScene(t, step)
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", FailedForGood)
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)
}

func TestDecideUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		policy v1alpha1.UnknownPolicy
		verify Result
		state  v1alpha1.RunState
		// begins after the loss, and again after the answer.
		begins, then string
	}{
		"default": {policy: "", state: v1alpha1.RunUnknown},
		"fail":    {policy: v1alpha1.UnknownPolicyFail, state: v1alpha1.RunUnknown},
		"retry":   {policy: v1alpha1.UnknownPolicyRetry, state: v1alpha1.RunRunning, begins: "uid.1.a.2"},
		"verify: it had its effect": {policy: v1alpha1.UnknownPolicyVerify, state: v1alpha1.RunSucceeded, begins: "uid.1.a.1.v1",
			verify: Result{Outcome: Succeeded}},
		"verify: it had none": {policy: v1alpha1.UnknownPolicyVerify, state: v1alpha1.RunRunning, begins: "uid.1.a.1.v1", then: "uid.1.a.2",
			verify: Result{Outcome: Failed, Result: map[string]any{"exitCode": 1}}},
		"verify: 404": {policy: v1alpha1.UnknownPolicyVerify, state: v1alpha1.RunRunning, begins: "uid.1.a.1.v1", then: "uid.1.a.2",
			verify: Result{Outcome: FailedForGood, Result: map[string]any{"status": int64(404)}}},
		"verify: the command cannot be run": {policy: v1alpha1.UnknownPolicyVerify, state: v1alpha1.RunUnknown, begins: "uid.1.a.1.v1",
			verify: Result{Outcome: FailedForGood, Result: map[string]any{"exitCode": 127}}},
		"verify: forbidden": {policy: v1alpha1.UnknownPolicyVerify, state: v1alpha1.RunUnknown, begins: "uid.1.a.1.v1",
			verify: Result{Outcome: FailedForGood}},
	} {
		t.Run(name, func(t *testing.T) {
			step := execStep("a")
			step.Retries, step.OnUnknown = 1, tc.policy
			step.Verify = &program.Verify{Exec: &program.ExecAction{}}
			s := newScene(t, step)
			s.begins("uid.1.a.1")
			s.lost = true
			starts := s.decide()
			s.lost = false
			if tc.policy == v1alpha1.UnknownPolicyRetry {
				s.now = s.last.Wake
				starts = s.decide()
			}
			if tc.begins != "" && (len(starts) != 1 || starts[0].Attempt.ID != tc.begins) {
				t.Fatalf("begun: %+v", starts)
			}
			if tc.verify.Outcome != Waiting {
				s.results[tc.begins] = tc.verify
				s.begins(strings.Fields(tc.then)...)
			}
			if s.run.Status.State != tc.state {
				t.Fatalf("%s, want %s: %s", s.run.Status.State, tc.state, toText(s.run.Status))
			}
		})
	}
}

func TestDecideLooksAtWhatKnows(t *testing.T) {
	s := newScene(t, applyStep("a"))
	s.begins("uid.1.a.1")
	s.lost = true
	if starts := s.decide(); len(starts) != 1 || !starts[0].Resume || starts[0].Attempt.ID != "uid.1.a.1" {
		t.Fatalf("%+v", starts)
	}
	if s.last.Changed {
		t.Fatal("a look is no change")
	}
}

func TestDecideTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		step   *program.Step
		state  v1alpha1.RunState
		reason string
	}{
		"a command":  {execStep("a"), v1alpha1.RunUnknown, ReasonOutcomeUnknown},
		"an object":  {applyStep("a"), v1alpha1.RunFailed, ReasonStepFailed},
		"out of all": {func() *program.Step { s := applyStep("a"); s.Timeout = 2 * time.Hour; return s }(), v1alpha1.RunFailed, ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.step.Timeout == 0 {
				tc.step.Timeout = time.Minute
			}
			s := newScene(t, tc.step)
			s.begins("uid.1.a.1")
			for range 3 {
				if s.last.Wake.IsZero() {
					break
				}
				s.now = s.last.Wake
				s.begins()
			}
			s.is(tc.state, tc.reason)
			s.stops("uid.1.a.1")
		})
	}
}

func TestDecideWaitsForValues(t *testing.T) {
	s := newScene(t, applyStep("a"))
	template := program.StaticTemplate(nil)
	s.op.Steps[0].Action.Apply.Template = template
	var err error = &expr.PendingError{Variable: "service", Path: []string{"status"}}
	s.eval.templates[template] = func(map[string]any) (any, error) { return nil, err }
	s.begins()
	if s.run.Status.Message != "waiting for service.status" || len(s.run.Status.Steps[0].Attempts) > 0 {
		t.Fatal(toText(s.run.Status))
	}
	err = nil
	s.begins("uid.1.a.1")

	s.run.Status = v1alpha1.OperationRunStatus{}
	err = errors.New("division by zero")
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)
}

func TestDecideOnFailure(t *testing.T) {
	first, second := applyStep("a"), execStep("b")
	first.Undo = []*program.Step{applyStep("back")}
	second.OnFailure = v1alpha1.StepFailureUndo
	s := newScene(t, first, second)
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Succeeded)
	s.begins("uid.1.b.1")
	s.done("uid.1.b.1", FailedForGood)
	s.begins("uid.1.a.undo.back.1")
	s.is(v1alpha1.RunUndoing, ReasonStepFailed)
	s.done("uid.1.a.undo.back.1", Succeeded)
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)
	s.stepIs(0, v1alpha1.StepUndone)
	s.stepIs(1, v1alpha1.StepFailed)
	if s.run.Status.Step != "b" {
		t.Fatal(toText(s.run.Status))
	}

	second.OnFailure = v1alpha1.StepFailureContinue
	s = newScene(t, second, first)
	s.begins("uid.1.b.1")
	s.done("uid.1.b.1", FailedForGood)
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Succeeded)
	s.begins()
	s.is(v1alpha1.RunSucceeded, ReasonSucceeded)
}

func TestDecideCancel(t *testing.T) {
	s := newScene(t, execStep("a"), execStep("b"))
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Succeeded)
	s.run.Spec.Cancel = true
	s.begins()
	s.is(v1alpha1.RunCancelled, ReasonCancelled)
	s.stepIs(0, v1alpha1.StepSucceeded) // what had come to its end is noted

	s = newScene(t, execStep("a"))
	s.begins("uid.1.a.1")
	s.run.Spec.Cancel = true
	s.begins()
	s.stops("uid.1.a.1")
	s.is(v1alpha1.RunCancelled, ReasonCancelled)
	s.stepIs(0, v1alpha1.StepCancelled)
}

func TestDecideRetryByUser(t *testing.T) {
	fail := func(from string) *scene {
		s := newScene(t, applyStep("a"), execStep("b"), execStep("c"))
		s.begins("uid.1.a.1")
		s.results["uid.1.a.1"] = Result{Outcome: Succeeded, Output: "kept"}
		s.begins("uid.1.b.1")
		s.done("uid.1.b.1", Unknown)
		s.begins()
		s.is(v1alpha1.RunUnknown, ReasonOutcomeUnknown)
		s.run.Spec.Retry = &v1alpha1.RunRetry{ID: "1", From: from}
		return s
	}
	s := fail("")
	s.begins("uid.2.b.1")
	if s.run.Status.Steps[0].Output.Value != "kept" || s.run.Status.Tries != 2 {
		t.Fatal(toText(s.run.Status))
	}
	s = fail("c") // a user has seen that b had its effect
	s.begins("uid.2.c.1")
	s.done("uid.2.c.1", Succeeded)
	s.begins()
	s.is(v1alpha1.RunSucceeded, ReasonSucceeded)
	s = fail("a")
	s.begins("uid.2.a.1")
	s = fail("z")
	s.begins()
	s.is(v1alpha1.RunUnknown, ReasonOutcomeUnknown)
	if s.decide(); s.last.Changed {
		t.Fatal("a refused retry is refused again")
	}
}

func TestDecideDefinitionChanged(t *testing.T) {
	s := newScene(t, execStep("a"))
	s.begins("uid.1.a.1")
	s.op = &program.Operation{Name: "op", Hash: "other", Timeout: time.Hour, Steps: []*program.Step{execStep("b")}}
	s.begins()
	s.stops("uid.1.a.1")
	s.is(v1alpha1.RunFailed, ReasonDefinitionChanged)
	s.run.Spec.Retry = &v1alpha1.RunRetry{ID: "1"}
	s.begins("uid.2.b.1")
}

func TestDecideForEach(t *testing.T) {
	step := execStep("a")
	step.ForEach, step.Parallel = &program.ForEach{Var: "x"}, 2
	s := newScene(t, step)
	s.eval.items[step.ForEach] = []any{"p", "q", "r"}
	starts := s.decide()
	if len(starts) != 2 || starts[1].Item != 1 || starts[1].Vars["x"] != "q" {
		t.Fatalf("%+v", starts)
	}
	s.eval.items[step.ForEach] = []any{"changed"} // they are what they were when the step began
	s.results["uid.1.a.0.1"] = Result{Outcome: Succeeded, Output: "one"}
	s.begins("uid.1.a.2.1")
	s.results["uid.1.a.1.1"] = Result{Outcome: Succeeded, Output: "two"}
	s.done("uid.1.a.2.1", Succeeded)
	s.begins()
	s.is(v1alpha1.RunSucceeded, ReasonSucceeded)
	if got := toText(s.run.Status.Steps[0].Output); got != `["one","two",null]` {
		t.Fatal(got)
	}
}

func TestDecideOutputTooLarge(t *testing.T) {
	s := newScene(t, execStep("a"))
	s.begins("uid.1.a.1")
	s.results["uid.1.a.1"] = Result{Outcome: Succeeded, Output: strings.Repeat("x", MaxOutput)}
	s.begins()
	s.is(v1alpha1.RunFailed, ReasonStepFailed)
	if !strings.Contains(s.run.Status.Message, "8192") {
		t.Fatal(s.run.Status.Message)
	}
}

func TestDecideRemoval(t *testing.T) {
	s := newScene(t, execStep("a"))
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Succeeded)
	s.begins()
	s.removing, s.run.Deleting = true, true
	if s.begins(); !s.last.Removed {
		t.Fatal("nothing has to be removed")
	}
	s.op.OnRemove = []*program.Step{applyStep("drop")}
	s.begins("uid.1.remove.drop.1")
	s.done("uid.1.remove.drop.1", FailedForGood)
	s.begins()
	s.is(v1alpha1.RunSucceeded, ReasonRemovalFailed)
	s.now = s.last.Wake
	s.begins("uid.1.remove.drop.2") // what is to be removed is not forgotten
	s.done("uid.1.remove.drop.2", Succeeded)
	if s.begins(); !s.last.Removed {
		t.Fatal("all is removed")
	}
}

func TestDecideClockSetBack(t *testing.T) {
	step := execStep("a")
	step.Retries = 1
	s := newScene(t, step)
	s.begins("uid.1.a.1")
	s.done("uid.1.a.1", Failed)
	s.begins()
	s.now = s.now.Add(-24 * time.Hour)
	s.begins()
	if pause := s.last.Wake.Sub(s.now); pause != time.Second {
		t.Fatalf("the pause has become %s", pause)
	}
}

// A definition that changes under a verifying attempt, and has no verify any more, ends the run; it does not break the machine.
func TestVerifyIsGone(t *testing.T) {
	op := &program.Operation{Name: "op", Hash: "new", Timeout: time.Hour, Steps: []*program.Step{{Name: "call", Action: program.Action{HTTP: &program.HTTPAction{Method: "POST"}}}}}
	run := &Run{Name: "r", UID: "u", Spec: v1alpha1.OperationRunSpec{Operation: "op"}}
	start := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	run.Status = v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning, Program: "old", Tries: 1, StartTime: &start, Steps: []v1alpha1.StepStatus{{
		Name: "call", State: v1alpha1.StepRunning, StartTime: &start, Attempts: []v1alpha1.Attempt{
			{ID: "u.1.call.1", Number: 1, State: v1alpha1.StepUnknown, StartTime: start},
			{ID: "u.1.call.1.v1", Number: 1, Verify: true, State: v1alpha1.StepRunning, StartTime: start},
		},
	}}}
	for name, now := range map[string]*program.Operation{"another step": op, "no step": {Name: "op", Hash: "newer"}} {
		d := Decide(Input{Now: start.Add(time.Second), Operation: now, Run: run, Turn: Turn{Begin: true}})
		if d.Status.State != v1alpha1.RunFailed || d.Status.Reason != ReasonDefinitionChanged || len(d.Stop) != 1 {
			t.Errorf("%s: %s %s, %d to stop", name, d.Status.State, d.Status.Reason, len(d.Stop))
		}
	}
}
