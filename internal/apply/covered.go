package apply

import (
	"sort"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/libretto-dev/libretto/internal/watch"
)

// maxMissing is how many paths Covered reports.
const maxMissing = 10

// Covered tells whether the fields that Libretto owns in the live object still hold every field of desired. If so, nobody has
// changed or removed one of them since Libretto applied it: a field that another manager changes is no longer ours. missing
// are the paths that are not, sorted, at most 10. instance is the UID in desired that InstancePlaceholder stands for.
//
// It needs no schema. Whether a list is atomic, a set or keyed is seen from how its fields are owned: as a whole, by value or by
// key. Fields that the API server never lets a manager own (names, status) are left out. A null and an empty list leave no
// trace of ownership; they count as covered.
func Covered(desired map[string]any, owned watch.OwnedFields, instance types.UID) (covered bool, missing []string) {
	set, err := parseFields(owned)
	if err != nil {
		return false, nil
	}
	return covers(desired, set, instance)
}

func parseFields(owned watch.OwnedFields) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if owned.Raw() == "" {
		return set, nil
	}
	if err := set.FromJSON(strings.NewReader(owned.Raw())); err != nil {
		return nil, err
	}
	return set, nil
}

func covers(desired map[string]any, set *fieldpath.Set, instance types.UID) (bool, []string) {
	c := coverage{instance: string(instance)}
	for name, v := range desired {
		switch name {
		case "apiVersion", "kind", "status":
		case "metadata":
			c.metadata(set, v)
		default:
			c.field(set, name, v, name)
		}
	}
	sort.Strings(c.missing)
	return !c.lacks, c.missing
}

// coverage compares one object.
type coverage struct {
	instance string
	lacks    bool
	missing  []string
}

func (c *coverage) miss(path string) {
	c.lacks = true
	if len(c.missing) < maxMissing {
		c.missing = append(c.missing, path)
	}
}

// missAll notes all that is in v: none of it is owned.
func (c *coverage) missAll(path string, v any) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		c.miss(path)
		return
	}
	for name, item := range m {
		c.missAll(path+"."+name, item)
	}
}

// metadata compares what managers can own of metadata.
func (c *coverage) metadata(set *fieldpath.Set, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	sub, _ := set.Children.Get(fieldpath.FieldNameElement("metadata"))
	if sub == nil {
		sub = &fieldpath.Set{}
	}
	for name, v := range m {
		switch name {
		case "labels", "annotations", "ownerReferences", "finalizers":
			c.field(sub, name, v, "metadata."+name)
		}
	}
}

// field compares the field name of the object that set is about.
func (c *coverage) field(set *fieldpath.Set, name string, v any, path string) {
	c.element(set, fieldpath.FieldNameElement(name), v, path)
}

// element compares the value v at the path element pe below set.
func (c *coverage) element(set *fieldpath.Set, pe fieldpath.PathElement, v any, path string) {
	if v == nil {
		return
	}
	member := set.Members.Has(pe)
	sub, _ := set.Children.Get(pe)
	if sub == nil {
		// Owned as a whole (a scalar, an atomic map or list, an empty map), or not at all.
		if !member && !empty(v) {
			c.missAll(path, v)
		}
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, item := range v {
			c.field(sub, name, item, path+"."+name)
		}
	case []any:
		c.list(sub, v, path)
	default:
		if !member {
			c.miss(path)
		}
	}
}

// empty tells whether v leaves no trace in a field set: an empty list or map.
func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if item != nil && !empty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return v == nil
	}
}

// list compares the items of a set or of a keyed list.
func (c *coverage) list(set *fieldpath.Set, items []any, path string) {
	used := map[string]bool{}
	// Items that name more of the key fields choose first: the others take what the API server's defaults left.
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	keys := c.keys(set)
	sort.SliceStable(order, func(a, b int) bool { return named(items[order[a]], keys) > named(items[order[b]], keys) })
	for _, i := range order {
		m, ok := items[i].(map[string]any)
		if !ok {
			v := value.NewValueInterface(c.placeholder(items[i]))
			if !set.Members.Has(fieldpath.ValueElement(v)) {
				c.miss(path + "[]")
			}
			continue
		}
		pe, found := c.match(m, keys, used)
		if !found {
			c.miss(path + "[" + keyText(m, keys) + "]")
			continue
		}
		used[pe.String()] = true
		c.element(set, pe, m, path+pe.String())
	}
}

