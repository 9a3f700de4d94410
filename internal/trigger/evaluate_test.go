package trigger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is an instance, what is remembered of it, and the runs that were made.
type world struct {
	t          *testing.T
	now        time.Time
	self       map[string]any
	memory     []v1alpha1.OperationMemory
	known      bool
	memoryless bool
	runs       []*operation.Run
	engine     int
	engineAt   time.Time
	resumed    bool
	operations []*program.Operation
	watched    map[string]any
	unknown    bool
	// fired are the names of all runs that were ever begun, in order.
	fired []string
}

func newWorld(t *testing.T, triggers ...*program.Trigger) *world {
	t.Helper()
	for i, tr := range triggers {
		tr.Index = i
	}
	return &world{
		t: t, now: began, engineAt: began, watched: map[string]any{},
		operations: []*program.Operation{{Name: "op", Triggers: triggers, Concurrency: v1alpha1.ConcurrencyForbid}},
		self: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "thing", "namespace": "ns", "uid": "uid-1", "generation": int64(1), "creationTimestamp": began.Format(time.RFC3339)},
			"spec":     map[string]any{"n": int64(1), "other": "x"},
		},
	}
}

type evaluator struct{ *render.Evaluation }

func (e evaluator) Bool(x *expr.Expr, vars map[string]any) (bool, error) { return e.With(vars).Bool(x) }
func (e evaluator) Items(f *program.ForEach, most int, vars map[string]any) ([]any, error) {
	return e.With(vars).Items(f, most)
}
func (e evaluator) Template(t *program.Template, vars map[string]any) (any, error) {
	return e.With(vars).Template(t)
}
func (e evaluator) Text(t *program.Template, vars map[string]any) (string, error) {
	return e.With(vars).Text(t)
}

// cel compiles an expression over self and old.
func cel(t *testing.T, src string) *expr.Expr {
	t.Helper()
	env, err := expr.NewEnv([]expr.Variable{{Name: "self"}, {Name: "old", Optional: true}, {Name: "later", Pending: true}}, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, problems := env.Compile(src, expr.Any)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", src, problems[0].Message)
	}
	return x
}

// evaluate evaluates once and does what it says; persist: what is to be remembered is.
func (w *world) evaluate(persist bool) Output {
	w.t.Helper()
	out := Evaluate(Input{
		Now: w.now, Operations: w.operations, Self: w.self, Revision: "r1", Memory: w.memory, Known: w.known, Memoryless: w.memoryless,
		Runs: w.runs, Engine: fmt.Sprint("engine-", w.engine), Resumed: w.resumed, EngineStart: w.engineAt,
		Eval:    evaluator{render.New(&program.Program{}, w.self)},
		Watched: func(name string) (any, bool) { return w.watched[name], !w.unknown },
	})
	for _, f := range out.Fire {
		if slices.ContainsFunc(w.runs, func(r *operation.Run) bool { return r.Name == f.Name }) {
			continue // it exists already
		}
		trigger := f.Trigger
		w.fired = append(w.fired, f.Name)
		w.runs = append(w.runs, &operation.Run{Namespace: "ns", Name: f.Name, Created: w.now, Params: f.Params,
			Spec: v1alpha1.OperationRunSpec{Target: "thing", Operation: f.Operation.Name, Trigger: &trigger}})
	}
	w.resumed = out.Resumed
	if persist {
		w.memory, w.known = out.Memory, true
	}
	return out
}

// end ends all runs, well.
func (w *world) end() {
	for _, r := range w.runs {
		if !r.Status.State.Ended() {
			at := metav1.NewMicroTime(w.now)
			r.Status.State, r.Status.CompletionTime = v1alpha1.RunSucceeded, &at
		}
	}
}

func (w *world) restart() { w.engine++; w.engineAt, w.resumed = w.now, false }

func (w *world) edit(n int64) {
	w.self = runtime.DeepCopyJSON(w.self)
	w.self["spec"].(map[string]any)["n"] = n
	meta := w.self["metadata"].(map[string]any)
	meta["generation"] = meta["generation"].(int64) + 1
}

