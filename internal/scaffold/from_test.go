package scaffold

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/internal/schema"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// archive prints all files and notes of a result as one text.
func archive(r *Result) []byte {
	var b bytes.Buffer
	for _, name := range sortedKeys(r.Files) {
		fmt.Fprintf(&b, "=== %s\n%s", name, r.Files[name])
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "=== note: %s\n", n)
	}
	return b.Bytes()
}

func TestFrom(t *testing.T) {
	cases := []struct {
		name, dir, kind string
		flatten         bool
		cluster         bool
	}{
		{name: "base", dir: "base", kind: "Shop"},
		{name: "base-flattened", dir: "base", kind: "Shop", flatten: true},
		{name: "overlay", dir: "overlay/overlays/prod", kind: "Worker"},
		{name: "manifests", dir: "manifests", kind: "Blog"},
		{name: "loose", dir: "loose", kind: "Site"},
		{name: "cluster-scoped", dir: "loose", kind: "Site", cluster: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := From(FromOptions{
				Options: Options{Kind: c.kind, Group: "example.com", ClusterScoped: c.cluster},
				Dir:     filepath.Join("testdata", c.dir), Flatten: c.flatten, Catalog: schema.Embedded(),
			})
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/want/"+c.name+".txt", archive(r))
		})
	}
}

func TestFromRefuses(t *testing.T) {
	write := func(t *testing.T, name, content string) string {
		dir := t.TempDir()
		if name != "" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	cases := []struct{ name, file, content, want string }{
		{"empty", "", "", "holds no manifests"},
		{"remote", "kustomization.yaml", "resources: [https://example.com/x.yaml]", "without a network"},
		{"helm in a base", "kustomization.yaml", "helmCharts: [{name: x}]", "needs a program and a network"},
		{"chart", "Chart.yaml", "name: x", "run helm template"},
		{"broken", "a.yaml", "a: [", "cannot read"},
		{"broken base", "kustomization.yaml", "resources: [missing.yaml]", "cannot build"},
		{"namespace alone", "ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}", "nothing that an instance could stand for"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := From(FromOptions{Options: Options{Kind: "X", Group: "example.com"}, Dir: write(t, c.file, c.content)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := From(FromOptions{Options: Options{Kind: "X", Group: "example.com"}, Dir: "testdata/loose/all.yaml"}); err == nil || !strings.Contains(err.Error(), "is a file") {
		t.Errorf("got %v for a file", err)
	}
}

func TestStart(t *testing.T) {
	cases := map[string][]string{
		"bare":     nil,
		"typical":  {"replicas:integer=1", "host:string", "image:string=nginx:1.29-alpine", "port:integer=8080"},
		"optional": {"replicas:integer", "host:string=shop.example.com", "image:string", "port:integer", "debug:boolean", "ratio:number", "tags:list", "env:map"},
		"required": {"title:string,required", "size:string=small,enum=small|large", "count:integer,required,min=1,max=9", "tags:list=a,b", "env:map=A=1", "on:boolean=true"},
	}
	for name, fields := range cases {
		t.Run(name, func(t *testing.T) {
			o := Options{Kind: "Shop", Group: "example.com"}
			for _, f := range fields {
				field, err := ParseField(f)
				if err != nil {
					t.Fatal(err)
				}
				o.Fields = append(o.Fields, field)
			}
			r, err := Start(o)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/want/start-"+name+".txt", archive(r))
		})
	}
}
