package step

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// resolve finds out which object a reference names.
func (e *Executor) resolve(req Request, ref *program.ObjectReference) (apply.Target, error) {
	if ref.Node != nil {
		return e.resolveNode(req, ref.Node)
	}
	var t apply.Target
	var err error
	if t.Kind, err = e.served(ref.Kind); err != nil {
		return t, err
	}
	if t.Name, err = req.Eval.Text(ref.Name, req.Start.Vars); err != nil {
		return t, err
	}
	if t.Name == "" {
		return t, permanent("the name of the %s is empty", t.Kind.Kind)
	}
	if !t.Kind.Namespaced {
		return t, nil
	}
	if ref.Namespace != nil {
		if t.Namespace, err = req.Eval.Text(ref.Namespace, req.Start.Vars); err != nil {
			return t, err
		}
	}
	t.Namespace, err = e.namespace(req, t.Namespace, t.Kind.Kind+" "+t.Name)
	return t, err
}

// resolveNode finds out which object a resource of the definition is.
func (e *Executor) resolveNode(req Request, n *program.Node) (apply.Target, error) {
	t := apply.Target{}
	if n.Template == nil || n.ForEach != nil || len(n.Kinds) != 1 {
		return t, permanent("resource %s is not one object", n.Name)
	}
	var err error
	if t.Kind, err = e.served(n.Kinds[0]); err != nil {
		return t, err
	}
	if t.Name, err = nodeField(req, n, "name"); err != nil {
		return t, err
	}
	if t.Name == "" {
		return t, permanent("the name of resource %s is empty", n.Name)
	}
	if !t.Kind.Namespaced {
		return t, nil
	}
	if t.Namespace, err = nodeField(req, n, "namespace"); err != nil {
		return t, err
	}
	t.Namespace, err = e.namespace(req, t.Namespace, "resource "+n.Name)
	return t, err
}

// nodeField computes a field of the metadata of a resource.
func nodeField(req Request, n *program.Node, field string) (string, error) {
	part, value, static := n.Template.Lookup("metadata", field)
	switch {
	case static:
		text, _ := value.(string)
		return text, nil
	case part != nil:
		return req.Eval.Text(&program.Template{Root: part}, nil)
	}
	whole, err := req.Eval.Template(n.Template, nil)
	if err != nil {
		return "", err
	}
	content, _ := whole.(map[string]any)
	text, _, err := unstructured.NestedString(content, "metadata", field)
	if err != nil {
		return "", permanent("metadata.%s of resource %s is no text", field, n.Name)
	}
	return text, nil
}

// namespace is the given one, or that of the instance.
func (e *Executor) namespace(req Request, given, what string) (string, error) {
	if given != "" {
		return given, nil
	}
	if own := req.Instance.GetNamespace(); own != "" {
		return own, nil
	}
	return "", permanent("the namespace of %s is empty, and the instance has none: name one", what)
}

// served completes a kind that no catalog knew when the definition was compiled.
func (e *Executor) served(k program.Kind) (program.Kind, error) {
	if k.Resource != "" {
		return k, nil
	}
	m, err := e.options.Client.Mapper.RESTMapping(k.GroupKind(), k.Version)
	if meta.IsNoMatchError(err) {
		return k, &apply.KindMissingError{Kind: k}
	}
	if err != nil {
		return k, temporary("cannot find kind %s of %s: %v", k.Kind, k.GroupVersion(), err)
	}
	k.Resource, k.Namespaced, k.Pending = m.Resource.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace, false
	return k, nil
}

func (e *Executor) resource(t apply.Target) dynamic.ResourceInterface {
	r := e.options.Client.Dynamic.Resource(t.Kind.GVR())
	if t.Namespace == "" {
		return r
	}
	return r.Namespace(t.Namespace)
}

func (e *Executor) get(ctx context.Context, t apply.Target) (*unstructured.Unstructured, error) {
	return e.writer.Get(ctx, t.Kind, t.Namespace, t.Name)
}

// wrote tells of an object as the API server answered a write.
func (e *Executor) wrote(kind program.Kind, obj *unstructured.Unstructured) {
	if e.options.Wrote != nil && obj != nil {
		e.options.Wrote(kind, obj.DeepCopy())
	}
}

// ofInstance refuses an object by the name of a resource of the definition that is not that resource.
func ofInstance(req Request, ref *program.ObjectReference, t apply.Target, live *unstructured.Unstructured) error {
	if ref.Node == nil || types.UID(live.GetLabels()[v1alpha1.LabelInstance]) == req.Instance.GetUID() {
		return nil
	}
	return permanent("%s is not resource %s of the instance: it was made by somebody else", t, ref.Node.Name)
}

// marked returns the metadata of an object that a step makes: that of its template, with what tells whose it is.
func marked(req Request, template map[string]any) map[string]any {
	out := maps.Clone(template)
	if out == nil {
		out = map[string]any{}
	}
	labels := cloneField(out, "labels")
	labels[v1alpha1.LabelDefinition] = v1alpha1.DefinitionID(req.Program.Name)
	labels[v1alpha1.LabelRun] = string(req.Run.UID)
	labels[v1alpha1.LabelTarget] = string(req.Instance.GetUID())
	delete(labels, v1alpha1.LabelInstance)
	annotations := cloneField(out, "annotations")
	annotations[v1alpha1.AnnotationDefinition] = req.Program.Name
	annotations[v1alpha1.AnnotationOwner] = ownerText(req)
	annotations[v1alpha1.AnnotationAttempt] = req.Start.Attempt.ID
	for _, field := range []string{"managedFields", "resourceVersion", "uid"} {
		delete(out, field)
	}
	return out
}

func cloneField(meta map[string]any, field string) map[string]any {
	old, _ := meta[field].(map[string]any)
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	meta[field] = out
	return out
}

// ownerText is the instance as NAMESPACE/NAME, or NAME.
func ownerText(req Request) string {
	if namespace := req.Instance.GetNamespace(); namespace != "" {
		return namespace + "/" + req.Instance.GetName()
	}
	return req.Instance.GetName()
}

// collected tells whether the garbage collector removes an object with the instance, or with an operation object of it.
func collected(req Request, t apply.Target) bool {
	own := req.Instance.GetNamespace()
	return own == "" || t.Kind.Namespaced && own == t.Namespace
}

// identityOf is what steps yield that write an object.
func identityOf(t apply.Target, obj *unstructured.Unstructured) map[string]any {
	out := map[string]any{
		"apiVersion": t.Kind.GroupVersion().String(), "kind": t.Kind.Kind, "name": t.Name,
		"uid": string(obj.GetUID()), "resourceVersion": obj.GetResourceVersion(),
	}
	if t.Namespace != "" {
		out["namespace"] = t.Namespace
	}
	return out
}

func succeeded(value any) operation.Result {
	return operation.Result{Outcome: operation.Succeeded, Result: value, Output: value}
}