// expect evaluates and ends, and fails the test unless so many runs have been begun since the last call.
func (w *world) expect(what string, n int) Output {
	w.t.Helper()
	before := len(w.fired)
	out := w.evaluate(true)
	if got := len(w.fired) - before; got != n {
		w.t.Errorf("%s: %d runs, want %d (fire %+v, notes %v, problems %v)", what, got, n, out.Fire, out.Notes, out.Problems)
	}
	w.end()
	again := w.evaluate(false)
	if len(again.Fire) > 0 && n > 0 && len(w.fired)-before != n {
		w.t.Errorf("%s: it fires again: %+v", what, again.Fire)
	}
	if !reflect.DeepEqual(again.Memory, w.memory) {
		w.t.Errorf("%s: a second look remembers something else:\n%+v\n%+v", what, w.memory, again.Memory)
	}
	return out
}

func event(e v1alpha1.EventTrigger) *program.Trigger {
	return &program.Trigger{Type: v1alpha1.TriggerType(e), Event: e}
}

func TestCreate(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerCreate))
	w.expect("new", 1)
	w.expect("again", 0)
	w.restart()
	w.expect("after a restart", 0)
	w.edit(2)
	w.expect("after an edit", 0)
	w.runs = nil
	w.expect("when the record is gone", 0)

	old := newWorld(t, event(v1alpha1.EventTriggerCreate))
	old.known = true
	old.expect("an instance that was there before the operation", 0)
	old.restart()
	old.expect("and after a restart", 0)

	late := newWorld(t, event(v1alpha1.EventTriggerCreate))
	late.operations[0].Triggers[0].When = cel(t, "later.ready")
	late.expect("a value is not there yet", 0)
	late.operations[0].Triggers[0].When = nil
	late.expect("now it is", 1)

	no := newWorld(t, event(v1alpha1.EventTriggerCreate))
	no.operations[0].Triggers[0].When = cel(t, "self.spec.n > 1")
	no.expect("when says no", 0)
	no.edit(5)
	no.expect("and that is that", 0)
}

func TestUpdate(t *testing.T) {
	update := event(v1alpha1.EventTriggerUpdate)
	update.Fields = [][]string{{"spec", "n"}}
	update.OldFields = [][]string{{"spec", "other"}}
	w := newWorld(t, update)
	w.expect("the starting point", 0)
	w.edit(2)
	out := w.expect("an edit", 1)
	if tr := out.Fire[0].Trigger; fmt.Sprint(tr.Old) != "map[spec:map[n:1 other:x]]" || !slices.Equal(tr.Fields, []string{"spec.n"}) {
		t.Errorf("old %v, fields %v", tr.Old, tr.Fields)
	}
	w.expect("again", 0)
	w.self["spec"].(map[string]any)["other"] = "y"
	w.expect("a field that does not count", 0)
	w.restart()
	w.edit(3)
	w.expect("an edit while no engine ran", 1)

	// Edits while a run goes on make one run with what was handled before.
	w.edit(4)
	w.evaluate(true)
	w.edit(5)
	w.evaluate(true)
	w.edit(6)
	w.evaluate(true)
	w.end()
	out = w.expect("edits while a run went on", 1)
	if got := fmt.Sprint(out.Fire[0].Trigger.Old); !strings.Contains(got, "n:4") {
		t.Errorf("old is %s, want what the run before saw", got)
	}
	// Back to what was: nothing has happened.
	w.evaluate(true)
	w.edit(7)
	w.edit(6)
	w.expect("there and back", 0)

	filtered := newWorld(t, event(v1alpha1.EventTriggerUpdate))
	filtered.operations[0].Triggers[0].When = cel(t, "self.spec.n > old.?spec.n.orValue(0)")
	filtered.expect("the starting point", 0)
	filtered.edit(0)
	filtered.expect("less: when says no", 0)
	filtered.edit(1)
	filtered.expect("not more than what the last run saw", 0)
	filtered.edit(2)
	filtered.expect("more than that", 1)
}

