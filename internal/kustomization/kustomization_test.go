package kustomization_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/libretto-dev/libretto/internal/kustomization"
)

func base(name string) map[string][]byte {
	return map[string][]byte{
		"kustomization.yaml": []byte("resources: [cm.yaml]\n"),
		"cm.yaml":            []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"),
	}
}

func TestRemembersTheNewest(t *testing.T) {
	b := kustomization.NewBuilder(2)
	for _, step := range []struct {
		name   string
		builds uint64
	}{{"a", 1}, {"a", 1}, {"b", 2}, {"a", 2}, {"c", 3}, {"a", 3}, {"b", 4}} {
		objects, err := b.Build(base(step.name), nil)
		if err != nil || len(objects) != 1 || objects[0].GetName() != step.name {
			t.Fatalf("%s: %v %v", step.name, objects, err)
		}
		if b.Builds() != step.builds {
			t.Errorf("%s: %d builds, want %d", step.name, b.Builds(), step.builds)
		}
	}
}

func TestOverlay(t *testing.T) {
	objects, err := kustomization.NewBuilder(1).Build(base("a"), []byte(`{"resources":["../base"],"namePrefix":"x-"}`))
	if err != nil || objects[0].GetName() != "x-a" {
		t.Errorf("%v %v", objects, err)
	}
}

func TestAtOnce(t *testing.T) {
	b := kustomization.NewBuilder(4)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := fmt.Sprintf("n%d", i%8)
			if objects, err := b.Build(base(name), nil); err != nil || objects[0].GetName() != name {
				t.Errorf("%s: %v %v", name, objects, err)
			}
		})
	}
	wg.Wait()
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct{ reason, file, text, want string }{
		{"a remote base", "kustomization.yaml", "resources: ['https://example.com/base?ref=1']", "nothing is fetched"},
		{"a remote base by git", "kustomization.yaml", "resources: ['git@example.com:a/b']", "nothing is fetched"},
		{"a remote component", "kustomization.yaml", "components: ['github.com/a/b//c?ref=d']", "nothing is fetched"},
		{"outside", "kustomization.yaml", "resources: [../../etc]", "outside"},
		{"an absolute path", "kustomization.yaml", "configMapGenerator: [{name: a, files: [/etc/passwd]}]", "outside"},
		{"a missing file", "kustomization.yaml", "patches: [{path: p.yaml}]", "not in the base"},
		{"a chart", "kustomization.yaml", "helmCharts: [{name: a}]", "Helm"},
		{"a chart in a directory below", "sub/kustomization.yaml", "helmCharts: [{name: a}]", "Helm"},
		{"no file of that path", "../x.yaml", "a: b", "path within the base"},
		{"no kustomization", "x.yaml", "a: b", "no kustomization.yaml"},
		{"not YAML", "kustomization.yaml", "a: [", "kustomization"},
		{"an unknown field", "kustomization.yaml", "resource: [x]", "resource"},
		{"a plugin that runs something", "kustomization.yaml", "generators: [\"apiVersion: x/v1\\nkind: Run\\nmetadata:\\n  name: r\\n  annotations: {config.kubernetes.io/function: 'exec: {path: /bin/true}'}\\n\"]", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := kustomization.NewBuilder(1).Build(map[string][]byte{tc.file: []byte(tc.text)}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			var file *kustomization.FileError
			if strings.Contains(tc.want, "Helm") && !errors.As(err, &file) {
				t.Errorf("%T", err)
			}
		})
	}
}
