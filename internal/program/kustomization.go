package program

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/expr"
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

// Build evaluates the expressions in the files and builds the base. Objects are shared and must not be changed. Errors are
// those of eval, or of the build.
func (k *Kustomization) Build(eval func(*expr.Expr) (any, error)) ([]*unstructured.Unstructured, error) {
	files := make(map[string][]byte, len(k.Files))
	for i := range k.Files {
		content, err := k.Files[i].evaluate(eval)
		if err != nil {
			return nil, at(k.Files[i].Path, err)
		}
		files[k.Files[i].Path] = content
	}
	var overlay []byte
	if k.Overlay != nil {
		value, err := k.Overlay.Evaluate(eval)
		if err != nil {
			return nil, err
		}
		if overlay, err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("cannot write the overlay: %w", err)
		}
	}
	return k.Builder.Build(files, overlay)
}

func (f *KustomizationFile) evaluate(eval func(*expr.Expr) (any, error)) ([]byte, error) {
	switch {
	case f.Text != nil:
		value, err := f.Text.Evaluate(eval)
		if err != nil {
			return nil, err
		}
		text, err := FormatText(value)
		return []byte(text), err
	case f.Documents == nil:
		return f.Static, nil
	}
	var out []byte
	for _, d := range f.Documents {
		value, err := d.Evaluate(eval)
		if err != nil {
			return nil, err
		}
		if expr.IsOmit(value) {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("cannot write a document: %w", err)
		}
		out = append(append(append(out, "---\n"...), text...), '\n')
	}
	return out, nil
}
