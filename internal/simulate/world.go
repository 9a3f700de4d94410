package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
)

const (
	// maxPasses is how often everything is looked at before it counts as never coming to rest.
	maxPasses = 1000
	// maxWakes is how often the clock may stop on its way.
	maxWakes = 20000
	// revision is the name of the revision that is at work in a test.
	revision = "under-test"
)

// world is what a test happens in.
type world struct {
	ctx     context.Context //nolint:containedctx // of one test, which is one call
	program *program.Program
	store   *store
	now     time.Time
	// began is when the engine started; engines counts its starts.
	began   time.Time
	engines int
	// allReady makes each resource ready as soon as it is made.
	allReady bool
	answers  []*answer
	// activities are the attempts that the engine has begun since its start.
	activities map[string]*activity
	resumed    map[types.UID]bool
	// wake is when to look again; zero: when something changes.
	wake time.Time
	// turns counts the attempts that have gone on.
	turns int64
	// fault ends the test.
	fault error

	happened happened
}

// happened is what an expect can ask for beside objects.
type happened struct {
	events   []event
	logs     []string
	requests []request
	// counted are those that an expect has seen.
	countedEvents, countedLogs, countedRequests int
}

type event struct{ kind, reason, message string }

// request is what an exec, http or job step asked for.
type request struct {
	step    string
	content map[string]any
}

// answer is an Answer and how often it was given.
type answer struct {
	*Answer
	given int
}

func newWorld(ctx context.Context, p *program.Program, t *Test) *world {
	w := &world{
		ctx: ctx, program: p, now: t.begin, began: t.begin, engines: 1, allReady: t.Ready == "all",
		activities: map[string]*activity{}, resumed: map[types.UID]bool{},
	}
	w.store = newStore(func() time.Time { return w.now })
	for i := range t.Answers {
		w.answers = append(w.answers, &answer{Answer: &t.Answers[i]})
	}
	return w
}

// restart is what happens when the engine is killed and starts again: it knows nothing of what was under way.
func (w *world) restart() {
	w.engines++
	w.began = w.now
	w.activities = map[string]*activity{}
	w.resumed = map[types.UID]bool{}
}

// settle has everything looked at until nothing changes any more.
func (w *world) settle() error {
	for range maxPasses {
		version, turns := w.store.version, w.turns
		w.wake = time.Time{}
		if w.allReady {
			w.makeReady()
		}
		for _, o := range w.instances() {
			if w.pass(keyOfObject(o)); w.fault != nil {
				return w.fault
			}
		}
		for _, o := range w.runs() {
			if w.drive(keyOfObject(o)); w.fault != nil {
				return w.fault
			}
		}
		if version == w.store.version && turns == w.turns {
			return w.ctx.Err()
		}
	}
	return fmt.Errorf("it does not come to rest: after looking %d times at everything something still changes; an expression that is never the same twice, or two resources that undo each other", maxPasses)
}

// advance moves the clock, and stops wherever something is due.
func (w *world) advance(d time.Duration) error {
	target := w.now.Add(d)
	for range maxWakes {
		if err := w.settle(); err != nil {
			return err
		}
		if w.wake.IsZero() || w.wake.After(target) {
			w.now = target
			return w.settle()
		}
		if !w.wake.After(w.now) { // due already, and looked at: the next moment
			w.wake = w.now.Add(time.Millisecond)
		}
		w.now = w.wake
	}
	return fmt.Errorf("more than %d things happen within %s (now %s): advance by less", maxWakes, d, w.now.Format(time.RFC3339))
}

// wakeAt notes a moment at which something is due.
func (w *world) wakeAt(at time.Time) {
	if !at.IsZero() && (w.wake.IsZero() || at.Before(w.wake)) {
		w.wake = at
	}
}

func (w *world) instances() []*unstructured.Unstructured {
	return w.store.ofKind(w.program.Instance.GroupKind())
}

func (w *world) runs() []*unstructured.Unstructured {
	if w.program.OperationKind == nil {
		return nil
	}
	return w.store.ofKind(w.program.OperationKind.Kind.GroupKind())
}

// instance finds the instance that a test means.
func (w *world) instance(name string) (*unstructured.Unstructured, error) {
	all := w.instances()
	var names []string
	for _, o := range all {
		if o.GetName() == name || name == "" && len(all) == 1 {
			return o, nil
		}
		names = append(names, o.GetName())
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("there is no %s", w.program.Instance.Kind)
	case name == "":
		return nil, fmt.Errorf("there are %s: say which with instance", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no %s %s; there is %s", w.program.Instance.Kind, name, strings.Join(names, ", "))
}

// run finds the operation object that a test means: by name, or the newest of an operation.
func (w *world) run(name, op string) (*unstructured.Unstructured, error) {
	all := w.runs()
	slices.Reverse(all)
	for _, o := range all {
		of, _, _ := unstructured.NestedString(o.Object, "spec", "operation")
		if name != "" && o.GetName() == name || name == "" && of == op {
			return o, nil
		}
	}
	if name != "" {
		return nil, fmt.Errorf("there is no run %s", name)
	}
	return nil, fmt.Errorf("there is no run of operation %s", op)
}

// evaluation returns an evaluation for an instance to which all is bound that there is.
func (w *world) evaluation(instance *unstructured.Unstructured) *render.Evaluation {
	if instance == nil {
		return render.New(w.program, map[string]any{})
	}
	e := render.New(w.program, instance.Object)
	w.bindExternals(e)
	e.Observe(func(kind program.Kind, namespace, name string) *unstructured.Unstructured {
		return w.store.live(kind, namespace, name)
	})
	return e
}

func (w *world) bindExternals(e *render.Evaluation) {
	refs, _ := e.Externals() // one that cannot be told is an error to what reads it
	for i := range refs {
		ref := &refs[i]
		var found []map[string]any
		for _, o := range w.store.ofKind(ref.Kind.GroupKind()) {
			if refersTo(ref, o) {
				found = append(found, o.Object)
			}
		}
		e.BindExternal(ref.Name, found)
	}
}

func refersTo(ref *render.ExternalRef, o *unstructured.Unstructured) bool {
	if ref.Namespace != "" && o.GetNamespace() != ref.Namespace {
		return false
	}
	if !ref.List {
		return ref.ObjectName != "" && o.GetName() == ref.ObjectName
	}
	labels := o.GetLabels()
	for k, v := range ref.Labels {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// evaluator computes expressions with an evaluation.
type evaluator struct{ e *render.Evaluation }

var _ operation.Evaluator = evaluator{}

// Bool implements operation.Evaluator.
func (v evaluator) Bool(x *expr.Expr, vars map[string]any) (bool, error) {
	return v.e.With(vars).Bool(x)
}

// Items implements operation.Evaluator.
func (v evaluator) Items(f *program.ForEach, most int, vars map[string]any) ([]any, error) {
	return v.e.With(vars).Items(f, most)
}

// Template implements operation.Evaluator.
func (v evaluator) Template(t *program.Template, vars map[string]any) (any, error) {
	return v.e.With(vars).Template(t)
}

// Text implements operation.Evaluator.
func (v evaluator) Text(t *program.Template, vars map[string]any) (string, error) {
	return v.e.With(vars).Text(t)
}
