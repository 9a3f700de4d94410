package instance

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/program"
)

func TestUnseen(t *testing.T) {
	web := runtimeschema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Web"}
	status := func(fields map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Web"}}
		if fields != nil {
			o.Object["status"] = fields
		}
		return o
	}
	for name, c := range map[string]struct {
		reports bool
		object  *unstructured.Unstructured
		want    bool
	}{
		"a kind that reports, without a status":     {true, status(nil), true},
		"a kind that reports, with other fields":    {true, status(map[string]any{"url": "x"}), true},
		"its controller has seen it":                {true, status(map[string]any{"observedGeneration": int64(1)}), false},
		"its controller has set conditions alone":   {true, status(map[string]any{"conditions": []any{}}), false},
		"a kind that reports nothing is never seen": {false, status(nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &program.Node{Kinds: []program.Kind{{GroupVersionKind: web, Reports: c.reports}}}
			if got := unseen(node, c.object); got != c.want {
				t.Errorf("unseen is %v, want %v", got, c.want)
			}
		})
	}
}
