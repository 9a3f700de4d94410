package definition

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/rbac"
)

// leaving is a definition that is being deleted. It needs no Program: the kinds are those of the document and of the status,
// which stand whatever the rest of the document says.
type leaving struct {
	*Reconciler
	*scope
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

// delete does what spec.whenInstancesExist says, and takes off the finalizer at the end.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.def, v1alpha1.FinalizerDefinition) {
		s.silent = true
		r.forget(s.def.Name)
		return nil
	}
	entry, err := r.lastAccepted(ctx, s, s.memory.takeStale())
	if err != nil {
		// A revision that cannot be read does not hold a definition back.
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read the last accepted revision")
	}
	s.work, s.problems = entry, nil
	if s.serviceAccount() == nil {
		return r.deleteWithoutAccount(ctx, s)
	}
	l := &leaving{Reconciler: r, scope: s}
	if l.dynamic, l.mapper, err = r.Clients(s.serviceAccount()); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	var gone bool
	if s.def.Spec.Target != nil {
		gone, err = l.target(ctx)
	} else {
		gone, err = l.declared(ctx)
	}
	if apierrors.IsForbidden(err) {
		l.refused(err)
		return nil
	}
	if err != nil || !gone {
		return err
	}
	return r.removeFinalizer(ctx, s)
}

// deleteWithoutAccount deletes a definition that names nobody to act for it: Libretto does not act in his place.
func (r *Reconciler) deleteWithoutAccount(ctx context.Context, s *scope) error {
	if s.def.Status.Revision == "" {
		return r.removeFinalizer(ctx, s) // nothing has ever been made
	}
	s.stall(v1alpha1.ConditionServed, v1alpha1.ReasonServiceAccountMissing,
		"spec.serviceAccount is not set, and the deletion needs somebody to act: set it, or remove the finalizer "+v1alpha1.FinalizerDefinition)
	return nil
}

// refused says that the ServiceAccount may not do what the deletion needs.
func (l *leaving) refused(err error) {
	message := fmt.Sprintf("the deletion needs a right that the ServiceAccount does not have: %s", err)
	if l.work.Program != nil {
		message += "; ClusterRole or Role " + rbac.Name(l.def.Name) + " gives it"
	}
	l.stall(v1alpha1.ConditionServed, v1alpha1.ReasonForbidden, message+"; or set spec.whenInstancesExist: Orphan and remove the finalizer "+v1alpha1.FinalizerDefinition)
	l.again(retryRights)
}

func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	s.silent = true
	r.Engine.Stop(s.def.Name)
	r.Registry.Delete(s.def.Name)
	before := s.before.DeepCopy()
	s.def.Status = before.Status
	controllerutil.RemoveFinalizer(s.def, v1alpha1.FinalizerDefinition)
	if err := r.Client.Patch(ctx, s.def, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove the finalizer: %w", err)
	}
	return nil
}

// keepWorking lets the engine go on with instances that are being deleted, also after a restart.
func (l *leaving) keepWorking(ctx context.Context, draining bool) error {
	if l.work.Program == nil {
		return nil
	}
	l.Registry.Set(l.def.Name, l.work)
	if err := l.Engine.Ensure(ctx, engineSpec(l.def, l.work, draining)); err != nil {
		return fmt.Errorf("cannot go on with the work on instances: %w", err)
	}
	return nil
}

// declared deletes a definition that declares a kind.
func (l *leaving) declared(ctx context.Context) (gone bool, err error) {
	all, err := l.kinds(ctx)
	if err != nil {
		return false, err
	}
	if l.def.Spec.WhenInstancesExist == v1alpha1.DefinitionDeletionOrphan {
		l.Engine.Stop(l.def.Name)
		if all.instances != nil {
			if err := l.releaseAll(ctx, l.resourceOf(all.instances), v1alpha1.FinalizerInstance); err != nil {
				return false, err
			}
		}
		return l.orphanKinds(ctx, all)
	}
	if all.instances != nil {
		if left, err := l.instances(ctx, l.resourceOf(all.instances)); left || err != nil {
			return false, err
		}
	}
	l.Engine.Stop(l.def.Name)
	if err := l.releaseRuns(ctx, all.operations); err != nil {
		return false, err
	}
	if all.instances != nil {
		// The kind goes with the definition, and the garbage collector does not collect objects whose owner is of a kind that it
		// cannot find: what the instances have left to it goes first.
		if left, err := l.sweep(ctx, all); left || err != nil {
			return false, err
		}
	}
	return l.deleteKinds(ctx, all)
}

