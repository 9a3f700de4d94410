package operation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// fakeEval computes what it was told to; what it was not told is true, or nothing.
type fakeEval struct {
	bools     map[*expr.Expr]func() (bool, error)
	items     map[*program.ForEach][]any
	templates map[*program.Template]func(vars map[string]any) (any, error)
}

func newEval() *fakeEval {
	return &fakeEval{bools: map[*expr.Expr]func() (bool, error){}, items: map[*program.ForEach][]any{},
		templates: map[*program.Template]func(map[string]any) (any, error){}}
}

func (e *fakeEval) Bool(x *expr.Expr, _ map[string]any) (bool, error) {
	if f := e.bools[x]; f != nil {
		return f()
	}
	return true, nil
}

func (e *fakeEval) Items(f *program.ForEach, _ int, _ map[string]any) ([]any, error) {
	return e.items[f], nil
}

func (e *fakeEval) Template(t *program.Template, vars map[string]any) (any, error) {
	if f := e.templates[t]; f != nil {
		return f(vars)
	}
	return nil, nil
}

func (e *fakeEval) Text(*program.Template, map[string]any) (string, error) { return "", nil }

// world is an environment that does what Decide says, badly.
type world struct {
	t    *testing.T
	rand *rand.Rand
	op   *program.Operation
	run  *Run
	now  time.Time
	eval *fakeEval
	turn Turn
	// fair: nothing is lost any more, and what is tried succeeds or fails.
	fair bool
	// active are the attempts that this process works on, results those that are done, proposed those that were not begun.
	active   map[string]Start
	results  map[string]Result
	proposed map[string]bool
	// begun are the attempts that were begun anew; persisted those that were in a persisted status.
	begun, persisted map[string]bool
	// effects counts the effects by key; over are the keys that have succeeded.
	effects  map[string]int
	over     map[string]bool
	removing bool
	removed  bool
	wake     time.Time
	trace    []string
	// away: what expressions read is not there.
	away bool
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	status, _ := json.MarshalIndent(w.run.Status, "", " ")
	for _, line := range w.trace[max(0, len(w.trace)-40):] {
		w.t.Log(line)
	}
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), status)
}

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

func (w *world) known(id string) (Standing, Result) {
	if _, ok := w.active[id]; ok {
		return Active, Result{}
	}
	if r, ok := w.results[id]; ok {
		return Done, r
	}
	if w.proposed[id] {
		return NotBegun, Result{}
	}
	return Absent, Result{}
}

func (w *world) input(run *Run) Input {
	return Input{Now: w.now, Operation: w.op, Run: run, Turn: w.turn, Revision: "r1", Eval: w.eval, Known: w.known, Removing: w.removing}
}

func stored(w *world, st *v1alpha1.OperationRunStatus) v1alpha1.OperationRunStatus {
	data, err := json.Marshal(st)
	if err != nil {
		w.fatalf("the status cannot be written: %v", err)
	}
	if len(data) > 400_000 {
		w.fatalf("the status has %d bytes", len(data))
	}
	var out v1alpha1.OperationRunStatus
	if err := json.Unmarshal(data, &out); err != nil {
		w.fatalf("the status cannot be read: %v", err)
	}
	return out
}

func (w *world) decide() {
	before, _ := json.Marshal(w.run.Status)
	d := Decide(w.input(w.run))
	if again := Decide(w.input(w.run)); toText(d) != toText(again) {
		w.fatalf("the same input yields another decision:\n%s\n%s", toText(d), toText(again))
	}
	if after, _ := json.Marshal(w.run.Status); string(before) != string(after) {
		w.fatalf("Decide changes its input")
	}
	st := stored(w, d.Status)
	if changed := toText(st) != string(before); changed != d.Changed {
		w.fatalf("Changed is %v:\n%s\n%s", d.Changed, before, toText(st))
	}
	lost := !w.fair && d.Changed && w.chance(10)
	if lost && w.chance(50) {
		w.trace = append(w.trace, "persist failed")
		w.propose(d.Start)
		return
	}
	w.run.Status = st
	w.note(st.Steps)
	w.note(st.Removal)
	if lost {
		w.trace = append(w.trace, "persist seemed to have failed")
		w.propose(d.Start)
		return
	}
	if !w.fair && w.chance(5) {
		w.crash()
		return
	}
	for _, s := range d.Stop {
		w.stop(s)
	}
	if st.State.Ended() && !w.removing && len(d.Start) > 0 {
		w.fatalf("%d attempts of an ended run", len(d.Start))
	}
	for _, s := range d.Start {
		w.start(s)
	}
	w.wake, w.removed = d.Wake, d.Removed
	if d := Decide(w.input(w.run)); d.Changed && !w.anyDone() {
		w.fatalf("a second decision has changed the status: %s", toText(d.Status))
	}
}

