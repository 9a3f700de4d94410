package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/load"
)

// large is a definition with 50 resources and 300 expressions.
func large() string {
	var b strings.Builder
	b.WriteString(`apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: larges.example.com}
spec:
  crd:
    group: example.com
    names: {kind: Large}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {name: {type: string}, replicas: {type: integer}, image: {type: string}}}
  variables:
  - {name: prefix, value: "self.metadata.name + '-' + self.spec.name"}
  resources:
`)
	for i := range 50 {
		before := "self"
		if i%10 > 0 {
			before = fmt.Sprintf("r%d", i-1)
		}
		fmt.Fprintf(&b, `  - name: r%[1]d
    template:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "${prefix}-%[1]d", annotations: {before: "${%[2]s.metadata.name}"}}
      spec:
        replicas: "${self.spec.replicas > 3 ? 3 : self.spec.replicas}"
        selector: {matchLabels: {app: "${prefix}"}}
        template:
          metadata: {labels: {app: "${prefix}"}}
          spec:
            containers:
            - {name: app, image: "${self.spec.?image.orValue('nginx')}:1"}
`, i, before)
	}
	return b.String()
}

func BenchmarkCompile(b *testing.B) {
	docs, _, list := load.Parse("large.yaml", []byte(large()))
	if len(docs) != 1 || len(list) > 0 {
		b.Fatal(list)
	}
	b.ReportAllocs()
	for b.Loop() {
		if p, list := compile.Compile(docs[0].Definition, compile.Options{}); p == nil {
			b.Fatal(list)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	data := []byte(large())
	for b.Loop() {
		if docs, _, list := load.Parse("large.yaml", data); len(docs) != 1 {
			b.Fatal(list)
		}
	}
}

// TestCompileIsQuick bounds the time generously: a machine may be slow, but not twenty times.
func TestCompileIsQuick(t *testing.T) {
	docs, _, list := load.Parse("large.yaml", []byte(large()))
	if len(docs) != 1 {
		t.Fatal(list)
	}
	start := time.Now()
	p, list := compile.Compile(docs[0].Definition, compile.Options{})
	if p == nil {
		t.Fatal(list)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("50 resources with 300 expressions take %s", took)
	}
	if len(p.Nodes) != 50 || p.Nodes[49].Wave != 9 {
		t.Errorf("%d nodes, the last in wave %d", len(p.Nodes), p.Nodes[49].Wave)
	}
}
