package instance

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/runner"
)

// Retries of what somebody has to mend: the first after firstRetry, each twice as late as the one before, up to lastRetry.
// Changes of the instance, its children or the definition are worked on at once.
const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// Reconciler works on the instances of one definition.
type Reconciler struct {
	run     *engine.Run
	breaker *breaker
	// replacing are the objects that were deleted to be made anew.
	replacing sync.Map // of circuitKey
	// resumed are the UIDs of the instances for which the trigger Resume has been dealt with since the engine began.
	resumed sync.Map // of types.UID by engine.Request
	// noted are the warnings about Delete runs that have been written.
	noted sync.Map // of note
	// runner drives Delete runs that have no operation object.
	runner *runner.Runner
}

// New returns a Reconciler for a run of the engine. The doer does the steps of Delete runs that have no operation object.
func New(run *engine.Run, doer runner.Doer) reconcile.TypedReconciler[engine.Request] {
	return &Reconciler{run: run, breaker: newBreaker(run.Clock()), runner: runner.New(run, doer)}
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req engine.Request) (reconcile.Result, error) {
	obj := r.run.Set().Instance(req.Namespace, req.Name)
	if obj == nil {
		return r.gone(ctx, req)
	}
	entry, ok := r.run.Entry()
	if !ok {
		return reconcile.Result{}, nil // the definition is being stopped
	}
	r.run.DropOrphan(req, obj.UID)
	if len(r.run.Orphans(req)) > 0 { // of an earlier instance of that name
		if result, err := r.sweep(ctx, req); err != nil {
			return result, err
		}
	}
	s := newScope(r, req, obj, entry)
	if obj.Deleting() {
		return s.delete(ctx)
	}
	if r.run.Spec().Draining {
		r.run.Forget(req)
		return reconcile.Result{}, nil
	}
	if !r.run.Serves(obj.Namespace) {
		return s.unserved(ctx)
	}
	matches, err := s.matches()
	if err != nil {
		s.problem(evaluationProblem("", err))
		return s.finish(ctx)
	}
	if !matches {
		return s.release(ctx)
	}
	for _, phase := range []func(context.Context) error{s.bindExternals, s.hold, s.walkGraph, s.prune, s.operate} {
		if err := phase(ctx); err != nil {
			return reconcile.Result{}, ignoreStale(err)
		}
		if s.halted {
			break
		}
	}
	return s.finish(ctx)
}

// gone cleans up after an instance that is not seen: it was deleted, it left the selection of a target, or the watch has not
// seen it yet.
func (r *Reconciler) gone(ctx context.Context, req engine.Request) (reconcile.Result, error) {
	r.run.Set().WatchExternals(req, nil)
	r.resumed.Delete(req)
	r.noted.Range(func(k, _ any) bool {
		if k.(note).req == req {
			r.noted.Delete(k)
		}
		return true
	})
	if r.run.Forget(req) {
		r.run.Tell(engine.Event{Instance: r.ref(req), Action: engine.ActionGone})
	}
	return r.sweep(ctx, req)
}

func (r *Reconciler) ref(req engine.Request) engine.Ref {
	return engine.Ref{Kind: r.run.Spec().Program.Instance, Namespace: req.Namespace, Name: req.Name}
}

// retryAfter is how long to wait after that many failures in a row.
func retryAfter(failures int) time.Duration {
	d := firstRetry
	for range failures {
		if d *= 2; d >= lastRetry {
			return lastRetry
		}
	}
	return d
}