func TestCreateAndUpdateTogether(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerCreate), event(v1alpha1.EventTriggerUpdate))
	w.expect("new", 1)
	w.edit(2)
	w.expect("an edit", 1)
}

func TestDelete(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerCreate), event(v1alpha1.EventTriggerDelete), schedule("* * * * *"))
	w.expect("new", 1)
	w.self["metadata"].(map[string]any)["deletionTimestamp"] = began.Format(time.RFC3339)
	w.now = w.now.Add(time.Hour)
	w.expect("deleted", 1)
	w.expect("again", 0)
	w.restart()
	w.expect("after a restart", 0)
}

func TestResume(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerResume))
	w.expect("a new instance", 0)
	w.expect("again", 0)
	w.restart()
	w.expect("the engine starts", 1)
	w.expect("again", 0)
	w.restart()
	w.expect("the engine starts again", 1)
}

func schedule(text string) *program.Trigger {
	return &program.Trigger{Type: v1alpha1.TriggerTypeSchedule, Schedule: program.StaticTemplate(text), Missed: v1alpha1.MissedPolicySkip, StartingDeadline: time.Minute}
}

func TestSchedule(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	out := w.expect("the starting point", 0)
	if want := began.Add(time.Hour); !out.Wake.Equal(want) {
		t.Errorf("wakes at %s, want %s", out.Wake, want)
	}
	w.now = began.Add(time.Hour + time.Second)
	out = w.expect("due", 1)
	if got := out.Fire[0].Trigger.Time; !got.Time.Equal(began.Add(time.Hour)) {
		t.Errorf("the time is %s", got)
	}
	w.now = began.Add(30 * time.Minute)
	w.expect("clocks put back", 0)
	w.now = began.Add(time.Hour + time.Minute)
	w.expect("the same time comes again", 0)

	w.now = began.Add(2*time.Hour + 10*time.Minute)
	out = w.expect("late beyond the deadline", 0)
	if len(out.Notes) != 1 || out.Notes[0].Reason != ReasonMissedSchedule {
		t.Errorf("notes %v", out.Notes)
	}
	// A run that goes on lets the next time pass.
	w.now = began.Add(3 * time.Hour)
	w.evaluate(true)
	w.now = began.Add(4 * time.Hour)
	if out = w.evaluate(true); len(out.Fire) != 0 || len(out.Notes) != 1 {
		t.Errorf("beside a run: fire %v, notes %v", out.Fire, out.Notes)
	}
	w.end()
	w.expect("and it is not made up for", 0)

	// Suspended: what passes meanwhile is not missed.
	w.operations[0].Triggers[0].Schedule = program.StaticTemplate("")
	w.expect("suspended", 0)
	w.now = began.Add(24 * time.Hour)
	w.expect("still", 0)
	w.operations[0].Triggers[0].Schedule = program.StaticTemplate("0 * * * *")
	if out = w.expect("resumed", 0); len(out.Notes) != 0 {
		t.Errorf("notes %v", out.Notes)
	}
	w.now = w.now.Add(time.Hour)
	w.expect("due again", 1)
	w.operations[0].Triggers[0].Schedule = program.StaticTemplate("30 * * * *")
	w.expect("another schedule begins now", 0)
}

func TestMissedOnce(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.operations[0].Triggers[0].Missed = v1alpha1.MissedPolicyOnce
	w.expect("the starting point", 0)
	w.now = began.Add(10*time.Hour + 30*time.Minute)
	w.restart()
	out := w.expect("after ten hours without an engine", 1)
	if got := out.Fire[0].Trigger.Time.Time; !got.Equal(began.Add(10 * time.Hour)) {
		t.Errorf("it makes up for %s", got)
	}
	w.expect("once", 0)
}

