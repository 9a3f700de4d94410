package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/libretto-dev/libretto/internal/program"
)

// Pauses between tries. A try that lasted longer than healthyAfter starts again from the shortest pause.
const (
	shortestPause = 500 * time.Millisecond
	longestPause  = 45 * time.Second
	healthyAfter  = time.Minute
)

// target says what one watch is of.
type target struct {
	kind      program.Kind
	namespace string
	// name selects one object.
	name string
	// selector of labels.
	selector string
}

// watcher keeps a collection up to date.
type watcher struct {
	target
	*collection
	client  dynamic.ResourceInterface
	onState func(State)
	cancel  context.CancelFunc
	retry   chan struct{}

	stateMu  sync.Mutex
	state    State
	refused  map[string]error // verb → error, of this try
	lastErr  error
	watching bool
}

func newWatcher(client dynamic.Interface, t target, c *collection, onState func(State)) *watcher {
	w := &watcher{target: t, collection: c, onState: onState, retry: make(chan struct{}, 1),
		state: State{Phase: PhasePending, Since: time.Now()}}
	resource := client.Resource(t.kind.GVR())
	w.client = resource
	if t.namespace != "" {
		w.client = resource.Namespace(t.namespace)
	}
	return w
}

// start runs the watcher until ctx or stop ends it; done is called when its goroutine ends. Nothing is reported from the
// goroutine of the caller.
func (w *watcher) start(ctx context.Context, done func()) {
	ctx, w.cancel = context.WithCancel(ctx)
	ctx = klog.NewContext(ctx, logr.Discard()) // the State tells what the Reflector would log
	go func() {
		defer done()
		if w.kind.Pending || w.kind.Resource == "" {
			w.setPhase(PhaseNotFound, fmt.Errorf("the API server has no kind %s of %s", w.kind.Kind, w.kind.GroupVersion()))
			return
		}
		w.run(ctx)
	}()
}

// stop ends the watcher without waiting for it. It reports nothing any more.
func (w *watcher) stop() {
	w.stopped.Store(true)
	w.cancel()
}

// again ends the pause after an error.
func (w *watcher) again() {
	select {
	case w.retry <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context) {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: w.list, WatchFuncWithContext: w.watch,
	}, w.client)
	reflector := cache.NewReflectorWithOptions(lw, nil, synced{w}, cache.ReflectorOptions{
		Name: "libretto", TypeDescription: w.kind.GVR().String()})
	pause := shortestPause
	for ctx.Err() == nil {
		started := time.Now()
		w.begin()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		w.end(err)
		if time.Since(started) > healthyAfter {
			pause = shortestPause
		}
		if w.pause(ctx, pause) {
			pause = shortestPause
			continue
		}
		pause = min(2*pause, longestPause)
	}
}

// pause waits, between three quarters and five quarters of d; true: it was asked to try again at once.
func (w *watcher) pause(ctx context.Context, d time.Duration) bool {
	d = time.Duration(float64(d) * (0.75 + rand.Float64()/2)) //nolint:gosec // not a secret
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-w.retry:
		return true
	}
	return false
}

func (w *watcher) narrow(opts *metav1.ListOptions) {
	opts.LabelSelector = w.selector
	if w.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", w.name).String()
	}
}

func (w *watcher) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	w.narrow(&opts)
	out, err := w.client.List(ctx, opts)
	if err != nil {
		w.failed(ctx, "list", err)
		return nil, err
	}
	return out, nil
}

func (w *watcher) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w.narrow(&opts)
	out, err := w.client.Watch(ctx, opts)
	if err == nil {
		w.connected()
		return out, nil
	}
	w.failed(ctx, "watch", err)
	if opts.SendInitialEvents != nil && !isExpired(err) {
		// The Reflector would wait for a pause of its own that Stop cannot end, were it to know the error.
		return nil, errors.New(err.Error())
	}
	return nil, err
}

// synced is the collection as the Reflector sees it, which notes that all is known.
type synced struct{ *watcher }

// Replace implements cache.ReflectorStore.
func (s synced) Replace(list []any, version string) error {
	err := s.collection.Replace(list, version)
	s.stateMu.Lock()
	s.state.HasSynced = true
	watching := s.watching
	s.stateMu.Unlock()
	if watching {
		s.setPhase(PhaseSynced, nil)
	}
	return err
}

func (w *watcher) begin() {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	w.refused, w.lastErr, w.watching = map[string]error{}, nil, false
}

// connected notes that the API server answers to a watch.
func (w *watcher) connected() {
	w.stateMu.Lock()
	w.watching, w.lastErr = true, nil
	hasSynced := w.state.HasSynced
	w.stateMu.Unlock()
	if hasSynced {
		w.setPhase(PhaseSynced, nil)
	}
}

// failed notes the error of a request. When the watch of a synced collection fails, its state tells at once: the Reflector
// tries again by itself.
func (w *watcher) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.stateMu.Lock()
	if apierrors.IsForbidden(err) {
		w.refused[verb] = err
	}
	w.lastErr, w.watching = err, false
	hasSynced := w.state.HasSynced
	w.stateMu.Unlock()
	if hasSynced && !isExpired(err) {
		w.setPhase(phaseOf(err), w.describe(err))
	}
}

// end notes how a try ended. A watch that ended without an error is started again in a moment: nothing to tell.
func (w *watcher) end(err error) {
	w.stateMu.Lock()
	if w.lastErr != nil {
		err = w.lastErr
	}
	w.stateMu.Unlock()
	if err == nil || isExpired(err) {
		return
	}
	var short *cache.VeryShortWatchError
	if errors.As(err, &short) {
		return
	}
	w.setPhase(phaseOf(err), w.describe(err))
}

func (w *watcher) describe(err error) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot watch %s: %w", w.kind.GVR().GroupResource(), err)
	}
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	return &ForbiddenError{Verbs: slices.Sorted(maps.Keys(w.refused)), Kind: w.kind, Namespace: w.namespace, Name: w.name,
		Impersonation: IsImpersonationDenied(err), Message: err.Error()}
}

func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// setPhase reports a change of phase, or of the error's text.
func (w *watcher) setPhase(phase Phase, err error) {
	w.stateMu.Lock()
	same := w.state.Phase == phase && (err == nil) == (w.state.Err == nil) && (err == nil || err.Error() == w.state.Err.Error())
	if w.state.Phase != phase {
		w.state.Since = time.Now()
	}
	w.state.Phase, w.state.Err = phase, err
	state := w.state
	w.stateMu.Unlock()
	if !same && !w.stopped.Load() {
		w.onState(state)
	}
}

func (w *watcher) currentState() State {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	return w.state
}
