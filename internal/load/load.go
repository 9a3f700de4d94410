// Package load reads YAML documents into OperatorDefinitions and remembers where each field stands. It is strict: what the
// API server would refuse or drop is an error here, in the same words.
package load

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
)

// Document is a definition and the places of its fields.
type Document struct {
	// Definition is the definition, with the defaults of the API server.
	Definition *v1alpha1.OperatorDefinition
	// File is the name of the file, - for the standard input.
	File string
	// Positions are the places of the fields.
	Positions *Positions
}

// Extra is another object that was found beside definitions: a CustomResourceDefinition, an instance, any manifest.
type Extra struct {
	Object *unstructured.Unstructured
	File   string
	Line   int
}

// Load reads files, directories (all .yaml, .yml and .json files below, but not below a directory that holds a
// kustomization.yaml) and the standard input (-). Kustomizations with a path are read from their directories. What can be
// read is returned beside the errors about the rest.
func Load(paths ...string) ([]*Document, []Extra, diag.List) { return nil, nil, nil }

// Parse reads the documents of one file. Kustomizations with a path are left alone: see Inline.
func Parse(name string, data []byte) ([]*Document, []Extra, diag.List) { return nil, nil, nil }

// Inline puts the files of kustomizations in place of their paths, which are relative to the directory dir.
func Inline(doc *Document, dir string) diag.List { return nil }

// Positions are the places of the fields of a document.
type Positions struct{}

// Locate adds file, line and column to diagnostics that have a path, and sorts.
func (d *Document) Locate(l diag.List) diag.List { return l }
