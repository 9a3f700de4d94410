package olm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/yaml"
)

// releasedDir has the CRDs and examples of each release, put there by hack/release-bundle.sh.
const releasedDir = "testdata/released"

// TestUpgradesOfKinds holds the kinds of this bundle against those of every release: what OLM refuses in the cluster of a user is
// found here.
func TestUpgradesOfKinds(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(releasedDir, "v*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var examples []map[string]any
		if err := json.Unmarshal(read(t, filepath.Join(dir, "examples.json")), &examples); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var old apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(read(t, file), &old); err != nil {
				t.Fatal(err)
			}
			var now *apiextensionsv1.CustomResourceDefinition
			for _, crd := range loadBundle(t).V1CRDs {
				if crd.Name == old.Name {
					now = crd
				}
			}
			if now == nil {
				t.Errorf("%s: %s has gone from the bundle, and OLM never removes a kind", dir, old.Name)
				continue
			}
			for _, finding := range append(olmV0(t, &old, now, examples), olmV1(t, &old, now)...) {
				t.Errorf("%s: %s", dir, finding)
			}
		}
	}
	if len(dirs) == 0 {
		t.Log("nothing was released yet")
	}
}

// olmV0 is what OLM v0 does before it replaces a kind: every stored version must still be there, and every object must be valid by
// the new schema of its version, without rules in CEL and without new defaults.
func olmV0(t *testing.T, old, now *apiextensionsv1.CustomResourceDefinition, objects []map[string]any) []string {
	t.Helper()
	var findings []string
	for _, v := range old.Spec.Versions {
		i := slices.IndexFunc(now.Spec.Versions, func(n apiextensionsv1.CustomResourceDefinitionVersion) bool { return n.Name == v.Name })
		if i < 0 {
			if v.Storage {
				findings = append(findings, fmt.Sprintf("%s: the stored version %s has gone: risk of data loss", old.Name, v.Name))
			}
			continue
		}
		var internal apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(now.Spec.Versions[i].Schema, &internal, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := apiservervalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			u := unstructured.Unstructured{Object: o}
			if u.GetAPIVersion() != old.Spec.Group+"/"+v.Name || u.GetKind() != old.Spec.Names.Kind {
				continue
			}
			for _, e := range apiservervalidation.ValidateCustomResource(field.NewPath(u.GetName()), o, validator) {
				findings = append(findings, fmt.Sprintf("%s: the updated validation is too restrictive: %v", old.Name, e))
			}
		}
	}
	return findings
}

// olmV1 is the check of operator-controller, by the same code.
func olmV1(t *testing.T, old, now *apiextensionsv1.CustomResourceDefinition) []string {
	t.Helper()
	r, err := runner.New(&config.Config{
		Validations: []config.ValidationConfig{{Name: "description", Enforcement: config.EnforcementPolicyNone}},
	}, runner.DefaultRegistry())
	if err != nil {
		t.Fatal(err)
	}
	results := r.Run(old, now)
	if !results.HasFailures() {
		return nil
	}
	text, err := results.Render(runner.FormatPlainText)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

// TestUpgradesAreJudged: the checks find what they are for.
func TestUpgradesAreJudged(t *testing.T) {
	crd := func(version, properties string) *apiextensionsv1.CustomResourceDefinition {
		c := &apiextensionsv1.CustomResourceDefinition{}
		text := fmt.Sprintf(`
metadata: {name: notes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Note, plural: notes}
  versions: [{name: %s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: %s}}}}}]
status: {storedVersions: [v1]}
`, version, properties)
		if err := yaml.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	objects := []map[string]any{{"apiVersion": "example.com/v1", "kind": "Note", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"text": "a long text"}}}
	old := crd("v1", "{text: {type: string}}")
	for name, c := range map[string]struct {
		now    *apiextensionsv1.CustomResourceDefinition
		v0, v1 bool // refused
	}{
		"the same":                  {now: old},
		"a field more":              {now: crd("v1", "{text: {type: string}, more: {type: string}}")},
		"a bound that exists break": {now: crd("v1", "{text: {type: string, maxLength: 3}}"), v0: true, v1: true},
		"a field less":              {now: crd("v1", "{}"), v1: true},
		"another type":              {now: crd("v1", "{text: {type: integer}}"), v0: true, v1: true},
		"another version":           {now: crd("v2", "{text: {type: string}}"), v0: true, v1: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := olmV0(t, old, c.now, objects); (len(got) > 0) != c.v0 {
				t.Errorf("OLM v0: %v", got)
			}
			if got := olmV1(t, old, c.now); (len(got) > 0) != c.v1 {
				t.Errorf("OLM v1: %v", got)
			}
		})
	}
}
