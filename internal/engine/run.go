package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/rbac"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/watch"
)

// Run is the work for one definition: what its reconciler needs.
type Run struct {
	engine *Engine
	log    logr.Logger
	client *identity.Client
	set    *watch.Set
	writer *apply.Writer

	spec atomic.Pointer[Spec]
	// fitting is held while the watches are fitted to the spec: the last fitting has to be one to the last spec.
	fitting sync.Mutex
	kinds   kindCache
	rights  atomic.Pointer[rights]

	reports    *reports
	orphans    orphans
	quarantine quarantine

	// Computing is held while expressions are computed: one worker of a definition computes at a time, so that a definition
	// whose expressions are as expensive as they may be keeps one processor busy and not all.
	Computing sync.Mutex

	queue atomic.Pointer[queue]
	// runs is the queue of operation objects; it is made when the first Program with operations is put to work.
	runs      atomic.Pointer[queue]
	operating sync.Once
	// woken are operation objects for which something has changed that they may wait for.
	woken   sync.Map    // of Request
	pending atomic.Bool // counts have changed, and the definition is going to be told
	done    chan struct{}
	cancel  context.CancelFunc
	ctx     context.Context //nolint:containedctx // the life of the run, for timers
	wg      sync.WaitGroup
}

type queue = workqueue.TypedRateLimitingInterface[Request]

// rights is what follows from a Program alone.
type rights struct {
	program     *program.Program
	permissions *rbac.Permissions
	externals   map[string][][]string
}

func newRun(e *Engine, spec Spec) (*Run, error) {
	client, err := e.opts.Identities.For(spec.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for definition %s: %w", spec.Definition, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Run{
		engine: e, client: client, writer: apply.NewWriter(client), reports: newReports(),
		log: e.opts.Logger.WithValues("definition", spec.Definition), done: make(chan struct{}), ctx: ctx, cancel: cancel,
	}
	r.quarantine.clock = e.opts.Clock
	r.set = watch.NewSet(watch.Options{
		Client:  client.Dynamic,
		OnEvent: r.onEvent,
		OnState: func(watch.Role, program.Kind, watch.State) {
			r.enqueueAll(handler.LowPriority)
			r.wakeAllRuns()
			e.onChange(spec.Definition)
		},
		OnExternal: func(readers []types.NamespacedName) {
			r.enqueue(0, 0, readers...)
			r.wakeOperations(readers...)
		},
	})
	r.spec.Store(&spec)
	return r, nil
}

// start begins to watch, and to work as soon as this replica is elected and the watches have answered.
func (r *Run) start() {
	r.fitWatches()
	r.work(r.Spec().Definition, r.engine.opts.NewReconciler(r), &r.queue, func() { r.enqueueAll(handler.LowPriority) })
	r.operate()
}

// operate begins to work on operation objects, once there can be any.
func (r *Run) operate() {
	if r.engine.opts.NewOperations == nil || len(r.Spec().Program.Operations) == 0 {
		return
	}
	r.operating.Do(func() {
		r.work(r.Spec().Definition+" operations", r.engine.opts.NewOperations(r), &r.runs, r.wakeAllRuns)
	})
}

// work starts a controller; first fills its queue.
func (r *Run) work(name string, next reconcile.TypedReconciler[Request], q *atomic.Pointer[queue], first func()) {
	ctrl, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[Request]{
		Reconciler:              &guarded{run: r, next: next},
		MaxConcurrentReconciles: r.engine.opts.Workers,
		SkipNameValidation:      ptr.To(true),
		RecoverPanic:            ptr.To(true),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](100*time.Millisecond, time.Minute),
		LogConstructor: func(req *Request) logr.Logger {
			if req == nil {
				return r.log
			}
			return r.log.WithValues("instance", req.String())
		},
	})
	if err != nil {
		// The options are ours: an error here is a fault of the program.
		panic(fmt.Sprintf("cannot make a controller: %v", err))
	}
	r.wg.Go(func() {
		select {
		case <-r.engine.opts.Elected:
		case <-r.ctx.Done():
			return
		}
		r.engine.begin()
		r.awaitWatches()
		if err := ctrl.Watch(source.TypedFunc[Request](func(_ context.Context, made queue) error {
			q.Store(&made)
			first()
			return nil
		})); err != nil {
			r.log.Error(err, "Cannot feed the controller")
			return
		}
		if err := ctrl.Start(r.ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.log.Error(err, "The controller ended")
		}
	})
}

