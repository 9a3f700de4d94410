package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
)

type renderOptions struct {
	source
	external, observed []string
	namespace, output  string
	plain              bool
}

func newRender() *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render DEFINITION INSTANCE",
		Short: "Print the objects that an instance stands for, without a cluster",
		Long: `Print the objects that Libretto would apply for an instance, in the order in which it would apply them. The instance is
checked first as the API server would: defaults, schema, CEL rules.

An expression that reads a value which only the cluster knows (a status, a cluster IP, an external Secret) waits; a
comment says for what. Give such objects with --observed (the resources as they live) and --external.

` + exitCodes,
		Example: `  libretto render definition.yaml instance.yaml
  libretto render definition.yaml instance.yaml --external secret.yaml
  libretto render definition.yaml instance.yaml -o name
  libretto render definition.yaml instance.yaml --plain | kubectl diff -f -`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: yamlFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			d, err := o.one(cmd, args[0])
			if err != nil {
				return err
			}
			r, err := o.render(cmd, d.Program, args[1])
			if err != nil {
				return err
			}
			if err := r.print(cmd.OutOrStdout(), o.output); err != nil {
				return err
			}
			if len(r.problems) > 0 {
				return fmt.Errorf("%s; the rest was rendered", count(len(r.problems), "failure"))
			}
			return nil
		}),
	}
	outputFlag(cmd, &o.output, formatYAML, formatJSON, "name")
	cmd.Flags().StringSliceVar(&o.external, "external", nil, "`FILE|DIR` with the external objects that the definition reads")
	cmd.Flags().StringSliceVar(&o.observed, "observed", nil, "`FILE|DIR` with resources as they live in the cluster, with their status")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "`NAMESPACE` of an instance that names none")
	cmd.Flags().BoolVar(&o.plain, "plain", false, "leave out Libretto's own labels, annotations and owner references")
	o.flags(cmd, true)
	o.nameFlag(cmd)
	return cmd
}

// rendered is an instance's objects, resource by resource.
type rendered struct {
	resources []renderedResource
	// problems are what failed, one text each.
	problems []string
}

type renderedResource struct {
	node    *program.Node
	objects []*unstructured.Unstructured
	// remark says why there are no objects; empty: there are.
	remark string
}

func (o *renderOptions) render(cmd *cobra.Command, p *program.Program, path string) (*rendered, error) {
	self, problems, err := readInstance(cmd.Context(), p, path, o.namespace)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		fmt.Fprint(cmd.ErrOrStderr(), problems.Sort().String())
		if problems.HasErrors() {
			return nil, invalid()
		}
	}
	external, err := readObjects(o.external)
	if err != nil {
		return nil, fmt.Errorf("cannot read --external: %w", err)
	}
	observed, err := readObjects(o.observed)
	if err != nil {
		return nil, fmt.Errorf("cannot read --observed: %w", err)
	}
	out, err := renderAll(cmd.Context(), p, self, external, observed)
	if err != nil {
		return nil, err
	}
	for i := range out.resources {
		r := &out.resources[i]
		if o.plain {
			for _, obj := range r.objects {
				strip(obj)
			}
		}
	}
	for _, f := range out.problems {
		fmt.Fprintln(cmd.ErrOrStderr(), f)
	}
	return out, nil
}

func readObjects(paths []string) ([]*unstructured.Unstructured, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	if err := exist(paths...); err != nil {
		return nil, err
	}
	_, extras, problems := load.Load(paths...)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, 0, len(extras))
	for _, x := range extras {
		normalize(x.Object)
		out = append(out, x.Object)
	}
	return out, nil
}

// renderAll renders every node, in order. What was rendered stands for the live object, as if it had just been applied,
// unless observed has it.
func renderAll(_ context.Context, p *program.Program, self map[string]any, external, observed []*unstructured.Unstructured) (*rendered, error) {
	e := render.New(p, self)
	if ok, err := e.Matches(); err != nil {
		return nil, fmt.Errorf("target.when cannot be computed for this object: %w", err)
	} else if !ok {
		return nil, errors.New("the object is not an instance: target.when is false for it")
	}
	out := &rendered{}
	refs, err := e.Externals()
	if err != nil { // of some; the others can be looked up
		out.problems = append(out.problems, err.Error())
	}
	for _, ref := range refs {
		var found []map[string]any
		for _, o := range external {
			if refersTo(&ref, o) {
				found = append(found, o.Object)
			}
		}
		e.BindExternal(ref.Name, found)
	}
	for _, n := range p.Nodes {
		out.resources = append(out.resources, out.node(e, n, observed))
	}
	return out, nil
}

