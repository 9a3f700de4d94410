package operation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// childGrace is how long a run that a step began is kept in any case: the step reads what it yields.
const childGrace = 10 * time.Minute

// Keep returns the names of the runs, all of one operation and instance, that are not kept any longer, sorted. A success is kept
// if any rule keeps it; the newest success, the run that ended last and runs that have not ended always are: intervals count from
// the end of the last run, and the instance tells how it went.
func Keep(now time.Time, runs []*Run, rules program.Retention) []string {
	var successes, others []*Run
	for _, r := range runs {
		switch {
		case r.Deleting || !r.Status.State.Ended() || Waits(r):
		case r.Spec.Trigger != nil && r.Spec.Trigger.Parent != "" && now.Sub(r.Ended()) < childGrace:
		case r.Status.State == v1alpha1.RunSucceeded:
			successes = append(successes, r)
		default:
			others = append(others, r)
		}
	}
	newestFirst := func(a, b *Run) int { return cmp.Or(b.Ended().Compare(a.Ended()), cmp.Compare(b.Name, a.Name)) }
	slices.SortFunc(successes, newestFirst)
	slices.SortFunc(others, newestFirst)
	var remove []string
	kept := keeper{now: now, rules: rules, periods: map[string]bool{}}
	for i, r := range successes {
		if !kept.keeps(i, r.Ended().UTC()) {
			remove = append(remove, r.Name)
		}
	}
	for i, r := range others {
		last := i == 0 && (len(successes) == 0 || newestFirst(r, successes[0]) < 0)
		if i >= rules.Failed && !last {
			remove = append(remove, r.Name)
		}
	}
	slices.Sort(remove)
	return remove
}

// keeper decides about successes, the newest first.
type keeper struct {
	now     time.Time
	rules   program.Retention
	periods map[string]bool
}

func (k *keeper) keeps(i int, ended time.Time) bool {
	keep := i == 0 || i < k.rules.Last || k.rules.Within > 0 && k.now.Sub(ended) <= k.rules.Within
	year, week := ended.ISOWeek()
	// All are asked: each notes that it has its newest.
	daily := k.first(ended.Format(time.DateOnly), "day", k.rules.Daily)
	weekly := k.first(fmt.Sprintf("%d-%d", year, week), "week", k.rules.Weekly)
	monthly := k.first(ended.Format("2006-01"), "month", k.rules.Monthly)
	return keep || daily || weekly || monthly
}

// first tells whether this is the newest success of a period, and one of the newest most periods that have any.
func (k *keeper) first(period, unit string, most int) bool {
	key := unit + " " + period
	if most == 0 || k.periods[key] {
		return false
	}
	n := 0
	for other := range k.periods {
		if len(other) > len(unit) && other[:len(unit)+1] == unit+" " {
			n++
		}
	}
	if n >= most {
		return false
	}
	k.periods[key] = true
	return true
}

// Stale tells whether the last success of an operation, whose runs these are among others, is older than it may be. since is when the
// operation was first there with the instance. last is zero when there has been none.
func Stale(now time.Time, op *program.Operation, since time.Time, runs []*Run) (stale bool, last time.Time) {
	if op.Stale <= 0 {
		return false, time.Time{}
	}
	for _, r := range runs {
		if r.Spec.Operation == op.Name && r.Status.State == v1alpha1.RunSucceeded && r.Ended().After(last) {
			last = r.Ended()
		}
	}
	from := last
	if from.IsZero() {
		from = since
	}
	return now.Sub(from) > op.Stale, last
}
