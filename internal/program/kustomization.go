package program

import (
	"github.com/libretto-dev/libretto/internal/kustomization"
)

// Kustomization is a kustomize base whose strings may hold ${…}. It is immutable but for the cache in its Builder.
type Kustomization struct {
	// Files of the base, sorted by path.
	Files []KustomizationFile
	// Overlay is the kustomization.yaml over the base: images, replicas, prefix and suffix of names; nil: none.
	Overlay *Template
	// Uses are the expressions in all files, with paths below the resource's kustomization.
	Uses []Use
	// Builder builds and remembers. It is safe for concurrent use.
	Builder *kustomization.Builder
}

// KustomizationFile is a file of a base: exactly one of Static, Documents and Text is set.
type KustomizationFile struct {
	Path string
	// Static is a file without expressions, as it is.
	Static []byte
	// Documents are the YAML documents of a file with expressions.
	Documents []*Template
	// Text is any other file with expressions; its value is a string.
	Text *Template
}
