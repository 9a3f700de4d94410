package apply

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/watch"
)

// adopt takes over an object that is there and is not ours, if it may be taken.
func (w *Writer) adopt(ctx context.Context, req Request) (Outcome, error) {
	t := targetOf(req.Desired)
	if err := mayAdopt(req); err != nil {
		return Outcome{}, err
	}
	if err := w.dismiss(ctx, req); err != nil {
		return Outcome{}, err
	}
	obj := copyOf(req.Desired.Unstructured)
	if req.CreateOnce {
		obj = identityOnly(obj) // its content is not to be changed
	}
	obj.SetUID(req.Live.UID)
	out, err := w.apply(ctx, t, obj, true)
	if err != nil {
		return w.recreate(ctx, req, w.explain(err, "patch", t))
	}
	return Outcome{Action: Adopted, Object: out}, nil
}

// mayAdopt returns a ConflictError when the object may not be taken over, and a DeletingError when the garbage collector is
// about to remove it. Of an instance of another definition it is not known whether it lives: it is taken to.
func mayAdopt(req Request) error {
	live, t := req.Live, targetOf(req.Desired)
	holder := types.UID(live.Labels[v1alpha1.LabelInstance])
	if holder != "" {
		foreign := live.Labels[v1alpha1.LabelDefinition] != req.Desired.GetLabels()[v1alpha1.LabelDefinition]
		if foreign || req.InstanceLives == nil || req.InstanceLives(holder) {
			return &ConflictError{Target: t, Owner: instanceText(live), Instance: true}
		}
		if hasUID(live.OwnerReferences, holder) {
			return &DeletingError{Target: t, Finalizers: live.Finalizers}
		}
	}
	if req.Adoption == v1alpha1.AdoptionForce {
		return nil
	}
	owner := foreignController(live, req.Desired.GetOwnerReferences(), holder)
	if req.Adoption == v1alpha1.AdoptionIfUnowned && owner == nil {
		return nil
	}
	if owner != nil {
		return &ConflictError{Target: t, Owner: owner.Kind + " " + owner.Name}
	}
	return &ConflictError{Target: t}
}

// foreignController returns the controller of an object, unless it is among ours or is the instance that is gone.
func foreignController(live *watch.Object, ours []metav1.OwnerReference, gone types.UID) *metav1.OwnerReference {
	for i := range live.OwnerReferences {
		ref := &live.OwnerReferences[i]
		if ref.Controller != nil && *ref.Controller && ref.UID != gone && !hasUID(ours, ref.UID) {
			return ref
		}
	}
	return nil
}

func hasUID(refs []metav1.OwnerReference, uid types.UID) bool {
	for i := range refs {
		if refs[i].UID == uid {
			return true
		}
	}
	return false
}

func instanceText(live *watch.Object) string {
	name := live.Annotations[v1alpha1.AnnotationOwner]
	if name == "" {
		name = "with UID " + live.Labels[v1alpha1.LabelInstance]
	}
	if def := live.Annotations[v1alpha1.AnnotationDefinition]; def != "" {
		return fmt.Sprintf("instance %s of %s", name, def)
	}
	return "instance " + name
}

// dismiss removes owner references of another controller: an object can have one controller only, and apply removes none that
// it did not make.
func (w *Writer) dismiss(ctx context.Context, req Request) error {
	ours := req.Desired.GetOwnerReferences()
	var keep []metav1.OwnerReference
	for _, ref := range req.Live.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller || hasUID(ours, ref.UID) {
			keep = append(keep, ref)
		}
	}
	if len(ours) == 0 || len(keep) == len(req.Live.OwnerReferences) {
		return nil
	}
	if keep == nil {
		keep = []metav1.OwnerReference{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": req.Live.UID, "resourceVersion": req.Live.ResourceVersion, "ownerReferences": keep}})
	if err != nil {
		return fmt.Errorf("cannot encode owner references: %w", err)
	}
	t := targetOf(req.Desired)
	_, err = w.resource(t.Kind, t.Namespace).Patch(ctx, t.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return w.explain(err, "patch", t)
	}
	return nil
}

// identityOnly returns the object without its content: name, labels, annotations and owner references.
func identityOnly(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "metadata": obj.Object["metadata"]}}
}
