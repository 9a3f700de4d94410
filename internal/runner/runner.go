package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
	"github.com/libretto-dev/libretto/internal/watch"
)

// Doer does steps, and stops what steps have begun.
type Doer interface {
	step.Doer
	// Stop ends what an attempt has begun and that goes on without it, such as a Job. It does nothing for all else.
	Stop(ctx context.Context, req step.Request) error
}

// maxActive is how many attempts of one definition may be under way at once: each is a goroutine that mostly waits.
const maxActive = 256

const (
	// stopTimeout is how long stopping what an attempt has begun may take.
	stopTimeout = 30 * time.Second
	// stopPause is the first pause before it is tried again.
	stopPause = time.Second
)

// Runner drives the runs of one definition. It is safe for concurrent use; one run is driven by one goroutine at a time.
type Runner struct {
	run  *engine.Run
	doer Doer
	// engine identifies this process.
	engine string
	slots  chan struct{}

	mu         sync.Mutex
	activities map[string]*activity
	// proposed are attempts, by ID, that were to be begun, and were not, because the status could not be persisted or so it seemed.
	proposed map[string]types.UID
}

// activity is an attempt that this process has begun, by its ID.
type activity struct {
	owner  types.UID
	cancel context.CancelFunc
	// busy: a goroutine is at it.
	busy   bool
	result operation.Result
	// due is when a waiting attempt is looked at again; zero: when it is woken.
	due time.Time
}

// New returns a Runner.
func New(run *engine.Run, doer Doer) *Runner {
	return &Runner{run: run, doer: doer, engine: utilrand.String(10), slots: make(chan struct{}, maxActive), activities: map[string]*activity{}, proposed: map[string]types.UID{}}
}

// Record is a run, and where it is kept.
type Record struct {
	Run       *operation.Run
	Program   *program.Program
	Operation *program.Operation
	Revision  string
	// Instance is nil when there is none.
	Instance *watch.Object
	Turn     operation.Turn
	// Removing: the steps of onRemove are due.
	Removing bool
	// Woken: something that the run waits for may have changed: what waits is looked at now.
	Woken bool
	// Persist writes the status. With an error nothing is begun.
	Persist func(context.Context, *v1alpha1.OperationRunStatus) error
	// Wake has the run driven again.
	Wake func()
}

// Advanced is what Advance has come to.
type Advanced struct {
	// Status as it is persisted now, Changed if it was.
	Status  *v1alpha1.OperationRunStatus
	Changed bool
	// After is when to advance again; 0: when woken.
	After time.Duration
	// Removed: the run may go.
	Removed bool
}

// Advance does what is next for a run. The error is that of Persist.
func (r *Runner) Advance(ctx context.Context, rec Record) (Advanced, error) {
	now := r.run.Clock().Now()
	d := operation.Decide(operation.Input{
		Now: now, Operation: rec.Operation, Run: rec.Run, Turn: rec.Turn, Revision: rec.Revision, Removing: rec.Removing,
		Engine: r.engine,
		Eval:   NewEvaluator(r.run, rec.Program, rec.Instance), Known: r.known,
	})
	if d.Changed {
		if err := rec.Persist(ctx, d.Status); err != nil {
			var lost *apply.TransientError
			if errors.As(err, &lost) && lost.Unknown { // it may stand there all the same
				r.propose(rec, d.Start)
			}
			return Advanced{}, err
		}
		rec.Run.Status = *d.Status
	}
	for _, s := range d.Stop {
		r.stop(rec, s)
	}
	if d.Changed {
		r.drop(rec.Run.UID, d.Status)
	}
	wake := d.Wake
	for _, s := range d.Start {
		if due := r.begin(rec, s, now); !due.IsZero() && (wake.IsZero() || due.Before(wake)) {
			wake = due
		}
	}
	if d.Status.State.Ended() && !rec.Removing || d.Removed {
		r.forget(rec.Run.UID)
	}
	out := Advanced{Status: d.Status, Changed: d.Changed, Removed: d.Removed}
	if !wake.IsZero() {
		out.After = max(wake.Sub(now), time.Millisecond)
	}
	return out, nil
}

// drop forgets the attempts of a run whose end has been persisted: what they have yielded may be large.
func (r *Runner) drop(owner types.UID, st *v1alpha1.OperationRunStatus) {
	running := map[string]bool{}
	operation.EachAttempt(st, func(a *v1alpha1.Attempt) { running[a.ID] = running[a.ID] || a.State == v1alpha1.StepRunning })
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.activities {
		if a.owner == owner && !a.busy && !running[id] {
			delete(r.activities, id)
		}
	}
}