func (r *rendered) node(e *render.Evaluation, n *program.Node, observed []*unstructured.Unstructured) renderedResource {
	res := renderedResource{node: n}
	objects, err := e.Render(n)
	var pending *expr.PendingError
	switch {
	case err == nil:
		live := make([]*unstructured.Unstructured, 0, len(objects))
		for i := range objects {
			res.objects = append(res.objects, objects[i].Unstructured)
			live = append(live, asLive(objects[i].Unstructured, observed))
		}
		e.Bind(n, live)
		if len(objects) == 0 {
			res.remark = "makes nothing, its list is empty"
		}
	case errors.Is(err, render.ErrExcluded):
		res.remark = "excluded, its when is false"
	case errors.As(err, &pending):
		res.remark = pending.Error()
	default:
		res.remark = "failed: " + err.Error()
		r.problems = append(r.problems, "resource "+n.Name+": "+err.Error())
	}
	return res
}

// asLive returns the observed object with the name of a desired one; the desired one itself when there is none.
func asLive(desired *unstructured.Unstructured, observed []*unstructured.Unstructured) *unstructured.Unstructured {
	for _, o := range observed {
		if o.GroupVersionKind().GroupKind() == desired.GroupVersionKind().GroupKind() && o.GetName() == desired.GetName() &&
			(o.GetNamespace() == "" || o.GetNamespace() == desired.GetNamespace()) {
			return o
		}
	}
	return desired
}

func refersTo(ref *render.ExternalRef, o *unstructured.Unstructured) bool {
	if o.GroupVersionKind().GroupKind() != ref.Kind.GroupKind() {
		return false
	}
	if ns := o.GetNamespace(); ns != "" && ref.Namespace != "" && ns != ref.Namespace {
		return false
	}
	if !ref.List {
		return ref.ObjectName != "" && o.GetName() == ref.ObjectName
	}
	labels := o.GetLabels()
	for k, v := range ref.Labels {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// strip removes what Libretto adds for itself.
func strip(o *unstructured.Unstructured) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for _, m := range []map[string]string{labels, annotations} {
		for k := range m {
			if strings.HasPrefix(k, v1alpha1.GroupVersion.Group+"/") {
				delete(m, k)
			}
		}
	}
	set := func(m map[string]string, field string, to func(map[string]string)) {
		if len(m) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
			return
		}
		to(m)
	}
	set(labels, "labels", o.SetLabels)
	set(annotations, "annotations", o.SetAnnotations)
	var owners []any
	refs, _, _ := unstructured.NestedSlice(o.Object, "metadata", "ownerReferences")
	for _, r := range refs {
		if m, ok := r.(map[string]any); ok && m["uid"] == offlineUID {
			continue
		}
		owners = append(owners, r)
	}
	if len(owners) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
	}
}

func (r *rendered) print(w io.Writer, output string) error {
	switch output {
	case "name":
		return r.printNames(w)
	case formatJSON:
		items := []any{}
		for i := range r.resources {
			for _, o := range r.resources[i].objects {
				items = append(items, o.Object)
			}
		}
		return printValue(w, formatJSON, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	var b bytes.Buffer
	for i := range r.resources {
		res := &r.resources[i]
		if res.remark != "" {
			fmt.Fprintf(&b, "---\n# resource %s: %s\n", res.node.Name, strings.ReplaceAll(res.remark, "\n", "\n#   "))
		}
		for j, o := range res.objects {
			data, err := yaml.Marshal(o.Object)
			if err != nil {
				return fmt.Errorf("cannot print %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			b.WriteString("---\n# " + res.heading(j) + "\n")
			b.Write(data)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// heading says which resource an object is of, and what the resource waits for.
func (r *renderedResource) heading(i int) string {
	s := "resource " + r.node.Name
	if len(r.objects) > 1 {
		s += fmt.Sprintf(" %d/%d", i+1, len(r.objects))
	}
	s += fmt.Sprintf(", wave %d", r.node.Wave)
	if len(r.node.After) > 0 {
		var names []string
		for _, n := range r.node.After {
			names = append(names, n.Name)
		}
		s += ", when ready: " + strings.Join(names, ", ")
	}
	return s
}

func (r *rendered) printNames(w io.Writer) error {
	for i := range r.resources {
		res := &r.resources[i]
		if res.remark != "" {
			if _, err := fmt.Fprintf(w, "# resource %s: %s\n", res.node.Name, strings.ReplaceAll(res.remark, "\n", " ")); err != nil {
				return err
			}
		}
		for _, o := range res.objects {
			name := o.GetName()
			if o.GetNamespace() != "" {
				name = o.GetNamespace() + "/" + name
			}
			if _, err := fmt.Fprintf(w, "%s %s\n", o.GetKind(), name); err != nil {
				return err
			}
		}
	}
	return nil
}
