package operation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/watch"
)

// targetPatience is how long a run waits for an instance that is not seen: the watch of instances may lag behind the watch of
// operation objects.
const targetPatience = 10 * time.Second

// removalPause is how long an operation object that is being deleted waits before what it has made is removed: when its namespace is
// being deleted, its instance follows within that time, and what it has made stays.
const removalPause = 10 * time.Second

// Reconciler works on the operation objects of one definition.
type Reconciler struct {
	run    *engine.Run
	runner *runner.Runner
	// seen are the UIDs of operation objects that were worked on, so that what is under way for one that is gone can be stopped.
	seen sync.Map // of types.UID by engine.Request
	// beginning is held, by the instance, while it is found out whether a run has its turn, until that is persisted: no two begin
	// because each saw the other waiting.
	beginning [64]sync.Mutex
}

// New returns a Reconciler for a run of the engine.
func New(run *engine.Run, doer runner.Doer) reconcile.TypedReconciler[engine.Request] {
	return &Reconciler{run: run, runner: runner.New(run, doer)}
}

// scope is one pass over one operation object.
type scope struct {
	r     *Reconciler
	run   *engine.Run
	req   engine.Request
	obj   *watch.Object
	entry registry.Entry
	// parsed is the object as the state machine sees it, instance its target; nil: not seen.
	parsed   *operation.Run
	instance *watch.Object
	// operation is nil when the definition has none of that name.
	operation *program.Operation
	woken     bool
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req engine.Request) (reconcile.Result, error) {
	woken := r.run.TakeWoken(req)
	obj := r.run.Set().Operation(req.Namespace, req.Name)
	if obj == nil {
		if uid, known := r.seen.LoadAndDelete(req); known {
			r.runner.Forget(uid.(types.UID))
		}
		return reconcile.Result{}, nil
	}
	if was, known := r.seen.Swap(req, obj.UID); known && was != obj.UID {
		r.runner.Forget(was.(types.UID)) // of an earlier object of that name
	}
	entry, ok := r.run.Entry()
	if !ok || entry.Program.OperationKind == nil {
		return reconcile.Result{}, nil
	}
	parsed, err := operation.Parse(obj.Unstructured().Object)
	if err != nil {
		r.run.Log().Error(err, "An operation object cannot be read", "operationObject", req.String())
		return reconcile.Result{}, nil // the API server has let it through: it is not of the schema of now
	}
	s := &scope{
		r: r, run: r.run, req: req, obj: obj, entry: entry, parsed: parsed, woken: woken,
		instance:  r.run.Set().Instance(req.Namespace, parsed.Spec.Target),
		operation: entry.Program.Operation(parsed.Spec.Operation),
	}
	if of := obj.Labels[v1alpha1.LabelTarget]; s.instance != nil && of != "" && of != string(s.instance.UID) {
		s.instance = nil // it is a later instance of that name
	}
	if s.instance == nil && (obj.Deleting() || begun(parsed)) && !r.run.Set().InstanceState().HasSynced {
		return reconcile.Result{RequeueAfter: targetPatience}, nil // nobody knows yet whether it is gone; the watch wakes
	}
	if obj.Deleting() {
		return s.remove(ctx)
	}
	if !r.run.Serves(req.Namespace) {
		return reconcile.Result{}, nil
	}
	if s.instance != nil && !parsed.Status.State.Ended() {
		if done, err := s.adopt(ctx); !done {
			return reconcile.Result{}, ignoreStale(err)
		}
	}
	return s.advance(ctx, false)
}

func begun(r *operation.Run) bool {
	return r.Status.State == v1alpha1.RunRunning || r.Status.State == v1alpha1.RunUndoing
}

// turnOf is the lock of the turns of an instance.
func (r *Reconciler) turnOf(namespace, instance string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace + "/" + instance))
	return &r.beginning[h.Sum32()%uint32(len(r.beginning))]
}

