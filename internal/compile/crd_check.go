package compile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/schema"
)

// finishCRD checks the CustomResourceDefinition as the API server does.
func (c *compiler) finishCRD() {
	crd := c.program.CRD
	if crd == nil {
		return
	}
	checked := crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(checked)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&checked.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(checked, internal, nil); err != nil {
		c.errorf("spec.crd", "cannot read it as a CustomResourceDefinition: %s", err)
		return
	}
	faults := crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal)
	badNames := slices.ContainsFunc(faults, func(f *field.Error) bool {
		return strings.HasPrefix(f.Field, "spec.names.") || f.Field == "spec.group"
	})
	for _, fault := range faults {
		if badNames && fault.Field == "metadata.name" || strings.Contains(fault.Detail, "api-approved.kubernetes.io") {
			continue // follows from the names, or from the group, which has a rule of its own
		}
		d := diag.FromField(fault)
		path, ours := c.crdPath(d.Path, crd)
		if ours {
			continue
		}
		d.Path = path
		if d.Hint == "" {
			d.Hint = schemaHint(d.Message)
		}
		c.add(d)
	}
}

// crdPath translates a path in a CustomResourceDefinition to one in the definition. ours: the fault follows from another
// one that has its own message.
func (c *compiler) crdPath(path string, crd *apiextensionsv1.CustomResourceDefinition) (translated string, ours bool) {
	if path == "status.storedVersions" || strings.HasPrefix(path, "status.") {
		return "", true
	}
	if path == "metadata.name" {
		return "spec.crd.names.plural", false
	}
	steps := diag.Split(path)
	if len(steps) < 2 || steps[0].Name != "spec" {
		return "spec.crd", false
	}
	rest := steps[1:]
	// What all versions have in common stands above them in the form that is validated.
	if rest[0].Name == "validation" {
		rest[0].Name = "schema"
		rest = append([]diag.Step{{Name: "versions"}, {Index: 0, IsIndex: true}}, rest...)
	} else if slices.Contains([]string{"subresources", "additionalPrinterColumns", "selectableFields"}, rest[0].Name) {
		rest = append([]diag.Step{{Name: "versions"}, {Index: 0, IsIndex: true}}, rest...)
	}
	return diag.Join(append([]diag.Step{{Name: "spec"}, {Name: "crd"}}, rest...)), false
}

func schemaHint(message string) string {
	switch {
	case strings.Contains(message, "must not be empty for specified object fields"), strings.Contains(message, "must not be empty for specified array items"):
		return "every field of a schema needs a type; a field of any content is type: object with x-kubernetes-preserve-unknown-fields: true"
	case strings.Contains(message, "estimated rule cost"), strings.Contains(message, "exceeds budget"):
		return "set maxItems, maxProperties and maxLength on what the rule reads"
	case strings.Contains(message, "spec.names.plural+"):
		return "plural and group make the name of the CustomResourceDefinition"
	}
	return ""
}

// words are the keywords of a schema, and which of them hold schemas.
type words struct {
	known []string
}

var schemaKeywords = sync.OnceValue(func() *words {
	kind, err := schema.Embedded().Kind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err != nil {
		return &words{}
	}
	s := kind.Schema
	for _, field := range []string{"spec", "versions", "", "schema", "openAPIV3Schema"} {
		if field == "" {
			s = s.Items()
			continue
		}
		s, _ = s.Field(field)
	}
	return &words{known: s.Fields()}
})

// schemaWords finds keywords that OpenAPI does not have, and keywords that make no sense with the type.
func (c *compiler) schemaWords(value any, path string) {
	object, ok := value.(map[string]any)
	if !ok {
		if _, isBool := value.(bool); !isBool {
			c.add(diag.Diagnostic{Path: path, Message: "the value has the wrong type", Expected: "a schema (an object)"})
		}
		return
	}
	known := schemaKeywords().known
	for _, word := range slices.Sorted(maps.Keys(object)) {
		at := diag.Child(path, word)
		if len(known) > 0 && !slices.Contains(known, word) {
			d := diag.Diagnostic{Path: at, Message: fmt.Sprintf("%q is not a word of a schema", word), Hint: diag.DidYouMean(word, known)}
			if d.Hint == "" && path != "" {
				d.Hint = "fields of the object stand below properties"
			}
			c.add(d)
			continue
		}
		switch word {
		case "properties":
			fields, _ := object[word].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				c.schemaWords(fields[name], diag.Child(at, name))
			}
		case "items", "additionalProperties", "not":
			c.schemaWords(object[word], at)
		case "allOf", "anyOf", "oneOf":
			list, _ := object[word].([]any)
			for i, item := range list {
				c.schemaWords(item, diag.Index(at, i))
			}
		}
	}
	c.boundsForType(object, path)
}

// boundsForType finds bounds that belong to another type: the API server accepts and ignores them.
func (c *compiler) boundsForType(object map[string]any, path string) {
	typ, _ := object["type"].(string)
	belongs := map[string][]string{
		"minimum": {"integer", "number"}, "maximum": {"integer", "number"}, "multipleOf": {"integer", "number"},
		"minLength": {"string"}, "maxLength": {"string"}, "pattern": {"string"},
		"minItems": {"array"}, "maxItems": {"array"}, "uniqueItems": {"array"}, "items": {"array"},
		"minProperties": {"object"}, "maxProperties": {"object"}, "properties": {"object"}, "required": {"object"},
	}
	instead := map[string]map[string]string{
		"string": {"minimum": "minLength", "maximum": "maxLength", "minItems": "minLength", "maxItems": "maxLength"},
		"array":  {"minimum": "minItems", "maximum": "maxItems", "minLength": "minItems", "maxLength": "maxItems"},
		"object": {"minItems": "minProperties", "maxItems": "maxProperties"},
	}
	if typ == "" {
		return
	}
	for _, word := range slices.Sorted(maps.Keys(object)) {
		types, bound := belongs[word]
		if !bound || slices.Contains(types, typ) {
			continue
		}
		d := diag.Diagnostic{Path: diag.Child(path, word), Message: fmt.Sprintf("%s has no effect on a value of type %s", word, typ),
			Expected: "type " + strings.Join(types, " or "), Found: "type " + typ}
		if better := instead[typ][word]; better != "" {
			d.Hint = fmt.Sprintf("%s limits what a %s holds", better, typ)
			if typ == "string" {
				d.Hint = fmt.Sprintf("%s limits the length of a string", better)
			}
		}
		c.add(d)
	}
}
