package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// source says where definitions come from and what they are compiled against.
type source struct {
	// crds are files and directories with CustomResourceDefinitions and definitions of other kinds.
	crds []string
	// live asks the cluster for the kinds that no file declares.
	live    bool
	cluster cluster
	// name selects one of several definitions.
	name string
}

func (s *source) flags(cmd *cobra.Command, live bool) {
	cmd.Flags().StringSliceVar(&s.crds, "crds", nil, "`FILE|DIR` with CustomResourceDefinitions, or definitions, of other kinds that are used")
	if live {
		cmd.Flags().BoolVar(&s.live, "live", false, "ask the cluster about kinds that Kubernetes and --crds do not know")
		s.cluster.flags(cmd)
	}
}

func (s *source) nameFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.name, "definition", "", "`NAME` of the definition, when there are several")
}

// compiled is a definition with what came of it.
type compiled struct {
	*load.Document
	// Program is nil when there are errors.
	Program *program.Program
	// Diagnostics have their places.
	Diagnostics diag.List
}

// compilation is all that was found in files.
type compilation struct {
	Definitions []*compiled
	// Extras are other objects that stood beside the definitions.
	Extras []load.Extra
	// Diagnostics are those of files that hold no readable definition.
	Diagnostics diag.List
	// Catalog is what the definitions were compiled against.
	Catalog schema.Catalog
}

// load reads and compiles the definitions in files.
func (s *source) load(ctx context.Context, paths []string) (*compilation, error) {
	if err := exist(append(paths, s.crds...)...); err != nil {
		return nil, err
	}
	docs, extras, problems := load.Load(paths...) //nolint:contextcheck // pure: nothing in it waits
	c := &compilation{Extras: extras, Diagnostics: problems}
	var others []*load.Document
	crds, err := customKinds(extras)
	if err != nil {
		return nil, err
	}
	if len(s.crds) > 0 {
		more, moreExtras, bad := load.Load(s.crds...) //nolint:contextcheck // pure: nothing in it waits
		if err := bad.Err(); err != nil {
			return nil, fmt.Errorf("cannot read --crds: %w", err)
		}
		others = more
		found, err := customKinds(moreExtras)
		if err != nil {
			return nil, err
		}
		crds = append(crds, found...)
	}
	catalogs := []schema.Catalog{schema.Embedded()}
	if s.live {
		live, err := s.cluster.catalog(ctx)
		if err != nil {
			return nil, err
		}
		catalogs = append(catalogs, live)
	}
	for _, d := range docs {
		c.Definitions = append(c.Definitions, &compiled{Document: d})
	}
	if err := c.compile(others, crds, catalogs); err != nil { //nolint:contextcheck // pure: nothing in it waits
		return nil, err
	}
	c.clashes()
	return c, nil
}

// exist makes a file that is not there a failure, and not a fault of a definition.
func exist(paths ...string) error {
	for _, p := range paths {
		if p == "-" {
			continue
		}
		if _, err := os.Stat(p); err != nil {
			return err
		}
	}
	return nil
}

// clashes reports definitions that declare the same kind.
func (c *compilation) clashes() {
	kinds := map[string]*compiled{}
	for _, d := range c.Definitions {
		crd := d.Definition.Spec.CRD
		if crd == nil {
			continue
		}
		kind := crd.Names.Kind + "." + crd.Group
		other := kinds[kind]
		if other == nil {
			kinds[kind] = d
			continue
		}
		if other.Definition.Name == d.Definition.Name {
			continue // said already: a name is there once
		}
		var list diag.List
		list.Errorf("spec.crd", "definition %s (%s) declares the kind %s, too", other.Definition.Name, other.File, kind)
		d.Diagnostics = append(d.Diagnostics, d.Locate(list)...)
	}
}

