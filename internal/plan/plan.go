// Package plan walks the graph of a Program for one instance: which resources can be made next, what the others wait for,
// and whether what is no longer wanted may be removed. It is pure: it knows how far each resource is, not how it got there.
package plan

import (
	"fmt"

	"github.com/libretto-dev/libretto/internal/program"
)

// State is how far a resource is.
type State int

// States. A walk begins with all resources Unvisited and ends when no more are Runnable.
const (
	// Unvisited: not looked at yet.
	Unvisited State = iota
	// Running: being applied.
	Running
	// Waiting: an expression reads a value that is not there yet, or the watch of its kind has not begun.
	Waiting
	// Applied: every object is as desired, some are not ready.
	Applied
	// Ready: every object is as desired and ready.
	Ready
	// Excluded: when is false; there are no objects.
	Excluded
	// Failed: an object could not be computed or applied.
	Failed
)

// Walk is one pass over the graph. It is used by one goroutine.
type Walk struct {
	program *program.Program
	states  []State
}

// New returns a Walk over the Program.
func New(p *program.Program) *Walk {
	return &Walk{program: p, states: make([]State, len(p.Nodes))}
}

// State returns how far a node is.
func (w *Walk) State(n *program.Node) State { return w.states[n.Index] }

// Set notes how far a node is.
func (w *Walk) Set(n *program.Node, s State) { w.states[n.Index] = s }

// Next returns the first node that can be worked on now, or nil.
func (w *Walk) Next() *program.Node {
	for _, n := range w.program.Nodes {
		if w.states[n.Index] == Unvisited && w.blocker(n) == "" {
			return n
		}
	}
	return nil
}

// Blocked says what a node that was not visited waits for; empty if it waits for nothing.
func (w *Walk) Blocked(n *program.Node) string { return w.blocker(n) }

func (w *Walk) blocker(n *program.Node) string {
	for _, d := range n.Reads {
		switch w.states[d.Index] {
		case Applied, Ready, Excluded:
		case Unvisited, Running, Waiting, Failed:
			return fmt.Sprintf("waits for resource %s to be applied", d.Name)
		}
	}
	for _, d := range n.After {
		switch w.states[d.Index] {
		case Ready, Excluded:
		case Unvisited, Running, Waiting, Failed, Applied:
			return fmt.Sprintf("waits for resource %s to be ready", d.Name)
		}
	}
	return ""
}

// MayPrune tells whether objects that no node wants may be removed: only when every node is resolved and applied, since an
// object of a node that is not could be one of them.
func (w *Walk) MayPrune() bool {
	for _, s := range w.states {
		switch s {
		case Applied, Ready, Excluded:
		case Unvisited, Running, Waiting, Failed:
			return false
		}
	}
	return true
}

// AllReady tells whether every node is ready or excluded.
func (w *Walk) AllReady() bool {
	for _, s := range w.states {
		if s != Ready && s != Excluded {
			return false
		}
	}
	return true
}