// advance drives the run one step further.
func (s *scope) advance(ctx context.Context, removing bool) (reconcile.Result, error) {
	if operation.Waits(s.parsed) {
		lock := s.r.turnOf(s.req.Namespace, s.parsed.Spec.Target)
		lock.Lock()
		defer lock.Unlock()
	}
	op := s.operation
	turn := s.turn()
	if op == nil {
		if s.parsed.Status.State.Ended() {
			return reconcile.Result{}, nil
		}
		op = &program.Operation{Name: s.parsed.Spec.Operation}
		turn = operation.Turn{Fail: fmt.Sprintf("the definition has no operation %q any more", s.parsed.Spec.Operation)}
	}
	before := s.obj
	rec := runner.Record{
		Run: s.parsed, Program: s.entry.Program, Operation: op, Revision: s.entry.Revision, Instance: s.instance, Turn: turn,
		Removing: removing, Woken: s.woken, Persist: s.persist,
		Wake: func() { s.run.EnqueueRun(s.req, engine.RunPriority, 0) },
	}
	was := rec.Run.Status.DeepCopy()
	out, err := s.r.runner.Advance(ctx, rec)
	if err != nil {
		return reconcile.Result{}, ignoreStale(err)
	}
	if out.Changed {
		s.tell(was, out.Status)
		s.run.RunChanged(before, s.obj)
	}
	if removing && out.Removed {
		return reconcile.Result{}, s.letGo(ctx)
	}
	return reconcile.Result{RequeueAfter: out.After}, nil
}

// turn tells whether the run may go on, beside the other runs of its instance.
func (s *scope) turn() operation.Turn {
	if s.instance == nil {
		return s.noInstance()
	}
	if s.parsed.Status.State.Ended() && s.parsed.Spec.Retry == nil {
		return operation.Turn{}
	}
	objects := s.run.Set().OperationsOf(engine.Request{Namespace: s.req.Namespace, Name: s.parsed.Spec.Target})
	runs := make([]*operation.Run, 0, len(objects))
	parents := map[string]bool{}
	for _, o := range objects {
		parents[parentOf(o)] = !ended(o) || parents[parentOf(o)]
	}
	for _, o := range objects {
		if o.UID == s.obj.UID {
			runs = append(runs, s.parsed)
			continue
		}
		if ended(o) && !parents[o.Name] {
			continue // it has no say; there may be many
		}
		if of := o.Labels[v1alpha1.LabelTarget]; of != "" && of != string(s.instance.UID) {
			continue // of an earlier instance of that name
		}
		if other, err := operation.Parse(o.Unstructured().Object); err == nil {
			runs = append(runs, other)
		}
	}
	return operation.Turns(runs, s.entry.Program.Operation, s.instance.Deleting())[s.req.Name]
}

// ended tells whether a run has ended for good, without reading all of it.
func ended(o *watch.Object) bool {
	spec, _ := o.Content["spec"].(map[string]any)
	status, _ := o.Content["status"].(map[string]any)
	state, _ := status["state"].(string)
	return v1alpha1.RunState(state).Ended() && spec["retry"] == nil
}

// parentOf is the name of the run whose step began this one; empty: none.
func parentOf(o *watch.Object) string {
	spec, _ := o.Content["spec"].(map[string]any)
	trigger, _ := spec["trigger"].(map[string]any)
	parent, _ := trigger["parent"].(string)
	return parent
}

// noInstance is the turn of a run whose instance is not seen.
func (s *scope) noInstance() operation.Turn {
	target := s.entry.Program.Instance.Kind + " " + s.parsed.Spec.Target
	switch {
	case !s.run.Set().InstanceState().HasSynced:
		return operation.Turn{Reason: operation.ReasonTargetNotFound, Message: "the watch of the instances has not begun yet"}
	case s.parsed.Status.State == v1alpha1.RunPending || s.parsed.Status.State == "":
		if age := s.run.Clock().Since(s.parsed.Created); age < targetPatience {
			s.run.EnqueueRun(s.req, 0, targetPatience-age+time.Second)
			return operation.Turn{Reason: operation.ReasonTargetNotFound, Message: "there is no " + target}
		}
	}
	return operation.Turn{Fail: "there is no " + target}
}

// persist writes the status; it takes effect only on the very state that the pass has seen.
func (s *scope) persist(ctx context.Context, status *v1alpha1.OperationRunStatus) error {
	content, err := operation.StatusContent(status)
	if err != nil {
		return err
	}
	updated, err := s.run.Writer().PatchStatus(ctx, s.obj, content)
	if err != nil {
		return fmt.Errorf("cannot write how the run stands: %w", err)
	}
	if updated != nil {
		s.obj = s.run.Set().Observe(watch.RoleOperation, s.entry.Program.OperationKind.Kind, updated)
	}
	return nil
}

