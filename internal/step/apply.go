package step

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// createGuard is a resourceVersion that no object has: with it, server-side apply makes an object that is not there, and answers
// Conflict if there is one.
const createGuard = "1"

// apply makes an object, or changes one that an operation of the same instance has made. What this very attempt has applied already
// is left as it is.
func (e *Executor) apply(ctx context.Context, req Request, a *program.ApplyAction) (operation.Result, error) {
	t, obj, err := e.object(req, a)
	if err != nil {
		return operation.Result{}, err
	}
	fresh := obj.DeepCopy()
	fresh.SetResourceVersion(createGuard)
	made, err := e.send(ctx, t, fresh)
	if err == nil {
		return succeeded(identityOf(t, made)), nil
	}
	if !apierrors.IsConflict(err) {
		return operation.Result{}, e.writer.Explain(err, "create", t)
	}
	live, err := e.get(ctx, t)
	if err != nil {
		return operation.Result{}, err
	}
	if live == nil {
		return operation.Result{}, temporary("%s was there a moment ago, and is gone", t)
	}
	if live.GetAnnotations()[v1alpha1.AnnotationAttempt] == req.Start.Attempt.ID {
		e.wrote(t.Kind, live)
		return succeeded(identityOf(t, live)), nil
	}
	if err := mayChange(req, t, a.Retain, live); err != nil {
		return operation.Result{}, err
	}
	obj.SetUID(live.GetUID())
	out, err := e.send(ctx, t, obj)
	if err != nil {
		return operation.Result{}, e.writer.Explain(err, "patch", t)
	}
	return succeeded(identityOf(t, out)), nil
}

// object computes the object of an apply step, as it is sent.
func (e *Executor) object(req Request, a *program.ApplyAction) (apply.Target, *unstructured.Unstructured, error) {
	value, err := req.Eval.Template(a.Template, req.Start.Vars)
	if err != nil {
		return apply.Target{}, nil, err
	}
	content, err := plainObject(value)
	if err != nil {
		return apply.Target{}, nil, err
	}
	kind, err := e.served(a.Kind)
	if err != nil {
		return apply.Target{}, nil, err
	}
	authors, _ := content["metadata"].(map[string]any)
	content["metadata"] = marked(req, authors)
	obj := &unstructured.Unstructured{Object: content}
	obj.SetGroupVersionKind(kind.GroupVersionKind)
	t := apply.Target{Kind: kind, Name: obj.GetName()}
	if t.Name == "" {
		return t, nil, permanent("the name of the %s is empty", kind.Kind)
	}
	if kind.Namespaced {
		if t.Namespace, err = e.namespace(req, obj.GetNamespace(), t.String()); err != nil {
			return t, nil, err
		}
	}
	obj.SetNamespace(t.Namespace)
	if collected(req, t) && !a.Retain {
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: req.Instance.GetAPIVersion(), Kind: req.Instance.GetKind(),
			Name: req.Instance.GetName(), UID: req.Instance.GetUID()}})
	}
	return t, obj, nil
}

func (e *Executor) send(ctx context.Context, t apply.Target, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := e.resource(t).Apply(ctx, t.Name, obj, metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
	if err == nil {
		e.wrote(t.Kind, out)
	}
	return out, err
}

// mayChange refuses an object that no operation of the instance has made. One that outlived an instance by the same name, because it is retained or
// the garbage collector does not reach it, belongs to the new one.
func mayChange(req Request, t apply.Target, retain bool, live *unstructured.Unstructured) error {
	labels := live.GetLabels()
	switch holder := types.UID(labels[v1alpha1.LabelInstance]); {
	case holder == req.Instance.GetUID():
		return permanent("%s is resource %s of the definition: use patch, or change the resource", t, live.GetAnnotations()[v1alpha1.AnnotationResource])
	case holder != "":
		return permanent("%s belongs to instance %s of %s: choose another name", t,
			live.GetAnnotations()[v1alpha1.AnnotationOwner], live.GetAnnotations()[v1alpha1.AnnotationDefinition])
	}
	if _, made := labels[v1alpha1.LabelRun]; !made {
		return permanent("%s exists and was not made by an operation of this instance: choose another name, delete it, or use patch", t)
	}
	same := labels[v1alpha1.LabelTarget] == string(req.Instance.GetUID())
	heir := (!collected(req, t) || retain) && labels[v1alpha1.LabelDefinition] == v1alpha1.DefinitionID(req.Program.Name) &&
		live.GetAnnotations()[v1alpha1.AnnotationOwner] == ownerText(req)
	if !same && !heir {
		return permanent("%s was made by an operation of %s %s: choose another name", t,
			live.GetAnnotations()[v1alpha1.AnnotationDefinition], live.GetAnnotations()[v1alpha1.AnnotationOwner])
	}
	if live.GetDeletionTimestamp() != nil {
		return &apply.DeletingError{Target: t, Finalizers: live.GetFinalizers()}
	}
	return nil
}