// awaitWatches waits until the watches have answered, or for some seconds: a watch that hangs must not keep the instances
// from whatever does not need it.
func (r *Run) awaitWatches() {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !r.settled() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Run) settled() bool {
	if r.set.InstanceState().Phase == watch.PhasePending {
		return false
	}
	if r.Spec().Program.OperationKind != nil && r.set.OperationState().Phase == watch.PhasePending {
		return false
	}
	for _, s := range r.set.States() {
		if s.Phase == watch.PhasePending {
			return false
		}
	}
	return true
}

func (r *Run) stop() {
	r.cancel()
	r.fitting.Lock()   // whoever fits begins no more work after this
	r.fitting.Unlock() //nolint:staticcheck // an empty section: it waits
	r.wg.Wait()
	r.set.Stop()
	forgetMetrics(r.Spec().Definition)
}

func (r *Run) update(spec Spec) {
	old := r.spec.Swap(&spec)
	if old.Program == spec.Program && sameKinds(old.ManagedKinds, spec.ManagedKinds) && old.Draining == spec.Draining {
		return
	}
	if old.Program != spec.Program {
		r.quarantine.lift()
	}
	r.fitWatches()
	r.operate()
	if old.Program != spec.Program || old.Draining != spec.Draining {
		r.enqueueAll(handler.LowPriority)
		r.wakeAllRuns()
	}
}

// Spec returns what the run was last told.
func (r *Run) Spec() *Spec { return r.spec.Load() }

// Entry returns the Program at work.
func (r *Run) Entry() (registry.Entry, bool) { return r.engine.opts.Registry.Get(r.Spec().Definition) }

// Set returns what is known of the cluster.
func (r *Run) Set() *watch.Set { return r.set }

// Writer writes with the identity of the definition.
func (r *Run) Writer() *apply.Writer { return r.writer }

// Fallback writes with Libretto's own identity. It is for one thing: to remove Libretto's finalizer from an instance that is
// being deleted when the ServiceAccount has lost the right to.
func (r *Run) Fallback() *apply.Writer { return r.engine.fallback }

// Clock of breakers and deadlines.
func (r *Run) Clock() clock.WithTicker { return r.engine.opts.Clock }

// Client acts with the identity of the definition.
func (r *Run) Client() *identity.Client { return r.client }

// Began is when this engine began to work.
func (r *Run) Began() time.Time { return r.engine.began }

// Context ends when the run is stopped.
func (r *Run) Context() context.Context { return r.ctx }

// Go runs a function in the background; stopping the run waits for it.
func (r *Run) Go(f func()) { r.wg.Go(f) }

// User is the name of the user who acts; empty: Libretto itself.
func (r *Run) User() string { return r.client.User }

// Rights returns the rights that the Program needs, to name the Role that lacks one.
func (r *Run) Rights(p *program.Program) *rbac.Permissions { return r.derived(p).permissions }

// ExternalFields returns the paths that the Program reads of an external; nil: anything.
func (r *Run) ExternalFields(p *program.Program, name string) [][]string {
	return r.derived(p).externals[name]
}

// derived computes what follows from a Program, once.
func (r *Run) derived(p *program.Program) *rights {
	if c := r.rights.Load(); c != nil && c.program == p {
		return c
	}
	d := &rights{program: p, permissions: rbac.For(p), externals: map[string][][]string{}}
	for i := range p.Externals {
		x := &p.Externals[i]
		d.externals[x.Name] = fieldsOf(p.Refs(), x.Name, x.List)
	}
	r.rights.Store(d)
	return d
}

