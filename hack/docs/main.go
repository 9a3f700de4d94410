// Command docs writes docs/reference/definition.md from the CustomResourceDefinition of OperatorDefinition, so that the page
// and what the API server takes are one. It is run by `make generate` in the root of the tree.
package main

import (
	"encoding/json"
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
A duration is text such as ` + "`90s`, `1h30m` or `30d`" + `; the units are ms, s, m, h and d.

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
	p := page{printed: map[string]string{}}
	p.WriteString(header)
	for _, name := range []string{"spec", "status"} {
		part := root.Properties[name]
		p.section(name, &part)
	}
	return os.WriteFile(target, []byte(strings.TrimRight(p.String(), "\n")+"\n"), 0o644)
}

// page is the page that is being written.
type page struct {
	strings.Builder
	// printed are the objects that have a section, by their fields: where the same one comes again, a link leads there.
	printed map[string]string
}

// fields identifies an object by its fields, whatever is said of it as a whole.
func fields(s *apiextensionsv1.JSONSchemaProps) string {
	plain := s.DeepCopy()
	plain.Description, plain.Default = "", nil
	text, err := json.Marshal(plain)
	if err != nil {
		return s.Description
	}
	return string(text)
}

// last are the fields whose sections come behind those of the others: most of what is in them is the same.
var last = map[string]bool{"onRemove": true, "undo": true, "verify": true}

// section prints an object's fields as a table, and then a section for each field that is an object itself.
func (p *page) section(path string, s *apiextensionsv1.JSONSchemaProps) {
	p.printed[fields(s)] = path
	fmt.Fprintf(p, "## `%s`\n\n%s\n\n| field | type | what it is |\n|---|---|---|\n", path, s.Description)
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	var nested, rows []string
	for _, name := range names(s.Properties) {
		field := s.Properties[name]
		label := "`" + name + "`"
		if required[name] {
			label = "**" + label + "**"
		}
		text := cell(about(&field))
		if object := below(&field); object != nil {
			if before := p.printed[fields(object)]; before != "" {
				text += fmt.Sprintf(" Fields: [`%s`](#%s).", before, anchor(before))
			} else {
				nested = append(nested, name)
			}
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", label, typeOf(&field), text))
	}
	p.WriteString(strings.Join(rows, "") + "\n")
	if len(s.XValidations) > 0 {
		p.WriteString("Rules:\n\n")
		for _, rule := range s.XValidations {
			fmt.Fprintf(p, "- %s\n", rule.Message)
		}
		p.WriteString("\n")
	}
	sort.SliceStable(nested, func(i, j int) bool { return !last[nested[i]] && last[nested[j]] })
	for _, name := range nested {
		field := s.Properties[name]
		object := below(&field)
		at := path + "." + name
		if field.Type == "array" {
			at += "[]"
		}
		if before := p.printed[fields(object)]; before != "" {
			fmt.Fprintf(p, "## `%s`\n\n%s Fields: [`%s`](#%s).\n\n", at, object.Description, before, anchor(before))
			continue
		}
		p.section(at, object)
	}
}

// anchor is the anchor of a heading that is a path.
func anchor(path string) string {
	return strings.ToLower(strings.NewReplacer(".", "", "[", "", "]", "").Replace(path))
}

// durations is the pattern of v1alpha1.Duration.
const durations = `^([0-9]+(ms|s|m|h|d))+$`

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
	case s.Pattern == durations:
		return "duration"
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
	if s.Pattern != "" && s.Pattern != durations {
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