// instances does what is to be done about instances before the definition goes, and tells whether there are any left. The
// engine goes on meanwhile: instances that are being deleted need it, and so do operations that run before they go.
func (l *leaving) instances(ctx context.Context, instances resource) (left bool, err error) {
	draining := l.def.Spec.WhenInstancesExist == v1alpha1.DefinitionDeletionDelete
	n, names, err := l.few(ctx, instances)
	if err != nil || n == 0 {
		return false, err
	}
	if err := l.keepWorking(ctx, draining); err != nil {
		return false, err
	}
	if draining {
		if err := l.deleteAll(ctx, instances); err != nil {
			return false, err
		}
		if n, names, err = l.few(ctx, instances); err != nil || n == 0 {
			return false, err
		}
	}
	l.instancesExist(n, names, draining, "instances")
	return true, nil
}

// sweep deletes what instances have left to the garbage collector, and tells whether something is left.
func (l *leaving) sweep(ctx context.Context, all kinds) (left bool, err error) {
	children, err := l.children(ctx)
	if err != nil {
		return false, err
	}
	children = slices.DeleteFunc(children, func(c child) bool { return madeByStep(c.object) && !all.own(c.object) })
	if len(children) == 0 {
		return false, nil
	}
	if err := l.deleteWave(ctx, children); err != nil {
		return false, err
	}
	l.wait(v1alpha1.ConditionServed, v1alpha1.ReasonDeletingInstances, fmt.Sprintf("%d objects of instances that are gone are being deleted", len(children)))
	l.again(retryDraining)
	return true, nil
}

// madeByStep tells whether a step of an operation has made the object. It goes with its owner; without one, it stays.
func madeByStep(o *unstructured.Unstructured) bool { return o.GetLabels()[v1alpha1.LabelRun] != "" }

