package apply

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// createGuard is a resourceVersion that no object has. With it, server-side apply creates an object that does not exist, and
// answers Conflict when it does: one request creates, and never takes over what is there.
const createGuard = "1"

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
	// Object is what the API server answered; nil for Deleted. For Unchanged it is set only when Request.Live was nil and the
	// object turned out to be there, as wanted.
	Object *unstructured.Unstructured
	// DriftBy are the field managers that had changed the object, sorted; for Repaired. Empty when nobody owns the change (a field
	// was removed) and no manager has written since.
	DriftBy []string
	// Fields are the paths that had drifted (Repaired) or that could not be changed (Deleted), sorted, at most 10.
	Fields []string
}

// Writer writes with one identity. It is safe for concurrent use.
type Writer struct {
	client dynamic.Interface
	user   string
	owned  fieldSets
}

// NewWriter returns a Writer that writes with the client's identity.
func NewWriter(c *identity.Client) *Writer {
	w := &Writer{client: c.Dynamic, user: c.User}
	w.owned.sets = map[string]*fieldSet{}
	return w
}

// Apply makes the object be as desired, with the fewest requests: none, when the live object has it all.
//
// Errors: the types of this package (errors.As); all else is a fault of the program.
func (w *Writer) Apply(ctx context.Context, req Request) (Outcome, error) {
	if req.Desired.GetName() == "" {
		return Outcome{}, &InvalidError{Target: targetOf(req.Desired), Message: "it has no name", Fields: []string{"metadata.name"}}
	}
	req.Desired.Unstructured = normalize(targetOf(req.Desired), req.Desired.Unstructured)
	if req.Live == nil {
		return w.create(ctx, req)
	}
	return w.converge(ctx, req)
}

func targetOf(o render.Object) Target {
	return Target{Kind: o.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

func instanceOf(o render.Object) types.UID {
	return types.UID(o.GetLabels()[v1alpha1.LabelInstance])
}

// create makes an object that has not been seen. If there is one, it is looked at.
func (w *Writer) create(ctx context.Context, req Request) (Outcome, error) {
	t := targetOf(req.Desired)
	obj := copyOf(req.Desired.Unstructured)
	obj.SetResourceVersion(createGuard)
	out, err := w.apply(ctx, t, obj, true)
	if err == nil {
		return Outcome{Action: Created, Object: out}, nil
	}
	if !apierrors.IsConflict(err) {
		return Outcome{}, w.explain(err, "create", t)
	}
	found, err := w.Get(ctx, t.Kind, t.Namespace, t.Name)
	if err != nil {
		return Outcome{}, err
	}
	if found == nil {
		return Outcome{}, &StaleError{Target: t, Message: "it was there a moment ago, and is gone"}
	}
	req.Live = watch.NewObject(t.Kind, found.DeepCopy())
	outcome, err := w.converge(ctx, req)
	if err == nil && outcome.Action == Unchanged {
		outcome.Object = found
	}
	return outcome, err
}

// converge makes a live object be as desired.
func (w *Writer) converge(ctx context.Context, req Request) (Outcome, error) {
	t, live := targetOf(req.Desired), req.Live
	if live.Deleting() {
		return Outcome{}, &DeletingError{Target: t, Finalizers: slices.Clone(live.Finalizers)}
	}
	if types.UID(live.Labels[v1alpha1.LabelInstance]) != instanceOf(req.Desired) {
		return w.adopt(ctx, req)
	}
	if req.CreateOnce {
		return Outcome{Action: Unchanged}, nil
	}
	set, err := w.owned.get(live.Owned)
	if err != nil {
		return Outcome{}, fmt.Errorf("cannot read the owned fields of %s: %w", t, err)
	}
	same := live.Annotations[v1alpha1.AnnotationDesired] == req.Desired.Hash
	covered, missing := set.covers(req.Desired.Object, instanceOf(req.Desired))
	if same && covered {
		return Outcome{Action: Unchanged}, nil
	}
	if same || !set.owns("metadata", "annotations", v1alpha1.AnnotationDesired) {
		return w.repair(ctx, req, missing)
	}
	obj := copyOf(req.Desired.Unstructured)
	obj.SetUID(live.UID)
	out, err := w.apply(ctx, t, obj, true)
	if err != nil {
		return w.recreate(ctx, req, w.explain(err, "patch", t))
	}
	return Outcome{Action: Updated, Object: out}, nil
}

// repair puts right what somebody else changed. It asks politely first: the API server then names who holds the fields.
func (w *Writer) repair(ctx context.Context, req Request, missing []string) (Outcome, error) {
	t, live := targetOf(req.Desired), req.Live
	outcome := Outcome{Action: Repaired, Fields: missing}
	obj := copyOf(req.Desired.Unstructured)
	obj.SetUID(live.UID)
	out, err := w.apply(ctx, t, obj, false)
	if holders := conflicting(err); len(holders) > 0 {
		outcome.DriftBy = holders
		out, err = w.apply(ctx, t, obj, true)
	} else {
		outcome.DriftBy = latestManager(live)
	}
	if err != nil {
		return w.recreate(ctx, req, w.explain(err, "patch", t))
	}
	outcome.Object = out
	return outcome, nil
}

// latestManager returns the manager that wrote last, if it wrote after us, and not to the status.
func latestManager(live *watch.Object) []string {
	var latest watch.Manager
	for _, m := range live.Managers {
		if m.Subresource == "" && m.Time.Unix() >= live.Owned.Time && !m.Time.Before(latest.Time) {
			latest = m
		}
	}
	if latest.Name == "" {
		return nil
	}
	return []string{latest.Name}
}

// recreate deletes an object that cannot be changed into what is wanted, if the update policy says so.
func (w *Writer) recreate(ctx context.Context, req Request, err error) (Outcome, error) {
	immutable, ok := asImmutable(err)
	if !ok || req.UpdatePolicy != v1alpha1.UpdatePolicyRecreate {
		return Outcome{}, err
	}
	d := Deletion{Kind: req.Desired.Kind, Namespace: req.Live.Namespace, Name: req.Live.Name, UID: req.Live.UID,
		Propagation: metav1.DeletePropagationBackground}
	if g := req.Desired.Kind.Group; g == "apps" || g == "batch" {
		// Its Pods have to be gone before another one by the same name can make its own.
		d.Propagation = metav1.DeletePropagationForeground
	}
	if err := w.Delete(ctx, d); err != nil {
		return Outcome{}, err
	}
	return Outcome{Action: Deleted, Fields: immutable.Fields}, nil
}

// apply sends a server-side apply. The error is that of the API server.
func (w *Writer) apply(ctx context.Context, t Target, obj *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	return w.resource(t.Kind, t.Namespace).Apply(ctx, t.Name, obj, metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: force})
}

func (w *Writer) resource(kind program.Kind, namespace string) dynamic.ResourceInterface {
	r := w.client.Resource(kind.GVR())
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}

// copyOf copies what apply changes: the object, and its metadata.
func copyOf(obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := make(map[string]any, len(obj.Object))
	for k, v := range obj.Object {
		out[k] = v
	}
	if m, ok := out["metadata"].(map[string]any); ok {
		meta := make(map[string]any, len(m)+1)
		for k, v := range m {
			meta[k] = v
		}
		out["metadata"] = meta
	}
	return &unstructured.Unstructured{Object: out}
}
