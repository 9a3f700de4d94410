package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/config/crd"
)

func newSchema() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of definitions, for editors",
		Long: `Print the JSON Schema (draft 7) of an OperatorDefinition. Editors complete and check definitions with it.

With the YAML language server (VS Code, Neovim, Emacs, JetBrains), put this at the top of a definition:

  # yaml-language-server: $schema=./libretto.schema.json`,
		Example: "  libretto schema > libretto.schema.json",
		Args:    cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			s, err := documentSchema()
			if err != nil {
				return err
			}
			return printValue(cmd.OutOrStdout(), output, s)
		}),
	}
	outputFlag(cmd, &output, formatJSON, formatYAML)
	return cmd
}

// documentSchema turns the schema of the CustomResourceDefinition into one that editors know.
func documentSchema() (map[string]any, error) {
	var doc struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(crd.OperatorDefinitions, &doc); err != nil || len(doc.Spec.Versions) == 0 {
		return nil, fmt.Errorf("cannot read the CustomResourceDefinition that is built in: %w", err)
	}
	version := doc.Spec.Versions[0]
	s := version.Schema.OpenAPIV3Schema
	toJSONSchema(s)
	s["$schema"] = "http://json-schema.org/draft-07/schema#"
	s["title"] = "OperatorDefinition"
	s["required"] = []any{"apiVersion", "kind", "metadata", "spec"}
	properties, _ := s["properties"].(map[string]any)
	delete(properties, "status")
	properties["apiVersion"] = map[string]any{"const": "libretto.dev/" + version.Name}
	properties["kind"] = map[string]any{"const": "OperatorDefinition"}
	properties["metadata"] = map[string]any{
		"type": "object", "required": []any{"name"},
		"properties": map[string]any{"name": map[string]any{"type": "string", "description": "name is the name of the definition, by custom PLURAL.GROUP."}},
	}
	return s, nil
}

// toJSONSchema replaces, in place, what Kubernetes adds to OpenAPI: unknown fields are errors unless the schema keeps them.
func toJSONSchema(s map[string]any) {
	keep := s["x-kubernetes-preserve-unknown-fields"] == true
	if s["x-kubernetes-int-or-string"] == true {
		delete(s, "type")
		s["anyOf"] = []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
	}
	for key := range s {
		if strings.HasPrefix(key, "x-kubernetes-") {
			delete(s, key)
		}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, p := range properties {
			if m, ok := p.(map[string]any); ok {
				toJSONSchema(m)
			}
		}
		if !keep && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if m, ok := s[key].(map[string]any); ok {
			toJSONSchema(m)
		}
	}
}
