package engine

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A definition whose workers panic that often within that time is quarantined.
const (
	quarantinePanics = 3
	quarantineWindow = 10 * time.Minute
)

// quarantine counts panics of the workers of one definition.
type quarantine struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	panics []time.Time
	why    string
}

// count notes a panic and tells whether it led to quarantine.
func (q *quarantine) count(p any, req Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	recent := q.panics[:0]
	for _, t := range q.panics {
		if now.Sub(t) < quarantineWindow {
			recent = append(recent, t)
		}
	}
	q.panics = append(recent, now)
	if len(q.panics) < quarantinePanics || q.why != "" {
		return false
	}
	q.why = fmt.Sprintf("work on instances panicked %d times within %s, last on %s: %.200v. Nothing is done until the definition changes. "+
		"This is a fault of Libretto: please report it with the log", len(q.panics), quarantineWindow, req, p)
	return true
}

func (q *quarantine) reason() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.why
}

func (q *quarantine) lift() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.panics, q.why = nil, ""
}

func stack() string { return string(debug.Stack()) }
