package definition

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/rbac"
)

// fewNames is how many instances a message names.
const fewNames = 5

// page is how many objects are listed at once.
const page = 500

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
		err := deleteOne(ctx, c.resource, c.object)
		if apierrors.IsForbidden(err) && madeByStep(c.object) {
			continue // a step that applies needs no right to delete: the garbage collector takes it, in a moment
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// releaseAll takes the finalizer off all objects of a resource.
func (l *leaving) releaseAll(ctx context.Context, res resource, finalizer string) error {
	return l.release(ctx, res, finalizer, func(*unstructured.Unstructured) bool { return true })
}

// release takes the finalizer off some objects of a resource.
func (l *leaving) release(ctx context.Context, res resource, finalizer string, which func(*unstructured.Unstructured) bool) error {
	return l.pages(ctx, res, "", func(obj *unstructured.Unstructured) error {
		finalizers := obj.GetFinalizers()
		if !slices.Contains(finalizers, finalizer) || !which(obj) {
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
			return fmt.Errorf("cannot list objects: %w", err)
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
