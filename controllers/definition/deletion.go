package definition

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/rbac"
)

// page is how many objects are listed at once.
const page = 500

// fewNames is how many instances a message names.
const fewNames = 5

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
	name := crdName(l.def.Spec.CRD)
	live := &apiextensionsv1.CustomResourceDefinition{}
	err = l.Reader.Get(ctx, client.ObjectKey{Name: name}, live)
	if apierrors.IsNotFound(err) || (err == nil && live.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID(l.def.Name)) {
		return true, nil // no kind of ours, so no instances
	}
	if err != nil {
		return false, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", name, err)
	}
	gvr := storageResource(live)
	instances := resource{l.dynamic.Resource(gvr), gvr, live.Spec.Scope == apiextensionsv1.NamespaceScoped}
	if l.def.Spec.WhenInstancesExist == v1alpha1.DefinitionDeletionOrphan {
		l.Engine.Stop(l.def.Name)
		if err := l.releaseAll(ctx, instances, v1alpha1.FinalizerInstance); err != nil {
			return false, err
		}
		return true, l.CRDs.Release(ctx, name, l.def.Name)
	}
	draining := l.def.Spec.WhenInstancesExist == v1alpha1.DefinitionDeletionDelete
	if err := l.keepWorking(ctx, draining); err != nil {
		return false, err
	}
	if draining {
		if err := l.deleteAll(ctx, instances); err != nil {
			return false, err
		}
	}
	n, names, err := l.few(ctx, instances)
	if err != nil {
		return false, err
	}
	if n > 0 {
		l.instancesExist(n, names, draining, "instances")
		return false, nil
	}
	l.Engine.Stop(l.def.Name)
	// The kind goes with the definition, and the garbage collector does not collect objects whose owner is of a kind that it
	// cannot find: what the instances have left to it goes first.
	children, err := l.children(ctx)
	if err != nil {
		return false, err
	}
	if len(children) > 0 {
		if err := l.deleteWave(ctx, children); err != nil {
			return false, err
		}
		l.wait(v1alpha1.ConditionServed, v1alpha1.ReasonDeletingInstances, fmt.Sprintf("%d objects of instances that are gone are being deleted", len(children)))
		l.again(retryDraining)
		return false, nil
	}
	gone, err = l.CRDs.Delete(ctx, name, l.def.Name)
	if err != nil || gone {
		return gone, err
	}
	l.wait(v1alpha1.ConditionServed, v1alpha1.ReasonDeletingInstances, "waiting until CustomResourceDefinition "+name+" is gone")
	l.again(retryDraining)
	return false, nil
}

