package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/program"
)

// Deletion is an object to delete.
type Deletion struct {
	Kind            program.Kind
	Namespace, Name string
	// UID that the object must have; never empty.
	UID types.UID
	// ResourceVersion that the object must have; empty: any.
	ResourceVersion string
	// Propagation; empty: Background.
	Propagation metav1.DeletionPropagation
}

// Delete deletes an object. An object that is not there, or that is another one by now (another UID), is success; so is a kind
// that is gone. A StaleError means that ResourceVersion is not the newest.
func (w *Writer) Delete(ctx context.Context, d Deletion) error {
	t := Target{Kind: d.Kind, Namespace: d.Namespace, Name: d.Name}
	if d.UID == "" {
		return &StaleError{Target: t, Message: "its UID is not known; it is not deleted without"}
	}
	if d.Propagation == "" {
		d.Propagation = metav1.DeletePropagationBackground
	}
	pre := &metav1.Preconditions{UID: &d.UID}
	if d.ResourceVersion != "" {
		pre.ResourceVersion = &d.ResourceVersion
	}
	err := w.resource(d.Kind, d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{Preconditions: pre, PropagationPolicy: &d.Propagation})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		found, getErr := w.Get(ctx, d.Kind, d.Namespace, d.Name)
		if getErr != nil {
			return getErr
		}
		if found == nil || found.GetUID() != d.UID {
			return nil
		}
	}
	return w.explain(err, "delete", t)
}

// Get reads an object from the API server; nil: there is none.
func (w *Writer) Get(ctx context.Context, kind program.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	out, err := w.resource(kind, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t := Target{Kind: kind, Namespace: namespace, Name: name}
		if apierrors.IsNotFound(err) && !kindMissing(err) {
			return nil, nil
		}
		return nil, w.explain(err, "get", t)
	}
	return out, nil
}