func toText(v any) string {
	if d, ok := v.(Decision); ok {
		text := toText(d.Status) + fmt.Sprint(d.Changed, d.Wake, d.Removed)
		for _, list := range [][]Start{d.Start, d.Stop} {
			for _, s := range list {
				text += fmt.Sprint(" ", s.Attempt.ID, s.Resume, s.Deadline)
			}
		}
		return text
	}
	data, _ := json.Marshal(v)
	return string(data)
}

func (w *world) anyDone() bool {
	for id := range w.results {
		if w.running(id, w.run.Status.Steps) || w.running(id, w.run.Status.Removal) {
			return true
		}
	}
	return false
}

func (w *world) running(id string, steps []v1alpha1.StepStatus) bool {
	found := false
	eachAttempt(steps, func(a v1alpha1.Attempt) { found = found || a.ID == id && a.State == v1alpha1.StepRunning })
	return found
}

func eachAttempt(steps []v1alpha1.StepStatus, f func(v1alpha1.Attempt)) {
	for _, s := range steps {
		for _, a := range s.Attempts {
			f(a)
		}
		for _, item := range s.Items {
			for _, a := range item.Attempts {
				f(a)
			}
			eachAttempt(item.Undo, f)
		}
		eachAttempt(s.Undo, f)
	}
}

// note checks a status that is persisted now.
func (w *world) note(steps []v1alpha1.StepStatus) {
	for _, s := range steps {
		if len(s.Attempts) > keptAttempts || len(s.Message) > maxMessage {
			w.fatalf("step %s is not bounded", s.Name)
		}
		w.noteOver(s.State, s.Attempts)
		for _, item := range s.Items {
			w.noteOver(item.State, item.Attempts)
		}
		if s.State.Ended() {
			own := v1alpha1.StepStatus{Attempts: s.Attempts}
			for _, item := range s.Items {
				own.Items = append(own.Items, v1alpha1.ItemStatus{Attempts: item.Attempts}) // its undo steps come later
			}
			eachAttempt([]v1alpha1.StepStatus{own}, func(a v1alpha1.Attempt) {
				if a.State == v1alpha1.StepRunning {
					w.fatalf("step %s has ended, and attempt %s goes on", s.Name, a.ID)
				}
			})
		}
	}
	eachAttempt(steps, func(a v1alpha1.Attempt) { w.persisted[a.ID] = true })
}

// doing is what is done in a try of the run: the ID without the number. The idempotency key may be that of a try before.
func doing(s Start) string {
	id, _, _ := strings.Cut(s.Attempt.ID, ".v")
	return id[:strings.LastIndex(id, ".")]
}

// noteOver notes that nothing more may be begun of a step or item that has ended.
func (w *world) noteOver(state v1alpha1.StepState, attempts []v1alpha1.Attempt) {
	if !state.Ended() || len(attempts) == 0 {
		return
	}
	id, _, _ := strings.Cut(attempts[0].ID, ".v")
	w.over[id[:strings.LastIndex(id, ".")]] = true
}

func (w *world) propose(starts []Start) {
	for _, s := range starts {
		if _, known := w.active[s.Attempt.ID]; !s.Resume && !known {
			w.proposed[s.Attempt.ID] = true
		}
	}
}

func (w *world) start(s Start) {
	id := s.Attempt.ID
	if !w.persisted[id] {
		w.fatalf("attempt %s is not persisted", id)
	}
	if w.over[doing(s)] {
		w.fatalf("attempt %s of what has ended", id)
	}
	if _, ok := w.active[id]; ok {
		return
	}
	if !s.Resume && w.begun[id] {
		w.fatalf("attempt %s is begun twice", id)
	}
	w.trace = append(w.trace, fmt.Sprint("start ", id, " resume ", s.Resume))
	delete(w.proposed, id)
	delete(w.results, id)
	w.begun[id] = true
	w.active[id] = s
}

// act has the effect of an attempt. An action that knows finds what it did before.
func (w *world) act(s Start) {
	if s.Attempt.Verify || s.Action.Knows() && w.effects[doing(s)] > 0 {
		return
	}
	w.effects[doing(s)]++
	policy := s.Step.OnUnknown
	if w.effects[doing(s)] > 1 && policy != v1alpha1.UnknownPolicyRetry {
		w.fatalf("attempt %s: the effect of %s is had %d times, policy %q", s.Attempt.ID, doing(s), w.effects[doing(s)], policy)
	}
}

