package olm

import (
	"encoding/json"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestExamples: what is shown to people is taken by the API server. The schema, its rules in CEL, and no field that is unknown.
func TestExamples(t *testing.T) {
	b := loadBundle(t)
	var examples []map[string]any
	if err := json.Unmarshal([]byte(b.CSV.Annotations["alm-examples"]), &examples); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, e := range examples {
		u := unstructured.Unstructured{Object: e}
		for _, crd := range b.V1CRDs {
			for _, v := range crd.Spec.Versions {
				if crd.Spec.Group+"/"+v.Name == u.GetAPIVersion() && crd.Spec.Names.Kind == u.GetKind() {
					shown[crd.Name+"/"+v.Name] = true
					validate(t, &v, e, u.GetName())
				}
			}
		}
	}
	for _, crd := range b.V1CRDs {
		for _, v := range crd.Spec.Versions {
			if !shown[crd.Name+"/"+v.Name] {
				t.Errorf("%s/%s has no example", crd.Name, v.Name)
			}
		}
	}
}

func validate(t *testing.T, v *apiextensionsv1.CustomResourceDefinitionVersion, object map[string]any, name string) {
	t.Helper()
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := apiservervalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range apiservervalidation.ValidateCustomResource(field.NewPath(name), object, validator) {
		t.Error(e)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	errs, _ := rules.Validate(t.Context(), field.NewPath(name), structural, object, nil, celconfig.RuntimeCELCostBudget)
	for _, e := range errs {
		t.Error(e)
	}
	copied := (&unstructured.Unstructured{Object: object}).DeepCopy().Object
	for _, path := range pruning.PruneWithOptions(copied, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		t.Errorf("%s: the field %s does not exist", name, path)
	}
}
