package schema

import (
	"sort"
	"strings"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/diag"
)

// SuggestKind returns the kind that an unknown one was probably meant to be: the same kind of another group or version, or
// one with a similar name. ok is false if there is none, or the catalog is no Lister.
func SuggestKind(c Catalog, unknown runtimeschema.GroupVersionKind) (gvk runtimeschema.GroupVersionKind, ok bool) {
	lister, isLister := c.(Lister)
	if !isLister {
		return gvk, false
	}
	kinds := lister.Kinds()
	sort.Slice(kinds, func(i, j int) bool { return preferred(kinds[i], kinds[j]) })
	var names, inGroupVersion []string
	for _, k := range kinds {
		names = append(names, k.Kind)
		if k.GroupVersion() == unknown.GroupVersion() {
			inGroupVersion = append(inGroupVersion, k.Kind)
		}
	}
	find := func(match func(runtimeschema.GroupVersionKind) bool) bool {
		for _, k := range kinds {
			if match(k) {
				gvk, ok = k, true
				return true
			}
		}
		return false
	}
	sameKind := func(k runtimeschema.GroupVersionKind) bool { return k.Kind == unknown.Kind }
	sameGroup := func(k runtimeschema.GroupVersionKind) bool { return sameKind(k) && k.Group == unknown.Group }
	if find(sameGroup) || find(sameKind) {
		return gvk, ok
	}
	if name, ok := diag.Nearest(unknown.Kind, inGroupVersion); ok {
		return unknown.GroupVersion().WithKind(name), true
	}
	if name, ok := diag.Nearest(unknown.Kind, names); ok {
		find(func(k runtimeschema.GroupVersionKind) bool { return k.Kind == name })
	}
	return gvk, ok
}

// preferred orders kinds of the same name: stable versions first, then by group and version.
func preferred(a, b runtimeschema.GroupVersionKind) bool {
	if s, t := strings.ContainsAny(a.Version, "ab"), strings.ContainsAny(b.Version, "ab"); s != t {
		return t
	}
	if (a.Group == "events.k8s.io") != (b.Group == "events.k8s.io") {
		return b.Group == "events.k8s.io"
	}
	if a.Group != b.Group {
		return a.Group < b.Group
	}
	return a.Version > b.Version
}
