package crd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/config/crd"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// definitions returns the client of OperatorDefinitions of the cluster under test, with the CRD as it is generated.
func definitions(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	cfg := testkit.Config(t)
	c := testkit.NewClient(t, cfg)
	c.Apply(t, "", string(crd.OperatorDefinitions)+"\n---\n"+string(crd.OperatorRevisions))
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := dyn.Resource(v1alpha1.GroupVersion.WithResource(resource))
	testkit.Eventually(t, 20*time.Second, "the API server serves "+resource, func() error {
		_, err := out.List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
	return out
}

// object returns an object with the spec, in YAML; the text has %s where a name is.
func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("spec: "+spec), &u.Object); err != nil {
		t.Fatalf("cannot parse %s: %v", spec, err)
	}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(kind)
	u.SetName(testkit.Unique("rules"))
	return u
}

// create creates an object in a dry run: nothing is stored, all rules are applied.
func create(ctx context.Context, ri dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	_, err := ri.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

const (
	crdPart    = `crd: {group: example.com, names: {kind: Web}, versions: [{name: v1}]}`
	targetPart = `target: {apiVersion: v1, kind: Namespace}`
)

func TestRulesOfOperatorDefinition(t *testing.T) {
	ri := definitions(t, "operatordefinitions")
	cases := []struct {
		name, good, bad, want string
	}{
		{
			"crd or target", `{` + crdPart + `}`, `{` + crdPart + `, ` + targetPart + `}`,
			"exactly one of spec.crd (a kind of your own) and spec.target (an existing kind) must be set",
		},
		{"neither crd nor target", `{` + targetPart + `}`, `{variables: []}`, "exactly one of spec.crd"},
		{
			"status of a target", `{target: {apiVersion: v1, kind: Namespace, manage: [Status]}, status: {fields: {url: x}}}`,
			`{target: {apiVersion: v1, kind: Namespace, manage: [Finalizer]}, status: {fields: {url: x}}}`,
			"spec.status needs target.manage to contain Status",
		},
		{
			"storage version", `{crd: {group: example.com, names: {kind: Web}, versions: [{name: v1, storage: true}, {name: v2}]}}`,
			`{crd: {group: example.com, names: {kind: Web}, versions: [{name: v1}, {name: v2}]}}`, "exactly one of several versions must have storage: true",
		},
		{
			"group", `{` + crdPart + `}`, `{crd: {group: apps.k8s.io, names: {kind: Web}, versions: [{name: v1}]}}`, "group must be a domain of your own",
		},
		{"group without dot", `{` + crdPart + `}`, `{crd: {group: example, names: {kind: Web}, versions: [{name: v1}]}}`, "group must be a domain of your own"},
		{
			"namespaces", `{` + crdPart + `, namespaces: {names: [a]}}`, `{` + crdPart + `, namespaces: {names: [a], selector: {}}}`,
			"exactly one of namespaces.names and namespaces.selector must be set",
		},
		{
			"name", `{` + crdPart + `, variables: [{name: port, value: "1"}]}`, `{` + crdPart + `, variables: [{name: self, value: "1"}]}`,
			"the name is a word of the expression language",
		},
		{
			"external", `{` + crdPart + `, external: [{name: a, apiVersion: v1, kind: Secret, ref: {name: x}}]}`,
			`{` + crdPart + `, external: [{name: a, apiVersion: v1, kind: Secret}]}`, "exactly one of ref (one object) and selector",
		},
		{
			"resource", `{` + crdPart + `, resources: [{name: a, template: {kind: X}}]}`, `{` + crdPart + `, resources: [{name: a}]}`,
			"exactly one of template and kustomization must be set",
		},
		{
			"createOnce", `{` + crdPart + `, resources: [{name: a, template: {kind: X}, createOnce: true}]}`,
			`{` + crdPart + `, resources: [{name: a, template: {kind: X}, createOnce: true, updatePolicy: Recreate}]}`,
			"updatePolicy has no effect on a resource with createOnce",
		},
		{
			"kustomization", `{` + crdPart + `, resources: [{name: a, kustomization: {files: {kustomization.yaml: x}}}]}`,
			`{` + crdPart + `, resources: [{name: a, kustomization: {path: x, files: {kustomization.yaml: x}}}]}`, "exactly one of path",
		},
		{
			"condition", `{` + crdPart + `, status: {conditions: [{type: Serving, status: "true"}]}}`,
			`{` + crdPart + `, status: {conditions: [{type: Ready, status: "true"}]}}`, "Ready, Reconciling and Stalled are written by Libretto",
		},
		{
			"unknown field", `{` + crdPart + `}`, `{` + crdPart + `, resource: []}`, `unknown field "spec.resource"`,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if err := create(t.Context(), ri, object(t, "OperatorDefinition", tc.good)); err != nil {
				t.Errorf("good one: %v", err)
			}
			expect(t, create(t.Context(), ri, object(t, "OperatorDefinition", tc.bad)), tc.want)
		})
	}
}

