package schema

import (
	"sort"
	"strings"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// DidYouMean returns the candidate that is closest to a word that was not found; empty if none is close.
func DidYouMean(word string, candidates []string) string {
	best, bestDistance := "", len(word)/3+2 // a third of the letters may differ, and one more
	sorted := append([]string(nil), candidates...)
	sort.Strings(sorted)
	for _, candidate := range sorted {
		if candidate == word || candidate == "" {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(candidate))
		if d >= max(len(word), len(candidate)) { // nothing in common
			continue
		}
		if d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour to make b of a.
func distance(a, b string) int {
	var before []int
	previous, current := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, make([]int, len(b)+1)
	}
	return previous[len(b)]
}

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
	if name := DidYouMean(unknown.Kind, inGroupVersion); name != "" {
		return unknown.GroupVersion().WithKind(name), true
	}
	if name := DidYouMean(unknown.Kind, names); name != "" {
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
