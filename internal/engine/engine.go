package engine

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/registry"
)

// Request names an instance, or an operation object.
type Request = types.NamespacedName

// Options of an Engine.
type Options struct {
	// Identities makes the clients that act for definitions.
	Identities *identity.Factory
	// Registry holds the Programs at work.
	Registry *registry.Registry
	// NewReconciler makes what works on the instances of a definition.
	NewReconciler func(*Run) reconcile.TypedReconciler[Request]
	// NewOperations makes what works on the operation objects of a definition; nil: operations are not run.
	NewOperations func(*Run) reconcile.TypedReconciler[Request]
	// Observer is told what is done; nil: nobody is.
	Observer Observer
	// Recorder writes Kubernetes events with Libretto's own identity; nil: none are written.
	Recorder events.EventRecorder
	// Elected is closed when workers may run; nil: at once.
	Elected <-chan struct{}
	// NamespaceLabels returns the labels of a namespace, for definitions that select namespaces by label; false: not known.
	// Nil: no namespace is known, and such definitions serve none.
	NamespaceLabels func(name string) (map[string]string, bool)
	// Workers per definition; 0: 16. They wait for the API server most of the time.
	Workers int
	Logger  logr.Logger
	// Clock of circuit breakers and deadlines; nil: the real one.
	Clock clock.WithTicker
}

// Engine runs definitions. It is safe for concurrent use.
type Engine struct {
	opts     Options
	fallback *apply.Writer
	onChange func(string)

	mu   sync.Mutex
	runs map[string]*Run

	beginOnce sync.Once
	began     time.Time
}

// begin notes when work began: this replica was elected.
func (e *Engine) begin() {
	e.beginOnce.Do(func() { e.began = e.opts.Clock.Now() })
}

// New returns an Engine that runs nothing yet.
func New(opts Options) (*Engine, error) {
	if opts.Workers <= 0 {
		opts.Workers = 16
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Elected == nil {
		elected := make(chan struct{})
		close(elected)
		opts.Elected = elected
	}
	own, err := opts.Identities.For(nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make Libretto's own client: %w", err)
	}
	return &Engine{opts: opts, fallback: apply.NewWriter(own), onChange: func(string) {}, runs: map[string]*Run{}}, nil
}

// OnChange sets whom to call when the State of a definition changes. It must be called before the first Ensure.
func (e *Engine) OnChange(f func(definition string)) { e.onChange = f }

// Ensure starts the work for a definition, or fits what runs to a new spec. A change of the ServiceAccount starts the
// definition's watches anew. It does not wait for the API server.
func (e *Engine) Ensure(_ context.Context, spec Spec) error {
	e.mu.Lock()
	r := e.runs[spec.Definition]
	if r != nil && !reflect.DeepEqual(r.Spec().ServiceAccount, spec.ServiceAccount) {
		// Without the lock: the workers of this definition may take their time, and others must not wait for them. For one
		// definition, Ensure is called by one worker at a time.
		e.mu.Unlock()
		e.Stop(spec.Definition)
		e.mu.Lock()
		r = nil
	}
	defer e.mu.Unlock()
	if r != nil {
		r.update(spec)
		return nil
	}
	r, err := newRun(e, spec)
	if err != nil {
		return err
	}
	e.runs[spec.Definition] = r
	r.start()
	return nil
}

// Stop ends the work for a definition: when it returns, no worker runs and no watch is left.
func (e *Engine) Stop(definition string) {
	e.mu.Lock()
	r := e.runs[definition]
	delete(e.runs, definition)
	e.mu.Unlock()
	if r != nil {
		r.stop()
	}
}

// StopAll ends the work for all definitions.
func (e *Engine) StopAll() {
	e.mu.Lock()
	runs := e.runs
	e.runs = map[string]*Run{}
	e.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(r.stop)
	}
	wg.Wait()
}

// State tells how the work for a definition stands; false: none was started.
func (e *Engine) State(definition string) (State, bool) {
	e.mu.Lock()
	r := e.runs[definition]
	e.mu.Unlock()
	if r == nil {
		return State{}, false
	}
	return r.state(), true
}

// Retry makes whatever waits after a refusal try again now, watches and instances: a CustomResourceDefinition appeared, a right
// was given.
func (e *Engine) Retry() {
	for _, r := range e.all() {
		r.set.Retry()
		r.enqueue(0, 0, r.reports.refused()...)
	}
}

// NamespaceChanged works again on the instances in a namespace whose labels have changed.
func (e *Engine) NamespaceChanged(namespace string) {
	for _, r := range e.all() {
		if scope := r.Spec().Program.Definition.Namespaces; scope == nil || scope.Selector == nil {
			continue
		}
		for _, o := range r.set.Instances() {
			if o.Namespace == namespace {
				r.enqueue(0, 0, Request{Namespace: o.Namespace, Name: o.Name})
			}
		}
	}
}

// Synced tells whether every watch of every definition has answered, with what there is or with why not.
func (e *Engine) Synced() bool {
	for _, r := range e.all() {
		if !r.settled() {
			return false
		}
	}
	return true
}

func (e *Engine) all() []*Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	runs := make([]*Run, 0, len(e.runs))
	for _, r := range e.runs {
		runs = append(runs, r)
	}
	return runs
}

// countsDelay is how long changes of counts are collected before the definition is told.
const countsDelay = 3 * time.Second
