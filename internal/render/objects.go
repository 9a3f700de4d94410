package render

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// Object is an object as it is to be applied. Its metadata, labels and annotations are its own; all else may be shared with
// the Program and other objects and must not be changed.
type Object struct {
	// Item names the object within its node: empty for a single one, the item of forEach (its text, or its index), or
	// KIND/NAME of a kustomization.
	Item string
	*unstructured.Unstructured
	Kind program.Kind
	// Hash of the object, as in its annotation libretto.dev/desired.
	Hash string
}

// Render computes the objects of a node. They are complete: labels, annotations, owner, namespace and hash are in them.
//
// Errors: ErrExcluded (when is false), *expr.PendingError (a value of another object is not there yet), *expr.EvalError,
// *expr.CostError, *expr.InterruptedError; all to be found with errors.Is and errors.As.
func (e *Evaluation) Render(node *program.Node) ([]Object, error) {
	if node.When != nil {
		included, err := e.boolean(e.vars, node.When)
		if err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
		if !included {
			e.exclude(node)
			return nil, ErrExcluded
		}
	}
	delete(e.excluded, node.Name)
	if node.ForEach == nil {
		return e.renderItem(node, e.vars, "", nil)
	}
	value, err := e.eval(node.ForEach.In)
	if err != nil {
		return nil, fmt.Errorf("forEach: %w", err)
	}
	items, ok := value.([]any)
	if !ok {
		return nil, &expr.EvalError{Source: node.ForEach.In.Source(), Message: "forEach: expected a list, found " + describe(value)}
	}
	if len(items) > MaxItems {
		return nil, &expr.EvalError{Source: node.ForEach.In.Source(), Message: fmt.Sprintf("forEach: %d items; at most %d are possible", len(items), MaxItems)}
	}
	vars := maps.Clone(e.vars)
	objects := make([]Object, 0, len(items))
	for i, item := range items {
		vars[node.ForEach.Var] = item
		if objects, err = e.renderItem(node, vars, itemName(item, i), objects); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return objects, distinct(objects)
}

func itemName(item any, i int) string {
	switch v := item.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return strconv.Itoa(i)
}

// distinct refuses two items that are the same object: one would undo the other for ever.
func distinct(objects []Object) error {
	type id struct{ group, kind, namespace, name string }
	seen := make(map[id]string, len(objects))
	for _, o := range objects {
		key := id{o.Kind.Group, o.Kind.Kind, o.GetNamespace(), o.GetName()}
		if before, twice := seen[key]; twice {
			return &expr.EvalError{Source: o.GetName(), Message: fmt.Sprintf("the items %q and %q make the same %s %s", before, o.Item, o.Kind.Kind, o.GetName()), Hint: "the name must tell the items apart"}
		}
		seen[key] = o.Item
	}
	return nil
}

// renderItem appends the objects of one item, or of the node as a whole.
func (e *Evaluation) renderItem(node *program.Node, vars map[string]any, item string, objects []Object) ([]Object, error) {
	e.variables()
	eval := func(x *expr.Expr) (any, error) { return e.evalWith(vars, x) }
	if node.Kustomization != nil {
		return e.renderBase(node, eval, item, objects)
	}
	value, err := node.Template.Evaluate(eval)
	if err != nil {
		return nil, err
	}
	content, ok := value.(map[string]any)
	if !ok {
		return nil, &expr.EvalError{Message: "the template makes no object"}
	}
	o, err := e.finish(node, node.Kinds[0], content, item)
	if err != nil {
		return nil, err
	}
	return append(objects, o), nil
}

func (e *Evaluation) renderBase(node *program.Node, eval func(*expr.Expr) (any, error), item string, objects []Object) ([]Object, error) {
	built, err := node.Kustomization.Build(eval)
	if err != nil {
		var inner *program.EvaluateError
		if errors.As(err, &inner) {
			return nil, err
		}
		return nil, &expr.EvalError{Source: "kustomization", Message: err.Error()}
	}
	if len(objects)+len(built) > MaxItems {
		return nil, &expr.EvalError{Source: "kustomization", Message: fmt.Sprintf("more than %d objects", MaxItems)}
	}
	for _, b := range built {
		kind, ok := kindIn(node.Kinds, b)
		if !ok {
			return nil, &expr.EvalError{Source: "kustomization", Message: fmt.Sprintf("the base builds a %s %s, and did not when the definition was compiled", b.GetAPIVersion(), b.GetKind()), Hint: "kinds cannot come from expressions"}
		}
		name := b.GetKind() + "/" + b.GetName()
		if item != "" {
			name = item + "/" + name
		}
		o, err := e.finish(node, kind, b.Object, name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, distinct(objects)
}

func kindIn(kinds []program.Kind, o *unstructured.Unstructured) (program.Kind, bool) {
	gvk := o.GroupVersionKind()
	for _, k := range kinds {
		if k.GroupVersionKind == gvk {
			return k, true
		}
	}
	return program.Kind{}, false
}

// finish makes an object of the content that an author's template yields: the content is not changed.
func (e *Evaluation) finish(node *program.Node, kind program.Kind, content map[string]any, item string) (Object, error) {
	object := make(map[string]any, len(content))
	maps.Copy(object, content)
	authors, _ := object["metadata"].(map[string]any)
	meta := make(map[string]any, len(authors)+5)
	maps.Copy(meta, authors)
	object["metadata"] = meta

	name, _ := meta["name"].(string)
	if name == "" {
		return Object{}, &expr.EvalError{Source: "metadata.name", Message: fmt.Sprintf("the name of the %s is empty", kind.Kind)}
	}
	if kind.Namespaced {
		if namespace, _ := meta["namespace"].(string); namespace == "" {
			if namespace = e.self.GetNamespace(); namespace == "" {
				return Object{}, &expr.EvalError{Source: "metadata.namespace", Message: fmt.Sprintf("the namespace of the %s %s is empty", kind.Kind, name)}
			}
			meta["namespace"] = namespace
		}
	}
	if err := e.label(node, meta); err != nil {
		return Object{}, err
	}
	e.own(kind, meta)

	o := Object{Item: item, Unstructured: &unstructured.Unstructured{Object: object}, Kind: kind}
	var size int
	o.Hash, size = e.hash(object)
	if size > maxObject {
		return Object{}, &expr.EvalError{Source: "template", Message: fmt.Sprintf("the %s %s has %d bytes; at most %d are possible", kind.Kind, name, size, maxObject)}
	}
	meta["annotations"].(map[string]any)[v1alpha1.AnnotationDesired] = o.Hash //nolint:forcetypeassert // label has made it
	return o, nil
}

// label adds Libretto's labels and annotations.
func (e *Evaluation) label(node *program.Node, meta map[string]any) error {
	labels, err := ownCopy(meta, "labels", 2)
	if err != nil {
		return err
	}
	annotations, err := ownCopy(meta, "annotations", 6)
	if err != nil {
		return err
	}
	labels[v1alpha1.LabelDefinition] = v1alpha1.DefinitionID(e.program.Name)
	if uid := e.self.GetUID(); uid != "" {
		labels[v1alpha1.LabelInstance] = string(uid)
	}
	annotations[v1alpha1.AnnotationDefinition] = e.program.Name
	annotations[v1alpha1.AnnotationOwner] = owner(e.self)
	annotations[v1alpha1.AnnotationResource] = node.Name
	annotations[v1alpha1.AnnotationWave] = strconv.Itoa(node.Wave)
	if node.DeletionPolicy == v1alpha1.DeletionPolicyRetain {
		annotations[v1alpha1.AnnotationDeletionPolicy] = string(v1alpha1.DeletionPolicyRetain)
	}
	return nil
}

func owner(self *unstructured.Unstructured) string {
	if namespace := self.GetNamespace(); namespace != "" {
		return namespace + "/" + self.GetName()
	}
	return self.GetName()
}

// ownCopy replaces a map of text in the metadata by a copy.
func ownCopy(meta map[string]any, field string, more int) (map[string]any, error) {
	var authors map[string]any
	switch value := meta[field].(type) {
	case nil:
	case map[string]any:
		authors = value
	default:
		return nil, &expr.EvalError{Source: "metadata." + field, Message: "expected an object, found " + describe(value)}
	}
	copied := make(map[string]any, len(authors)+more)
	maps.Copy(copied, authors)
	meta[field] = copied
	return copied, nil
}

// own adds the instance as owner where the garbage collector understands that: in the same namespace, or from above.
// Retained objects have no owner.
func (e *Evaluation) own(kind program.Kind, meta map[string]any) {
	annotations, _ := meta["annotations"].(map[string]any)
	uid := e.self.GetUID()
	if uid == "" || kind.Pending || annotations[v1alpha1.AnnotationDeletionPolicy] != nil {
		return
	}
	namespace, _ := meta["namespace"].(string)
	if own := e.self.GetNamespace(); own != "" && (!kind.Namespaced || own != namespace) {
		return
	}
	instance := e.program.Instance
	meta["ownerReferences"] = []any{map[string]any{
		"apiVersion":         instance.GroupVersion().String(),
		"kind":               instance.Kind,
		"name":               e.self.GetName(),
		"uid":                string(uid),
		"controller":         true,
		"blockOwnerDeletion": false,
	}}
}
