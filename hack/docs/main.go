// Command docs writes docs/reference/definition.md from the CustomResourceDefinition of OperatorDefinition, so that the page
// and what the API server takes are one. It is run by `make generate` in the root of the tree.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/config/crd"
)

const (
	target = "docs/reference/definition.md"
	header = `<!-- Made by "make generate" from the comments in api/v1alpha1. Do not edit. -->

# OperatorDefinition: every field

` + "`apiVersion: libretto.dev/v1alpha1`, `kind: OperatorDefinition`, cluster-scoped, short name `opdef`" + `.

Strings that may contain ` + "`${…}`" + ` and expressions are described in [expressions.md](expressions.md). Fields in **bold** are required.

`
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write() error {
	var def apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(crd.OperatorDefinitions, &def); err != nil {
		return fmt.Errorf("cannot read the CustomResourceDefinition: %w", err)
	}
	root := def.Spec.Versions[0].Schema.OpenAPIV3Schema
	var out strings.Builder
	out.WriteString(header)
	for _, name := range []string{"spec", "status"} {
		part := root.Properties[name]
		section(&out, name, &part)
	}
	return os.WriteFile(target, []byte(strings.TrimRight(out.String(), "\n")+"\n"), 0o644)
}

// section prints an object's fields as a table, and then a section for each field that is an object itself.
func section(out *strings.Builder, path string, s *apiextensionsv1.JSONSchemaProps) {
	fmt.Fprintf(out, "## `%s`\n\n%s\n\n| field | type | what it is |\n|---|---|---|\n", path, s.Description)
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	var nested []string
	for _, name := range names(s.Properties) {
		field := s.Properties[name]
		label := "`" + name + "`"
		if required[name] {
			label = "**" + label + "**"
		}
		if below(&field) != nil {
			nested = append(nested, name)
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", label, typeOf(&field), cell(about(&field)))
	}
	out.WriteString("\n")
	if len(s.XValidations) > 0 {
		out.WriteString("Rules:\n\n")
		for _, rule := range s.XValidations {
			fmt.Fprintf(out, "- %s\n", rule.Message)
		}
		out.WriteString("\n")
	}
	for _, name := range nested {
		field := s.Properties[name]
		suffix := ""
		if field.Type == "array" {
			suffix = "[]"
		}
		section(out, path+"."+name+suffix, below(&field))
	}
}

// below returns the object that a field is, or is a list of; nil if it is none or has no fields of its own.
func below(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.Type == "array" && s.Items != nil {
		s = s.Items.Schema
	}
	if s == nil || len(s.Properties) == 0 {
		return nil
	}
	return s
}

func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.Type == "array" && s.Items != nil:
		return "list of " + typeOf(s.Items.Schema)
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(s.AdditionalProperties.Schema)
	case len(s.Enum) > 0:
		var words []string
		for _, v := range s.Enum {
			words = append(words, "`"+strings.Trim(string(v.Raw), `"`)+"`")
		}
		return strings.Join(words, ", ")
	case s.Type == "":
		return "anything"
	default:
		return s.Type
	}
}

// about is the description with what the schema says about values.
func about(s *apiextensionsv1.JSONSchemaProps) string {
	text := s.Description
	add := func(format string, args ...any) { text += " " + fmt.Sprintf(format, args...) }
	if s.Default != nil && !strings.Contains(text, "efault") {
		add("Default `%s`.", strings.Trim(string(s.Default.Raw), `"`))
	}
	if s.Minimum != nil && s.Maximum != nil {
		add("From %v to %v.", *s.Minimum, *s.Maximum)
	}
	if s.MaxItems != nil {
		add("At most %d.", *s.MaxItems)
	}
	if s.Pattern != "" {
		add("Must match `%s`.", strings.ReplaceAll(s.Pattern, "|", `\|`))
	}
	for _, rule := range s.XValidations {
		if len(s.Properties) == 0 {
			add("Rule: %s.", rule.Message)
		}
	}
	return text
}

func cell(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", " ")), " ")
}

func names(m map[string]apiextensionsv1.JSONSchemaProps) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
