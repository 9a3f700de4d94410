package watch

import (
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/program"
)

// Object is what the Set keeps of an object. It is immutable.
type Object struct {
	Kind              program.Kind
	Namespace, Name   string
	UID               types.UID
	ResourceVersion   string
	Generation        int64
	CreationTimestamp metav1.Time
	DeletionTimestamp *metav1.Time
	Finalizers        []string
	Labels            map[string]string
	Annotations       map[string]string
	OwnerReferences   []metav1.OwnerReference
	// Content is what is kept beside apiVersion, kind and metadata.
	Content map[string]any
	// Owned are the fields that Libretto owns.
	Owned OwnedFields
	// Managers are the other field managers.
	Managers []Manager
}

// InstancePlaceholder stands in OwnedFields for the UID of the instance that holds the object, so that objects of different
// instances can share one.
const InstancePlaceholder = "$instance"

// OwnedFields is the set of fields that our field manager owns, in the encoding of metadata.managedFields, with
// InstancePlaceholder for the instance's UID. Objects made from the same template share one in memory. It is comparable.
type OwnedFields struct {
	raw unique.Handle[string]
	set bool
	// Time is when our manager last changed one of its fields, in seconds since 1970.
	Time int64
}

// Raw returns the encoding; empty: Libretto owns nothing.
func (f OwnedFields) Raw() string {
	if !f.set {
		return ""
	}
	return f.raw.Value()
}

// Manager is a field manager other than ours.
type Manager struct {
	Name      string
	Operation metav1.ManagedFieldsOperationType
	// Subresource through which it wrote, if any.
	Subresource string
	Time        time.Time
}

// Deleting tells whether the object has been deleted and waits for finalizers.
func (o *Object) Deleting() bool { return o.DeletionTimestamp != nil }

// GetObjectMeta implements metav1.ObjectMetaAccessor, for client-go.
func (o *Object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// Unstructured returns the object for expressions and readiness. It shares its content with the Object and must not be
// changed.
func (o *Object) Unstructured() *unstructured.Unstructured {
	out := make(map[string]any, len(o.Content)+3)
	for k, v := range o.Content {
		out[k] = v
	}
	out["apiVersion"] = o.Kind.GroupVersion().String()
	out["kind"] = o.Kind.Kind
	out["metadata"] = o.metadata()
	return &unstructured.Unstructured{Object: out}
}

func (o *Object) metadata() map[string]any {
	meta := map[string]any{
		"name":              o.Name,
		"uid":               string(o.UID),
		"resourceVersion":   o.ResourceVersion,
		"creationTimestamp": o.CreationTimestamp.UTC().Format(time.RFC3339),
	}
	if o.Namespace != "" {
		meta["namespace"] = o.Namespace
	}
	if o.Generation != 0 {
		meta["generation"] = o.Generation
	}
	if o.DeletionTimestamp != nil {
		meta["deletionTimestamp"] = o.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	if len(o.Labels) > 0 {
		meta["labels"] = stringMap(o.Labels)
	}
	if len(o.Annotations) > 0 {
		meta["annotations"] = stringMap(o.Annotations)
	}
	if len(o.Finalizers) > 0 {
		list := make([]any, len(o.Finalizers))
		for i, f := range o.Finalizers {
			list[i] = f
		}
		meta["finalizers"] = list
	}
	if len(o.OwnerReferences) > 0 {
		list := make([]any, len(o.OwnerReferences))
		for i := range o.OwnerReferences {
			list[i] = ownerReference(&o.OwnerReferences[i])
		}
		meta["ownerReferences"] = list
	}
	return meta
}

func stringMap(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v
	}
	return out
}

func ownerReference(r *metav1.OwnerReference) map[string]any {
	out := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID)}
	if r.Controller != nil {
		out["controller"] = *r.Controller
	}
	if r.BlockOwnerDeletion != nil {
		out["blockOwnerDeletion"] = *r.BlockOwnerDeletion
	}
	return out
}