func TestScheduleByTheSecondAfterALongTime(t *testing.T) {
	w := newWorld(t, schedule("* * * * * *"))
	w.expect("the starting point", 0)
	w.now = began.Add(400 * 24 * time.Hour)
	start := time.Now()
	w.expect("more than a year later", 1)
	w.now = w.now.Add(time.Second)
	w.expect("and the next second", 1)
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestReplaceAndAllow(t *testing.T) {
	for concurrency, want := range map[v1alpha1.Concurrency]int{v1alpha1.ConcurrencyReplace: 1, v1alpha1.ConcurrencyAllow: 0} {
		w := newWorld(t, schedule("0 * * * *"))
		w.operations[0].Concurrency = concurrency
		w.evaluate(true)
		w.now = began.Add(time.Hour)
		w.evaluate(true)
		w.now = began.Add(2 * time.Hour)
		if out := w.evaluate(true); len(out.Fire) != 1 || len(out.Cancel) != want {
			t.Errorf("%s: fire %v, cancel %v", concurrency, out.Fire, out.Cancel)
		}
	}
}

func TestBadScheduleIsAProblem(t *testing.T) {
	for _, text := range []string{"61 * * * *", "nonsense"} {
		w := newWorld(t, schedule(text))
		if out := w.evaluate(true); len(out.Problems) != 1 || len(out.Fire) != 0 {
			t.Errorf("%q: %+v", text, out)
		}
	}
	w := newWorld(t, schedule("* * * * *"))
	w.operations[0].Triggers[0].TimeZone = program.StaticTemplate("Europe/Berlin_")
	if out := w.evaluate(true); len(out.Problems) != 1 {
		t.Errorf("time zone: %+v", out)
	}
}

func every(text string) *program.Trigger {
	return &program.Trigger{Type: v1alpha1.TriggerTypeEvery, Every: program.StaticTemplate(text)}
}

func TestEvery(t *testing.T) {
	w := newWorld(t, every("10m"))
	if out := w.expect("new", 0); !out.Wake.Equal(began.Add(10 * time.Minute)) {
		t.Errorf("wakes at %s", out.Wake)
	}
	w.now = began.Add(10 * time.Minute)
	w.evaluate(true)
	w.now = began.Add(30 * time.Minute)
	w.evaluate(true) // a run is under way: it is waited for
	w.end()
	if len(w.fired) != 1 {
		t.Errorf("%d runs", len(w.fired))
	}
	if out := w.evaluate(true); !out.Wake.Equal(began.Add(40 * time.Minute)) {
		t.Errorf("wakes at %s: the interval counts from the end of a run", out.Wake)
	}
	w.now = began.Add(40 * time.Minute)
	w.expect("due", 1)
	w.restart()
	w.expect("a restart", 0)

	first := newWorld(t, every("1h"))
	first.operations[0].Triggers[0].InitialDelay = time.Minute
	first.expect("new", 0)
	first.now = began.Add(time.Minute)
	first.expect("after the initial delay", 1)

	idle := newWorld(t, every("10m"))
	idle.operations[0].Triggers[0].Idle = time.Hour
	idle.expect("new", 0)
	idle.now = began.Add(30 * time.Minute)
	idle.edit(2)
	idle.expect("edited", 0)
	idle.now = began.Add(80 * time.Minute)
	idle.expect("idle for fifty minutes", 0)
	idle.now = began.Add(90 * time.Minute)
	idle.expect("idle for an hour", 1)
}

func TestJitterIsTheSameForAnInstance(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		w := newWorld(t, every("10s"))
		w.operations[0].Triggers[0].Jitter = 10 * time.Second
		w.self["metadata"].(map[string]any)["uid"] = fmt.Sprint("uid-", i)
		out := w.evaluate(true)
		delay := out.Wake.Sub(began) - 10*time.Second
		if delay < 0 || delay >= 10*time.Second {
			t.Fatalf("delay %s", delay)
		}
		if again := w.evaluate(true); !again.Wake.Equal(out.Wake) {
			t.Errorf("it wakes at %s, then at %s", out.Wake, again.Wake)
		}
		seen[delay.Truncate(time.Second)] = true
	}
	if len(seen) < 8 {
		t.Errorf("a hundred instances share %d of 10 seconds", len(seen))
	}
}