// adopt gives an operation object that a user made what those have that the engine makes: an owner, labels and, where it needs
// one, a finalizer. It tells whether the run can go on in this pass.
func (s *scope) adopt(ctx context.Context) (bool, error) {
	if s.operation == nil || s.obj.Labels[v1alpha1.LabelTarget] != "" {
		return true, nil
	}
	marks := operation.Marks(s.entry.Program, operation.InstanceOf(s.instance.Unstructured().Object), s.operation, s.parsed.Spec.Trigger)
	s.keepMarks(marks)
	updated, err := s.run.Writer().PatchMetadata(ctx, s.obj, marks)
	if err != nil {
		return false, fmt.Errorf("cannot mark the operation object as that of its instance: %w", err)
	}
	if updated == nil {
		return true, nil
	}
	s.obj = s.run.Set().Observe(watch.RoleOperation, s.entry.Program.OperationKind.Kind, updated)
	parsed, err := operation.Parse(s.obj.Unstructured().Object)
	if err != nil {
		return false, err
	}
	s.parsed = parsed
	return true, nil
}

// keepMarks adds the finalizers and owners that the object has already to those that it is given: a merge patch replaces lists.
func (s *scope) keepMarks(marks map[string]any) {
	meta, _ := s.obj.Unstructured().Object["metadata"].(map[string]any)
	for _, list := range []string{"finalizers", "ownerReferences"} {
		have, _ := meta[list].([]any)
		ours, _ := marks[list].([]any)
		if len(have) > 0 && len(ours) > 0 {
			marks[list] = append(slices.Clone(have), ours...)
		}
	}
}

// remove does what has to be done before an operation object goes.
func (s *scope) remove(ctx context.Context) (reconcile.Result, error) {
	if !slices.Contains(s.obj.Finalizers, v1alpha1.FinalizerRun) {
		s.r.runner.Forget(s.obj.UID)
		return reconcile.Result{}, nil
	}
	leaving := s.instance == nil || s.instance.Deleting()
	switch {
	case s.obj.Annotations[v1alpha1.AnnotationForceDelete] == "true":
		return reconcile.Result{}, s.letGo(ctx) // what it has made is left behind
	case s.handledDeletion():
		return reconcile.Result{}, nil // its end wakes
	case !s.parsed.Status.State.Ended() && s.instance != nil:
		// A Delete run goes on to its end, whoever has deleted its object: the garbage collector does, with the instance. Any other
		// run is cancelled.
		return s.advance(ctx, false)
	case leaving || s.operation == nil || len(s.operation.OnRemove) == 0 || s.parsed.Status.State != v1alpha1.RunSucceeded:
		return reconcile.Result{}, s.letGo(ctx)
	}
	if len(s.parsed.Status.Removal) == 0 { // what an instance that is gone has left behind must stay
		if left := removalPause - s.run.Clock().Since(s.obj.DeletionTimestamp.Time); left > 0 {
			return reconcile.Result{RequeueAfter: min(left, removalPause)}, nil
		}
		leaves, err := s.instanceLeaves(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		if leaves {
			return reconcile.Result{}, s.letGo(ctx)
		}
	}
	return s.advance(ctx, true)
}

// handledDeletion tells whether this is a Delete run that has done its work, of an instance that has not gone yet. Without its
// record the work would be done again.
func (s *scope) handledDeletion() bool {
	t, st := s.parsed.Spec.Trigger, s.parsed.Status.State
	if t == nil || t.Type != v1alpha1.TriggerTypeDelete || s.instance == nil || !s.instance.Deleting() {
		return false
	}
	return st == v1alpha1.RunSucceeded || st.Ended() && s.operation != nil && s.operation.OnFailure == v1alpha1.OperationFailureContinue
}

// instanceLeaves asks the API server whether the instance is gone, or going: the watch of instances may lag behind the watch of
// operation objects.
func (s *scope) instanceLeaves(ctx context.Context) (bool, error) {
	live, err := s.run.Writer().Get(ctx, s.instance.Kind, s.instance.Namespace, s.instance.Name)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether the instance is still there: %w", err)
	}
	return live == nil || live.GetUID() != s.instance.UID || live.GetDeletionTimestamp() != nil, nil
}

// letGo takes the finalizer off: with the identity of the definition, or, if that has lost the right, with Libretto's own.
func (s *scope) letGo(ctx context.Context) error {
	s.r.runner.Forget(s.obj.UID)
	_, err := s.run.Writer().SetFinalizer(ctx, s.obj, v1alpha1.FinalizerRun, false)
	var forbidden *apply.ForbiddenError
	if errors.As(err, &forbidden) {
		_, err = s.run.Fallback().SetFinalizer(ctx, s.obj, v1alpha1.FinalizerRun, false)
	}
	if err != nil {
		return ignoreStale(fmt.Errorf("cannot take the finalizer off the operation object: %w", err))
	}
	return nil
}

func ignoreStale(err error) error {
	var stale *apply.StaleError
	if errors.As(err, &stale) {
		return nil // the watch brings the newer object, and with it the next pass
	}
	return err
}
