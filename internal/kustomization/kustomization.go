// Package kustomization builds kustomize bases in memory. It knows nothing of expressions: its input are files as they are
// after evaluation. Nothing outside the given files is read, nothing is run.
package kustomization

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Builder builds bases and remembers the newest results by their inputs. It is safe for concurrent use.
type Builder struct{}

// NewBuilder returns a Builder that remembers at most size results.
func NewBuilder(size int) *Builder { return &Builder{} }

// Build builds the base in files, a map from path to content that holds a kustomization.yaml at its top. The objects are in
// build order; they are shared with later callers and must not be changed.
func (b *Builder) Build(files map[string][]byte, overlay map[string]any) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