func TestCondition(t *testing.T) {
	c := &program.Trigger{Type: v1alpha1.TriggerTypeCondition, Condition: cel(t, "self.spec.n > 10"), For: time.Minute}
	w := newWorld(t, c)
	w.expect("false", 0)
	w.edit(11)
	if out := w.expect("true, not long enough", 0); !out.Wake.Equal(began.Add(time.Minute)) {
		t.Errorf("wakes at %s", out.Wake)
	}
	w.now = began.Add(30 * time.Second)
	w.edit(1)
	w.expect("false again", 0)
	w.edit(12)
	w.expect("true again", 0)
	w.now = began.Add(80 * time.Second)
	w.expect("not without a break", 0)
	w.now = began.Add(90 * time.Second)
	w.expect("long enough", 1)
	w.restart()
	w.now = began.Add(time.Hour)
	w.expect("once for each episode, over restarts", 0)
	w.edit(1)
	w.expect("armed", 0)
	w.edit(20)
	w.expect("true", 0)
	w.now = w.now.Add(time.Minute)
	w.expect("the next episode", 1)

	h := newWorld(t, &program.Trigger{Type: v1alpha1.TriggerTypeCondition, Condition: cel(t, "self.spec.n > 10"), Until: cel(t, "self.spec.n < 5")})
	h.edit(11)
	h.expect("above", 1)
	h.edit(8)
	h.expect("between", 0)
	h.edit(11)
	h.expect("above again, not armed", 0)
	h.edit(4)
	h.expect("below", 0)
	h.edit(11)
	h.expect("above, armed", 1)

	cool := newWorld(t, &program.Trigger{Type: v1alpha1.TriggerTypeCondition, Condition: cel(t, "self.spec.n > 10"), Cooldown: time.Hour})
	cool.edit(11)
	cool.expect("above", 1)
	cool.edit(1)
	cool.expect("below", 0)
	cool.edit(11)
	cool.expect("above within the cooldown", 0)
	cool.now = began.Add(time.Hour)
	cool.expect("after the cooldown", 1)
}

func TestWatch(t *testing.T) {
	w := newWorld(t, &program.Trigger{Type: v1alpha1.TriggerTypeWatch, Watch: &program.WatchTrigger{External: "tls"}})
	secret := func(v string, resourceVersion string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "tls", "resourceVersion": resourceVersion},
			"data": map[string]any{"key": v}, "status": map[string]any{"at": resourceVersion}}
	}
	w.unknown = true
	w.expect("nobody knows yet", 0)
	w.unknown = false
	w.watched["tls"] = secret("a", "1")
	w.expect("the starting point", 0)
	w.watched["tls"] = secret("a", "2")
	w.expect("metadata and status do not count", 0)
	w.watched["tls"] = secret("b", "3")
	out := w.expect("it changed", 1)
	if o := out.Fire[0].Trigger.Object; o == nil || o.Name != "tls" || o.Kind != "Secret" {
		t.Errorf("object %+v", o)
	}
	w.restart()
	w.unknown = true
	w.expect("after a restart nobody knows", 0)
	w.unknown = false
	w.expect("it is as it was", 0)
	delete(w.watched, "tls")
	w.expect("it is gone", 1)
	w.watched["tls"] = secret("b", "4")
	w.expect("it is back", 1)
	w.watched["tls"] = secret("a", "5")
	w.expect("as it was before", 1)
	w.watched["tls"] = secret("b", "6")
	w.expect("and again", 1)
}

func TestMemoryless(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerCreate), schedule("0 * * * *"))
	w.memoryless = true
	look := func(what string, n int) {
		t.Helper()
		before := len(w.fired)
		w.evaluate(true)
		w.memory, w.known = nil, false
		w.end()
		if got := len(w.fired) - before; got != n {
			t.Errorf("%s: %d runs, want %d", what, got, n)
		}
	}
	look("new", 1)
	look("again", 0)
	w.now = began.Add(time.Hour)
	look("due", 1)
	look("again", 0)
	w.restart()
	look("after a restart", 0)
	w.now = began.Add(2 * time.Hour)
	look("due again", 1)
}