// propose remembers attempts that were not begun, so that they are not taken for ones that another process has begun.
func (r *Runner) propose(rec Record, starts []operation.Start) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range starts {
		if !s.Resume && r.activities[s.Attempt.ID] == nil {
			r.proposed[s.Attempt.ID] = rec.Run.UID
		}
	}
}

func (r *Runner) known(attempt string) (operation.Standing, operation.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.activities[attempt]
	switch {
	case a == nil && r.proposed[attempt] != "":
		return operation.NotBegun, operation.Result{}
	case a == nil:
		return operation.Absent, operation.Result{}
	case a.busy:
		return operation.Active, operation.Result{}
	}
	return operation.Done, a.result
}

// begin makes an attempt, or looks at one again. It returns when that is to be done, if it is too early.
func (r *Runner) begin(rec Record, s operation.Start, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.activities[s.Attempt.ID]
	if a != nil && a.busy {
		return time.Time{}
	}
	if a != nil && a.result.Outcome == operation.Waiting && (a.due.IsZero() || now.Before(a.due)) && (!rec.Woken || elsewhere(s)) {
		return a.due
	}
	delete(r.proposed, s.Attempt.ID)
	if a == nil {
		a = &activity{owner: rec.Run.UID}
		r.activities[s.Attempt.ID] = a
	}
	a.busy = true
	ctx, cancel := context.WithCancel(r.run.Context())
	if !s.Deadline.IsZero() {
		// The clock of the engine may be ahead of the real one in tests: what counts is what is left.
		ctx, cancel = context.WithTimeout(r.run.Context(), max(s.Deadline.Sub(now), time.Millisecond))
	}
	a.cancel = cancel
	r.run.Go(func() {
		defer cancel()
		result := r.do(ctx, r.request(rec, s))
		r.mu.Lock()
		a.busy, a.result, a.due = false, result, time.Time{}
		if result.Outcome == operation.Waiting && result.Again > 0 {
			a.due = r.run.Clock().Now().Add(result.Again)
		}
		r.mu.Unlock()
		rec.Wake()
	})
	return time.Time{}
}

// elsewhere tells whether an attempt waits for a server, which says itself when it wants to be asked again: nothing that happens in
// the cluster makes that sooner.
func elsewhere(s operation.Start) bool { return s.Action.HTTP != nil && s.Attempt.Ref != "" }

func (r *Runner) request(rec Record, s operation.Start) step.Request {
	req := step.Request{Program: rec.Program, Run: rec.Run, Start: s, Eval: NewEvaluator(r.run, rec.Program, rec.Instance)}
	if rec.Instance != nil {
		req.Instance = rec.Instance.Unstructured()
	}
	return req
}

// do makes an attempt; a panic is a failure for good, so that a run does not hang.
func (r *Runner) do(ctx context.Context, req step.Request) (result operation.Result) {
	defer func() {
		if p := recover(); p != nil {
			r.run.Panicked(p)
			result = operation.Result{Outcome: operation.FailedForGood, Message: fmt.Sprintf("the step panicked: %v; this is a fault of Libretto", p)}
		}
	}()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return operation.Result{Outcome: operation.Failed, Message: "too many steps are under way: it has not begun"}
	}
	return r.doer.Do(ctx, req)
}

// stop ends an attempt, and what it has begun.
func (r *Runner) stop(rec Record, s operation.Start) {
	r.mu.Lock()
	if a := r.activities[s.Attempt.ID]; a != nil && a.cancel != nil {
		a.cancel()
	}
	r.mu.Unlock()
	r.run.Go(func() {
		ctx, cancel := context.WithTimeout(r.run.Context(), stopTimeout)
		defer cancel()
		err := r.end(ctx, rec, s)
		for pause := stopPause; err != nil && ctx.Err() == nil; pause *= 2 { // the API server may be back in a moment
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				err = r.end(ctx, rec, s)
			}
		}
		if err != nil {
			r.run.Log().Error(err, "Cannot stop what a step has begun", "operationObject", rec.Run.Namespace+"/"+rec.Run.Name, "attempt", s.Attempt.ID)
		}
	})
}

// end asks the doer to stop what an attempt has begun; a panic of it is an error.
func (r *Runner) end(ctx context.Context, rec Record, s operation.Start) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.run.Panicked(p)
			err = fmt.Errorf("it panicked: %v; this is a fault of Libretto", p)
		}
	}()
	return r.doer.Stop(ctx, r.request(rec, s))
}

// forget drops what is known of the attempts of a run that has ended.
func (r *Runner) forget(owner types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.activities {
		if a.owner == owner {
			if a.cancel != nil {
				a.cancel()
			}
			delete(r.activities, id)
		}
	}
	for id, of := range r.proposed {
		if of == owner {
			delete(r.proposed, id)
		}
	}
}

// Forget stops and drops what is under way for a run that is gone.
func (r *Runner) Forget(owner types.UID) { r.forget(owner) }
