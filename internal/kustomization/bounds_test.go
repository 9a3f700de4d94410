package kustomization

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// bomb is a document whose aliases stand for 9^9 values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return b.String()
}

func TestAliasesAreBounded(t *testing.T) {
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	indented := strings.ReplaceAll(bomb(), "\n", "\n    ")
	for name, files := range map[string]map[string]string{
		"a resource":             {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": object + bomb()},
		"no yaml by its name":    {"kustomization.yaml": "resources: [a.txt]\n", "a.txt": object + bomb()},
		"data and a resource":    {"kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator: [{name: y, files: [a.yaml]}]\n", "a.yaml": object + bomb()},
		"a second document":      {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": object + "---\n" + object + bomb()},
		"the kustomization":      {"kustomization.yaml": "namePrefix: x-\n" + bomb()},
		"an inline patch":        {"kustomization.yaml": "patches:\n- patch: |\n    " + indented},
		"an alias within itself": {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": object + "data: &d {a: *d}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewBuilder(1).Build(content(files), nil)
			if err == nil {
				t.Fatal("it was built")
			}
			var file *FileError
			if name != "an alias within itself" && !errors.As(err, &file) {
				t.Errorf("error %v, want that of a file", err)
			}
		})
	}
	out, err := NewBuilder(1).Build(content(map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": object + "data:\n  a: &v some text\n  b: *v\n",
	}), nil)
	if err != nil || len(out) != 1 {
		t.Errorf("honest aliases: %v, %v", out, err)
	}
}

func TestPluginsFetchNothing(t *testing.T) {
	var hits atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer s.Close()
	plugin := "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: x}\nfiles: [\"a=" + s.URL + "/x\"]\n"
	for _, field := range []string{"generators", "transformers", "validators"} {
		for name, files := range map[string]map[string]string{
			"a file": {"kustomization.yaml": field + ": [plugin.yaml]\n", "plugin.yaml": plugin},
			"inline": {"kustomization.yaml": field + ":\n- |\n  " + strings.ReplaceAll(plugin, "\n", "\n  ") + "\n"},
		} {
			var file *FileError
			if _, err := NewBuilder(1).Build(content(files), nil); !errors.As(err, &file) {
				t.Errorf("%s, %s: error %v, want that of a file", field, name, err)
			}
		}
	}
	if n := hits.Load(); n > 0 {
		t.Errorf("%d requests were made", n)
	}
}

func content(files map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for name, text := range files {
		out[name] = []byte(text)
	}
	return out
}
