package render_test

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

const kustomized = "../compile/testdata/kustomize/definition.yaml"

const site = `
apiVersion: example.com/v1
kind: Site
metadata: {name: docs, namespace: web, uid: 11111111-2222-3333-4444-555555555555}
spec: {version: "1.27", text: "Hello: \"world\" # {x}", replicas: 3, memory: 64Mi}
`

func TestRenderKustomization(t *testing.T) {
	p := compiled(t, kustomized)
	builds := p.Nodes[0].Kustomization.Builder.Builds()
	var out strings.Builder
	objects, err := render.New(p, object(t, site)).Render(p.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("--- # " + o.Item + " " + o.Hash + "\n" + string(text))
	}
	golden.Check(t, "testdata/kustomize.yaml", []byte(out.String()))

	again, err := render.New(p, object(t, site)).Render(p.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if objects[i].Hash != again[i].Hash {
			t.Errorf("%s: other bytes the second time", objects[i].Item)
		}
	}
	if n := p.Nodes[0].Kustomization.Builder.Builds() - builds; n != 1 {
		t.Errorf("the base was built %d times for one input", n)
	}
}

func TestRenderKustomizationFails(t *testing.T) {
	p := compiled(t, kustomized)
	self := object(t, site)
	delete(self["spec"].(map[string]any), "text")
	_, err := render.New(p, self).Render(p.Nodes[0])
	var failed *expr.EvalError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "deployment.yaml") {
		t.Errorf("text is missing: %v", err)
	}
}

func BenchmarkRenderKustomization(b *testing.B) {
	p := compiled(b, kustomized)
	self := object(b, site)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := render.New(p, self).Render(p.Nodes[0]); err != nil {
			b.Fatal(err)
		}
	}
}
