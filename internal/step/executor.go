package step

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
)

// How soon a waiting attempt is looked at again: at first, and at last.
const (
	againSoon = time.Second
	againLate = 5 * time.Second
)

// Executor does the steps of one definition. It is safe for concurrent use.
type Executor struct {
	options Options
	writer  *apply.Writer
	now     func() time.Time

	// held are attempts that have been told to wait before they began anything, by ID, with their deadline. What is not in it may
	// have begun.
	mu   sync.Mutex
	held map[string]time.Time
}

var _ Doer = (*Executor)(nil)

// New returns an Executor.
func New(o Options) *Executor {
	e := &Executor{options: o, writer: apply.NewWriter(o.Client), now: o.Now, held: map[string]time.Time{}}
	if e.now == nil {
		e.now = time.Now
	}
	return e
}

// Do implements Doer.
func (e *Executor) Do(ctx context.Context, req Request) operation.Result {
	if req.Instance == nil {
		return forGood("the instance is gone")
	}
	if e.release(req.Start.Attempt.ID) {
		req.Start.Resume = false
	}
	result, err := e.act(ctx, req)
	if err != nil {
		return e.outcome(req, err)
	}
	return result
}

// act does the action of a step. A value of another object that is not there yet is a PendingError; nothing has begun then.
func (e *Executor) act(ctx context.Context, req Request) (operation.Result, error) {
	a := req.Start.Action
	switch {
	case a.Apply != nil:
		return e.apply(ctx, req, a.Apply)
	case a.Patch != nil:
		return e.patch(ctx, req, a.Patch)
	case a.Delete != nil:
		return e.delete(ctx, req, a.Delete)
	case a.Wait != nil:
		return e.wait(ctx, req, a.Wait)
	case a.Exec != nil:
		return e.exec(ctx, req, a.Exec)
	case a.Job != nil:
		return e.job(ctx, req, a.Job)
	case a.HTTP != nil:
		return e.http(ctx, req, a.HTTP)
	case a.Event != nil:
		return e.event(ctx, req, a.Event)
	case a.Log != nil:
		return e.log(req)
	case a.Set != nil:
		return e.set(ctx, req)
	case a.Run != nil:
		return e.run(ctx, req, a.Run)
	}
	return operation.Result{}, permanent("the step has no action")
}

// Stop ends what an attempt has begun and that goes on without it: a Job is deleted, another run is cancelled. It does nothing for
// all else.
func (e *Executor) Stop(ctx context.Context, req Request) error {
	e.release(req.Start.Attempt.ID)
	switch a := req.Start.Action; {
	case req.Instance == nil:
		return nil // the garbage collector does it
	case a.Job != nil:
		return e.stopJob(ctx, req, a.Job)
	case a.Run != nil:
		return e.stopRun(ctx, req, a.Run)
	}
	return nil
}

// stopPause is how long a request that was under way when an attempt was stopped may still take to have its effect.
const stopPause = 2 * time.Second

// begun reads what an attempt may have made; nil: nothing. A request of the attempt may be under way still, so that it looks twice.
func (e *Executor) begun(ctx context.Context, req Request, t apply.Target) (*unstructured.Unstructured, error) {
	live, err := e.get(ctx, t)
	if err == nil && live == nil {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(stopPause):
		}
		live, err = e.get(ctx, t)
	}
	if err != nil || live == nil || live.GetAnnotations()[v1alpha1.AnnotationAttempt] != req.Start.Attempt.ID {
		return nil, err
	}
	return live, nil
}

// hold makes an attempt that has begun nothing wait. In this process it is known to have begun nothing when it is looked at again.
func (e *Executor) hold(req Request, message string) operation.Result {
	now, again := e.now(), e.again(req)
	deadline := req.Start.Deadline
	if !deadline.IsZero() && !now.Add(again).Before(deadline) {
		return operation.Result{Outcome: operation.Failed, Message: message + "; there is no time left, it has not begun"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, at := range e.held {
		if !at.IsZero() && at.Before(now) {
			delete(e.held, id)
		}
	}
	e.held[req.Start.Attempt.ID] = deadline
	return operation.Result{Outcome: operation.Waiting, Message: message, Again: again}
}

// release tells whether the attempt was held, and forgets that.
func (e *Executor) release(attempt string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.held[attempt]
	delete(e.held, attempt)
	return ok
}

// again is when a waiting attempt is looked at again: the longer it waits the later.
func (e *Executor) again(req Request) time.Duration {
	waited := e.now().Sub(req.Start.Attempt.StartTime.Time)
	return min(max(waited/4, againSoon), againLate)
}

func (e *Executor) log(req Request) (operation.Result, error) {
	line, err := req.Eval.Text(req.Start.Action.Log, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	if e.options.Log != nil {
		e.options.Log(req, bounded(line, maxLine))
	}
	return operation.Result{Outcome: operation.Succeeded}, nil
}