func (w *world) stop(s Start) {
	w.trace = append(w.trace, "stop "+s.Attempt.ID)
	if active, ok := w.active[s.Attempt.ID]; ok && w.chance(50) {
		w.act(active)
	}
	delete(w.active, s.Attempt.ID)
	delete(w.results, s.Attempt.ID)
}

func (w *world) crash() {
	w.trace = append(w.trace, "crash")
	for _, s := range w.active {
		if w.chance(50) {
			w.act(s)
		}
	}
	w.active, w.results, w.proposed = map[string]Start{}, map[string]Result{}, map[string]bool{}
}

// work brings an attempt to an end.
func (w *world) work() bool {
	id := ""
	for other := range w.active {
		if id == "" || other < id { // the order of a map must not matter
			id = other
		}
	}
	if id == "" {
		return false
	}
	s := w.active[id]
	delete(w.active, id)
	r := w.result(s)
	w.trace = append(w.trace, fmt.Sprint("done ", id, " ", r.Outcome))
	w.results[id] = r
	return true
}

func (w *world) result(s Start) Result {
	if s.Attempt.Verify {
		switch {
		case !w.fair && w.chance(20):
			return Result{Outcome: Failed, Message: "cannot ask"}
		case w.effects[doing(s)] > 0:
			return Result{Outcome: Succeeded, Result: map[string]any{"exitCode": 0}}
		}
		return Result{Outcome: FailedForGood, Result: map[string]any{"exitCode": 1}, Message: "exit code 1"}
	}
	if s.Resume && !w.begunHere(s) && s.Attempt.Ref == "" && !s.Action.Knows() {
		w.fatalf("attempt %s cannot be looked at", s.Attempt.ID)
	}
	dice := w.rand.IntN(100)
	switch {
	case dice < 50 || w.fair && dice < 85:
		w.act(s)
		return Result{Outcome: Succeeded, Output: map[string]any{"n": 1}}
	case dice < 75:
		return Result{Outcome: Failed, Message: "it failed", RetryAfter: time.Duration(w.rand.IntN(20)) * time.Second}
	case dice < 85 && !w.fair:
		if w.chance(50) {
			w.act(s)
		}
		return Result{Outcome: Unknown, Message: "no answer"}
	case dice < 92 && !w.fair:
		return Result{Outcome: Waiting, Message: "it goes on"}
	}
	return Result{Outcome: FailedForGood, Message: "it is refused"}
}

func (w *world) begunHere(s Start) bool { return w.begun[s.Attempt.ID] }

// randomOperation makes an operation.
func (w *world) randomOperation() {
	retryable := []v1alpha1.UnknownPolicy{"", v1alpha1.UnknownPolicyRetry, v1alpha1.UnknownPolicyFail, v1alpha1.UnknownPolicyVerify}
	w.op = &program.Operation{Name: "op", Hash: "h", Timeout: time.Duration(1+w.rand.IntN(60)) * time.Minute}
	cleanup := func(name string) *program.Step {
		s := &program.Step{Name: name, Retries: w.rand.IntN(3), BackoffInitial: time.Second, BackoffMax: time.Minute, OnUnknown: v1alpha1.UnknownPolicyRetry}
		w.randomAction(s)
		return s
	}
	for i := range 1 + w.rand.IntN(4) {
		s := &program.Step{Name: fmt.Sprintf("s%d", i), Retries: w.rand.IntN(4), BackoffInitial: time.Second, BackoffMax: time.Minute}
		w.randomAction(s)
		s.OnFailure = []v1alpha1.StepFailure{"", v1alpha1.StepFailureFail, v1alpha1.StepFailureContinue, v1alpha1.StepFailureUndo}[w.rand.IntN(4)]
		s.OnUnknown = retryable[w.rand.IntN(4)]
		if s.OnUnknown == v1alpha1.UnknownPolicyVerify {
			s.Verify = &program.Verify{Exec: &program.ExecAction{}}
		}
		if w.chance(30) {
			s.Timeout = time.Duration(5+w.rand.IntN(60)) * time.Second
		}
		if w.chance(25) {
			s.ForEach, s.Parallel = &program.ForEach{Var: "item"}, w.rand.IntN(4)
			for n := range w.rand.IntN(5) {
				w.eval.items[s.ForEach] = append(w.eval.items[s.ForEach], int64(n))
			}
		}
		if w.chance(30) {
			s.When = &expr.Expr{}
			skip := w.chance(30)
			w.eval.bools[s.When] = func() (bool, error) {
				if w.away && !w.fair {
					return false, &expr.PendingError{Variable: "other"}
				}
				return !skip, nil
			}
		}
		if w.chance(40) {
			s.Undo = append(s.Undo, cleanup("u"))
		}
		w.op.Steps = append(w.op.Steps, s)
	}
	if w.chance(40) {
		w.op.OnRemove = append(w.op.OnRemove, cleanup("r1"), cleanup("r2"))
	}
}

