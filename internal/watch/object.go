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

// OwnedFields is the set of fields that our field manager owns, in the encoding of metadata.managedFields. Objects made from
// the same template share one in memory.
type OwnedFields struct {
	raw unique.Handle[string]
	set bool
}

// Manager is a field manager other than ours.
type Manager struct {
	Name      string
	Operation metav1.ManagedFieldsOperationType
	// Subresource through which it wrote, if any.
	Subresource string
	Time        time.Time
}

// Unstructured returns the object for expressions and readiness. It shares its content with the Object and must not be
// changed.
func (o *Object) Unstructured() *unstructured.Unstructured { return nil }

// Deleting tells whether the object has been deleted and waits for finalizers.
func (o *Object) Deleting() bool { return o.DeletionTimestamp != nil }