// Each cause makes one run, wherever the engine is killed between a run that was made and what is remembered of it.
func TestEachCauseFiresOnce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		update := event(v1alpha1.EventTriggerUpdate)
		update.Fields = [][]string{{"spec", "n"}}
		w := newWorld(t, event(v1alpha1.EventTriggerCreate), update, schedule("*/5 * * * *"))
		w.operations[0].Concurrency = v1alpha1.ConcurrencyAllow
		edits, n := 0, int64(1)
		w.evaluate(true)
		for range 60 {
			switch random.IntN(6) {
			case 0:
				n++
				w.edit(n)
				edits++
				w.evaluate(true)
			case 1:
				w.now = w.now.Add(time.Duration(random.IntN(240)) * time.Second)
			case 2:
				w.evaluate(false) // killed before it is remembered
				w.restart()
			case 3:
				w.end()
			case 4:
				w.now = w.now.Add(-time.Duration(random.IntN(30)) * time.Second)
			}
			w.evaluate(true)
		}
		counts := map[string]int{}
		times := map[int64]int{}
		for _, r := range w.runs {
			counts[string(r.Spec.Trigger.Type)]++
			if r.Spec.Trigger.Type == v1alpha1.TriggerTypeSchedule {
				times[r.Spec.Trigger.Time.Unix()]++
			}
		}
		if counts["Create"] != 1 {
			t.Errorf("seed %d: Create fired %d times", seed, counts["Create"])
		}
		if counts["Update"] != edits {
			t.Errorf("seed %d: %d edits, Update fired %d times", seed, edits, counts["Update"])
		}
		for at, n := range times {
			if n != 1 || at%300 != 0 {
				t.Errorf("seed %d: time %d fired %d times", seed, at, n)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// What stands in metadata changes without a new generation: there and back, and there again, are three changes.
func TestUpdateOfMetadata(t *testing.T) {
	update := event(v1alpha1.EventTriggerUpdate)
	update.Fields = [][]string{{"metadata", "labels", "tier"}}
	w := newWorld(t, update)
	label := func(tier string) {
		w.self = runtime.DeepCopyJSON(w.self)
		w.self["metadata"].(map[string]any)["labels"] = map[string]any{"tier": tier}
	}
	label("a")
	w.expect("the starting point", 0)
	for _, tier := range []string{"b", "a", "b", "a", "b"} {
		label(tier)
		w.expect("the label is "+tier, 1)
	}
}

func TestResumeWaitsForAValue(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerResume))
	w.known = true
	w.operations[0].Triggers[0].When = cel(t, "later.ready")
	w.expect("a value is not there yet", 0)
	w.operations[0].Triggers[0].When = nil
	w.expect("now it is", 1)
	w.expect("again", 0)
}

// A schedule of a foreign kind tells of missed times once for each start of the engine: nothing remembers that it has.
func TestMissedOfForeignKind(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.memoryless = true
	w.runs = []*operation.Run{{Name: "before", Created: began, Spec: v1alpha1.OperationRunSpec{Operation: "op",
		Trigger: &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeSchedule, Time: &metav1.Time{Time: began}}}}}
	w.end()
	w.now = began.Add(10*time.Hour + 30*time.Minute)
	w.restart()
	for i, want := range []int{1, 0, 0} {
		if out := w.evaluate(false); len(out.Notes) != want || len(out.Fire) != 0 {
			t.Errorf("look %d: notes %v, fire %v", i, out.Notes, out.Fire)
		}
	}
}

// A clock that was a year ahead for a while does not stop a schedule for a year.
func TestScheduleAfterAClockThatWasAhead(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.expect("the starting point", 0)
	w.now = began.Add(365 * 24 * time.Hour)
	w.expect("a year ahead", 1)
	w.now = began.Add(30 * time.Minute)
	w.expect("set back", 0)
	w.now = began.Add(time.Hour)
	w.expect("due", 1)
}