// keys lists the elements of a keyed list.
func (c *coverage) keys(set *fieldpath.Set) []fieldpath.PathElement {
	var out []fieldpath.PathElement
	collect := func(pe fieldpath.PathElement) {
		if pe.Key != nil {
			out = append(out, pe)
		}
	}
	set.Children.Iterate(collect)
	set.Members.Iterate(func(pe fieldpath.PathElement) {
		if _, ok := set.Children.Get(pe); !ok {
			collect(pe)
		}
	})
	return out
}

// named counts the key fields that an item has.
func named(item any, keys []fieldpath.PathElement) int {
	m, ok := item.(map[string]any)
	if !ok || len(keys) == 0 {
		return 0
	}
	n := 0
	for _, f := range *keys[0].Key {
		if _, ok := m[f.Name]; ok {
			n++
		}
	}
	return n
}

// match finds the key of an item: the key fields that the item has are equal; those it lacks have their defaults.
func (c *coverage) match(item map[string]any, keys []fieldpath.PathElement, used map[string]bool) (fieldpath.PathElement, bool) {
	for _, pe := range keys {
		equal, any := true, false
		for _, f := range *pe.Key {
			v, ok := item[f.Name]
			if !ok {
				continue
			}
			any = true
			if !value.Equals(value.NewValueInterface(c.placeholder(v)), f.Value) {
				equal = false
				break
			}
		}
		if equal && any && !used[pe.String()] {
			return pe, true
		}
	}
	return fieldpath.PathElement{}, false
}

// placeholder puts InstancePlaceholder in place of the instance's UID, as in OwnedFields.
func (c *coverage) placeholder(v any) any {
	s, ok := v.(string)
	if !ok || c.instance == "" || !strings.Contains(s, c.instance) {
		return v
	}
	return strings.ReplaceAll(s, c.instance, watch.InstancePlaceholder)
}

// keyText names an item by those of its key fields that are known from its siblings.
func keyText(item map[string]any, keys []fieldpath.PathElement) string {
	names := []string{"name"}
	if len(keys) > 0 {
		names = names[:0]
		for _, f := range *keys[0].Key {
			names = append(names, f.Name)
		}
	}
	var parts []string
	for _, name := range names {
		if v, ok := item[name]; ok {
			parts = append(parts, name+"="+value.ToString(value.NewValueInterface(v)))
		}
	}
	return strings.Join(parts, ",")
}

// fieldSets remembers parsed field sets: objects made from the same template share one.
type fieldSets struct {
	mu   sync.Mutex
	sets map[string]*fieldSet
}

// fieldSet is a parsed set of fields. It is read only.
type fieldSet struct{ *fieldpath.Set }

func (s *fieldSet) covers(desired map[string]any, instance types.UID) (bool, []string) {
	return covers(desired, s.Set, instance)
}

func (s *fieldSet) owns(path ...string) bool {
	elements := make(fieldpath.Path, 0, len(path))
	for _, name := range path {
		elements = append(elements, fieldpath.FieldNameElement(name))
	}
	return s.Has(elements)
}

// maxFieldSets bounds the memory of fieldSets. A definition has about as many as it has resources.
const maxFieldSets = 512

func (f *fieldSets) get(owned watch.OwnedFields) (*fieldSet, error) {
	raw := owned.Raw()
	f.mu.Lock()
	set, ok := f.sets[raw]
	f.mu.Unlock()
	if ok {
		return set, nil
	}
	parsed, err := parseFields(owned)
	if err != nil {
		return nil, err
	}
	set = &fieldSet{parsed}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sets) >= maxFieldSets {
		clear(f.sets)
	}
	f.sets[raw] = set
	return set, nil
}