// instancesExist says what the deletion waits for.
func (l *leaving) instancesExist(n int64, names []string, draining bool, what string) {
	list := strings.Join(names, ", ")
	if int64(len(names)) < n {
		list += ", …"
	}
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
// what is deleted, are the objects made for them.
func (l *leaving) target(ctx context.Context) (gone bool, err error) {
	policy := l.def.Spec.WhenInstancesExist
	if policy == v1alpha1.DefinitionDeletionOrphan {
		l.Engine.Stop(l.def.Name)
		return true, l.releaseTargets(ctx)
	}
	draining := policy == v1alpha1.DefinitionDeletionDelete
	if draining {
		l.Engine.Stop(l.def.Name) // it would make anew what is deleted
	} else if err := l.keepWorking(ctx, false); err != nil {
		return false, err
	}
	children, err := l.children(ctx)
	if err != nil {
		return false, err
	}
	if len(children) > 0 && draining {
		if err := l.deleteWave(ctx, children); err != nil {
			return false, err
		}
	}
	if len(children) > 0 {
		names := make([]string, 0, fewNames)
		for i := 0; i < len(children) && i < fewNames; i++ {
			names = append(names, children[i].object.GetKind()+" "+fullName(children[i].object))
		}
		l.instancesExist(int64(len(children)), names, draining, "objects that the definition made")
		return false, nil
	}
	l.Engine.Stop(l.def.Name)
	return true, l.releaseTargets(ctx)
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

// resource is where the objects of a kind are.
type resource struct {
	dynamic.NamespaceableResourceInterface
	gvr        runtimeschema.GroupVersionResource
	namespaced bool
}

// resource finds the resource of a kind; false: the API server does not serve the kind, so there are no objects of it.
func (l *leaving) resource(gvk runtimeschema.GroupVersionKind) (resource, bool, error) {
	m, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return resource{}, false, nil
	}
	if err != nil {
		return resource{}, false, fmt.Errorf("cannot find kind %s: %w", kindString(gvk), err)
	}
	return resource{l.dynamic.Resource(m.Resource), m.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace}, true, nil
}

// within does something in all namespaces at once or, where the ServiceAccount has rights in single ones alone, in these.
func (l *leaving) within(ctx context.Context, res resource, do func(dynamic.ResourceInterface) error) error {
	err := do(res)
	if !res.namespaced || !apierrors.IsForbidden(err) {
		return err
	}
	spaces := l.spaces(res.gvr)
	if len(spaces) == 0 {
		return err
	}
	for _, namespace := range spaces {
		if err := do(res.Namespace(namespace)); err != nil && !(apierrors.IsForbidden(err) && l.namespaceGone(ctx, namespace)) {
			return err
		}
	}
	return nil
}

// spaces are the namespaces in which the least rights of the definition let a resource be listed; none: in all.
func (l *leaving) spaces(gvr runtimeschema.GroupVersionResource) []string {
	var out []string
	if l.work.Program != nil {
		for _, q := range rbac.For(l.work.Program).Requests() {
			if q.Verb == "list" && q.Group == gvr.Group && q.Resource == gvr.Resource && q.Subresource == "" && q.Name == "" && q.Namespace != "" {
				out = append(out, q.Namespace)
			}
		}
	}
	if len(out) == 0 && l.def.Spec.Namespaces != nil {
		return l.def.Spec.Namespaces.Names
	}
	return out
}

// namespaceGone: with a namespace went the Role in it.
func (l *leaving) namespaceGone(ctx context.Context, name string) bool {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return apierrors.IsNotFound(l.Reader.Get(ctx, client.ObjectKey{Name: name}, namespace))
}

// child is an object that the definition made.
type child struct {
	object   *unstructured.Unstructured
	resource resource
	wave     int
}

// children lists the objects that the definition made, but for those that stay.
func (l *leaving) children(ctx context.Context) ([]child, error) {
	var out []child
	selector := v1alpha1.LabelDefinition + "=" + v1alpha1.DefinitionID(l.def.Name)
	for _, gvk := range managedKinds(&l.def.Status) {
		res, ok, err := l.resource(gvk)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		err = l.pages(ctx, res, selector, func(obj *unstructured.Unstructured) error {
			if obj.GetAnnotations()[v1alpha1.AnnotationDeletionPolicy] == string(v1alpha1.DeletionPolicyRetain) {
				return nil
			}
			wave, _ := strconv.Atoi(obj.GetAnnotations()[v1alpha1.AnnotationWave]) // 0 when somebody broke it
			out = append(out, child{object: obj, resource: res, wave: wave})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// deleteWave deletes the objects of the highest wave that is left.
func (l *leaving) deleteWave(ctx context.Context, children []child) error {
	highest := slices.MaxFunc(children, func(a, b child) int { return a.wave - b.wave }).wave
	for _, c := range children {
		if c.wave != highest || !c.object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := deleteOne(ctx, c.resource, c.object); err != nil {
			return err
		}
	}
	return nil
}

// releaseAll takes the finalizer off all objects of a resource.
func (l *leaving) releaseAll(ctx context.Context, res resource, finalizer string) error {
	return l.pages(ctx, res, "", func(obj *unstructured.Unstructured) error {
		finalizers := obj.GetFinalizers()
		if !slices.Contains(finalizers, finalizer) {
			return nil
		}
		left := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": left,
		}})
		if err != nil {
			return fmt.Errorf("cannot make a patch: %w", err)
		}
		_, err = res.Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot remove the finalizer of %s %s: %w", obj.GetKind(), fullName(obj), err)
		}
		return nil
	})
}

// deleteAll deletes all objects of a resource that are not being deleted yet.
func (l *leaving) deleteAll(ctx context.Context, res resource) error {
	return l.pages(ctx, res, "", func(obj *unstructured.Unstructured) error {
		if !obj.GetDeletionTimestamp().IsZero() {
			return nil
		}
		return deleteOne(ctx, res, obj)
	})
}

func deleteOne(ctx context.Context, res resource, obj *unstructured.Unstructured) error {
	uid, policy := obj.GetUID(), metav1.DeletePropagationBackground
	err := res.Namespace(obj.GetNamespace()).Delete(ctx, obj.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete %s %s: %w", obj.GetKind(), fullName(obj), err)
	}
	return nil
}

// few counts the objects of a resource and names the first ones.
func (l *leaving) few(ctx context.Context, res resource) (n int64, names []string, err error) {
	err = l.within(ctx, res, func(r dynamic.ResourceInterface) error {
		list, err := r.List(ctx, metav1.ListOptions{Limit: fewNames})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot list the instances: %w", err)
		}
		n += int64(len(list.Items))
		for i := range list.Items {
			if len(names) < fewNames {
				names = append(names, fullName(&list.Items[i]))
			}
		}
		if more := list.GetRemainingItemCount(); more != nil {
			n += *more
		}
		return nil
	})
	return n, names, err
}

// pages calls f for each object of a resource. A resource that is not there has none.
func (l *leaving) pages(ctx context.Context, res resource, selector string, f func(*unstructured.Unstructured) error) error {
	return l.within(ctx, res, func(r dynamic.ResourceInterface) error { return pages(ctx, r, selector, f) })
}

func pages(ctx context.Context, resource dynamic.ResourceInterface, selector string, f func(*unstructured.Unstructured) error) error {
	opts := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		list, err := resource.List(ctx, opts)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot list objects: %w", err)
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

func fullName(obj *unstructured.Unstructured) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

// crdName is the name of the CustomResourceDefinition that a document declares.
func crdName(spec *v1alpha1.CRDSpec) string {
	plural := spec.Names.Plural
	if plural == "" {
		plural = strings.ToLower(spec.Names.Kind) + "s"
	}
	return plural + "." + spec.Group
}

// storageResource is the resource of a kind in a version that is served, the stored one if possible.
func storageResource(live *apiextensionsv1.CustomResourceDefinition) runtimeschema.GroupVersionResource {
	out := runtimeschema.GroupVersionResource{Group: live.Spec.Group, Resource: live.Spec.Names.Plural}
	for i := range live.Spec.Versions {
		if v := &live.Spec.Versions[i]; v.Served && (out.Version == "" || v.Storage) {
			out.Version = v.Name
		}
	}
	return out
}
