package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Turns says of each run of one instance, by name, whether it may go on beside the others. Runs that have ended have no say.
//
// Runs that events of the instance began go one at a time, as they were made. Two runs of one operation go at the same time only
// with Concurrency Allow. An exclusive run goes alone. A run that a step of another began does not wait for that one, nor for a run
// that only waits, and ends with the one that began it. Of the runs that wait, the one with the highest priority goes first, then
// the oldest; none that is in the way of one before it goes first, so that each has its turn at last. When the instance is being
// deleted, all runs but Delete runs, and what their steps began, are to end, and Delete runs begin when these have ended.
func Turns(runs []*Run, operation func(name string) *program.Operation, deleting bool) map[string]Turn {
	t := &turns{byName: map[string]*Run{}, operation: operation, out: map[string]Turn{}}
	for _, r := range runs {
		t.byName[r.Name] = r
	}
	var waiting []*Run
	for _, r := range runs {
		if r.Status.State.Ended() && !Waits(r) {
			continue
		}
		why := t.orphaned(r)
		if deleting && !t.last(r) {
			why = "the instance is being deleted"
		}
		if newer := t.replacement(r, runs); why == "" && newer != nil {
			why = "run " + newer.Name + " takes its place"
		}
		if why != "" {
			t.out[r.Name] = Turn{Cancel: why}
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
	for _, r := range t.queue(waiting) {
		t.decide(r)
	}
	return t.out
}

// queue puts the runs that wait into their order: those that steps began first, as others wait for them already; then by priority
// and age. Runs of events keep the order in which they were made among themselves, whatever their priorities.
func (t *turns) queue(waiting []*Run) []*Run {
	slices.SortFunc(waiting, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(t.depth(b), t.depth(a)), cmp.Compare(t.priority(b), t.priority(a)), older(a, b))
	})
	var places []int
	var events []*Run
	for i, r := range waiting {
		if isEvent(r) {
			places, events = append(places, i), append(events, r)
		}
	}
	slices.SortFunc(events, older)
	for i, place := range places {
		waiting[place] = events[i]
	}
	return waiting
}

func older(a, b *Run) int { return Older(a, b) }

// Older compares two runs by age. Of two that were made in the same second, it is the one of the older generation of the instance.
func Older(a, b *Run) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(generation(a), generation(b)), cmp.Compare(a.Name, b.Name))
}

func generation(r *Run) int64 {
	if r.Spec.Trigger == nil {
		return 0
	}
	return r.Spec.Trigger.Generation
}

// depth is 1 for a run that a step of another began that is under way.
func (t *turns) depth(r *Run) int {
	if parent := t.parent(r); parent != nil && !parent.Status.State.Ended() {
		return 1
	}
	return 0
}

func (t *turns) parent(r *Run) *Run {
	if r.Spec.Trigger == nil || r.Spec.Trigger.Parent == "" {
		return nil
	}
	return t.byName[r.Spec.Trigger.Parent]
}

// orphaned says why a run ends whose step has no use for it any more; empty: it need not.
func (t *turns) orphaned(r *Run) string {
	if r.Spec.Retry != nil {
		return "" // a user wants it for itself
	}
	if parent := t.parent(r); parent != nil && parent.Status.State.Ended() {
		return "run " + parent.Name + ", whose step began it, has ended"
	}
	return ""
}

// Replaceable tells whether a newer run may take the place of a run: not of one that belongs to the beginning or the end of the
// instance or of the engine.
func Replaceable(r *Run) bool {
	return !isEvent(r) || r.Spec.Trigger.Type == v1alpha1.TriggerTypeUpdate
}

// replacement is a newer run of an operation with Concurrency Replace; nil: none.
func (t *turns) replacement(r *Run, runs []*Run) *Run {
	op := t.operation(r.Spec.Operation)
	if op == nil || op.Concurrency != v1alpha1.ConcurrencyReplace || !Replaceable(r) {
		return nil
	}
	var newest *Run
	for _, other := range runs {
		if other.Spec.Operation == r.Spec.Operation && older(r, other) < 0 && (!other.Status.State.Ended() || Waits(other)) &&
			!other.Deleting && !other.Spec.Cancel && !t.descends(r, other) && !t.descends(other, r) && (newest == nil || older(newest, other) < 0) {
			newest = other
		}
	}
	return newest
}

type turns struct {
	byName    map[string]*Run
	operation func(name string) *program.Operation
	// active are the runs that have begun.
	active []*Run
	// ahead are the runs that wait and are before those that have not been decided about.
	ahead []*Run
	out   map[string]Turn
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
func (t *turns) decide(r *Run) {
	op := t.operation(r.Spec.Operation)
	inTheWay := t.active
	if t.depth(r) == 0 {
		inTheWay = slices.Concat(t.active, t.ahead)
	}
	for _, other := range inTheWay {
		if why := t.blocks(other, r, op); why != "" {
			if slices.ContainsFunc(t.ahead, func(a *Run) bool { return t.depth(r) == 0 && t.blocks(a, r, op) != "" }) {
				why = "other runs of the instance that wait go first" // which ones changes often, and each change is a write
			}
			t.out[r.Name] = Turn{Reason: ReasonWaitsForTurn, Message: why}
			t.ahead = append(t.ahead, r)
			return
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

// Vital is the run by which an operation that events of the instance begin says how the instance stands: the newest one that such an
// event or a user has begun; nil: there is none, or it is the operation of event: Delete alone.
func Vital(op *program.Operation, runs []*Run) *Run {
	if !op.On(v1alpha1.EventTriggerCreate) && !op.On(v1alpha1.EventTriggerUpdate) && !op.On(v1alpha1.EventTriggerResume) {
		return nil
	}
	var newest *Run
	for _, r := range runs {
		byUser := r.Spec.Trigger == nil || r.Spec.Trigger.Type == v1alpha1.TriggerTypeManual
		if r.Spec.Operation == op.Name && (byUser || isEvent(r)) && (newest == nil || Older(newest, r) < 0) {
			newest = r
		}
	}
	return newest
}

// FailedMessage says how a run of an operation failed, and what to do.
func FailedMessage(op *program.Operation, r *Run) string {
	what, at := "failed", ""
	if r.Status.State == v1alpha1.RunUnknown {
		what = "ended without anybody knowing whether a step had its effect"
	}
	if r.Status.Step != "" {
		at = " at step " + r.Status.Step
	}
	return fmt.Sprintf("operation %s %s%s: %s; when that is mended: libretto operation retry %s", op.Name, what, at,
		strings.TrimSuffix(r.Status.Message, "."), r.Name)
}

// CancelledMessage says what to do about an operation whose vital run was cancelled. instance is KIND/NAME.
func CancelledMessage(op *program.Operation, r *Run, instance string) string {
	return fmt.Sprintf("operation %s was cancelled (%s); run it again: libretto operation start %s %s", op.Name, r.Name, instance, op.Name)
}
