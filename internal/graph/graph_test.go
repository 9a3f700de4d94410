package graph

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit/golden"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func kind(name string) program.Kind {
	return program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: name}}
}

// webapp is a program with what graphs have to show: values read over several waves, readiness, externals, marks.
func webapp() *program.Program {
	nodes := map[string]*program.Node{}
	add := func(name, k string, wave int, reads, after, externals []string) *program.Node {
		n := &program.Node{Name: name, Wave: wave, Kinds: []program.Kind{kind(k)}, ReadsExternals: externals}
		for _, r := range reads {
			n.Reads = append(n.Reads, nodes[r])
		}
		for _, r := range after {
			n.After = append(n.After, nodes[r])
		}
		nodes[name] = n
		return n
	}
	p := &program.Program{
		Name: "webapps.example.com", Instance: kind("WebApp"), CRD: &apiextensionsv1.CustomResourceDefinition{},
		Externals: []program.External{
			{Name: "tls", Kind: kind("Secret")},
			{Name: "nodes", Kind: kind("Node"), List: true, Optional: true},
		},
	}
	config := add("config", "ConfigMap", 0, nil, nil, nil)
	password := add("password", "Secret", 0, nil, nil, nil)
	password.CreateOnce = true
	volume := add("volume", "PersistentVolumeClaim", 0, nil, nil, nil)
	volume.DeletionPolicy = v1alpha1.DeletionPolicyRetain
	database := add("database", "StatefulSet", 1, []string{"password", "volume"}, nil, nil)
	workload := add("workload", "Deployment", 2, []string{"config", "password"}, []string{"database"}, []string{"nodes"})
	service := add("service", "Service", 0, nil, nil, nil)
	ingress := add("ingress", "Ingress", 1, []string{"service"}, nil, []string{"tls"})
	ingress.When = &expr.Expr{}
	shards := add("shards", "ConfigMap", 3, []string{"workload", "config"}, nil, nil)
	shards.ForEach = &program.ForEach{Var: "i"}
	addons := add("addons", "ConfigMap", 0, nil, nil, nil)
	addons.Kustomization = &program.Kustomization{}
	addons.Kinds = []program.Kind{kind("ConfigMap"), kind("Deployment"), kind("Service"), kind("Ingress")}
	p.Operations = []*program.Operation{
		{Name: "backup", Triggers: []*program.Trigger{{Type: v1alpha1.TriggerTypeSchedule}, {Type: v1alpha1.TriggerTypeWatch, Watch: &program.WatchTrigger{External: "tls"}}},
			Steps: []*program.Step{{Name: "pack"}, {Name: "send"}}},
		{Name: "restore", Steps: []*program.Step{{Name: "unpack"}}},
	}
	p.Nodes = []*program.Node{config, password, volume, service, addons, database, ingress, workload, shards}
	return p
}

func TestPictures(t *testing.T) {
	empty := &program.Program{Name: "empties.example.com", Instance: kind("Empty"), CRD: &apiextensionsv1.CustomResourceDefinition{}}
	target := &program.Program{Name: "teams", Instance: kind("Namespace"), Nodes: []*program.Node{{Name: "quota", Kinds: []program.Kind{kind("ResourceQuota")}}}}
	for name, p := range map[string]*program.Program{"webapp": webapp(), "empty": empty, "target": target} {
		g := For(p)
		for ext, got := range map[string]string{"txt": g.Text(), "mmd": g.Mermaid(), "dot": g.DOT(), "svg": g.SVG()} {
			t.Run(name+"."+ext, func(t *testing.T) {
				golden.Check(t, "testdata/"+name+"."+ext, []byte(got))
			})
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	first := For(webapp())
	for range 20 {
		g := For(webapp())
		if g.SVG() != first.SVG() || g.Text() != first.Text() || g.DOT() != first.DOT() || g.Mermaid() != first.Mermaid() {
			t.Fatal("the same program was drawn differently")
		}
	}
}

func TestSVGIsXMLAndEscapes(t *testing.T) {
	g := &Graph{Title: `a<b>&"c"`, Waves: 1, Nodes: []Node{
		{ID: "self", Class: ClassInstance, Kinds: []string{"X"}},
		{ID: "r", Class: ClassResource, Kinds: []string{"<Y>"}, Column: 1, Marks: []string{`"&`}},
	}}
	d := xml.NewDecoder(strings.NewReader(g.SVG()))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
}

// TestBoxesDoNotOverlap: neither boxes nor the lanes of long edges lie upon each other.
func TestBoxesDoNotOverlap(t *testing.T) {
	l := arrange(For(webapp()))
	for c, column := range l.columns {
		for i := 1; i < len(column); i++ {
			if column[i-1].y+column[i-1].height() > column[i].y {
				t.Errorf("column %d: places %d and %d overlap", c, i-1, i)
			}
		}
		if c > 0 && l.x[c-1]+l.width[c-1] > l.x[c] {
			t.Errorf("columns %d and %d overlap", c-1, c)
		}
	}
}
