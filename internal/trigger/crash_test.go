package trigger

import (
	"fmt"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

func (w *world) n(f func()) int { b := len(w.fired); f(); return len(w.fired) - b }
func (w *world) labels(v string) {
	w.self["metadata"].(map[string]any)["labels"] = map[string]any{"a": v}
}
func updateOf(paths ...[]string) *program.Trigger {
	u := event(v1alpha1.EventTriggerUpdate)
	u.Fields = paths
	return u
}
func must(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d runs, want %d", what, got, want)
	}
}

// Metadata has no generation of its own: the third flip has the name of the first.
func TestLabelsFlip(t *testing.T) {
	w := newWorld(t, updateOf([]string{"metadata", "labels"}))
	w.labels("A")
	w.expect("start", 0)
	for i, v := range []string{"B", "A", "B", "A"} {
		w.labels(v)
		must(t, fmt.Sprint("flip ", i), w.n(func() { w.evaluate(true) }), 1)
		w.end()
	}
}

// A Create trigger that is added to an operation which the instance has known.
func TestCreateAdded(t *testing.T) {
	w := newWorld(t, updateOf([]string{"spec", "n"}))
	w.expect("start", 0)
	c := event(v1alpha1.EventTriggerCreate)
	c.Index = 1
	w.operations[0].Triggers = append(w.operations[0].Triggers, c)
	must(t, "create added to a known instance", w.n(func() { w.evaluate(true) }), 0)
}

// An edit after the Create run was made, before that is remembered.
func TestEditAfterCreateCrash(t *testing.T) {
	w := newWorld(t, event(v1alpha1.EventTriggerCreate), updateOf([]string{"spec", "n"}))
	w.evaluate(false)
	w.end()
	w.restart()
	w.edit(2)
	must(t, "edit after crash", w.n(func() { w.evaluate(true); w.evaluate(true) }), 1)
}

// There and back, with a run of the way there that is not remembered.
func TestUpdateThereAndBackAfterACrash(t *testing.T) {
	w := newWorld(t, updateOf([]string{"spec", "n"}))
	w.expect("start", 0)
	w.edit(2)
	w.evaluate(false)
	w.end()
	w.restart()
	w.edit(1)
	must(t, "back after crash", w.n(func() { w.evaluate(true) }), 1)
}

// An episode that follows a crash.
func TestConditionCrash(t *testing.T) {
	w := newWorld(t, &program.Trigger{Type: v1alpha1.TriggerTypeCondition, Condition: cel(t, "self.spec.n > 5")})
	w.expect("start", 0)
	w.edit(9)
	w.evaluate(false)
	w.end()
	w.restart()
	w.edit(1)
	w.now = w.now.Add(time.Minute)
	w.evaluate(true)
	w.edit(9)
	w.now = w.now.Add(time.Minute)
	must(t, "second episode", w.n(func() { w.evaluate(true) }), 1)
}

// The same for a watch.
func TestWatchCrash(t *testing.T) {
	w := newWorld(t, &program.Trigger{Type: v1alpha1.TriggerTypeWatch, Watch: &program.WatchTrigger{External: "x"}})
	set := func(v string) { w.watched["x"] = map[string]any{"data": v} }
	set("A")
	w.expect("start", 0)
	set("B")
	w.evaluate(false)
	w.end()
	w.restart()
	set("A")
	must(t, "back after crash", w.n(func() { w.evaluate(true) }), 1)
	w.end()
	set("B")
	must(t, "and there again", w.n(func() { w.evaluate(true) }), 1)
}

// Index 0 had been another trigger.
func TestTriggerTypeChanged(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.expect("start", 0)
	w.operations[0].Triggers = []*program.Trigger{{Type: v1alpha1.TriggerTypeWatch, Watch: &program.WatchTrigger{External: "x"}}}
	w.watched["x"] = map[string]any{"data": "A"}
	must(t, "schedule became watch: first sight", w.n(func() { w.evaluate(true) }), 0)
	c := newWorld(t, event(v1alpha1.EventTriggerCreate))
	c.expect("create", 1)
	c.operations[0].Triggers = []*program.Trigger{{Type: v1alpha1.TriggerTypeCondition, Condition: cel(t, "self.spec.n > 0")}}
	must(t, "create became condition", c.n(func() { c.evaluate(true) }), 1)
}

// What is held while another passes keeps its old.
func TestHeldKeepsOld(t *testing.T) {
	a, b := updateOf([]string{"spec", "n"}), updateOf([]string{"spec", "n"})
	w := newWorld(t, a, b)
	w.expect("start", 0)
	a.When, b.When = cel(t, "false"), cel(t, "later.ready")
	w.edit(2)
	w.evaluate(true)
	b.When = nil
	out := w.evaluate(true)
	if len(out.Fire) != 1 || fmt.Sprint(out.Fire[0].Trigger.Old) != "map[spec:map[n:1]]" || len(out.Fire[0].Trigger.Fields) != 1 {
		t.Errorf("fire %+v", out.Fire)
	}
}

