package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/status"
	"github.com/libretto-dev/libretto/internal/watch"
)

// scope is what the phases of one pass share. Phases fill it; finish turns it into the status.
type scope struct {
	r   *Reconciler
	run *engine.Run
	req engine.Request
	// obj is the instance; replaced when the pass writes to it.
	obj      *watch.Object
	program  *program.Program
	revision string
	eval     *render.Evaluation
	walk     *plan.Walk
	// was is our part of the status when the pass began; empty for a foreign kind whose status is not ours.
	was v1alpha1.InstanceStatus
	// wasReady: the instance was ready then.
	wasReady bool
	// last is how the pass before ended.
	last engine.Report

	// resources tells how each node stands, by its index.
	resources []v1alpha1.ResourceStatus
	// listed are the objects that the status lists: one of them that has to be created was deleted by somebody.
	listed map[inventory.Key]bool
	// desired are the objects that the nodes want.
	desired map[inventory.Key]bool
	// problems are what went wrong or is waited for.
	problems []problem
	// leaving are the objects that are to go, with what holds them.
	leaving []string
	// fields and conditions are the author's part of the status; a field that is nil is to be removed.
	fields     map[string]any
	conditions []metav1.Condition
	// operations is what is known of the runs of operations.
	operations operations
	// halted ends the pass early: the finalizer could not be set.
	halted bool
}

func newScope(r *Reconciler, req engine.Request, obj *watch.Object, entry registry.Entry) *scope {
	p := entry.Program
	last, _ := r.run.Last(req)
	if last.UID != obj.UID {
		last = engine.Report{}
	}
	s := &scope{
		r: r, run: r.run, req: req, obj: obj, program: p, revision: entry.Revision, last: last,
		eval:      render.New(p, obj.Unstructured().Object),
		walk:      plan.New(p),
		resources: make([]v1alpha1.ResourceStatus, len(p.Nodes)),
		desired:   map[inventory.Key]bool{},
	}
	if p.WriteStatus {
		s.was = statusOf(obj)
	}
	s.listed = map[inventory.Key]bool{}
	for _, i := range inventory.Items(s.was.Inventory) {
		s.listed[i.Key] = true
	}
	for _, c := range s.was.Conditions {
		s.wasReady = s.wasReady || c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue
	}
	for i, n := range p.Nodes {
		s.resources[i] = v1alpha1.ResourceStatus{Name: n.Name, State: v1alpha1.ResourceWaiting}
	}
	return s
}

// matches tells whether the object is an instance: target.when.
func (s *scope) matches() (bool, error) {
	s.run.Computing.Lock()
	defer s.run.Computing.Unlock()
	return s.eval.Matches()
}

func (s *scope) externals() ([]render.ExternalRef, error) {
	s.run.Computing.Lock()
	defer s.run.Computing.Unlock()
	return s.eval.Externals()
}

// bindExternals looks up the objects that expressions read.
func (s *scope) bindExternals(ctx context.Context) error {
	if len(s.program.Externals) == 0 {
		return nil
	}
	refs, err := s.externals()
	if err != nil {
		// Whatever reads it tells the reason; what does not read it goes on.
		klog.FromContext(ctx).V(1).Info("An external cannot be looked up", "reason", err.Error())
	}
	s.watchExternals(refs)
	for _, ref := range refs {
		if !ref.List && ref.ObjectName == "" {
			s.eval.BindExternal(ref.Name, nil)
			continue
		}
		objects, state := s.run.Set().External(s.run.Watched(s.program, ref))
		if !state.HasSynced {
			s.watchProblem("external "+ref.Name, ref.Kind, state)
			s.eval.AwaitExternal(ref.Name)
			continue
		}
		values := make([]map[string]any, len(objects))
		for i, o := range objects {
			values[i] = o.Unstructured().Object
		}
		s.eval.BindExternal(ref.Name, values)
	}
	return nil
}

func (s *scope) watchExternals(refs []render.ExternalRef) {
	wanted := make([]watch.External, 0, len(refs))
	for _, ref := range refs {
		if ref.List || ref.ObjectName != "" {
			wanted = append(wanted, s.run.Watched(s.program, ref))
		}
	}
	s.run.Set().WatchExternals(s.req, wanted)
}

// finalizer returns the finalizer that the definition puts on its instances.
func (s *scope) finalizer() string { return finalizerOf(s.program) }

func finalizerOf(p *program.Program) string {
	if p.CRD == nil {
		return v1alpha1.TargetFinalizer(p.Name)
	}
	return v1alpha1.FinalizerInstance
}

// hold puts the finalizer on the instance where one is needed, before anything is made.
func (s *scope) hold(ctx context.Context) error {
	if !s.program.NeedsFinalizer() || slices.Contains(s.obj.Finalizers, s.finalizer()) {
		return nil
	}
	updated, err := s.run.Writer().SetFinalizer(ctx, s.obj, s.finalizer(), true)
	if err != nil {
		s.halted = true
		return s.instanceError("cannot put the finalizer on", err)
	}
	s.wrote(updated)
	return nil
}

// instanceError sorts an error of a write to the instance itself: what passes is returned, what does not becomes a problem.
func (s *scope) instanceError(doing string, err error) error {
	p := classify("", fmt.Errorf("%s the instance: %w", doing, err))
	var stale *apply.StaleError
	if errors.As(err, &stale) || p.transient {
		return err
	}
	s.problem(s.explain(p, err))
	return nil
}

// unserved says that the namespace is not served. What was made for the instance stays as it is.
func (s *scope) unserved(ctx context.Context) (reconcile.Result, error) {
	s.run.Set().WatchExternals(s.req, nil)
	s.run.Forget(s.req)
	if !s.program.WriteStatus {
		return reconcile.Result{}, nil
	}
	message := fmt.Sprintf("definition %s does not serve namespace %s: its labels do not match namespaces.selector; what was made for the instance stays as it is",
		s.program.Name, s.obj.Namespace)
	wanted := s.wantedStatus(status.Summary{Stalled: true, Reason: v1alpha1.ReasonNamespaceNotServed, Message: message}, false, false)
	updated, err := s.run.Writer().PatchStatus(ctx, s.obj, wanted)
	s.wrote(updated)
	return reconcile.Result{}, ignoreStale(err)
}

// release lets go of an object of a target that is no longer (or not yet) an instance: what was made for it goes.
func (s *scope) release(ctx context.Context) (reconcile.Result, error) {
	s.run.Set().WatchExternals(s.req, nil)
	s.run.Forget(s.req)
	if err := s.removeAll(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if slices.Contains(s.obj.Finalizers, s.finalizer()) && len(s.run.Set().ByInstance(s.obj.UID)) == 0 {
		updated, err := s.run.Writer().SetFinalizer(ctx, s.obj, s.finalizer(), false)
		if err != nil {
			return reconcile.Result{}, ignoreStale(err)
		}
		s.wrote(updated)
	}
	return reconcile.Result{}, nil
}

func ignoreStale(err error) error {
	var stale *apply.StaleError
	if errors.As(err, &stale) {
		return nil // the watch brings the newer object, and with it the next pass
	}
	return err
}
