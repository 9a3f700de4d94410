package watch

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

var configMaps = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true}

func object(name, uid, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version,
			"labels": map[string]any{v1alpha1.LabelInstance: "i1"}},
	}}
}

// What the watch and our own writes tell, in every order, ends in the newest state.
func TestCollection(t *testing.T) {
	type step struct {
		do   string // add, update, delete, observe, forget, replace
		name string
		uid  string
		rv   string
	}
	cases := map[string]struct {
		steps  []step
		want   []string // uid@rv
		events []string
	}{
		"plain": {
			[]step{{"replace", "a", "u1", "10"}, {"update", "a", "u1", "11"}, {"delete", "a", "u1", "12"}},
			nil, []string{"+u1@10 initial", "u1@10>u1@11", "-u1@11"}},
		"our write, then its echo": {
			[]step{{"replace", "", "", "5"}, {"observe", "a", "u1", "10"}, {"add", "a", "u1", "10"}},
			[]string{"u1@10"}, []string{"u1@10>u1@10 own"}},
		"an old event after our write": {
			[]step{{"replace", "a", "u1", "5"}, {"observe", "a", "u1", "10"}, {"update", "a", "u1", "7"}},
			[]string{"u1@10"}, []string{"+u1@5 initial"}},
		"a newer event instead of the echo": {
			[]step{{"observe", "a", "u1", "10"}, {"add", "a", "u1", "12"}},
			[]string{"u1@12"}, []string{"u1@10>u1@12"}},
		"the watch is quicker than the answer": {
			[]step{{"add", "a", "u1", "12"}, {"observe", "a", "u1", "10"}},
			[]string{"u1@12"}, []string{"+u1@12"}},
		"made anew while the old deletion is on its way": {
			[]step{{"add", "a", "u1", "5"}, {"observe", "a", "u2", "10"}, {"delete", "a", "u1", "8"}, {"add", "a", "u2", "10"}},
			[]string{"u2@10"}, []string{"+u1@5", "u2@10>u2@10 own"}},
		"a list that is older than our write": {
			[]step{{"observe", "a", "u1", "10"}, {"replace", "b", "u2", "9"}},
			[]string{"u1@10", "u2@9"}, []string{"+u2@9 initial"}},
		"a list that is newer than our write": {
			[]step{{"observe", "a", "u1", "10"}, {"replace", "b", "u2", "11"}},
			[]string{"u2@11"}, []string{"-u1@10", "+u2@11 initial"}},
		"we deleted it": {
			[]step{{"replace", "a", "u1", "5"}, {"forget", "a", "u1", ""}, {"delete", "a", "u1", "8"}},
			nil, []string{"+u1@5 initial", "-u1@5 own"}},
		"we deleted it, and it is still there": {
			[]step{{"replace", "a", "u1", "5"}, {"forget", "a", "u1", ""}, {"update", "a", "u1", "8"}},
			[]string{"u1@8"}, []string{"+u1@5 initial", "u1@5>u1@8"}},
		"deleted, not told by the watch yet": {
			[]step{{"replace", "a", "u1", "5"}, {"forget", "a", "u1", ""}}, nil, []string{"+u1@5 initial"}},
		"no watch at all": {
			[]step{{"observe", "a", "u1", "5"}, {"forget", "a", "u1", ""}}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var events []string
			c := newCollection(newProjector(configMaps, nil), func(e Event) { events = append(events, eventText(e)) })
			for _, s := range tc.steps {
				switch s.do {
				case "add":
					_ = c.Add(object(s.name, s.uid, s.rv))
				case "update":
					_ = c.Update(object(s.name, s.uid, s.rv))
				case "delete":
					_ = c.Delete(object(s.name, s.uid, s.rv))
				case "observe":
					c.observe(c.projector.object(object(s.name, s.uid, s.rv)))
				case "forget":
					c.forget(types.NamespacedName{Namespace: "ns", Name: s.name}, types.UID(s.uid))
				case "replace":
					var list []any
					if s.name != "" {
						list = append(list, object(s.name, s.uid, s.rv))
					}
					_ = c.Replace(list, s.rv)
				}
			}
			objects := c.appendAll(nil, "i1")
			sortObjects(objects)
			var got []string
			for _, o := range objects {
				got = append(got, fmt.Sprintf("%s@%s", o.UID, o.ResourceVersion))
				if c.withUID(o.UID) != o || c.get(keyOf(o)) != o {
					t.Errorf("%s is not found by UID and by name", o.UID)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func eventText(e Event) string {
	text := func(o *Object) string { return fmt.Sprintf("%s@%s", o.UID, o.ResourceVersion) }
	var out string
	switch {
	case e.Old == nil:
		out = "+" + text(e.New)
	case e.New == nil:
		out = "-" + text(e.Old)
	default:
		out = text(e.Old) + ">" + text(e.New)
	}
	if e.Initial {
		out += " initial"
	}
	if e.Own {
		out += " own"
	}
	return out
}

func TestProjection(t *testing.T) {
	content := map[string]any{
		"spec":   map[string]any{"replicas": int64(1), "template": map[string]any{"a": "b", "c": "d"}},
		"status": map[string]any{"phase": "Active", "other": "x", "conditions": []any{}},
		"data":   map[string]any{"k": "v"},
	}
	cases := map[string]struct {
		fields [][]string
		want   map[string]any
	}{
		"all":                  {nil, content},
		"what readiness reads": {[][]string{}, map[string]any{"status": map[string]any{"phase": "Active", "conditions": []any{}}}},
		"a path and what readiness reads": {[][]string{{"spec", "template", "a"}, {"data"}}, map[string]any{
			"spec": map[string]any{"template": map[string]any{"a": "b"}}, "data": map[string]any{"k": "v"},
			"status": map[string]any{"phase": "Active", "conditions": []any{}}}},
		"a path below one that is kept": {[][]string{{"status"}, {"status", "phase"}}, map[string]any{"status": content["status"]}},
	}
	kind := program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Resource: "namespaces"}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := newProjector(kind, tc.fields).content(content)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
	all, some, more := newProjection(nil), newProjection([][]string{{"a"}}), newProjection([][]string{{"a", "b"}, {"c"}})
	for _, c := range []struct {
		a, b projection
		want bool
	}{{all, some, true}, {some, all, false}, {some, newProjection([][]string{{"a", "b"}}), true}, {more, some, false}, {more, newProjection([][]string{{"c", "d"}}), true}} {
		if got := c.a.covers(c.b); got != c.want {
			t.Errorf("%v covers %v: %v", c.a, c.b, got)
		}
	}
}
