package scaffold

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseField(t *testing.T) {
	cases := []struct {
		in   string
		want Field
		err  string
	}{
		{in: "replicas:integer=1", want: Field{Name: "replicas", Type: TypeInteger, Default: int64(1)}},
		{in: "host:string", want: Field{Name: "host", Type: TypeString}},
		{in: "name:string,required", want: Field{Name: "name", Type: TypeString, Required: true}},
		{in: "size:string=small,enum=small|large", want: Field{Name: "size", Type: TypeString, Default: "small", Enum: []string{"small", "large"}}},
		{in: "n:integer,required,min=1,max=9", want: Field{Name: "n", Type: TypeInteger, Required: true, Min: "1", Max: "9"}},
		{in: "ratio:number=0.5", want: Field{Name: "ratio", Type: TypeNumber, Default: 0.5}},
		{in: "on:boolean=true", want: Field{Name: "on", Type: TypeBoolean, Default: true}},
		{in: "tags:list=a,b", want: Field{Name: "tags", Type: TypeList, Default: []any{"a", "b"}}},
		{in: "env:map=A=1,B=2", want: Field{Name: "env", Type: TypeMap, Default: map[string]any{"A": "1", "B": "2"}}},
		{in: "greeting:string=hello, world", want: Field{Name: "greeting", Type: TypeString, Default: "hello, world"}},
		{in: "url:string=http://x", want: Field{Name: "url", Type: TypeString, Default: "http://x"}},
		{in: "in:string", err: "a word of the expression language"},
		{in: "replicas", err: "write NAME:TYPE"},
		{in: "Replicas:integer", err: "write NAME:TYPE"},
		{in: "replicas:int", err: `"int" is not a type`},
		{in: "replicas:integer=one", err: `"one" is not an integer`},
		{in: "size:string=xl,enum=small|large", err: `the default "xl" is not one of small, large`},
		{in: "size:string=xl,min=1", err: "min and max take a number"},
		{in: "n:integer=1,required", err: "leave out required"},
	}
	for _, c := range cases {
		t.Run(c.in, func(t *testing.T) {
			got, err := ParseField(c.in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWriteRefusesToOverwrite(t *testing.T) {
	dir := t.TempDir()
	r := &Result{Files: map[string][]byte{"a.yaml": []byte("a"), "sub/b.yaml": []byte("b")}}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	var exists *ExistsError
	if err := r.Write(dir); !errors.As(err, &exists) {
		t.Fatalf("got %v, want an ExistsError", err)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "a.yaml")); string(data) != "mine" {
		t.Errorf("the file was overwritten with %q", data)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub")); err == nil {
		t.Error("something was written although a file was in the way")
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	cases := []struct {
		o   Options
		err string
	}{
		{Options{Kind: "web", Group: "example.com"}, "CamelCase"},
		{Options{Kind: "Web", Group: "example"}, "not a domain"},
		{Options{Kind: "Web", Group: "apps.k8s.io"}, "reserved"},
		{Options{Kind: "Web", Group: "example.com", Version: "1"}, "not a version"},
		{Options{Kind: "Web", Group: "example.com", Fields: []Field{{Name: "a"}, {Name: "a"}}}, "twice"},
		{Options{Kind: "Web", Group: "example.com"}, ""},
	}
	for _, c := range cases {
		err := c.o.complete()
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.err)
		}
	}
	for kind, want := range map[string]string{"Web": "webs", "Box": "boxes", "Policy": "policies", "Gateway": "gateways", "Alias": "aliases"} {
		o := Options{Kind: kind}
		if got := o.plural(); got != want {
			t.Errorf("plural of %s: got %s, want %s", kind, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"shop", "shop-web", "shop-db"}, "shop"},
		{[]string{"shop-web", "shop-db"}, "shop"},
		{[]string{"my-shop", "my-shop-db"}, "my-shop"},
		{[]string{"web", "db"}, ""},
		{[]string{"shop", "shopping"}, ""},
		{nil, ""},
	} {
		if got := commonPrefix(c.names); got != c.want {
			t.Errorf("%v: got %q, want %q", c.names, got, c.want)
		}
	}
	for in, want := range map[string]string{"ConfigMap": "configMap", "HTTPRoute": "httpRoute", "Service": "service", "PVC": "pvc"} {
		if got := lowerFirst(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"my-web.v2": "myWebV2", "2048": "n2048", "-": "item", "Redis": "redis"} {
		if got := camel(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestSplitImage(t *testing.T) {
	for in, want := range map[string][3]string{
		"nginx":                     {"nginx", "", ""},
		"nginx:1":                   {"nginx", "1", ""},
		"localhost:5000/web":        {"localhost:5000/web", "", ""},
		"localhost:5000/web:1":      {"localhost:5000/web", "1", ""},
		"ghcr.io/a/web@sha256:00":   {"ghcr.io/a/web", "", "sha256:00"},
		"ghcr.io/a/web:1@sha256:00": {"ghcr.io/a/web", "1", "sha256:00"},
	} {
		r, tag, d := splitImage(in)
		if got := [3]string{r, tag, d}; got != want {
			t.Errorf("%s: got %v, want %v", in, got, want)
		}
	}
}
