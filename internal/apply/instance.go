package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/watch"
)

// PatchStatus makes the status of an instance be status, which holds plain JSON values. obj must hold the whole status. It
// returns what the API server answered; nil when the status is so already, and no request was made. A StaleError means that the
// instance changed since.
func (w *Writer) PatchStatus(ctx context.Context, obj *watch.Object, status map[string]any) (*unstructured.Unstructured, error) {
	wanted, err := plain(status)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the status of %s %s: %w", obj.Kind.Kind, obj.Name, err)
	}
	old, _ := obj.Content["status"].(map[string]any)
	diff := mergePatch(old, wanted)
	if len(diff) == 0 {
		return nil, nil
	}
	return w.patch(ctx, obj, map[string]any{"status": diff}, v1alpha1.FieldManagerStatus, "status")
}

// SetFinalizer adds a finalizer to an instance (present) or removes it. It returns what the API server answered; nil when it
// is so already. An instance that is gone needs no removal: nil. A StaleError means that the instance changed since.
func (w *Writer) SetFinalizer(ctx context.Context, obj *watch.Object, finalizer string, present bool) (*unstructured.Unstructured, error) {
	if slices.Contains(obj.Finalizers, finalizer) == present {
		return nil, nil
	}
	list := slices.DeleteFunc(slices.Clone(obj.Finalizers), func(f string) bool { return f == finalizer })
	if present {
		list = append(list, finalizer)
	}
	if list == nil {
		list = []string{}
	}
	out, err := w.patch(ctx, obj, map[string]any{"metadata": map[string]any{"finalizers": list}}, v1alpha1.FieldManager)
	if err != nil && !present {
		if found, getErr := w.Get(ctx, obj.Kind, obj.Namespace, obj.Name); getErr == nil && (found == nil || found.GetUID() != obj.UID) {
			return nil, nil
		}
	}
	return out, err
}

// PatchMetadata merges fields into the metadata of an object, as it was read. It returns what the API server answered.
func (w *Writer) PatchMetadata(ctx context.Context, obj *watch.Object, fields map[string]any) (*unstructured.Unstructured, error) {
	return w.patch(ctx, obj, map[string]any{"metadata": maps.Clone(fields)}, v1alpha1.FieldManager)
}

// PatchSpec merges fields into the spec of an object, as it was read. It returns what the API server answered.
func (w *Writer) PatchSpec(ctx context.Context, obj *watch.Object, fields map[string]any) (*unstructured.Unstructured, error) {
	return w.patch(ctx, obj, map[string]any{"spec": fields}, v1alpha1.FieldManager)
}

// Create makes an object by its name. One that is there already is returned as it is, if it carries the labels that obj has;
// otherwise it is a ConflictError.
func (w *Writer) Create(ctx context.Context, kind program.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t := Target{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	made, err := w.resource(kind, t.Namespace).Create(ctx, obj, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err == nil {
		return made, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, w.explain(err, "create", t)
	}
	found, err := w.Get(ctx, kind, t.Namespace, t.Name)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, &StaleError{Target: t, Message: "it was there a moment ago, and is gone"}
	}
	for k, v := range obj.GetLabels() {
		if found.GetLabels()[k] != v {
			return nil, &ConflictError{Target: t, Owner: "somebody else"}
		}
	}
	return found, nil
}

// patch sends a merge patch that takes effect only on the very state that obj is of.
func (w *Writer) patch(ctx context.Context, obj *watch.Object, patch map[string]any, manager string, subresource ...string) (*unstructured.Unstructured, error) {
	meta, ok := patch["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = obj.UID, obj.ResourceVersion
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a patch of %s %s: %w", obj.Kind.Kind, obj.Name, err)
	}
	out, err := w.resource(obj.Kind, obj.Namespace).Patch(ctx, obj.Name, types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: manager}, subresource...)
	if err != nil {
		return nil, w.explain(err, "patch", Target{Kind: obj.Kind, Namespace: obj.Namespace, Name: obj.Name})
	}
	return out, nil
}

// plain returns a copy with the types that objects from the API server have.
func plain(in map[string]any) (map[string]any, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// mergePatch returns the JSON merge patch that makes wanted of old. A null in wanted is the absence of the field.
func mergePatch(old, wanted map[string]any) map[string]any {
	patch := map[string]any{}
	for name, v := range old {
		if w, ok := wanted[name]; (!ok || w == nil) && v != nil {
			patch[name] = nil
		}
	}
	for name, w := range wanted {
		if w == nil {
			continue
		}
		before, existed := old[name]
		wantedMap, isMap := w.(map[string]any)
		oldMap, wasMap := before.(map[string]any)
		switch {
		case isMap && wasMap:
			if sub := mergePatch(oldMap, wantedMap); len(sub) > 0 {
				patch[name] = sub
			}
		case !existed || !reflect.DeepEqual(before, w):
			patch[name] = w
		}
	}
	return patch
}
