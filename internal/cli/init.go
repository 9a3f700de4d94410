package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/scaffold"
	"github.com/libretto-dev/libretto/internal/schema"
)

type initOptions struct {
	scaffold.FromOptions
	from, dir string
	fields    []string
}

func newInit() *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init KIND",
		Short: "Start a definition, from a few fields or from manifests you have",
		Long: `Write a definition that already runs, and an instance to try it with.

With --field, the definition makes a ConfigMap, a Deployment and a Service (and an Ingress for a field host) that use the
fields. A field is written NAME:TYPE[=DEFAULT][,required][,enum=A|B][,min=N][,max=N]; types are string, integer, number,
boolean, list (of strings) and map (of strings).

With --from, the definition is made out of a kustomize base or a directory of manifests: images, replicas and hosts
become fields, with the values found as defaults. A kustomize base is kept as it is and copied beside the definition;
--flatten makes a template of each object instead.

Files that exist are never overwritten.

` + exitCodes,
		Example: `  libretto init WebApp --group example.com --field replicas:integer=1 --field host:string
  libretto init Shop --group example.com --from ./k8s
  libretto init Shop --group example.com --from ./kustomize/base --output ./shop-operator`,
		Args: cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			o.Kind = args[0]
			return o.run(cmd)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&o.Group, "group", "example.com", "API `GROUP` of the kind: a domain of your own")
	cmd.Flags().StringVar(&o.Version, "api-version", "v1alpha1", "`VERSION` of the kind")
	cmd.Flags().StringArrayVar(&o.fields, "field", nil, "`NAME:TYPE[=DEFAULT]` of a field of spec; may be repeated")
	cmd.Flags().StringVar(&o.from, "from", "", "kustomize base or directory of manifests (`DIR`) to make the definition of")
	cmd.Flags().BoolVar(&o.Flatten, "flatten", false, "with --from a kustomize base: a template for each object")
	cmd.Flags().BoolVar(&o.ClusterScoped, "cluster-scoped", false, "instances live in no namespace")
	cmd.Flags().StringVarP(&o.dir, "output", "o", "", "`DIR` to write to (default ./KIND in lower case)")
	for _, flag := range []string{"from", "output"} {
		if err := cmd.MarkFlagDirname(flag); err != nil { // the flag does not exist: a fault of the program that every test would see
			panic(err)
		}
	}
	return cmd
}

func (o *initOptions) run(cmd *cobra.Command) error {
	for _, f := range o.fields {
		field, err := scaffold.ParseField(f)
		if err != nil {
			return usagef("--field: %w", err)
		}
		o.Fields = append(o.Fields, field)
	}
	if o.Flatten && o.from == "" {
		return usagef("--flatten goes with --from")
	}
	if o.dir == "" {
		o.dir = strings.ToLower(o.Kind)
	}
	o.Dir, o.Catalog = o.from, schema.Embedded()
	var result *scaffold.Result
	var err error
	if o.from != "" {
		result, err = scaffold.From(o.FromOptions)
	} else {
		result, err = scaffold.Start(o.Options)
	}
	if err != nil {
		return err
	}
	if err := result.Write(o.dir); err != nil {
		return err
	}
	return o.report(cmd, result)
}

// report says what was written, whether it is right, and what comes next.
func (o *initOptions) report(cmd *cobra.Command, result *scaffold.Result) error {
	out := cmd.OutOrStdout()
	var names []string
	for name := range result.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(out, "wrote %s\n", filepath.Join(o.dir, filepath.FromSlash(name)))
	}
	for _, note := range result.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	definition, instance := filepath.Join(o.dir, scaffold.DefinitionFile), filepath.Join(o.dir, scaffold.InstanceFile)
	if o.from != "" {
		if err := o.compare(cmd, definition, instance); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\nNext:\n  libretto validate %s\n  libretto render %s %s\n  libretto run %s\n", definition, definition, instance, definition)
	return nil
}