// compile compiles twice when a definition declares a kind that another may use: once to know the kinds, once to use them.
func (c *compilation) compile(others []*load.Document, crds []*apiextensionsv1.CustomResourceDefinition, catalogs []schema.Catalog) error {
	base, err := withCRDs(crds, catalogs)
	if err != nil {
		return err
	}
	declared := map[string]bool{}
	for _, crd := range crds {
		declared[crd.Name] = true
	}
	all := crds
	use := func(p *program.Program) {
		if p != nil && p.CRD != nil && !declared[p.CRD.Name] {
			declared[p.CRD.Name] = true
			all = append(all, p.CRD)
		}
	}
	for _, d := range others {
		p, _ := compile.Compile(d.Definition, compile.Options{Catalog: base})
		use(p)
	}
	for _, d := range c.Definitions {
		d.run(base)
		use(d.Program)
	}
	c.Catalog = base
	if len(all) == len(crds) || len(c.Definitions)+len(others) < 2 {
		return nil
	}
	if c.Catalog, err = withCRDs(all, catalogs); err != nil {
		return err
	}
	for _, d := range c.Definitions {
		d.run(c.Catalog)
	}
	return nil
}

func (d *compiled) run(catalog schema.Catalog) {
	p, list := compile.Compile(d.Definition, compile.Options{Catalog: catalog})
	d.Program, d.Diagnostics = p, d.Locate(list)
}

func withCRDs(crds []*apiextensionsv1.CustomResourceDefinition, catalogs []schema.Catalog) (schema.Catalog, error) {
	if len(crds) == 0 {
		return schema.Chain(catalogs...), nil
	}
	own, err := schema.FromCRDs(crds...)
	if err != nil {
		return nil, fmt.Errorf("cannot use the CustomResourceDefinitions: %w", err)
	}
	return schema.Chain(append([]schema.Catalog{own}, catalogs...)...), nil
}

// customKinds picks the CustomResourceDefinitions.
func customKinds(extras []load.Extra) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, x := range extras {
		gvk := x.Object.GroupVersionKind()
		if gvk.Group != apiextensionsv1.GroupName || gvk.Kind != "CustomResourceDefinition" || gvk.Version != "v1" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object.Object, crd); err != nil {
			return nil, fmt.Errorf("%s:%d: cannot read the CustomResourceDefinition: %w", x.File, x.Line, err)
		}
		out = append(out, crd)
	}
	return out, nil
}

// all returns the diagnostics of all files, sorted.
func (c *compilation) all() diag.List {
	list := append(diag.List(nil), c.Diagnostics...)
	for _, d := range c.Definitions {
		list = append(list, d.Diagnostics...)
	}
	return list.Sort()
}

// one loads the one definition that a command is about and prints what is wrong with it.
func (s *source) one(cmd *cobra.Command, path string) (*compiled, error) {
	c, err := s.load(cmd.Context(), []string{path})
	if err != nil {
		return nil, err
	}
	d, err := c.pick(s.name, path)
	if err != nil {
		if len(c.Diagnostics.Errors()) > 0 {
			fmt.Fprint(cmd.ErrOrStderr(), c.Diagnostics.String())
			return nil, invalid()
		}
		return nil, err
	}
	list := append(append(diag.List(nil), c.Diagnostics...), d.Diagnostics...).Sort()
	fmt.Fprint(cmd.ErrOrStderr(), list.String())
	if list.HasErrors() || d.Program == nil {
		return nil, invalid()
	}
	return d, nil
}

// pick returns the definition with a name, or the only one there is.
func (c *compilation) pick(name, path string) (*compiled, error) {
	var names []string
	for _, d := range c.Definitions {
		if d.Definition.Name == name {
			return d, nil
		}
		names = append(names, d.Definition.Name)
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%s holds no OperatorDefinition (apiVersion libretto.dev/v1alpha1)", path)
	case name != "":
		return nil, fmt.Errorf("%s holds no definition %q, but %s; %s", path, name, strings.Join(names, ", "), diag.DidYouMean(name, names))
	case len(names) > 1:
		return nil, usagef("%s holds several definitions: choose one with --definition %s", path, strings.Join(names, "|"))
	}
	return c.Definitions[0], nil
}
