package schema

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

func gvk(group, version, kind string) runtimeschema.GroupVersionKind {
	return runtimeschema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

func at(t *testing.T, s *Schema, path ...string) *Schema {
	t.Helper()
	for _, step := range path {
		if step == "[]" {
			s = s.Items()
			continue
		}
		f, ok := s.Field(step)
		if !ok {
			t.Fatalf("no field %s in %s", step, s.Describe())
		}
		s = f
	}
	return s
}

func TestEmbedded(t *testing.T) {
	c := Embedded()
	for _, k := range []struct {
		gvk        runtimeschema.GroupVersionKind
		resource   string
		namespaced bool
		status     bool
	}{
		{gvk("apps", "v1", "Deployment"), "deployments", true, true},
		{gvk("", "v1", "ConfigMap"), "configmaps", true, false},
		{gvk("", "v1", "Namespace"), "namespaces", false, true},
		{gvk("", "v1", "Pod"), "pods", true, true},
		{gvk("networking.k8s.io", "v1", "Ingress"), "ingresses", true, true},
		{gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"), "clusterroles", false, false},
		{gvk("batch", "v1", "CronJob"), "cronjobs", true, true},
		{gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "customresourcedefinitions", false, true},
		{gvk("autoscaling", "v2", "HorizontalPodAutoscaler"), "horizontalpodautoscalers", true, true},
	} {
		got, err := c.Kind(k.gvk)
		if err != nil {
			t.Error(err)
			continue
		}
		if got.Resource != k.resource || got.Namespaced != k.namespaced || got.HasStatus != k.status || got.Schema == nil {
			t.Errorf("%s: %+v", k.gvk, got)
		}
	}
	if _, err := c.Kind(gvk("apps", "v1", "Deploymnt")); !errors.Is(err, ErrUnknownKind) {
		t.Error(err)
	}
	for _, k := range c.(Lister).Kinds() {
		kind, err := c.Kind(k)
		if err != nil || kind.Schema.Type() != Object {
			t.Errorf("%s: %v", k, err)
		}
		walk(t, kind.Schema, map[*Schema]bool{})
	}
}

// walk follows every reference.
func walk(t *testing.T, s *Schema, seen map[*Schema]bool) {
	if s == nil || seen[s.Resolved()] {
		return
	}
	if s.Resolved() == nil {
		t.Errorf("a reference to %s leads nowhere", s.ref.name)
		return
	}
	seen[s.Resolved()] = true
	for _, name := range s.Fields() {
		f, _ := s.Field(name)
		walk(t, f, seen)
	}
	walk(t, s.Items(), seen)
	walk(t, s.Additional(), seen)
}

func TestSchema(t *testing.T) {
	deployment, _ := Embedded().Kind(gvk("apps", "v1", "Deployment"))
	pod := at(t, deployment.Schema, "spec", "template", "spec")
	container := at(t, pod, "containers", "[]")
	secret, _ := Embedded().Kind(gvk("", "v1", "Secret"))
	service, _ := Embedded().Kind(gvk("", "v1", "Service"))
	for name, c := range map[string]struct{ got, want any }{
		"replicas":     {at(t, deployment.Schema, "spec", "replicas").Type(), Integer},
		"required":     {at(t, deployment.Schema, "spec").Required(), []string{"selector", "template"}},
		"name":         {pod.Name(), "PodSpec"},
		"limits":       {at(t, container, "resources", "limits").Additional().Format(), FormatQuantity},
		"map keys":     {at(t, pod, "containers").ListMapKeys(), []string{"name"}},
		"time":         {at(t, deployment.Schema, "metadata", "creationTimestamp").Format(), FormatDateTime},
		"data":         {at(t, secret.Schema, "data", "x").Format(), FormatByte},
		"target port":  {at(t, service.Schema, "spec", "ports", "[]", "targetPort").Type(), IntOrString},
		"describe":     {at(t, pod, "containers").Describe(), "list of object (Container)"},
		"shared":       {at(t, deployment.Schema, "metadata").Resolved() == at(t, service.Schema, "metadata").Resolved(), true},
		"closed":       {pod.Open(), false},
		"set":          {at(t, deployment.Schema, "metadata", "finalizers").IsSet(), true},
		"map describe": {at(t, deployment.Schema, "metadata", "labels").Describe(), "map of string"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, ok := pod.Field("container"); ok {
		t.Error("PodSpec has a field container")
	}
}

const crdJSON = `{"metadata":{"name":"webapps.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"WebApp","plural":"webapps"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
 "spec":{"type":"object","required":["mode","size"],"properties":{
  "mode":{"type":"string","enum":["Fast","Slow"]},"size":{"type":"integer","default":1,"minimum":1,"maximum":5},
  "port":{"x-kubernetes-int-or-string":true},"name":{"type":"string","pattern":"^[a-z]+$","maxLength":5,"minLength":2},
  "values":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"object":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
  "ports":{"type":"array","maxItems":3,"items":{"type":"integer"}}}}}}}},
 {"name":"v0","served":false,"storage":false}]}}`

func testCRD(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal([]byte(crdJSON), &crd); err != nil {
		t.Fatal(err)
	}
	return &crd
}

func TestFromCRDs(t *testing.T) {
	crds, err := FromCRDs(testCRD(t))
	if err != nil {
		t.Fatal(err)
	}
	c := Chain(nil, crds, Embedded())
	kind, err := c.Kind(gvk("example.com", "v1", "WebApp"))
	if err != nil {
		t.Fatal(err)
	}
	if kind.Resource != "webapps" || !kind.Namespaced || !kind.HasStatus {
		t.Errorf("%+v", kind)
	}
	spec := at(t, kind.Schema, "spec")
	for name, c := range map[string]struct{ got, want any }{
		"metadata": {at(t, kind.Schema, "metadata", "name").Type(), String},
		"object":   {at(t, spec, "object", "metadata", "labels").Describe(), "map of string"},
		"port":     {at(t, spec, "port").Type(), IntOrString},
		"values":   {at(t, spec, "values", "any", "thing").Type(), Unknown},
		"required": {spec.Required(), []string{"mode"}},
		"name":     {spec.Name(), "WebApp.spec"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if size, ok := at(t, spec, "ports").MaxSize(); !ok || size != 3 {
		t.Errorf("ports: %d %v", size, ok)
	}
	if _, err := c.Kind(gvk("example.com", "v0", "WebApp")); !errors.Is(err, ErrUnknownKind) {
		t.Error(err)
	}
	if _, err := c.Kind(gvk("apps", "v1", "Deployment")); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	crds, _ := FromCRDs(testCRD(t))
	kind, _ := crds.Kind(gvk("example.com", "v1", "WebApp"))
	deployment, _ := Embedded().Kind(gvk("apps", "v1", "Deployment"))
	limit := at(t, deployment.Schema, "spec", "template", "spec", "containers", "[]", "resources", "limits", "cpu")
	spec := at(t, kind.Schema, "spec")
	for _, c := range []struct {
		s     *Schema
		value any
		want  *Mismatch
	}{
		{at(t, spec, "mode"), "Fast", nil},
		{at(t, spec, "mode"), "Fsat", &Mismatch{"the value is not one of those allowed", "one of: Fast, Slow", `string "Fsat"`, "did you mean Fast?"}},
		{at(t, spec, "size"), int64(3), nil},
		{at(t, spec, "size"), int64(9), &Mismatch{"the number is too large", "at most 5", "9", ""}},
		{at(t, spec, "size"), "3", &Mismatch{"the value has the wrong type", "integer", `string "3"`, "leave the quotes out"}},
		{at(t, spec, "name"), int64(3), &Mismatch{"the value has the wrong type", "string", "integer 3", "put it in quotes"}},
		{at(t, spec, "name"), "A1", &Mismatch{"the text does not match the pattern", "^[a-z]+$", `string "A1"`, ""}},
		{at(t, spec, "name"), "abcdef", &Mismatch{"the text is too long", "at most 5 characters", "6", ""}},
		{at(t, spec, "port"), "http", nil},
		{at(t, spec, "port"), int64(80), nil},
		{at(t, spec, "port"), true, &Mismatch{"the value has the wrong type", "integer or string", "boolean true", ""}},
		{at(t, spec, "ports"), []any{1, 2, 3, 4}, &Mismatch{"too many items", "at most 3", "4", ""}},
		{limit, "100m", nil},
		{limit, int64(1), nil},
		{limit, "1 Gi", &Mismatch{"the text does not have the format quantity", "string (quantity)", `string "1 Gi"`, "quantities are written as 100m, 2 or 1Gi"}},
		{nil, "x", nil},
	} {
		if diff := cmp.Diff(c.want, c.s.Check(c.value)); diff != "" {
			t.Errorf("%v: %s", c.value, diff)
		}
	}
}

func TestSuggest(t *testing.T) {
	for unknown, want := range map[runtimeschema.GroupVersionKind]runtimeschema.GroupVersionKind{
		gvk("", "v1", "Deployment"):                         gvk("apps", "v1", "Deployment"),
		gvk("apps", "v1beta1", "Deployment"):                gvk("apps", "v1", "Deployment"),
		gvk("apps", "v1", "Deploymnet"):                     gvk("apps", "v1", "Deployment"),
		gvk("extensions", "v1beta1", "Ingress"):             gvk("networking.k8s.io", "v1", "Ingress"),
		gvk("autoscaling", "v3", "HorizontalPodAutoscaler"): gvk("autoscaling", "v2", "HorizontalPodAutoscaler"),
		gvk("", "v1", "Configmap"):                          gvk("", "v1", "ConfigMap"),
	} {
		if got, ok := SuggestKind(Embedded(), unknown); !ok || got != want {
			t.Errorf("%s: %s", KindString(unknown), KindString(got))
		}
	}
	if got, ok := SuggestKind(Embedded(), gvk("example.com", "v1", "Qwertyuiop")); ok {
		t.Errorf("%s", KindString(got))
	}
}

func TestFromOpenAPI(t *testing.T) {
	calls := 0
	c := FromOpenAPI(func(gv runtimeschema.GroupVersion) ([]byte, error) {
		if calls++; gv.Group != "example.com" {
			return nil, ErrUnknownKind
		}
		return []byte(`{"paths":{
"/apis/example.com/v1/namespaces/{namespace}/webapps/{name}":{"get":{"x-kubernetes-group-version-kind":{"group":"example.com","version":"v1","kind":"WebApp"}}},
"/apis/example.com/v1/namespaces/{namespace}/webapps/{name}/status":{"get":{"x-kubernetes-group-version-kind":{"group":"example.com","version":"v1","kind":"WebApp"}}}},
"components":{"schemas":{"com.example.v1.WebApp":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}}},"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"WebApp"}]}}}}`), nil
	})
	for range 2 {
		kind, err := c.Kind(gvk("example.com", "v1", "WebApp"))
		if err != nil {
			t.Fatal(err)
		}
		if kind.Resource != "webapps" || !kind.Namespaced || !kind.HasStatus || at(t, kind.Schema, "spec", "n").Type() != Integer {
			t.Errorf("%+v", kind)
		}
	}
	if calls != 1 {
		t.Errorf("fetched %d times", calls)
	}
	if _, err := c.Kind(gvk("other", "v1", "X")); !errors.Is(err, ErrUnknownKind) {
		t.Error(err)
	}
}

func TestToJSONSchemaProps(t *testing.T) {
	kind, _ := Embedded().Kind(gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")) // contains itself
	if kind.Schema.ToJSONSchemaProps().Properties["spec"].Type != "object" {
		t.Error("no spec")
	}
	got, err := FromJSONSchemaProps("x", ListOf(MapOf(Scalar(IntOrString, ""))).ToJSONSchemaProps())
	if err != nil || got.Describe() != "list of map of integer or string" {
		t.Errorf("%s %v", got.Describe(), err)
	}
}

func BenchmarkDeployment(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		a, err := openArchive(kubernetesZip)
		if err != nil {
			b.Fatal(err)
		}
		kind, err := a.Kind(gvk("apps", "v1", "Deployment"))
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"spec", "template", "spec", "containers"} {
			f, _ := kind.Schema.Field(name)
			kind = &Kind{Schema: f}
		}
		if kind.Schema.Items().Type() != Object {
			b.Fatal("no container")
		}
	}
}
