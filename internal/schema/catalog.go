package schema

import (
	"errors"
	"fmt"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrUnknownKind is what the error of Catalog.Kind is (errors.Is) when the catalog does not have the kind. Any other error
// means that the catalog could not be read.
var ErrUnknownKind = errors.New("unknown kind")

// Kind is what a catalog knows about a kind.
type Kind struct {
	GVK runtimeschema.GroupVersionKind
	// Resource is the plural in URLs.
	Resource string
	// Namespaced tells whether objects of the kind live in namespaces.
	Namespaced bool
	// HasStatus tells whether the kind has the status subresource.
	HasStatus bool
	// Schema of an object; nil when the content is not known.
	Schema *Schema
}

// Catalog finds kinds. It is safe for concurrent use.
type Catalog interface {
	// Kind returns the kind. The error is ErrUnknownKind (errors.Is) when the catalog does not have it.
	Kind(gvk runtimeschema.GroupVersionKind) (*Kind, error)
}

// Lister is a Catalog that can list what it has; SuggestKind needs it.
type Lister interface {
	// Kinds lists the kinds in no particular order.
	Kinds() []runtimeschema.GroupVersionKind
}

// unknownKind makes the error for a kind that is not in a catalog.
func unknownKind(gvk runtimeschema.GroupVersionKind) error {
	return fmt.Errorf("%w: %s", ErrUnknownKind, KindString(gvk))
}

// KindString writes a kind the way that people write it in YAML: "apps/v1 Deployment".
func KindString(gvk runtimeschema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}

// Chain returns a catalog that asks the given ones in turn: the first that has a kind answers. Nil catalogs are left out.
func Chain(cs ...Catalog) Catalog {
	chain := make(chainCatalog, 0, len(cs))
	for _, c := range cs {
		if c != nil {
			chain = append(chain, c)
		}
	}
	return chain
}

type chainCatalog []Catalog

// Kind implements Catalog. An error other than ErrUnknownKind is returned only if no later catalog has the kind.
func (c chainCatalog) Kind(gvk runtimeschema.GroupVersionKind) (*Kind, error) {
	var failure error
	for _, catalog := range c {
		kind, err := catalog.Kind(gvk)
		if err == nil {
			return kind, nil
		}
		if !errors.Is(err, ErrUnknownKind) && failure == nil {
			failure = err
		}
	}
	if failure != nil {
		return nil, failure
	}
	return nil, unknownKind(gvk)
}

// Kinds implements Lister.
func (c chainCatalog) Kinds() []runtimeschema.GroupVersionKind {
	seen := map[runtimeschema.GroupVersionKind]bool{}
	var kinds []runtimeschema.GroupVersionKind
	for _, catalog := range c {
		lister, ok := catalog.(Lister)
		if !ok {
			continue
		}
		for _, gvk := range lister.Kinds() {
			if !seen[gvk] {
				seen[gvk] = true
				kinds = append(kinds, gvk)
			}
		}
	}
	return kinds
}
