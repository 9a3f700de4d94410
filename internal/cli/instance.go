package cli

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
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
)

// offlineUID is the UID of an instance that is in no cluster.
const offlineUID = "00000000-0000-0000-0000-000000000000"

// readInstance returns the one object of the program's kind in a file, as the API server would keep it: with the defaults,
// validated, in the version that expressions see.
func readInstance(ctx context.Context, p *program.Program, path, namespace string) (map[string]any, diag.List, error) {
	if err := exist(path); err != nil {
		return nil, nil, err
	}
	_, extras, problems := load.Load(path) //nolint:contextcheck // pure: nothing in it waits
	if problems.HasErrors() {
		return nil, problems, nil
	}
	found, err := pickInstance(p, extras, path)
	if err != nil {
		return nil, nil, err
	}
	o := found.Object.DeepCopy()
	if p.Instance.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	if !p.Instance.Namespaced {
		o.SetNamespace("")
	}
	list := admit(ctx, p, o)
	for i := range list {
		list[i].File = found.File
		if list[i].Line == 0 {
			list[i].Line = found.Line
		}
	}
	o.SetAPIVersion(p.Instance.GroupVersion().String())
	if o.GetUID() == "" {
		o.SetUID(offlineUID)
	}
	return o.Object, append(problems, list...), nil
}

// pickInstance finds the one object of the kind, in any version.
func pickInstance(p *program.Program, extras []load.Extra, path string) (*load.Extra, error) {
	var found []*load.Extra
	var kinds []string
	for i := range extras {
		gvk := extras[i].Object.GroupVersionKind()
		kinds = append(kinds, extras[i].Object.GetAPIVersion()+" "+gvk.Kind)
		if gvk.Group == p.Instance.Group && gvk.Kind == p.Instance.Kind {
			found = append(found, &extras[i])
		}
	}
	want := p.Instance.GroupVersion().String() + " " + p.Instance.Kind
	switch {
	case len(found) == 0 && len(kinds) == 0:
		return nil, fmt.Errorf("%s holds no object; an instance has the kind %s", path, want)
	case len(found) == 0:
		return nil, fmt.Errorf("%s holds no instance of the definition (%s), but %s", path, want, strings.Join(kinds, ", "))
	case len(found) > 1:
		return nil, usagef("%s holds %d objects of the kind %s: give a file with one", path, len(found), p.Instance.Kind)
	}
	return found[0], nil
}

// admit does to an instance what the API server would do: defaults, unknown fields, schema and CEL rules. A kind that is not
// declared by the definition is taken as it is.
func admit(ctx context.Context, p *program.Program, o *unstructured.Unstructured) diag.List {
	var list diag.List
	if o.GetName() == "" {
		list.Errorf("metadata.name", "an instance needs a name")
	}
	if p.CRD == nil {
		return list
	}
	version := o.GroupVersionKind().Version
	props, err := schemaOf(p.CRD, version)
	if err != nil {
		list.Errorf("apiVersion", "%s", err)
		return list
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		list.Errorf("", "the schema of the kind cannot be used: %s", err)
		return list
	}
	normalize(o)
	for _, path := range pruning.PruneWithOptions(o.Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		list.Errorf(diag.Normalize(path), "the kind %s has no such field", p.Instance.Kind)
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
			errs, _ = v.Validate(ctx, nil, structural, o.Object, nil, celconfig.RuntimeCELCostBudget)
		}
	}
	for _, e := range errs {
		list.Add(diag.FromField(e))
	}
	return list
}

// normalize gives numbers the types that the API server gives them.
func normalize(o *unstructured.Unstructured) {
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
