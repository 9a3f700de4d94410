package instance

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/libretto-dev/libretto/internal/apply"
)

func TestBreakerOpensInAFight(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	b := newBreaker(clock)
	key := circuitKey{uid: "u"}
	repaired := apply.Outcome{Action: apply.Repaired, DriftBy: []string{"other"}, Fields: []string{"spec.replicas"}}
	step := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	for i := range 20 { // slowly: no fight
		if b.count(key, 1, repaired) {
			t.Fatalf("opened at repair %d, one a minute", i)
		}
		step(breakerWindow)
	}
	for i := 1; i < breakerRepairs; i++ {
		if b.count(key, 1, repaired) {
			t.Fatalf("opened at repair %d within the window", i)
		}
	}
	if !b.count(key, 1, repaired) {
		t.Fatal("did not open")
	}
	why := b.open(key)
	if !strings.Contains(why, "other") || !strings.Contains(why, "spec.replicas") {
		t.Errorf("it does not name manager and field: %s", why)
	}
	step(breakerPause + time.Second)
	if b.open(key) != "" {
		t.Error("still open after the pause")
	}
	if !b.count(key, 1, repaired) {
		t.Error("one more repair right after the pause did not open it again")
	}
	step(breakerPause + breakerWindow + time.Second)
	if b.count(key, 1, repaired) {
		t.Error("opened by one repair long after the pause")
	}
	if n := b.forget("u"); n != 0 || len(b.circuits) != 0 {
		t.Errorf("forget: %d open, %d left", n, len(b.circuits))
	}
}

// The metric of open circuits goes up once for a fight, however long it lasts, and down when it is over.
func TestOpenCircuitsAreCountedOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	b, key, gauge := newBreaker(clock), circuitKey{uid: "u"}, 0
	for range 10 {
		for range breakerRepairs {
			if b.count(key, 1, apply.Outcome{Action: apply.Repaired}) && b.enter(key) {
				gauge++
			}
		}
		if b.rest(key) {
			t.Fatal("at rest while it is open")
		}
		clock.SetTime(clock.Now().Add(breakerPause))
	}
	if gauge != 1 {
		t.Errorf("one object is counted %d times", gauge)
	}
	if !b.rest(key) || b.rest(key) {
		t.Error("the end of a fight is not told once")
	}
	if n := b.forget("u"); n != 0 {
		t.Errorf("%d left", n)
	}
}

func TestBreakerOpensWhenExpressionsNeverRest(t *testing.T) {
	b := newBreaker(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	key := circuitKey{uid: "u"}
	for generation := range int64(3 * breakerUpdates) { // the user changes the instance: no fault
		if b.count(key, generation, apply.Outcome{Action: apply.Updated}) {
			t.Fatal("opened by changes of the instance")
		}
	}
	opened := false
	for range breakerUpdates {
		opened = b.count(key, 1000, apply.Outcome{Action: apply.Updated})
	}
	if !opened {
		t.Error("did not open")
	}
}

func TestRetriesGrow(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 5 * time.Second, 1: 10 * time.Second, 3: 40 * time.Second, 100: lastRetry} {
		if got := retryAfter(failures); got != want {
			t.Errorf("retryAfter(%d) = %s, want %s", failures, got, want)
		}
	}
}
