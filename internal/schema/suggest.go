package schema

import (
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// DidYouMean returns the candidate that is closest to a word that was not found; empty if none is close.
func DidYouMean(word string, candidates []string) string { return "" }

// SuggestKind returns the kind that an unknown one was probably meant to be: the same kind of another group or version, or
// one with a similar name. ok is false if there is none, or the catalog is no Lister.
func SuggestKind(c Catalog, unknown runtimeschema.GroupVersionKind) (gvk runtimeschema.GroupVersionKind, ok bool) {
	return gvk, false
}
