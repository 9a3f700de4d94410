package operation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Turns says of each run of one instance, by name, whether it may go on beside the others. Runs that have ended have no say.
//
// Runs that events of the instance began go one at a time, as they were made. Two runs of one operation go at the same time only
// with Concurrency Allow. An exclusive run goes alone. A run that a step of another began does not wait for that one. Of
// the runs that wait, the one with the highest priority goes first, then the oldest. When the instance is being deleted, all runs
// but Delete runs, and what their steps began, are to end, and Delete runs begin when these have ended.
func Turns(_ time.Time, runs []*Run, operation func(name string) *program.Operation, deleting bool) map[string]Turn {
	t := &turns{byName: map[string]*Run{}, operation: operation, out: map[string]Turn{}}
	for _, r := range runs {
		t.byName[r.Name] = r
	}
	var waiting []*Run
	for _, r := range runs {
		if deleting && !t.last(r) && (!r.Status.State.Ended() || Waits(r)) {
			t.out[r.Name] = Turn{Cancel: "the instance is being deleted"}
			if !Waits(r) {
				t.active = append(t.active, r)
			}
			continue
		}
		switch {
		case Waits(r):
			waiting = append(waiting, r)
		case !r.Status.State.Ended():
			t.active = append(t.active, r)
			t.out[r.Name] = Turn{Begin: true}
		}
	}
	slices.SortStableFunc(waiting, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(t.priority(b), t.priority(a)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range waiting {
		t.decide(r, waiting)
	}
	return t.out
}

type turns struct {
	byName    map[string]*Run
	operation func(name string) *program.Operation
	// active are the runs that have begun.
	active []*Run
	out    map[string]Turn
}

// last tells whether a run is a Delete run, or belongs to one.
func (t *turns) last(r *Run) bool {
	for range 20 { // ancestors; a chain that bites its tail ends
		if r == nil || r.Spec.Trigger == nil {
			return false
		}
		if r.Spec.Trigger.Type == v1alpha1.TriggerTypeDelete {
			return true
		}
		r = t.byName[r.Spec.Trigger.Parent]
	}
	return false
}

func (t *turns) priority(r *Run) int32 {
	if op := t.operation(r.Spec.Operation); op != nil {
		return op.Priority
	}
	return 0
}

// decide finds out whether a waiting run has its turn, and takes it as active if it has.
func (t *turns) decide(r *Run, waiting []*Run) {
	op := t.operation(r.Spec.Operation)
	for _, other := range t.active {
		if why := t.blocks(other, r, op); why != "" {
			if op != nil && op.Concurrency == v1alpha1.ConcurrencyReplace && other.Spec.Operation == r.Spec.Operation && !isEvent(other) {
				t.out[other.Name] = Turn{Cancel: "run " + r.Name + " takes its place"}
			}
			t.out[r.Name] = Turn{Reason: ReasonWaitsForTurn, Message: why}
			return
		}
	}
	if isEvent(r) {
		for _, other := range waiting {
			if isEvent(other) && (other.Created.Before(r.Created) || other.Created.Equal(r.Created) && other.Name < r.Name) && !t.out[other.Name].Begin {
				t.out[r.Name] = Turn{Reason: ReasonWaitsForTurn, Message: fmt.Sprintf("run %s was made before", other.Name)}
				return
			}
		}
	}
	t.out[r.Name] = Turn{Begin: true}
	t.active = append(t.active, r)
}

func isEvent(r *Run) bool { return r.Spec.Trigger != nil && r.Spec.Trigger.Type.IsEvent() }

// blocks says why r has to wait for other; empty: it need not.
func (t *turns) blocks(other, r *Run, op *program.Operation) string {
	if t.descends(r, other) {
		return ""
	}
	theirs := t.operation(other.Spec.Operation)
	switch {
	case isEvent(r) && r.Spec.Trigger.Type == v1alpha1.TriggerTypeDelete && !t.last(other):
		return fmt.Sprintf("run %s of operation %s has to end before", other.Name, other.Spec.Operation)
	case isEvent(other) && isEvent(r):
		return fmt.Sprintf("run %s of operation %s was made before", other.Name, other.Spec.Operation)
	case other.Spec.Operation == r.Spec.Operation && (op == nil || op.Concurrency != v1alpha1.ConcurrencyAllow):
		return fmt.Sprintf("run %s of the same operation has not ended", other.Name)
	case op != nil && op.Exclusive:
		return fmt.Sprintf("the operation is exclusive, and run %s of operation %s has not ended", other.Name, other.Spec.Operation)
	case theirs != nil && theirs.Exclusive:
		return fmt.Sprintf("run %s of operation %s is exclusive, and has not ended", other.Name, other.Spec.Operation)
	}
	return ""
}

// descends tells whether a step of other, or of a run that it began, began r.
func (t *turns) descends(r, other *Run) bool {
	for range 20 {
		if r == nil || r.Spec.Trigger == nil || r.Spec.Trigger.Parent == "" {
			return false
		}
		if r.Spec.Trigger.Parent == other.Name {
			return true
		}
		r = t.byName[r.Spec.Trigger.Parent]
	}
	return false
}