// releaseRuns takes the finalizer off operation objects, without which their kind does not go. With the instance gone, or about
// to be left alone, no step is to be done any more.
func (l *leaving) releaseRuns(ctx context.Context, operations []apiextensionsv1.CustomResourceDefinition) error {
	for i := range operations {
		err := l.releaseAll(ctx, l.resourceOf(&operations[i]), v1alpha1.FinalizerRun)
		if apierrors.IsForbidden(err) && !l.needs(operations[i].Name) {
			continue // of an earlier revision, and with it went the rights: most likely nothing holds it
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// needs tells whether the revision at work declares the CustomResourceDefinition.
func (l *leaving) needs(name string) bool {
	return l.work.Program != nil && slices.ContainsFunc(declarations(l.work.Program), func(d declaration) bool { return d.crd.Name == name })
}

// orphanKinds leaves the kinds in place, with objects that nothing holds.
func (l *leaving) orphanKinds(ctx context.Context, all kinds) (gone bool, err error) {
	if err := l.releaseRuns(ctx, all.operations); err != nil {
		return false, err
	}
	for _, name := range all.names() {
		if err := l.CRDs.Release(ctx, name, l.def.Name); err != nil {
			return false, err
		}
	}
	return true, nil
}

// deleteKinds deletes the CustomResourceDefinitions, and with them what is stored of their kinds.
func (l *leaving) deleteKinds(ctx context.Context, all kinds) (gone bool, err error) {
	var waiting []string
	for _, name := range all.names() {
		gone, err := l.CRDs.Delete(ctx, name, l.def.Name)
		if err != nil {
			return false, err
		}
		if !gone {
			waiting = append(waiting, name)
		}
	}
	if len(waiting) == 0 {
		return true, nil
	}
	what := "CustomResourceDefinition " + waiting[0] + " is"
	if len(waiting) > 1 {
		what = "CustomResourceDefinitions " + strings.Join(waiting, " and ") + " are"
	}
	l.wait(v1alpha1.ConditionServed, v1alpha1.ReasonDeletingInstances, "waiting until "+what+" gone")
	l.again(retryDraining)
	return false, nil
}

// instancesExist says what the deletion waits for.
func (l *leaving) instancesExist(n int64, names []string, draining bool, what string) {
	list := listed(names, n)
	if draining {
		l.wait(v1alpha1.ConditionServed, v1alpha1.ReasonDeletingInstances, fmt.Sprintf("%d %s are being deleted: %s", n, what, list))
		l.again(retryDraining)
		return
	}
	l.stall(v1alpha1.ConditionServed, v1alpha1.ReasonInstancesExist,
		fmt.Sprintf("%d %s exist: %s; delete them, or set spec.whenInstancesExist to Delete or Orphan", n, what, list))
	l.again(retryBlocked)
}

// target deletes a definition that attaches to an existing kind. The objects of that kind stay in any case: what counts, and
// what is deleted, are the objects made for them, and operations that have not ended. What steps of operations have made stays
// with its owner.
func (l *leaving) target(ctx context.Context) (gone bool, err error) {
	all, err := l.kinds(ctx)
	if err != nil {
		return false, err
	}
	policy := l.def.Spec.WhenInstancesExist
	if policy == v1alpha1.DefinitionDeletionOrphan {
		l.Engine.Stop(l.def.Name)
		if err := l.releaseTargets(ctx); err != nil {
			return false, err
		}
		return l.orphanKinds(ctx, all)
	}
	draining := policy == v1alpha1.DefinitionDeletionDelete
	if draining {
		l.Engine.Stop(l.def.Name) // it would make anew what is deleted
	}
	if left, err := l.made(ctx, all, draining); left || err != nil {
		return false, err
	}
	l.Engine.Stop(l.def.Name)
	if err := l.releaseRuns(ctx, all.operations); err != nil {
		return false, err
	}
	if left, err := l.sweep(ctx, all); left || err != nil {
		return false, err
	}
	if err := l.releaseTargets(ctx); err != nil {
		return false, err
	}
	return l.deleteKinds(ctx, all)
}

// made does what is to be done about what a definition made for the objects of a target kind, and tells whether something is left.
func (l *leaving) made(ctx context.Context, all kinds, draining bool) (left bool, err error) {
	children, err := l.children(ctx)
	if err != nil {
		return false, err
	}
	children = slices.DeleteFunc(children, func(c child) bool { return madeByStep(c.object) })
	if len(children) > 0 && draining {
		if err := l.deleteWave(ctx, children); err != nil {
			return false, err
		}
	}
	objects := make([]*unstructured.Unstructured, 0, len(children))
	for _, c := range children {
		objects = append(objects, c.object)
	}
	if !draining {
		runs, err := l.runsUnderWay(ctx, all.operations)
		if err != nil {
			return false, err
		}
		objects = append(objects, runs...)
	}
	if len(objects) == 0 {
		return false, nil
	}
	if !draining {
		if err := l.keepWorking(ctx, false); err != nil {
			return false, err
		}
	}
	var names []string
	for i := 0; i < len(objects) && i < fewNames; i++ {
		names = append(names, objects[i].GetKind()+" "+fullName(objects[i]))
	}
	l.instancesExist(int64(len(objects)), names, draining, "objects that the definition made")
	return true, nil
}

// runsUnderWay lists the operations that have not ended and that the revision at work goes on with.
func (l *leaving) runsUnderWay(ctx context.Context, operations []apiextensionsv1.CustomResourceDefinition) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for i := range operations {
		if !l.needs(operations[i].Name) {
			continue
		}
		err := l.pages(ctx, l.resourceOf(&operations[i]), "", func(o *unstructured.Unstructured) error {
			if underWay(o) {
				out = append(out, o)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// releaseTargets takes the finalizer off the objects of the target kind.
func (l *leaving) releaseTargets(ctx context.Context) error {
	t := l.def.Spec.Target
	held := slices.Contains(t.Manage, v1alpha1.TargetManagementFinalizer) ||
		(l.work.Program != nil && l.work.Program.HoldFinalizer)
	if !held {
		return nil
	}
	res, ok, err := l.resource(runtimeschema.FromAPIVersionAndKind(t.APIVersion, t.Kind))
	if err != nil || !ok {
		return err
	}
	return l.releaseAll(ctx, res, v1alpha1.TargetFinalizer(l.def.Name))
}
