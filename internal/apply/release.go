package apply

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/watch"
)

// Release lets go of a child that stays: our labels and annotations, and the owner reference to the instance, are taken off.
// It belongs to nobody then, and another instance may adopt it. A child that is gone is success.
func (w *Writer) Release(ctx context.Context, child *watch.Object, instance types.UID) error {
	owners := slices.DeleteFunc(slices.Clone(child.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == instance })
	meta := map[string]any{
		"labels": map[string]any{v1alpha1.LabelDefinition: nil, v1alpha1.LabelInstance: nil},
		"annotations": map[string]any{
			v1alpha1.AnnotationDefinition: nil, v1alpha1.AnnotationOwner: nil, v1alpha1.AnnotationResource: nil,
			v1alpha1.AnnotationWave: nil, v1alpha1.AnnotationDesired: nil, v1alpha1.AnnotationDeletionPolicy: nil,
		},
	}
	if len(owners) != len(child.OwnerReferences) {
		meta["ownerReferences"] = owners
		if len(owners) == 0 {
			meta["ownerReferences"] = nil
		}
	}
	_, err := w.patch(ctx, child, map[string]any{"metadata": meta}, v1alpha1.FieldManager)
	if err == nil {
		return nil
	}
	var found *unstructured.Unstructured
	var getErr error
	if found, getErr = w.Get(ctx, child.Kind, child.Namespace, child.Name); getErr == nil && (found == nil || found.GetUID() != child.UID) {
		return nil
	}
	return err
}
