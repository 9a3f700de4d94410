package crd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/crd"
)

// declare returns a CustomResourceDefinition with one version v1 whose spec has the properties.
func declare(t *testing.T, spec string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(spec), props); err != nil {
		t.Fatal(err)
	}
	return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Scope: apiextensionsv1.NamespaceScoped,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": *props},
			}},
		}},
	}}
}

func TestBreaking(t *testing.T) {
	cases := map[string]struct {
		reason    string
		old, next string
		want      []string
	}{
		"same": {
			reason: "nothing changes",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object, properties: {a: {type: string}}}`,
		},
		"field added": {
			reason: "stored objects do not have it",
			old:    `{type: object}`, next: `{type: object, properties: {a: {type: string, maxLength: 3}}}`,
		},
		"field removed": {
			reason: "its values would be lost",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object}`,
			want: []string{"FieldRemoved: v1 spec.a: removes the field"},
		},
		"field removed from an open object": {
			reason: "its values are kept",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object, x-kubernetes-preserve-unknown-fields: true}`,
		},
		"object closed": {
			reason: "what is not declared would be lost",
			old:    `{type: object, x-kubernetes-preserve-unknown-fields: true}`, next: `{type: object}`,
			want: []string{"FieldRemoved: v1 spec: no longer preserves unknown fields"},
		},
		"type changed": {
			reason: "stored values are of the old type",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object, properties: {a: {type: integer}}}`,
			want: []string{"TypeChanged: v1 spec.a: changes the type from string to integer"},
		},
		"type widened": {
			reason: "every integer is a number",
			old:    `{type: object, properties: {a: {type: integer}}}`, next: `{type: object, properties: {a: {type: number}}}`,
		},
		"required added": {
			reason: "stored objects need not have it",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object, required: [a], properties: {a: {type: string}}}`,
			want: []string{"RequiredAdded: v1 spec.a: requires the field, and there is no default"},
		},
		"required added with default": {
			reason: "the API server fills it in",
			old:    `{type: object, properties: {a: {type: string}}}`, next: `{type: object, required: [a], properties: {a: {type: string, default: x}}}`,
		},
		"limits": {
			reason: "narrower is breaking, wider is not",
			old:    `{type: object, properties: {a: {type: integer, minimum: 1, maximum: 9}, b: {type: string, maxLength: 5}}}`,
			next:   `{type: object, properties: {a: {type: integer, minimum: 0, maximum: 8}, b: {type: string, maxLength: 6, minLength: 1}}}`,
			want: []string{
				"ValidationTightened: v1 spec.a: changes maximum from 9 to 8",
				"ValidationTightened: v1 spec.b: adds minLength 1",
			},
		},
		"values": {
			reason: "stored values may be the ones that go",
			old:    `{type: object, properties: {a: {type: string, enum: [x, "y"]}, b: {type: string, nullable: true}, c: {type: array, items: {type: string}}}}`,
			next:   `{type: object, properties: {a: {type: string, enum: [x, z]}, b: {type: string, pattern: "^a$"}, c: {type: array, x-kubernetes-list-type: set, items: {type: string, format: date}}}}`,
			want: []string{
				`ValidationTightened: v1 spec.a: takes "y" out of the enum`,
				"ValidationTightened: v1 spec.b: changes the pattern to ^a$",
				"ValidationTightened: v1 spec.b: no longer takes null",
				"ValidationTightened: v1 spec.c: changes the list type to set, which takes no item twice",
				"ValidationTightened: v1 spec.c[]: changes the format to date",
			},
		},
		"rule": {
			reason: "stored objects need not obey it",
			old:    `{type: object}`, next: `{type: object, x-kubernetes-validations: [{rule: "has(self.a)"}]}`,
			want: []string{"ValidationTightened: v1 spec: adds the rule has(self.a)"},
		},
		"map values": {
			reason: "the values of a map have a schema too",
			old:    `{type: object, additionalProperties: {type: string}}`, next: `{type: object, additionalProperties: {type: string, maxLength: 2}}`,
			want: []string{"ValidationTightened: v1 spec[*]: adds maxLength 2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range crd.Breaking(declare(t, tc.old), declare(t, tc.next)) {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBreakingVersions(t *testing.T) {
	old := declare(t, `{type: object}`)
	next := old.DeepCopy()
	next.Spec.Versions[0].Name = "v2"
	got := crd.Breaking(old, next)
	if len(got) != 1 || got[0].Rule != crd.RuleVersionRemoved {
		t.Errorf("a stored version that goes: %v", got)
	}
	old.Spec.Versions = append(old.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v0"})
	old.Status.StoredVersions = []string{"v1"}
	next.Spec.Versions = old.DeepCopy().Spec.Versions[:1]
	if got := crd.Breaking(old, next); len(got) != 0 {
		t.Errorf("a version that is neither served nor stored goes: %v", got)
	}
	next.Spec.Scope = apiextensionsv1.ClusterScoped
	if got := crd.Breaking(old, next); len(got) != 1 || got[0].Rule != crd.RuleScopeChanged {
		t.Errorf("scope: %v", got)
	}
}
