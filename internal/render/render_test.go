package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

func compiled(t testing.TB, file string) *program.Program {
	t.Helper()
	docs, _, list := load.Load(file)
	if len(docs) != 1 || list.HasErrors() {
		t.Fatalf("%d definitions\n%s", len(docs), list)
	}
	p, list := compile.Compile(docs[0].Definition, compile.Options{})
	if p == nil {
		t.Fatalf("\n%s", docs[0].Locate(list))
	}
	return p
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

const webapp = "../compile/testdata/webapp/definition.yaml"

func shop(t testing.TB) map[string]any {
	return object(t, `
apiVersion: example.com/v1
kind: WebApp
metadata: {name: shop, namespace: web, uid: 11111111-2222-3333-4444-555555555555}
spec: {image: "nginx:1", replicas: 3, host: shop.example.com, shards: [a, b]}
`)
}

func node(t testing.TB, p *program.Program, name string) *program.Node {
	t.Helper()
	for _, n := range p.Nodes {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("no node %s", name)
	return nil
}

// TestRender renders all nodes in order; each is bound as it was rendered, with what a cluster would add.
func TestRender(t *testing.T) {
	p := compiled(t, webapp)
	once := func() string {
		e := render.New(p, shop(t))
		var out strings.Builder
		for _, n := range p.Nodes {
			if n.Name == "password" {
				continue // random
			}
			objects, err := e.Render(n)
			if err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			var live []*unstructured.Unstructured
			for _, o := range objects {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString("--- # " + n.Name + " " + o.Item + " " + o.Hash + "\n" + string(text))
				l := o.Unstructured.DeepCopy()
				l.SetResourceVersion("7")
				if l.GetKind() == "Service" {
					_ = unstructured.SetNestedField(l.Object, "10.0.0.7", "spec", "clusterIP")
				}
				live = append(live, l)
			}
			e.Bind(n, live)
		}
		fields, err := e.StatusFields()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := yaml.Marshal(map[string]any{"status": fields, "conditions": e.Conditions()})
		out.WriteString("---\n" + string(text))
		return out.String()
	}
	got := once()
	golden.Check(t, "testdata/webapp.yaml", []byte(got))
	for range 20 {
		if diff := cmp.Diff(got, once()); diff != "" {
			t.Fatalf("same input, other bytes:\n%s", diff)
		}
	}
}

func TestPendingAndExcluded(t *testing.T) {
	p := compiled(t, webapp)
	self := shop(t)
	delete(self["spec"].(map[string]any), "host")
	e := render.New(p, self)

	var pending *expr.PendingError
	if _, err := e.Render(node(t, p, "workload")); !errors.As(err, &pending) || pending.Variable != "config" {
		t.Errorf("nothing is applied yet: %v", err)
	}
	if _, err := e.Render(node(t, p, "ingress")); !errors.Is(err, render.ErrExcluded) {
		t.Errorf("no host: %v", err)
	}
	bind(t, e, p, "config", `{apiVersion: v1, kind: ConfigMap, metadata: {name: shop-config, resourceVersion: "1"}}`)
	bind(t, e, p, "service", `{apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {}}`)
	if _, err := e.Render(node(t, p, "workload")); !errors.As(err, &pending) || cmp.Diff(pending.Path, []string{"spec", "clusterIP"}) != "" {
		t.Errorf("the service has no address yet: %v", err)
	}
	fields, err := e.StatusFields()
	if err != nil || len(fields) != 0 {
		t.Errorf("status %v, %v", fields, err)
	}
	if c := e.Conditions()[0]; c.Status != "Unknown" || c.Reason != "Waiting" {
		t.Errorf("condition %+v", c)
	}
}

func bind(t testing.TB, e *render.Evaluation, p *program.Program, name, text string) {
	t.Helper()
	e.Bind(node(t, p, name), []*unstructured.Unstructured{{Object: object(t, text)}})
}

func TestReady(t *testing.T) {
	p := compiled(t, webapp)
	e := render.New(p, shop(t))
	n := node(t, p, "workload")
	for available, want := range map[string]bool{"{}": false, "{availableReplicas: 2}": false, "{availableReplicas: 3}": true} {
		o := &unstructured.Unstructured{Object: object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop}, status: "+available+"}")}
		ready, message, err := e.Ready(n, o)
		if err != nil || ready != want || (message == "") != want {
			t.Errorf("%s: %t %q %v", available, ready, message, err)
		}
	}
}

func TestExternals(t *testing.T) {
	p := compiled(t, webapp)
	self := shop(t)
	e := render.New(p, self)
	refs, err := e.Externals()
	if err != nil || len(refs) != 1 || refs[0].ObjectName != "" || refs[0].Namespace != "web" {
		t.Errorf("%+v %v", refs, err)
	}
	self["spec"].(map[string]any)["tlsSecret"] = "cert"
	e = render.New(p, self)
	if refs, err = e.Externals(); err != nil || refs[0].ObjectName != "cert" {
		t.Errorf("%+v %v", refs, err)
	}
	e.BindExternal("tls", []map[string]any{object(t, `{apiVersion: v1, kind: Secret, metadata: {name: cert}}`)})
	bind(t, e, p, "service", `{apiVersion: v1, kind: Service, metadata: {name: shop}}`)
	objects, err := e.Render(node(t, p, "ingress"))
	if err != nil {
		t.Fatal(err)
	}
	if _, found, _ := unstructured.NestedSlice(objects[0].Object, "spec", "tls"); !found {
		t.Error("tls is not in the ingress, and the secret is there")
	}
}

func BenchmarkRender(b *testing.B) {
	p := compiled(b, webapp)
	self := shop(b)
	service := &unstructured.Unstructured{Object: object(b, `{apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {clusterIP: 10.0.0.1}}`)}
	config := &unstructured.Unstructured{Object: object(b, `{apiVersion: v1, kind: ConfigMap, metadata: {name: shop-config, resourceVersion: "1"}}`)}
	nodes := []*program.Node{node(b, p, "service"), node(b, p, "config"), node(b, p, "workload")}
	b.ReportAllocs()
	for b.Loop() {
		e := render.New(p, self)
		for i, n := range nodes {
			if _, err := e.Render(n); err != nil {
				b.Fatal(err)
			}
			switch i {
			case 0:
				e.Bind(n, []*unstructured.Unstructured{service})
			case 1:
				e.Bind(n, []*unstructured.Unstructured{config})
			}
		}
	}
}