func (w *world) randomAction(s *program.Step) {
	switch w.rand.IntN(6) {
	case 2:
		s.Action.HTTP = &program.HTTPAction{Method: "PUT"}
	case 3:
		s.Action.HTTP = &program.HTTPAction{Method: "POST"}
	case 0:
		s.Action.Apply = &program.ApplyAction{}
	case 1:
		s.Action.Job = &program.JobAction{}
	default:
		s.Action.Exec = &program.ExecAction{}
	}
}

// disturb lets something happen.
func (w *world) disturb() {
	switch dice := w.rand.IntN(100); {
	case dice < 40:
		w.work()
	case dice < 55:
		w.now = w.now.Add(time.Duration(w.rand.IntN(5000)) * time.Millisecond)
	case dice < 65:
		if !w.wake.IsZero() && w.wake.After(w.now) {
			w.now = w.wake
		}
	case dice < 72:
		w.crash()
	case dice < 75:
		w.run.Spec.Paused = !w.run.Spec.Paused
	case dice < 77:
		w.now = w.now.Add(-time.Duration(w.rand.IntN(7200)) * time.Second)
	case dice < 79:
		w.now = w.now.Add(time.Duration(w.rand.IntN(600)) * time.Second)
	case dice < 80:
		w.run.Spec.Cancel = true
	case dice < 82:
		w.run.Spec.Retry = &v1alpha1.RunRetry{ID: fmt.Sprint(w.rand.IntN(3)), From: []string{"", "s0", "s1", "s9"}[w.rand.IntN(4)]}
	case dice < 84:
		w.turn.Begin = !w.turn.Begin
	case dice < 90:
		w.away = !w.away
	case dice < 91:
		op := *w.op
		op.Hash += "x"
		w.op = &op
	}
}

// settle runs in a fair world until all is done.
func (w *world) settle() {
	w.fair, w.turn, w.run.Spec.Paused = true, Turn{Begin: true}, false
	for range 2000 {
		w.decide()
		if w.removing && w.removed || !w.removing && w.run.Status.State.Ended() && !Waits(w.run) {
			return
		}
		switch {
		case w.work() || w.anyDone():
		case w.wake.After(w.now):
			w.now = w.wake
		default:
			w.fatalf("the run is stuck")
		}
	}
	w.fatalf("the run does not end")
}

func TestSimulation(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 50
	}
	states := map[v1alpha1.RunState]int{}
	for seed := range seeds {
		w := &world{t: t, rand: rand.New(rand.NewPCG(uint64(seed), 7)), eval: newEval(), turn: Turn{Begin: true},
			now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC), active: map[string]Start{}, results: map[string]Result{},
			proposed: map[string]bool{}, begun: map[string]bool{}, persisted: map[string]bool{}, effects: map[string]int{}, over: map[string]bool{}}
		w.trace = append(w.trace, fmt.Sprint("seed ", seed))
		w.randomOperation()
		w.run = &Run{Name: "run", Namespace: "ns", UID: types.UID("uid"), Generation: 1, Created: w.now,
			Spec: v1alpha1.OperationRunSpec{Target: "x", Operation: "op"}}
		for range 60 {
			w.decide()
			w.disturb()
		}
		w.settle()
		states[w.run.Status.State]++
		if w.run.Status.State == v1alpha1.RunSucceeded {
			w.removing, w.run.Deleting, w.fair, w.wake = true, true, false, time.Time{}
			for range 20 {
				w.decide()
				if w.removed {
					break
				}
				switch {
				case w.chance(20):
					w.crash()
				case w.work():
				case w.wake.After(w.now):
					w.now = w.wake
				}
			}
			if !w.removed {
				w.settle()
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Log(states)
	for _, s := range []v1alpha1.RunState{v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunUnknown} {
		if states[s] == 0 {
			t.Errorf("no run has ended as %s: %v", s, states)
		}
	}
}
