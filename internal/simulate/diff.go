package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/internal/diag"
)

// Difference is something that is not as expected.
type Difference struct {
	// Path of the field.
	Path string `json:"path"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Hint string `json:"hint,omitempty"`
}

// String prints it for people.
func (d Difference) String() string {
	s := fmt.Sprintf("%s: want %s, got %s", d.Path, d.Want, d.Got)
	if strings.Contains(s, "\n") {
		s = fmt.Sprintf("%s:\n  want %s\n  got  %s", d.Path, indent(d.Want, "       "), indent(d.Got, "       "))
	}
	if d.Hint != "" {
		s += "\n  hint: " + indent(d.Hint, "    ")
	}
	return s
}

func indent(s, by string) string { return strings.ReplaceAll(s, "\n", "\n"+by) }

// nothing is what stands for a value that is not there.
const nothing = "nothing"

// compare finds where got is not as want says. Of an object only the fields count that want has; a field that want has as null
// must not be there. A list has the items of want, in order; one whose items have a key (name, type, key, containerPort …) is
// compared by key, and may have more.
func compare(path string, want, got any) []Difference {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return []Difference{{Path: path, Want: show(want), Got: show(got)}}
		}
		return compareObjects(path, want, object)
	case []any:
		list, ok := got.([]any)
		if !ok {
			return []Difference{{Path: path, Want: show(want), Got: show(got)}}
		}
		return compareLists(path, want, list)
	}
	if equal(want, got) {
		return nil
	}
	return []Difference{{Path: path, Want: show(want), Got: show(got)}}
}

func compareObjects(path string, want, got map[string]any) []Difference {
	var out []Difference
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, there := got[name]
		child := diag.Child(path, name)
		switch {
		case want[name] == nil && there && value != nil:
			out = append(out, Difference{Path: child, Want: nothing, Got: show(value)})
		case want[name] == nil:
		case !there:
			out = append(out, Difference{Path: child, Want: show(want[name]), Got: nothing,
				Hint: diag.DidYouMean(name, slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(n string) bool { _, wanted := want[n]; return wanted }))})
		default:
			out = append(out, compare(child, want[name], value)...)
		}
	}
	return out
}

// listKeys are the fields that tell the items of a list apart.
var listKeys = []string{"name", "type", "key", "containerPort", "mountPath", "uid"}

func compareLists(path string, want, got []any) []Difference {
	if key := keyOf(want); key != "" && keyed(got, key) {
		var out []Difference
		for _, w := range want {
			id := w.(map[string]any)[key] //nolint:forcetypeassert // keyOf has looked
			at := fmt.Sprintf("%s[%s=%v]", path, key, id)
			i := slices.IndexFunc(got, func(g any) bool { return equal(g.(map[string]any)[key], id) }) //nolint:forcetypeassert // keyed has looked
			if i < 0 {
				out = append(out, Difference{Path: at, Want: show(w), Got: nothing, Hint: "there are: " + strings.Join(ids(got, key), ", ")})
				continue
			}
			out = append(out, compare(at, w, got[i])...)
		}
		return out
	}
	if len(want) != len(got) {
		return []Difference{{Path: path, Want: show(want), Got: show(got)}}
	}
	var out []Difference
	for i := range want {
		out = append(out, compare(diag.Index(path, i), want[i], got[i])...)
	}
	return out
}

// keyOf returns the field that tells the items apart; empty: there is none.
func keyOf(list []any) string {
	if len(list) == 0 {
		return ""
	}
	for _, key := range listKeys {
		if keyed(list, key) {
			return key
		}
	}
	return ""
}

func keyed(list []any, key string) bool {
	seen := map[any]bool{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return false
		}
		value := m[key]
		switch value.(type) {
		case string, int64:
		default:
			return false
		}
		if seen[value] {
			return false
		}
		seen[value] = true
	}
	return true
}

func ids(list []any, key string) []string {
	out := make([]string, 0, len(list))
	for _, item := range list {
		out = append(out, fmt.Sprint(item.(map[string]any)[key])) //nolint:forcetypeassert // keyed has looked
	}
	if len(out) == 0 {
		out = append(out, "none")
	}
	return out
}

// equal compares scalars, and numbers by their value.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// maxShown bounds what is shown of a value, in bytes.
const maxShown = 1000

// show prints a value in one line, or as indented JSON if that is long.
func show(v any) string {
	if v == nil {
		return nothing
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(data) > 100 {
		if long, err := json.MarshalIndent(v, "", "  "); err == nil {
			data = long
		}
	}
	text := string(data)
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}
