package simulate

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/observe"
)

// TestReadyStatus: what is made ready is ready by the rules of kstatus.
func TestReadyStatus(t *testing.T) {
	for kind, apiVersion := range map[string]string{
		"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "ReplicationController": "v1", "Pod": "v1",
		"PersistentVolumeClaim": "v1", "PersistentVolume": "v1", "Namespace": "v1", "Service": "v1", "Job": "batch/v1", "PodDisruptionBudget": "policy/v1",
		"CustomResourceDefinition": "apiextensions.k8s.io/v1", "APIService": "apiregistration.k8s.io/v1", "ConfigMap": "v1", "Certificate": "example.com/v1",
	} {
		spec := map[string]any{"replicas": int64(3)}
		if kind == "Service" {
			spec = map[string]any{"type": "LoadBalancer"}
		}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "a", "generation": int64(2)}, "spec": spec}}
		if status := readyStatus(o, kind == "Certificate"); status != nil {
			o.Object["status"] = status
		}
		if ready, message, _ := observe.KStatus(o); !ready {
			t.Errorf("%s: %s", kind, message)
		}
	}
}

func TestCompare(t *testing.T) {
	object := map[string]any{
		"a": int64(1), "b": map[string]any{"c": "x", "d": nil}, "list": []any{int64(1), int64(2)},
		"named": []any{map[string]any{"name": "one", "v": int64(1)}, map[string]any{"name": "two", "v": 2.5}},
	}
	cases := []struct {
		want        map[string]any
		differences int
	}{
		{map[string]any{"a": 1.0, "b": map[string]any{"c": "x", "d": nil, "e": nil}}, 0},
		{map[string]any{"list": []any{int64(1), int64(2)}, "named": []any{map[string]any{"name": "two", "v": 2.5}}}, 0},
		{map[string]any{"list": []any{int64(2), int64(1)}}, 2},
		{map[string]any{"list": []any{int64(1)}}, 1},
		{map[string]any{"named": []any{map[string]any{"name": "three"}}}, 1},
		{map[string]any{"a": nil, "b": "x", "z": int64(0)}, 3},
		{map[string]any{"a": "1"}, 1},
	}
	for _, c := range cases {
		if got := compareObjects("", c.want, object); len(got) != c.differences {
			t.Errorf("%s: %d differences, want %d: %v", show(c.want), len(got), c.differences, got)
		}
	}
}

func TestApply(t *testing.T) {
	w := newWorld(t.Context(), nil, &Test{})
	object := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "a"}, "spec": spec}}
	}
	made, _ := w.store.apply("one", object(map[string]any{"a": "1", "b": map[string]any{"c": "1", "d": "1"}}))
	uid := made.GetUID()
	if _, changed := w.store.apply("one", object(map[string]any{"a": "1", "b": map[string]any{"c": "1", "d": "1"}})); changed {
		t.Error("the same again is a change")
	}
	w.store.apply("two", object(map[string]any{"e": "2"}))
	got, _ := w.store.apply("one", object(map[string]any{"b": map[string]any{"d": "2"}}))
	if text := show(got.Object["spec"]); text != `{"b":{"d":"2"},"e":"2"}` || got.GetUID() != uid || got.GetGeneration() != 3 {
		t.Errorf("%s, generation %d", text, got.GetGeneration())
	}
}
