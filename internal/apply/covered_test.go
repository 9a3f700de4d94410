package apply

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/watch"
)

// owned makes OwnedFields of the encoding of managedFields.
func owned(t testing.TB, fields string) watch.OwnedFields {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(fields), &v); err != nil {
		t.Fatal(err)
	}
	return watch.NewObject(program.Kind{}, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"libretto.dev/instance": "uid-1"},
		"managedFields": []any{map[string]any{
			"manager": "libretto", "operation": "Apply", "fieldsV1": v}}}}}).Owned
}

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return obj.Object
}

func TestCovered(t *testing.T) {
	const head = `{apiVersion: v1, kind: Thing, `
	cases := map[string]struct {
		desired, owned string
		missing        []string
	}{
		"a scalar":                       {head + `spec: {a: 1}}`, `{"f:spec":{"f:a":{}}}`, nil},
		"a scalar that is gone":          {head + `spec: {a: 1, b: 2}}`, `{"f:spec":{"f:a":{}}}`, []string{"spec.b"}},
		"all is gone":                    {head + `spec: {a: 1}}`, `{}`, []string{"spec.a"}},
		"an atomic map":                  {head + `spec: {sel: {a: b}}}`, `{"f:spec":{"f:sel":{}}}`, nil},
		"an atomic list":                 {head + `spec: {args: [a, b]}}`, `{"f:spec":{"f:args":{}}}`, nil},
		"an atomic list that is gone":    {head + `spec: {args: [a], x: 1}}`, `{"f:spec":{"f:x":{}}}`, []string{"spec.args"}},
		"a set":                          {head + `spec: {set: [a, b]}}`, `{"f:spec":{"f:set":{"v:\"a\"":{},"v:\"b\"":{}}}}`, nil},
		"a set without an item":          {head + `spec: {set: [a, b]}}`, `{"f:spec":{"f:set":{"v:\"a\"":{}}}}`, []string{"spec.set[]"}},
		"a set of numbers":               {head + `spec: {set: [1, 2]}}`, `{"f:spec":{"f:set":{"v:1":{},"v:2":{}}}}`, nil},
		"a keyed list":                   {head + `spec: {l: [{name: a, v: 1}]}}`, `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:v":{}}}}}`, nil},
		"a keyed list, a field is gone":  {head + `spec: {l: [{name: a, v: 1}]}}`, `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}`, []string{`spec.l[name="a"].v`}},
		"a keyed list, an item is gone":  {head + `spec: {l: [{name: a}, {name: b}]}}`, `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}`, []string{`spec.l[name="b"]`}},
		"a defaulted key":                {head + `spec: {p: [{port: 80}]}}`, `{"f:spec":{"f:p":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}`, nil},
		"a defaulted key beside another": {head + `spec: {p: [{port: 53}, {port: 53, protocol: UDP}]}}`, `{"f:spec":{"f:p":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}`, nil},
		"a defaulted key that is gone":   {head + `spec: {p: [{port: 53}, {port: 53, protocol: UDP}]}}`, `{"f:spec":{"f:p":{"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}`, []string{"spec.p[port=53]"}},
		"an owner reference":             {`{apiVersion: v1, kind: Thing, metadata: {name: x, ownerReferences: [{uid: uid-1, name: a}]}}`, `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"uid-1\"}":{}}}}`, nil},
		"names and status":               {`{apiVersion: v1, kind: Thing, metadata: {name: x, namespace: y, uid: z}, status: {a: 1}}`, `{}`, nil},
		"nulls and empty values":         {head + `spec: {a: null, l: [], m: {}, n: {o: null}, s: ""}}`, `{"f:spec":{"f:s":{}}}`, nil},
		"labels":                         {`{apiVersion: v1, kind: Thing, metadata: {labels: {a: b, c: d}}}`, `{"f:metadata":{"f:labels":{"f:a":{}}}}`, []string{"metadata.labels.c"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			covered, missing := Covered(parse(t, tc.desired), owned(t, tc.owned), "uid-1")
			if covered != (tc.missing == nil) {
				t.Errorf("covered: %v", covered)
			}
			if diff := cmp.Diff(tc.missing, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkCovered(b *testing.B) {
	desired := parse(b, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: app, labels: {app: x}}, spec: {replicas: 2, selector: {matchLabels: {app: x}},
 template: {metadata: {labels: {app: x}}, spec: {containers: [{name: app, image: x, ports: [{containerPort: 80}], env: [{name: A, value: b}, {name: B, value: c}]}]}}}}`)
	fields := owned(b, `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}`)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ok, missing := Covered(desired, fields, "uid-1"); !ok {
				b.Fatal(missing)
			}
		}
	})
	b.Run("remembered", func(b *testing.B) {
		sets := fieldSets{sets: map[string]*fieldSet{}}
		b.ReportAllocs()
		for b.Loop() {
			set, err := sets.get(fields)
			if err != nil {
				b.Fatal(err)
			}
			if ok, missing := set.covers(desired, "uid-1"); !ok {
				b.Fatal(missing)
			}
		}
	})
}
