package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/libretto-dev/libretto/internal/diag"
)

// Admit does to an object of a custom kind what the API server would do: defaults, unknown fields, schema and CEL rules; those
// about changes too, if old is given.
func Admit(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, o, old *unstructured.Unstructured) diag.List {
	var list diag.List
	props, err := schemaOf(crd, o.GroupVersionKind().Version)
	if err != nil {
		list.Errorf("apiVersion", "%s", err)
		return list
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		list.Errorf("", "the schema of the kind cannot be used: %s", err)
		return list
	}
	Normalize(o)
	for _, path := range pruning.PruneWithOptions(o.Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		list.Errorf(diag.Normalize(path), "the kind %s has no such field", crd.Spec.Names.Kind)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(o.Object, structural)
	defaulting.Default(o.Object, structural)
	validator, _, err := apiservervalidation.NewSchemaValidator(props)
	if err != nil {
		list.Errorf("", "the schema of the kind cannot be used: %s", err)
		return list
	}
	errs := apiservervalidation.ValidateCustomResource(nil, o.Object, validator)
	if len(errs) == 0 {
		if v := cel.NewValidator(structural, true, celconfig.PerCallLimit); v != nil {
			var before any
			if old != nil {
				before = old.Object
			}
			errs, _ = v.Validate(ctx, nil, structural, o.Object, before, celconfig.RuntimeCELCostBudget)
		}
	}
	for _, e := range errs {
		list.Add(diag.FromField(e))
	}
	return list
}

// Normalize gives numbers the types that the API server gives them.
func Normalize(o *unstructured.Unstructured) {
	data, err := o.MarshalJSON()
	if err != nil {
		return // not an object: the schema tells
	}
	var again unstructured.Unstructured
	if again.UnmarshalJSON(data) == nil {
		o.Object = again.Object
	}
}

func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version string) (*apiextensions.JSONSchemaProps, error) {
	var served []string
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != version {
			if v.Served {
				served = append(served, v.Name)
			}
			continue
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return nil, errors.New("the version has no schema")
		}
		out := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, out, nil); err != nil {
			return nil, fmt.Errorf("cannot read the schema: %w", err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("the kind has no version %s; it has %s", version, strings.Join(served, ", "))
}
