package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/diag"
)

func newValidate() *cobra.Command {
	var src source
	var output string
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR…",
		Short: "Check definitions, without a cluster",
		Long: `Check definitions: their fields, their schema, and every expression against the schemas of the kinds it reads.
All errors are reported at once, each with file and line, what was expected and what to do.

No cluster is needed: the kinds of Kubernetes are built in. Other kinds come from CustomResourceDefinitions and
definitions in the same files or in --crds, or from the cluster with --live. A kind that nobody knows is a warning:
expressions that read it are checked when it appears.

` + exitCodes,
		Example: `  libretto validate definition.yaml
  libretto validate operators/ --crds cert-manager.crds.yaml
  libretto validate definition.yaml --live
  libretto validate definition.yaml -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			c, err := src.load(cmd.Context(), args)
			if err != nil {
				return err
			}
			report := c.report()
			if output == formatText {
				report.print(cmd.OutOrStdout())
			} else if err := printValue(cmd.OutOrStdout(), output, report); err != nil {
				return err
			}
			if report.Diagnostics.HasErrors() {
				return invalid()
			}
			if len(report.Definitions) == 0 {
				return fmt.Errorf("%s: no OperatorDefinition (apiVersion libretto.dev/v1alpha1) found", strings.Join(args, ", "))
			}
			return nil
		}),
	}
	outputFlag(cmd, &output, "text", formatJSON, formatYAML)
	src.flags(cmd, true)
	return cmd
}

// validation is the result of validate.
type validation struct {
	Definitions []validated `json:"definitions"`
	Valid       int         `json:"valid"`
	Invalid     int         `json:"invalid"`
	Diagnostics diag.List   `json:"diagnostics"`
}

// validated is the result for one definition.
type validated struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	// Kind is the declared or target kind, as KIND.VERSION.GROUP; empty when invalid.
	Kind      string `json:"kind,omitempty"`
	Resources int    `json:"resources"`
	Errors    int    `json:"errors"`
	Warnings  int    `json:"warnings"`
	// PendingKinds are kinds that nobody knows, as KIND.VERSION.GROUP.
	PendingKinds []string `json:"pendingKinds,omitempty"`
}

func (c *compilation) report() *validation {
	out := &validation{Definitions: []validated{}, Diagnostics: c.all()}
	if out.Diagnostics == nil {
		out.Diagnostics = diag.List{}
	}
	for _, d := range c.Definitions {
		list := append(diag.List(nil), d.Diagnostics...)
		for _, x := range c.Diagnostics { // of reading the same file
			if x.File == d.File {
				list = append(list, x)
			}
		}
		list = list.Sort() // without doubles
		v := validated{Name: d.Definition.Name, File: d.File, Errors: len(list.Errors()), Warnings: len(list.Warnings())}
		v.Resources = len(d.Definition.Spec.Resources)
		v.Valid = v.Errors == 0 && d.Program != nil
		if d.Program != nil {
			k := d.Program.Instance
			v.Kind = kindName(k.Kind, k.Version, k.Group)
			for _, p := range d.Program.PendingKinds {
				v.PendingKinds = append(v.PendingKinds, kindName(p.Kind, p.Version, p.Group))
			}
		}
		if v.Valid {
			out.Valid++
		} else {
			out.Invalid++
		}
		out.Definitions = append(out.Definitions, v)
	}
	return out
}

func kindName(kind, version, group string) string {
	return strings.TrimSuffix(kind+"."+version+"."+group, ".")
}

// print writes what was found, and the summary. Both are the result of the command, so they go to the same stream.
func (v *validation) print(out io.Writer) {
	fmt.Fprint(out, v.Diagnostics.String())
	p := newPainter(out)
	width := 0
	for i := range v.Definitions {
		width = max(width, len(v.Definitions[i].Name))
	}
	for i := range v.Definitions {
		d := &v.Definitions[i]
		mark, text := p.paint(green, "✓"), fmt.Sprintf("%s, %s", d.Kind, count(d.Resources, "resource"))
		if !d.Valid {
			mark, text = p.paint(red, "✗"), count(d.Errors, "error")
		}
		if d.Warnings > 0 {
			text += ", " + count(d.Warnings, "warning")
		}
		if len(d.PendingKinds) > 0 {
			text += "; not known yet: " + strings.Join(d.PendingKinds, ", ")
		}
		fmt.Fprintf(out, "%s %-*s  %s\n", mark, width, d.Name, text)
	}
	fmt.Fprintln(out, v.summary())
}

// summary is one sentence: 2 definitions valid, 1 with 3 errors.
func (v *validation) summary() string {
	errors := len(v.Diagnostics.Errors())
	switch {
	case len(v.Definitions) == 0 && errors > 0:
		return count(errors, "error")
	case len(v.Definitions) == 0:
		return "no definitions"
	case errors == 0:
		return count(v.Valid, "definition") + " valid"
	case v.Valid == 0 && v.Invalid == 0:
		return count(errors, "error")
	case v.Valid == 0:
		return fmt.Sprintf("%s with %s", count(v.Invalid, "definition"), count(errors, "error"))
	case v.Invalid == 0:
		return fmt.Sprintf("%s valid, %s elsewhere", count(v.Valid, "definition"), count(errors, "error"))
	}
	return fmt.Sprintf("%s valid, %d with %s", count(v.Valid, "definition"), v.Invalid, count(errors, "error"))
}
