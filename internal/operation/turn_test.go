package operation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aRun makes a run: its name, operation, trigger, state, and its age in minutes.
func aRun(name, operation string, trigger v1alpha1.TriggerType, state v1alpha1.RunState, age int) *Run {
	r := &Run{Name: name, Created: noon.Add(-time.Duration(age) * time.Minute), Spec: v1alpha1.OperationRunSpec{Operation: operation}}
	r.Status.State = state
	if trigger != "" {
		r.Spec.Trigger = &v1alpha1.RunTrigger{Type: trigger}
	}
	return r
}

func childOf(r *Run, parent string) *Run {
	r.Spec.Trigger = &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeRun, Parent: parent}
	return r
}

func TestTurns(t *testing.T) {
	const (
		pending, running, succeeded, failed = v1alpha1.RunPending, v1alpha1.RunRunning, v1alpha1.RunSucceeded, v1alpha1.RunFailed
		create, update, remove, schedule    = v1alpha1.TriggerTypeCreate, v1alpha1.TriggerTypeUpdate, v1alpha1.TriggerTypeDelete, v1alpha1.TriggerTypeSchedule
	)
	retried := aRun("again", "a", "", failed, 9)
	retried.Spec.Retry = &v1alpha1.RunRetry{ID: "1"}
	operations := map[string]*program.Operation{
		"a": {Name: "a"}, "b": {Name: "b"}, "allow": {Name: "allow", Concurrency: v1alpha1.ConcurrencyAllow},
		"replace": {Name: "replace", Concurrency: v1alpha1.ConcurrencyReplace}, "alone": {Name: "alone", Exclusive: true},
		"urgent": {Name: "urgent", Priority: 10, Exclusive: true},
	}
	for name, tc := range map[string]struct {
		runs     []*Run
		deleting bool
		begin    []string
		wait     []string
		cancel   []string
	}{
		"one goes":                         {runs: []*Run{aRun("x", "a", "", pending, 1)}, begin: []string{"x"}},
		"two operations go":                {runs: []*Run{aRun("x", "a", "", running, 2), aRun("y", "b", "", pending, 1)}, begin: []string{"x", "y"}},
		"one operation, one run":           {runs: []*Run{aRun("x", "a", "", running, 2), aRun("y", "a", "", pending, 1)}, begin: []string{"x"}, wait: []string{"y"}},
		"the oldest first":                 {runs: []*Run{aRun("x", "a", "", pending, 1), aRun("y", "a", "", pending, 2)}, begin: []string{"y"}, wait: []string{"x"}},
		"an ended one is in nobody's way":  {runs: []*Run{aRun("x", "a", "", succeeded, 2), aRun("y", "a", "", pending, 1)}, begin: []string{"y"}},
		"allow":                            {runs: []*Run{aRun("x", "allow", "", running, 2), aRun("y", "allow", "", pending, 1)}, begin: []string{"x", "y"}},
		"replace":                          {runs: []*Run{aRun("x", "replace", schedule, running, 3), aRun("y", "replace", schedule, pending, 2), aRun("z", "replace", schedule, pending, 1)}, wait: []string{"z"}, cancel: []string{"x", "y"}},
		"events one at a time":             {runs: []*Run{aRun("x", "a", create, running, 2), aRun("y", "b", update, pending, 1)}, begin: []string{"x"}, wait: []string{"y"}},
		"events as they were made":         {runs: []*Run{aRun("x", "urgent", update, pending, 1), aRun("y", "b", create, pending, 2)}, begin: []string{"y"}, wait: []string{"x"}},
		"exclusive waits":                  {runs: []*Run{aRun("x", "a", "", running, 2), aRun("y", "alone", "", pending, 1)}, begin: []string{"x"}, wait: []string{"y"}},
		"exclusive is alone":               {runs: []*Run{aRun("x", "alone", "", running, 2), aRun("y", "a", "", pending, 1)}, begin: []string{"x"}, wait: []string{"y"}},
		"none overtakes an exclusive one":  {runs: []*Run{aRun("x", "a", "", running, 3), aRun("y", "alone", "", pending, 2), aRun("z", "b", "", pending, 1)}, begin: []string{"x"}, wait: []string{"y", "z"}},
		"the highest priority first":       {runs: []*Run{aRun("x", "a", "", pending, 2), aRun("y", "urgent", "", pending, 1)}, begin: []string{"y"}, wait: []string{"x"}},
		"a child does not wait for parent": {runs: []*Run{aRun("x", "alone", "", running, 2), childOf(aRun("y", "a", "", pending, 1), "x")}, begin: []string{"x", "y"}},
		"a child does not wait for a waiting run": {
			runs:  []*Run{aRun("x", "a", "", running, 3), aRun("y", "alone", "", pending, 2), childOf(aRun("z", "b", "", pending, 1), "x")},
			begin: []string{"x", "z"}, wait: []string{"y"}},
		"a child ends with its parent": {runs: []*Run{aRun("x", "a", "", failed, 2), childOf(aRun("y", "b", "", running, 1), "x")}, cancel: []string{"y"}},
		"a retried run waits":          {runs: []*Run{aRun("x", "a", "", running, 2), retried}, begin: []string{"x"}, wait: []string{"again"}},
		"deletion": {
			runs:     []*Run{aRun("x", "a", schedule, running, 3), aRun("y", "b", "", pending, 2), aRun("z", "alone", remove, pending, 1)},
			deleting: true, wait: []string{"z"}, cancel: []string{"x", "y"}},
		"deletion goes on": {
			runs:     []*Run{aRun("x", "a", schedule, v1alpha1.RunCancelled, 3), aRun("z", "a", remove, running, 2), childOf(aRun("y", "b", "", pending, 1), "z")},
			deleting: true, begin: []string{"z", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Turns(tc.runs, func(name string) *program.Operation { return operations[name] }, tc.deleting)
			for _, r := range tc.begin {
				if !got[r].Begin || got[r].Cancel != "" {
					t.Errorf("%s has to begin: %+v", r, got[r])
				}
			}
			for _, r := range tc.wait {
				if got[r].Begin || got[r].Cancel != "" || got[r].Reason != ReasonWaitsForTurn || got[r].Message == "" {
					t.Errorf("%s has to wait: %+v", r, got[r])
				}
			}
			for _, r := range tc.cancel {
				if got[r].Cancel == "" {
					t.Errorf("%s has to end: %+v", r, got[r])
				}
			}
		})
	}
}

