package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/watch"
)

// Action is what Apply did.
type Action string

// What Apply did.
const (
	Unchanged Action = "Unchanged" // no request was made
	Created   Action = "Created"
	Updated   Action = "Updated"  // the desired object had changed
	Repaired  Action = "Repaired" // somebody else had changed the live object
	Adopted   Action = "Adopted"  // an object that was there is ours now
	Deleted   Action = "Deleted"  // UpdatePolicy Recreate: it was deleted, and is to be made anew when it is gone
)

// Request is one object to apply.
type Request struct {
	Desired render.Object
	// Live is the object as last seen; nil: not seen (which does not mean that it does not exist).
	Live         *watch.Object
	Adoption     v1alpha1.Adoption
	UpdatePolicy v1alpha1.UpdatePolicy
	CreateOnce   bool
	// InstanceLives tells whether the instance with the UID exists; asked about an object that another instance holds. Nil: it does.
	InstanceLives func(uid types.UID) bool
}

// Outcome is what came of a Request.
type Outcome struct {
	Action Action
	// Object is what the API server answered; nil for Unchanged and Deleted.
	Object *unstructured.Unstructured
	// DriftBy are the field managers that had changed the object, sorted; for Repaired. Empty when nobody owns the change (a field
	// was removed) and no manager has written since.
	DriftBy []string
	// Fields are the paths that had drifted, sorted, at most 10, as far as they are known.
	Fields []string
}

// Writer writes with one identity. It is safe for concurrent use.
type Writer struct{}

// NewWriter returns a Writer that writes with the client's identity.
func NewWriter(c *identity.Client) *Writer { return &Writer{} }

// Apply makes the object be as desired, with the fewest requests: none, when the live object has it all.
//
// Errors: the types of this package (errors.As); all else is a fault of the program.
func (w *Writer) Apply(ctx context.Context, req Request) (Outcome, error) { return Outcome{}, nil }

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

// Delete deletes an object. An object that is not there, or that is another one by now (another UID), is success.
func (w *Writer) Delete(ctx context.Context, d Deletion) error { return nil }

// Get reads an object from the API server; nil: there is none.
func (w *Writer) Get(ctx context.Context, kind program.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	return nil, nil
}

// PatchStatus makes the status of an instance be status, which holds plain JSON values. It returns what the API server
// answered; nil when the status is so already, and no request was made. A StaleError means that the instance changed since.
func (w *Writer) PatchStatus(ctx context.Context, obj *watch.Object, status map[string]any) (*unstructured.Unstructured, error) {
	return nil, nil
}

// SetFinalizer adds a finalizer to an instance (present) or removes it. It returns what the API server answered; nil when it
// is so already.
func (w *Writer) SetFinalizer(ctx context.Context, obj *watch.Object, finalizer string, present bool) (*unstructured.Unstructured, error) {
	return nil, nil
}