// Replace: killed between the new run and the cancelling of the old.
func TestReplaceCrash(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.operations[0].Concurrency = v1alpha1.ConcurrencyReplace
	w.expect("start", 0)
	w.now = began.Add(time.Hour)
	w.evaluate(true)
	w.now = began.Add(2 * time.Hour)
	first := w.evaluate(false)
	again := w.evaluate(true)
	if len(first.Cancel) != 1 || len(again.Cancel) != 1 {
		t.Errorf("cancel %v, after the crash %v", first.Cancel, again.Cancel)
	}
}

// The notes that a crash leaves.
func TestScheduleCrashNotes(t *testing.T) {
	for _, ended := range []bool{true, false} {
		w := newWorld(t, schedule("0 * * * *"))
		w.expect("start", 0)
		w.now = began.Add(time.Hour)
		w.evaluate(false)
		if ended {
			w.end()
			w.now = w.now.Add(5 * time.Minute)
		}
		if out := w.evaluate(true); len(out.Notes) != 0 {
			t.Errorf("ended %v: notes %v", ended, out.Notes)
		}
	}
}

// Resume that waits for a value.
func TestResumeHeld(t *testing.T) {
	r := event(v1alpha1.EventTriggerResume)
	w := newWorld(t, r)
	w.expect("start", 0)
	w.restart()
	r.When = cel(t, "later.ready")
	w.evaluate(true)
	r.When = nil
	must(t, "resume", w.n(func() { w.evaluate(true) }), 1)
}

func memoryless(t *testing.T, triggers ...*program.Trigger) *world {
	w := newWorld(t, triggers...)
	w.memoryless = true
	return w
}

// Memoryless: retention has let go of the Create run.
func TestMemorylessRetention(t *testing.T) {
	w := memoryless(t, event(v1alpha1.EventTriggerCreate), schedule("0 * * * *"))
	w.operations[0].Retain = program.Retention{Last: 3, Failed: 3}
	creates := 0
	for i := range 8 {
		w.now = began.Add(time.Duration(i) * time.Hour)
		for _, f := range w.evaluate(false).Fire {
			if f.Trigger.Type == v1alpha1.TriggerTypeCreate {
				creates++
			}
		}
		w.end()
		gone := map[string]bool{}
		for _, name := range operation.Keep(w.now, w.runs, w.operations[0].Retain) {
			gone[name] = true
		}
		var kept []*operation.Run
		for _, r := range w.runs {
			if !gone[r.Name] || r.Spec.Trigger.Type == v1alpha1.TriggerTypeCreate { // as the reconciler keeps it for a target
				kept = append(kept, r)
			}
		}
		w.runs = kept
	}
	must(t, "Create, with retention", creates, 1)
}

// Memoryless: notes are not written again and again.
func TestMemorylessNotes(t *testing.T) {
	w := memoryless(t, schedule("0 * * * *"))
	w.now = began.Add(time.Hour)
	w.evaluate(false)
	w.now = began.Add(2 * time.Hour)
	notes := 0
	for range 5 {
		notes += len(w.evaluate(false).Notes)
	}
	if notes > 1 {
		t.Errorf("beside a run: %d notes for one time", notes)
	}
	w.end()
	must(t, "a time let pass", w.n(func() { w.evaluate(false) }), 0)
	w.end()
	w.now, notes = began.Add(9*time.Hour+30*time.Minute), 0
	w.restart()
	for range 5 {
		notes += len(w.evaluate(false).Notes)
	}
	if notes > 1 {
		t.Errorf("missed: %d notes", notes)
	}
}

// Every: when says no, then yes before the interval is over.
func TestEveryWhen(t *testing.T) {
	e := &program.Trigger{Type: v1alpha1.TriggerTypeEvery, Every: program.StaticTemplate("10m"), When: cel(t, "self.spec.n > 1")}
	w := newWorld(t, e)
	w.expect("start", 0)
	w.now = began.Add(10 * time.Minute)
	w.evaluate(true)
	w.now = w.now.Add(time.Minute)
	w.edit(2)
	must(t, "a minute after when said no", w.n(func() { w.evaluate(true) }), 0)
}

// Clocks that were far ahead when the schedule was first seen.
func TestClockFarAhead(t *testing.T) {
	w := newWorld(t, schedule("0 * * * *"))
	w.now = began.AddDate(4, 0, 0)
	w.expect("start, clock wrong", 0)
	n := 0
	for i := range 48 {
		w.now = began.Add(time.Duration(i) * time.Hour)
		n += w.n(func() { w.evaluate(true) })
		w.end()
	}
	if n == 0 {
		t.Errorf("nothing ran for two days after the clock was put right; wakes %s", w.evaluate(true).Wake)
	}
}
