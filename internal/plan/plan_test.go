package plan_test

import (
	"slices"
	"testing"
	"testing/quick"

	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/program"
)

// graph: config ← secret (reads), config ← workload (dependsOn), alone.
func graph() (*program.Program, map[string]*program.Node) {
	config := &program.Node{Name: "config", Index: 0}
	secret := &program.Node{Name: "secret", Index: 1, Reads: []*program.Node{config}}
	workload := &program.Node{Name: "workload", Index: 2, After: []*program.Node{config}}
	alone := &program.Node{Name: "alone", Index: 3}
	p := &program.Program{Nodes: []*program.Node{config, secret, workload, alone}}
	return p, map[string]*program.Node{"config": config, "secret": secret, "workload": workload, "alone": alone}
}

func runnable(w *plan.Walk) []string {
	var names []string
	for n := w.Next(); n != nil; n = w.Next() {
		names = append(names, n.Name)
		w.Set(n, plan.Running)
	}
	slices.Sort(names)
	return names
}

func TestWhatFollowsAState(t *testing.T) {
	for _, tc := range []struct {
		state plan.State
		want  []string
		prune bool
	}{
		{plan.Waiting, nil, false},
		{plan.Failed, nil, false},
		{plan.Applied, []string{"secret"}, false},
		{plan.Ready, []string{"secret", "workload"}, false},
		{plan.Excluded, []string{"secret", "workload"}, false},
	} {
		p, nodes := graph()
		w := plan.New(p)
		if got := runnable(w); !slices.Equal(got, []string{"alone", "config"}) {
			t.Fatalf("at first runnable: %v", got)
		}
		w.Set(nodes["config"], tc.state)
		if got := runnable(w); !slices.Equal(got, tc.want) {
			t.Errorf("config %d: runnable %v, want %v", tc.state, got, tc.want)
		}
		if w.MayPrune() != tc.prune {
			t.Errorf("config %d: may prune while resources run", tc.state)
		}
	}
}

func TestPruneNeedsAllApplied(t *testing.T) {
	p, _ := graph()
	check := func(states [4]uint8) bool {
		w, may, ready := plan.New(p), true, true
		for i, n := range p.Nodes {
			s := plan.State(states[i] % 7)
			w.Set(n, s)
			may = may && (s == plan.Applied || s == plan.Ready || s == plan.Excluded)
			ready = ready && (s == plan.Ready || s == plan.Excluded)
		}
		return w.MayPrune() == may && w.AllReady() == ready
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

// No node runs before what it waits for, whatever the order in which others end.
func TestGatesHold(t *testing.T) {
	p, _ := graph()
	check := func(ends []uint8) bool {
		w := plan.New(p)
		var running []*program.Node
		for i := 0; i < len(ends)+8; i++ {
			for n := w.Next(); n != nil; n = w.Next() {
				for _, d := range n.After {
					if w.State(d) != plan.Ready && w.State(d) != plan.Excluded {
						return false
					}
				}
				w.Set(n, plan.Running)
				running = append(running, n)
			}
			if len(running) == 0 {
				return true
			}
			e := 0
			if i < len(ends) {
				e = int(ends[i])
			}
			w.Set(running[e%len(running)], []plan.State{plan.Ready, plan.Applied, plan.Failed, plan.Excluded}[e%4])
			running = slices.Delete(running, e%len(running), e%len(running)+1)
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestBlockedNamesWhatIsMissing(t *testing.T) {
	p, nodes := graph()
	w := plan.New(p)
	w.Set(nodes["config"], plan.Applied)
	if got, want := w.Blocked(nodes["workload"]), "waits for resource config to be ready"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.Set(nodes["config"], plan.Failed)
	if got, want := w.Blocked(nodes["secret"]), "waits for resource config to be applied"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
