package watch

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/observe"
	"github.com/libretto-dev/libretto/internal/program"
)

// projection says what is kept of an object's content: a tree of field names. A nil tree keeps all below it.
type projection map[string]projection

// newProjection returns the tree of the paths; nil (keep all) for nil.
func newProjection(fields [][]string) projection {
	if fields == nil {
		return nil
	}
	root := projection{}
	for _, path := range fields {
		root.add(path)
	}
	return root
}

func (p projection) add(path []string) {
	if len(path) == 0 {
		return
	}
	child, ok := p[path[0]]
	switch {
	case ok && child == nil: // all of it is kept already
	case len(path) == 1:
		p[path[0]] = nil
	default:
		if !ok {
			child = projection{}
			p[path[0]] = child
		}
		child.add(path[1:])
	}
}

// covers tells whether p keeps all that other keeps.
func (p projection) covers(other projection) bool {
	if p == nil {
		return true
	}
	if other == nil {
		return false
	}
	for name, sub := range other {
		mine, ok := p[name]
		if !ok || !mine.covers(sub) {
			return false
		}
	}
	return true
}

// keep returns the kept part of a JSON value. Lists are kept whole. The result shares nothing that is dropped.
func (p projection) keep(value any) any {
	if p == nil {
		return compact(value)
	}
	m, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := make(map[string]any, len(p))
	for name, sub := range p {
		if v, ok := m[name]; ok {
			out[name] = sub.keep(v)
		}
	}
	return out
}

// compact copies a JSON value into maps of the right size that share their keys, and the words of conditions, with all others.
func compact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if s, ok := item.(string); ok && (name == "type" || name == "status" || name == "reason") {
				item = intern(s)
			}
			out[intern(name)] = compact(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = compact(item)
		}
		return out
	default:
		return value
	}
}

// projector makes Objects of one kind.
type projector struct {
	kind   program.Kind
	fields projection
}

func newProjector(kind program.Kind, fields [][]string) *projector {
	if fields != nil {
		fields = append(slices.Clone(fields), observe.Fields(kind.Group, kind.Kind)...)
	}
	return &projector{kind: kind, fields: newProjection(fields)}
}

// object makes an Object. It takes over parts of obj, which must not be changed afterwards.
func (p *projector) object(obj *unstructured.Unstructured) *Object {
	out := &Object{
		Kind:              p.kind,
		Namespace:         obj.GetNamespace(),
		Name:              obj.GetName(),
		UID:               obj.GetUID(),
		ResourceVersion:   obj.GetResourceVersion(),
		Generation:        obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(),
		Finalizers:        obj.GetFinalizers(),
		Labels:            interned(obj.GetLabels()),
		Annotations:       interned(obj.GetAnnotations()),
		OwnerReferences:   obj.GetOwnerReferences(),
	}
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	for i := range out.OwnerReferences {
		r := &out.OwnerReferences[i]
		r.APIVersion, r.Kind = intern(r.APIVersion), intern(r.Kind)
	}
	out.Owned, out.Managers = managers(obj, types.UID(out.Labels[v1alpha1.LabelInstance]))
	out.Content = p.content(obj.Object)
	return out
}

func (p *projector) content(obj map[string]any) map[string]any {
	out := make(map[string]any, 4)
	for name, value := range obj {
		switch name {
		case "apiVersion", "kind", "metadata":
			continue
		}
		if p.fields == nil {
			out[intern(name)] = value
			continue
		}
		if sub, ok := p.fields[name]; ok {
			out[intern(name)] = sub.keep(value)
		}
	}
	return out
}

// intern returns a string that equal strings share in memory.
func intern(s string) string { return unique.Make(s).Value() }

// interned shares the keys, and those values that many objects have in common.
func interned(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		switch k {
		case v1alpha1.LabelDefinition, v1alpha1.LabelInstance, v1alpha1.AnnotationDefinition, v1alpha1.AnnotationOwner,
			v1alpha1.AnnotationResource, v1alpha1.AnnotationWave, v1alpha1.AnnotationDeletionPolicy:
			v = intern(v)
		}
		out[intern(k)] = v
	}
	return out
}

// managers reads metadata.managedFields: what our manager owns, and who else there is.
func managers(obj *unstructured.Unstructured, instance types.UID) (OwnedFields, []Manager) {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	var owned OwnedFields
	var others []Manager
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if !ok {
			continue
		}
		name, _ := entry["manager"].(string)
		operation, _ := entry["operation"].(string)
		subresource, _ := entry["subresource"].(string)
		stamp, _ := entry["time"].(string)
		at, _ := time.Parse(time.RFC3339, stamp) // an entry without a time has the zero time
		switch {
		case name == v1alpha1.FieldManager && operation == string(metav1.ManagedFieldsOperationApply) && subresource == "":
			owned = ownedFields(entry["fieldsV1"], instance)
			owned.Time = at.Unix()
		case name == v1alpha1.FieldManager || name == v1alpha1.FieldManagerStatus:
		default:
			others = append(others, Manager{Name: intern(name), Operation: metav1.ManagedFieldsOperationType(intern(operation)),
				Subresource: intern(subresource), Time: at})
		}
	}
	return owned, others
}

func ownedFields(fields any, instance types.UID) OwnedFields {
	data, err := json.Marshal(fields)
	if err != nil || fields == nil {
		return OwnedFields{}
	}
	raw := string(data)
	if instance != "" {
		raw = strings.ReplaceAll(raw, string(instance), InstancePlaceholder)
	}
	return OwnedFields{raw: unique.Make(raw), set: true}
}

// NewObject makes an Object with all of its content, of an object as the API server answers. It takes over parts of obj.
func NewObject(kind program.Kind, obj *unstructured.Unstructured) *Object {
	return newProjector(kind, nil).object(obj)
}
