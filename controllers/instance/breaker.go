package instance

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/inventory"
)

// A circuit opens when an object had to be repaired that often, or was rewritten that often without a change of the instance,
// within the window. It stays open for the pause, and opens again at the first repair that comes within a window of its end.
const (
	breakerWindow  = time.Minute
	breakerRepairs = 5
	breakerUpdates = 30
	breakerPause   = 5 * time.Minute
)

type circuitKey struct {
	uid types.UID
	key inventory.Key
}

type circuit struct {
	repairs, updates []time.Time
	generation       int64
	openUntil        time.Time
	why              string
	// counted: it is in the metric of open circuits.
	counted bool
}

// breaker stops fights: between Libretto and somebody else who keeps changing an object, and of expressions that never come
// to rest.
type breaker struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	circuits map[circuitKey]*circuit
}

func newBreaker(c clock.PassiveClock) *breaker {
	return &breaker{clock: c, circuits: map[circuitKey]*circuit{}}
}

// fightingError: the circuit of an object is open.
type fightingError struct{ why string }

func (e *fightingError) Error() string { return e.why }

// open says why an object is not to be written; empty: it may be.
func (b *breaker) open(key circuitKey) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[key]
	if c == nil || !b.clock.Now().Before(c.openUntil) {
		return ""
	}
	return c.why
}

// count notes a write and tells whether the circuit opened.
func (b *breaker) count(key circuitKey, generation int64, out apply.Outcome) bool {
	if out.Action != apply.Repaired && out.Action != apply.Updated {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	c := b.circuits[key]
	if c == nil {
		c = &circuit{}
		b.circuits[key] = c
	}
	if c.generation != generation {
		c.generation, c.updates = generation, nil
	}
	switch out.Action {
	case apply.Repaired:
		c.repairs = append(recent(c.repairs, now), now)
		again := !c.openUntil.IsZero() && now.Sub(c.openUntil) < breakerWindow
		if len(c.repairs) < breakerRepairs && !again {
			return false
		}
		c.why = fmt.Sprintf("is changed by %s again and again%s; Libretto has stopped changing it back for %s. Let one of the two "+
			"leave the field alone: take it out of the template (omit()), or out of the other's configuration",
			who(out.DriftBy), fieldsOf(out.Fields), breakerPause)
		c.repairs = nil
	default:
		c.updates = append(recent(c.updates, now), now)
		if len(c.updates) < breakerUpdates {
			return false
		}
		c.why = fmt.Sprintf("was rewritten %d times within %s though the instance did not change: an expression of its template reads "+
			"something that its own writing changes. Libretto has stopped writing it for %s", len(c.updates), breakerWindow, breakerPause)
		c.updates = nil
	}
	c.openUntil = now.Add(breakerPause)
	return true
}

// enter notes that an open circuit is counted in the metric, and tells whether it was not yet.
func (b *breaker) enter(key circuitKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[key]
	if c == nil || c.counted {
		return false
	}
	c.counted = true
	return true
}

// rest notes that an object is as it should be, and tells whether its circuit has closed thereby.
func (b *breaker) rest(key circuitKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[key]
	if c == nil || !c.counted || b.clock.Now().Before(c.openUntil) {
		return false
	}
	c.counted = false
	return true
}

// forget drops the circuits of an instance and tells how many are in the metric.
func (b *breaker) forget(uid types.UID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := 0
	for k, c := range b.circuits {
		if k.uid == uid {
			if c.counted {
				open++
			}
			delete(b.circuits, k)
		}
	}
	return open
}

func recent(times []time.Time, now time.Time) []time.Time {
	kept := times[:0]
	for _, t := range times {
		if now.Sub(t) < breakerWindow {
			kept = append(kept, t)
		}
	}
	return kept
}

func who(managers []string) string {
	if len(managers) == 0 {
		return "somebody"
	}
	return strings.Join(managers, ", ")
}

func fieldsOf(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return " (" + strings.Join(fields, ", ") + ")"
}
