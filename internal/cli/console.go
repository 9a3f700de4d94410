package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/libretto-dev/libretto/internal/engine"
)

// settleTime is how long nothing must happen before --once takes a state for the last one.
const settleTime = time.Second

// console prints what the engine does, line by line. It never blocks the engine: what comes faster than it can be printed is
// counted and left out.
type console struct {
	out, err io.Writer
	paint    painter
	lines    chan string
	closed   chan struct{}
	once     sync.Once

	mu      sync.Mutex
	dropped int
	// states of instances, by definition and name; the time of the last event.
	states map[string]engine.Event
	// reports are the last words about definitions; served are those whose watches run.
	reports map[string]string
	served  map[string]bool
	last    time.Time
}

func newConsole(out, errOut io.Writer) *console {
	c := &console{
		out: out, err: errOut, paint: newPainter(out), lines: make(chan string, 4096), closed: make(chan struct{}),
		states: map[string]engine.Event{}, reports: map[string]string{}, served: map[string]bool{}, last: time.Now(),
	}
	go c.write()
	return c
}

func (c *console) write() {
	defer close(c.closed)
	for line := range c.lines {
		fmt.Fprintln(c.out, line)
	}
}

// close prints what is left. Nothing may be printed afterwards.
func (c *console) close() {
	c.once.Do(func() {
		close(c.lines)
		<-c.closed
		if c.dropped > 0 {
			fmt.Fprintf(c.err, "%s left out: the terminal was too slow\n", count(c.dropped, "line"))
		}
	})
}

func (c *console) line(format string, args ...any) {
	c.send(time.Now(), fmt.Sprintf(format, args...))
}

func (c *console) send(at time.Time, text string) {
	select {
	case c.lines <- c.paint.paint(dim, at.Format(time.TimeOnly)) + "  " + text:
	default:
		c.mu.Lock()
		c.dropped++
		c.mu.Unlock()
	}
}

// report prints how a definition stands.
func (c *console) report(definition, message string) {
	c.mu.Lock()
	c.reports[definition] = message
	c.mu.Unlock()
	if strings.HasPrefix(message, "serving ") {
		c.remember(engine.Event{Definition: definition, Action: engine.ActionServing})
	}
	c.line("%s: %s", definition, message)
}

// event prints one thing that happened.
func (c *console) event(e engine.Event) {
	c.remember(e)
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	c.send(at, c.format(e))
}

// format is the line of an event: WebApp default/shop  created Deployment shop.
func (c *console) format(e engine.Event) string {
	var b strings.Builder
	if e.Instance.Name == "" {
		b.WriteString(e.Definition)
	} else {
		fmt.Fprintf(&b, "%-28s", e.Instance.Kind.Kind+" "+instanceName(e.Instance.Namespace, e.Instance.Name))
	}
	b.WriteString("  " + c.paint.paint(actionColour(e.Action), string(e.Action)))
	if e.Object.Name != "" {
		name := e.Object.Name
		if e.Object.Namespace != e.Instance.Namespace {
			name = instanceName(e.Object.Namespace, e.Object.Name)
		}
		b.WriteString(" " + e.Object.Kind.Kind + " " + name)
	} else if e.Operation != "" {
		b.WriteString(" " + e.Operation)
		if e.Step != "" {
			b.WriteString("/" + e.Step)
		}
	} else if e.Resource != "" {
		b.WriteString(" " + e.Resource)
	}
	if e.Message != "" {
		b.WriteString(": " + strings.ReplaceAll(e.Message, "\n", "\n          "))
	}
	switch e.Action {
	case engine.ActionOperationFailed, engine.ActionUnknown:
		b.WriteString("; see: libretto operation describe " + runName(e))
	}
	return b.String()
}

// runName names the run of an event for a command line.
func runName(e engine.Event) string {
	if e.Instance.Namespace == "" {
		return e.Run
	}
	return e.Run + " -n " + e.Instance.Namespace
}

func actionColour(a engine.Action) string {
	switch a {
	case engine.ActionCreated, engine.ActionReady, engine.ActionServing, engine.ActionSucceeded:
		return green
	case engine.ActionFailed, engine.ActionOperationFailed:
		return red
	case engine.ActionRepaired, engine.ActionRecreated, engine.ActionWaiting, engine.ActionCancelled, engine.ActionUnknown:
		return yellow
	case engine.ActionUpdated, engine.ActionAdopted, engine.ActionStarted:
		return blue
	case engine.ActionStep, engine.ActionLog:
		return dim
	case engine.ActionDeleted, engine.ActionRetained, engine.ActionGone:
	}
	return bold
}

func (c *console) remember(e engine.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	key := e.Definition + "\x00" + e.Instance.Namespace + "\x00" + e.Instance.Name
	switch e.Action {
	case engine.ActionServing:
		c.served[e.Definition] = true
	case engine.ActionGone:
		delete(c.states, key)
	case engine.ActionReady, engine.ActionWaiting, engine.ActionFailed:
		if e.Instance.Name != "" {
			c.states[key] = e
		}
	case engine.ActionCreated, engine.ActionUpdated, engine.ActionRepaired, engine.ActionAdopted, engine.ActionRecreated:
		if _, known := c.states[key]; !known { // it is being worked on, and will say how that ends
			e.Action = engine.ActionWaiting
			c.states[key] = e
		}
	case engine.ActionDeleted, engine.ActionRetained:
	case engine.ActionStarted, engine.ActionStep, engine.ActionSucceeded, engine.ActionOperationFailed, engine.ActionCancelled,
		engine.ActionUnknown, engine.ActionLog: // of a run: what it means for the instance, the instance says
	}
}

// outcome is how --once ends.
type outcome struct {
	failed   []string
	timedOut []string
}

func (o outcome) err() error {
	switch {
	case len(o.failed) > 0:
		return errors.New("failed: " + strings.Join(o.failed, ", "))
	case len(o.timedOut) > 0:
		return errors.New("not ready in time: " + strings.Join(o.timedOut, ", "))
	}
	return nil
}

// settle yields once: when all definitions are served and all their instances are ready, one has failed, or the time is over.
func (c *console) settle(ctx context.Context, timeout time.Duration, definitions []string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		tick := time.NewTicker(settleTime / 4)
		defer tick.Stop()
		start := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			result, done := c.settled(definitions)
			if !done && time.Since(start) > timeout {
				done = true
			} else if done {
				result.timedOut = nil
			}
			if done {
				out <- result
				return
			}
		}
	}()
	return out
}

// settled tells whether everything has come to an end, and lists what has failed and what is not ready.
func (c *console) settled(definitions []string) (outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var o outcome
	for _, d := range definitions {
		if !c.served[d] {
			o.timedOut = append(o.timedOut, d+" ("+c.reports[d]+")")
		}
	}
	for _, e := range c.states {
		name := e.Instance.Kind.Kind + " " + instanceName(e.Instance.Namespace, e.Instance.Name)
		switch e.Action {
		case engine.ActionReady:
		case engine.ActionFailed:
			o.failed = append(o.failed, name)
		default:
			o.timedOut = append(o.timedOut, name)
		}
	}
	sort.Strings(o.failed)
	sort.Strings(o.timedOut)
	quiet := time.Since(c.last) > settleTime
	return o, quiet && (len(o.failed) > 0 || len(o.timedOut) == 0)
}
