package instance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/watch"
)

// abandonAfter is how long a deletion goes on trying to remove an object without the right to. Then the object is left
// behind, named by an event, so that the deletion ends.
const abandonAfter = 5 * time.Minute

// delete removes what the instance has made, the highest wave first and each wave only when the one before is gone, and
// then lets the instance go. It reads the inventory alone.
func (s *scope) delete(ctx context.Context) (reconcile.Result, error) {
	if !slices.Contains(s.obj.Finalizers, s.finalizer()) {
		s.run.Set().WatchExternals(s.req, nil)
		return reconcile.Result{}, nil // the garbage collector does the rest
	}
	if done, after, err := s.lastOperations(ctx); err != nil {
		return reconcile.Result{}, err
	} else if !done {
		return s.holdForOperations(ctx, after)
	}
	s.run.Set().WatchExternals(s.req, nil)
	force := s.obj.Annotations[v1alpha1.AnnotationForceDelete] == "true"
	items := s.made()
	for len(items) > 0 && !force {
		wave := inventory.LastWave(items)
		if err := s.remove(ctx, wave); err != nil {
			return reconcile.Result{}, err
		}
		if len(s.leaving) > 0 {
			break
		}
		items = slices.DeleteFunc(items, func(i inventory.Item) bool { return i.Wave == wave[0].Wave })
	}
	denied := slices.ContainsFunc(s.problems, func(p problem) bool {
		return p.reason == v1alpha1.ReasonForbidden || p.reason == v1alpha1.ReasonImpersonationDenied
	})
	waited := s.run.Clock().Since(s.obj.DeletionTimestamp.Time)
	if len(s.leaving) > 0 && !force && (!denied || waited < abandonAfter) {
		return s.stillDeleting(ctx, denied)
	}
	if left := s.leaving; len(left) > 0 || force && len(items) > 0 {
		s.abandoned(items)
	}
	return s.letGo(ctx)
}

func (s *scope) stillDeleting(ctx context.Context, denied bool) (reconcile.Result, error) {
	result, err := s.finishDeleting(ctx)
	if denied && err == nil {
		result.RequeueAfter = 30 * time.Second
	}
	return result, err
}

// letGo takes the finalizer off: with the identity of the definition, or, if that has lost the right, with Libretto's own.
func (s *scope) letGo(ctx context.Context) (reconcile.Result, error) {
	_, err := s.run.Writer().SetFinalizer(ctx, s.obj, s.finalizer(), false)
	if isForbidden(err) {
		if _, own := s.run.Fallback().SetFinalizer(ctx, s.obj, s.finalizer(), false); own == nil {
			err = nil
		}
	}
	if err == nil {
		return reconcile.Result{}, nil
	}
	p := classify("", fmt.Errorf("cannot take the finalizer off: %w", err))
	if p.transient {
		return reconcile.Result{}, ignoreStale(err)
	}
	p = s.explain(p, err)
	s.problem(p)
	s.run.Report(s.req, engine.Report{UID: s.obj.UID, Stalled: true, Reason: p.reason, Message: bounded(p.message), Denied: p.denied})
	s.record(corev1.EventTypeWarning, p.reason, "Delete", p.message)
	return reconcile.Result{RequeueAfter: retryAfter(s.failures())}, nil
}

func (s *scope) failures() int {
	last, _ := s.run.Last(s.req)
	last.Failures++
	s.run.Report(s.req, last)
	return last.Failures
}

func (s *scope) abandoned(items []inventory.Item) {
	var names []string
	for i := range items {
		kind, known := s.run.Kind(items[i].GVK())
		if o := s.run.Set().Get(kind, items[i].Namespace, items[i].Name); known && o != nil && owned(o) && len(o.Finalizers) == 0 {
			continue // the garbage collector removes it
		}
		names = append(names, describe(items[i]))
	}
	if len(names) == 0 {
		return
	}
	message := bounded("left behind, because they could not be removed: " + strings.Join(names, ", "))
	s.record(corev1.EventTypeWarning, v1alpha1.ReasonAbandoned, "Delete", message)
	s.run.Tell(engine.Event{Instance: s.r.ref(s.req), Action: engine.ActionFailed, Message: message})
}

// removeAll removes all that was made for an object that is not an instance any more.
func (s *scope) removeAll(ctx context.Context) error { return s.remove(ctx, s.made()) }

// sweep removes objects whose instance is gone, or has left the selection of a target, where the garbage collector does not.
// That the instance is gone is asked of the API server: not to be seen is not the same.
func (r *Reconciler) sweep(ctx context.Context, req engine.Request) (reconcile.Result, error) {
	if !r.run.Set().InstanceState().Synced() || r.run.Spec().Draining {
		return reconcile.Result{}, nil
	}
	target := r.run.Spec().Program.CRD == nil
	var left []*watch.Object
	for _, uid := range r.run.Orphans(req) {
		r.run.CountCircuit(-float64(r.breaker.forget(uid)))
		for _, o := range r.run.Set().ByInstance(uid) {
			if !o.Deleting() && (target || !owned(o)) && o.Annotations[v1alpha1.AnnotationDeletionPolicy] != string(v1alpha1.DeletionPolicyRetain) {
				left = append(left, o)
			}
		}
	}
	if len(left) == 0 {
		r.run.DropOrphans(req)
		return reconcile.Result{}, nil
	}
	owner, err := r.run.Writer().Get(ctx, r.run.Spec().Program.Instance, req.Namespace, req.Name)
	for _, child := range left {
		if err != nil {
			break
		}
		if !r.abandonedBy(owner, child) {
			continue
		}
		err = r.run.Writer().Delete(ctx, apply.Deletion{Kind: child.Kind, Namespace: child.Namespace, Name: child.Name, UID: child.UID})
		if err == nil {
			r.run.CountWrite(string(apply.Deleted))
			r.run.Tell(engine.Event{
				Instance: r.ref(req), Resource: child.Annotations[v1alpha1.AnnotationResource], Action: engine.ActionDeleted,
				Object: engine.Ref{Kind: child.Kind, Namespace: child.Namespace, Name: child.Name}, Message: "its instance is gone",
			})
		}
	}
	if isForbidden(err) {
		return reconcile.Result{RequeueAfter: lastRetry}, nil
	}
	if err == nil {
		r.run.DropOrphans(req)
	}
	return reconcile.Result{}, err
}

// abandonedBy tells whether nothing holds a child any more. owner is the instance that it names as the API server has it now.
func (r *Reconciler) abandonedBy(owner *unstructured.Unstructured, child *watch.Object) bool {
	if owner == nil || string(owner.GetUID()) != child.Labels[v1alpha1.LabelInstance] {
		return !owned(child) // the garbage collector is at it
	}
	if !r.run.Serves(owner.GetNamespace()) || owner.GetDeletionTimestamp() != nil {
		return false
	}
	selector := r.run.Spec().Program.Selector
	if selector == nil {
		return false
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !parsed.Matches(labels.Set(owner.GetLabels()))
}

// owned: the garbage collector removes it with the instance.
func owned(o *watch.Object) bool {
	for _, ref := range o.OwnerReferences {
		if string(ref.UID) == o.Labels[v1alpha1.LabelInstance] {
			return true
		}
	}
	return false
}