// TestTurnsEnd: whatever the runs are, each has its turn at last, and those that are in each other's way do not go together.
func TestTurnsEnd(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		operations := map[string]*program.Operation{}
		for i := range 4 {
			name := fmt.Sprint("op", i)
			operations[name] = &program.Operation{Name: name, Priority: int32(random.IntN(3)), Exclusive: random.IntN(4) == 0,
				Concurrency: []v1alpha1.Concurrency{"", v1alpha1.ConcurrencyAllow, v1alpha1.ConcurrencyReplace}[random.IntN(3)]}
		}
		var runs []*Run
		for i := range 8 {
			trigger := []v1alpha1.TriggerType{"", v1alpha1.TriggerTypeCreate, v1alpha1.TriggerTypeUpdate, v1alpha1.TriggerTypeSchedule}[random.IntN(4)]
			runs = append(runs, aRun(fmt.Sprint("r", i), fmt.Sprint("op", random.IntN(4)), trigger, v1alpha1.RunPending, random.IntN(5)))
		}
		for round := 0; ; round++ {
			turns := Turns(runs, func(name string) *program.Operation { return operations[name] }, false)
			var active []*Run
			for _, r := range runs {
				switch {
				case r.Status.State.Ended():
				case turns[r.Name].Cancel != "":
					r.Status.State = v1alpha1.RunCancelled
				case turns[r.Name].Begin:
					r.Status.State = v1alpha1.RunRunning
					active = append(active, r)
				}
			}
			for i, a := range active {
				for _, b := range active[i+1:] {
					op := operations[a.Spec.Operation]
					if op.Exclusive || operations[b.Spec.Operation].Exclusive || isEvent(a) && isEvent(b) ||
						a.Spec.Operation == b.Spec.Operation && op.Concurrency != v1alpha1.ConcurrencyAllow {
						t.Fatalf("seed %d: %s and %s go together", seed, a.Name, b.Name)
					}
				}
			}
			if len(active) == 0 {
				break
			}
			active[random.IntN(len(active))].Status.State = v1alpha1.RunSucceeded
			if round > 50 {
				t.Fatalf("seed %d: no end", seed)
			}
		}
		for _, r := range runs {
			if !r.Status.State.Ended() {
				t.Fatalf("seed %d: %s never had its turn", seed, r.Name)
			}
		}
	}
}