// Tell tells the observer.
func (r *Run) Tell(ev Event) {
	if r.engine.opts.Observer == nil {
		return
	}
	ev.Time, ev.Definition = r.engine.opts.Clock.Now(), r.Spec().Definition
	r.engine.opts.Observer(ev)
}

// Record writes a Kubernetes event about an instance.
func (r *Run) Record(regarding, related runtime.Object, eventType, reason, action, note string) {
	if r.engine.opts.Recorder != nil {
		r.engine.opts.Recorder.Eventf(regarding, related, eventType, reason, action, "%s", note)
	}
}

// Serves tells whether the definition serves instances in a namespace.
func (r *Run) Serves(namespace string) bool {
	scope := r.Spec().Program.Definition.Namespaces
	if scope == nil || namespace == "" {
		return true
	}
	for _, n := range scope.Names {
		if n == namespace {
			return true
		}
	}
	if scope.Selector == nil || r.engine.opts.NamespaceLabels == nil {
		return false
	}
	set, known := r.engine.opts.NamespaceLabels(namespace)
	selector, err := selectorOf(scope.Selector)
	return known && err == nil && selector.Matches(labels.Set(set))
}

// Report notes how the work on an instance ended.
func (r *Run) Report(req Request, report Report) {
	if r.reports.put(req, report) {
		r.changed()
	}
}

// Forget drops what is known of an instance that is gone; it tells whether there was something.
func (r *Run) Forget(req Request) bool {
	known := r.reports.drop(req)
	if known {
		r.changed()
	}
	return known
}

// Last returns how the work on an instance ended last; false: it was not worked on yet.
func (r *Run) Last(req Request) (Report, bool) { return r.reports.get(req) }

// Enqueue works on an instance again, after a while.
func (r *Run) Enqueue(req Request, after time.Duration) { r.enqueue(0, after, req) }

// changed tells the definition, in a while, that counts have changed.
func (r *Run) changed() {
	if r.pending.Swap(true) {
		return
	}
	time.AfterFunc(countsDelay, func() {
		r.pending.Store(false)
		if r.ctx.Err() == nil {
			r.engine.onChange(r.Spec().Definition)
		}
	})
}

// enqueueAll works on all instances, and on those that are not seen but may have left objects: they may have gone while no
// engine ran, or their children have been seen before them.
func (r *Run) enqueueAll(priority int) {
	if r.queue.Load() == nil {
		return
	}
	objects := r.set.Instances()
	requests := make([]Request, len(objects))
	for i, o := range objects {
		requests[i] = Request{Namespace: o.Namespace, Name: o.Name}
	}
	r.enqueue(priority, 0, append(requests, r.orphans.requests()...)...)
}

func (r *Run) enqueue(priority int, after time.Duration, requests ...Request) {
	add(r.queue.Load(), priority, after, requests...)
}

func add(q *queue, priority int, after time.Duration, requests ...Request) {
	if q == nil || len(requests) == 0 {
		return // the controller has not started: it begins with all instances
	}
	if pq, ok := (*q).(priorityqueue.PriorityQueue[Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, requests...)
		return
	}
	for _, req := range requests {
		(*q).AddAfter(req, after)
	}
}

// guarded keeps panics within the definition.
type guarded struct {
	run  *Run
	next reconcile.TypedReconciler[Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (g *guarded) Reconcile(ctx context.Context, req Request) (result reconcile.Result, err error) {
	r := g.run
	if r.quarantine.reason() != "" {
		return reconcile.Result{}, nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error(fmt.Errorf("panic: %v", p), "Work on an instance panicked", "instance", req.String(), "stack", stack())
			panicked(r.Spec().Definition)
			if r.quarantine.count(p, req) {
				r.engine.onChange(r.Spec().Definition)
			}
			result, err = reconcile.Result{RequeueAfter: 5 * time.Second}, nil
		}
	}()
	return g.next.Reconcile(ctx, req)
}