func TestRulesOfAChange(t *testing.T) {
	ri := definitions(t, "operatordefinitions")
	cases := []struct {
		name, from, to, want string
	}{
		{"kind", `{` + crdPart + `}`, `{crd: {group: example.com, names: {kind: Site}, versions: [{name: v1}]}}`, "spec.crd.group and spec.crd.names.kind cannot change"},
		{"group", `{` + crdPart + `}`, `{crd: {group: example.org, names: {kind: Web}, versions: [{name: v1}]}}`, "spec.crd.group and spec.crd.names.kind cannot change"},
		{"plural", `{` + crdPart + `}`, `{crd: {group: example.com, names: {kind: Web, plural: webses}, versions: [{name: v1}]}}`, "spec.crd.names.plural and spec.crd.scope cannot change"},
		{"plural as it is by default", `{` + crdPart + `}`, `{crd: {group: example.com, names: {kind: Web, plural: webs}, versions: [{name: v1}]}}`, ""},
		{"scope", `{` + crdPart + `}`, `{crd: {group: example.com, scope: Cluster, names: {kind: Web}, versions: [{name: v1}]}}`, "spec.crd.names.plural and spec.crd.scope cannot change"},
		{"crd to target", `{` + crdPart + `}`, `{` + targetPart + `}`, "a definition cannot change between spec.crd and spec.target"},
		{"version added", `{` + crdPart + `}`, `{crd: {group: example.com, names: {kind: Web}, versions: [{name: v1, storage: true}, {name: v2}]}}`, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			u, err := ri.Create(t.Context(), object(t, "OperatorDefinition", tc.from), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ri.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}) })
			u.Object["spec"] = object(t, "OperatorDefinition", tc.to).Object["spec"]
			_, err = ri.Update(t.Context(), u, metav1.UpdateOptions{})
			expect(t, err, tc.want)
		})
	}
}

func TestRevisionsAreImmutable(t *testing.T) {
	ri := definitions(t, "operatorrevisions")
	u, err := ri.Create(t.Context(), object(t, "OperatorRevision", `{definition: a, revision: 1, snapshot: "{}"}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ri.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}) })
	if err := unstructured.SetNestedField(u.Object, `{"a":1}`, "spec", "snapshot"); err != nil {
		t.Fatal(err)
	}
	_, err = ri.Update(t.Context(), u, metav1.UpdateOptions{})
	expect(t, err, "a revision cannot be changed")
}

// expect checks that an error is one of a rule and has the text; an empty text wants none.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "":
		if err != nil {
			t.Error(err)
		}
	case err == nil:
		t.Errorf("let through, want %q", want)
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err), !strings.Contains(err.Error(), want):
		t.Error(fmt.Errorf("want %q: %w", want, err))
	}
}
