package load

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/config/crd"
	"github.com/libretto-dev/libretto/internal/diag"
)

// rules are what the API server enforces for OperatorDefinitions.
type rules struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

var theRules = sync.OnceValues(func() (*rules, error) {
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(crd.OperatorDefinitions, &v1); err != nil {
		return nil, fmt.Errorf("cannot read the CustomResourceDefinition of OperatorDefinition: %w", err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, fmt.Errorf("cannot convert the schema of OperatorDefinition: %w", err)
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		return nil, fmt.Errorf("cannot use the schema of OperatorDefinition: %w", err)
	}
	schema, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, fmt.Errorf("cannot use the schema of OperatorDefinition: %w", err)
	}
	return &rules{
		structural: structural,
		schema:     schema,
		cel:        cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
})

// check sets the defaults in object and returns what is wrong with it.
func (r *rules) check(object map[string]any) diag.List {
	list := r.unknown(object, "", r.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, r.structural)
	defaulting.Default(object, r.structural)
	faults := validation.ValidateCustomResource(nil, object, r.schema)
	faults = append(faults, listtype.ValidateListSetsAndMaps(nil, r.structural, object)...)
	// The rules are written for values of the right types: with others they only add noise.
	if !slices.ContainsFunc(faults, wrongType) {
		rest, _ := r.cel.Validate(context.Background(), nil, r.structural, object, nil, celconfig.RuntimeCELCostBudget)
		faults = append(faults, rest...)
	}
	for _, f := range faults {
		d := diag.FromField(f)
		if strings.Contains(d.Message, durationPattern) { // the same as compile says
			d.Message, d.Expected = "not a duration", "a duration such as 90s, 1h30m or 30d"
		}
		list.Add(d)
	}
	return list
}

func wrongType(e *field.Error) bool {
	return e.Type == field.ErrorTypeTypeInvalid || e.Type == field.ErrorTypeNotSupported
}

// unknown finds the fields that the schema does not have.
func (r *rules) unknown(value any, path string, s *structuralschema.Structural, root bool) diag.List {
	var list diag.List
	switch value := value.(type) {
	case map[string]any:
		if s.XPreserveUnknownFields || s.AdditionalProperties == nil && len(s.Properties) == 0 && !root && s.Type == "object" && path == "metadata" {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			child := diag.Child(path, name)
			switch prop, known := s.Properties[name]; {
			case root && name == "metadata":
			case known:
				list = append(list, r.unknown(value[name], child, &prop, false)...)
			case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
				list = append(list, r.unknown(value[name], child, s.AdditionalProperties.Structural, false)...)
			case s.AdditionalProperties != nil:
			default:
				list.Add(unknownField(path, name, s))
			}
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		for i, item := range value {
			list = append(list, r.unknown(item, diag.Index(path, i), s.Items, false)...)
		}
	}
	return list
}

// durationPattern is that of v1alpha1.Duration.
const durationPattern = `^([0-9]+(ms|s|m|h|d))+$`

// operationPath is that of an operation.
var operationPath = regexp.MustCompile(`^spec\.operations\[\d+\]$`)

func unknownField(path, name string, s *structuralschema.Structural) diag.Diagnostic {
	known := slices.Sorted(maps.Keys(s.Properties))
	d := diag.Diagnostic{Path: diag.Child(path, name), Message: fmt.Sprintf("the field %q is not known here", name), Hint: diag.DidYouMean(name, known)}
	if d.Hint == "" && len(known) > 0 {
		d.Expected = "one of " + diag.OneOf(known, 12)
	}
	if (name == "on" || name == "true") && operationPath.MatchString(path) {
		d.Hint, d.Expected = "write triggers: YAML reads a key on without quotes as true", ""
	}
	if path == "spec.crd" {
		switch name {
		case "preserveUnknownFields":
			d.Hint = "remove it: false is the only value that the API server takes"
		case "conversion":
			d.Hint = "remove it: there are no conversion webhooks for kinds that Libretto declares"
		}
	}
	return d
}
