// Package compile turns a definition into a Program, or into all that is wrong with it at once. It is pure: the same
// definition and the same catalog make the same Program.
package compile

import (
	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// Options say what a definition is compiled against.
type Options struct {
	// Catalog knows the kinds; nil: those of Kubernetes itself.
	Catalog schema.Catalog
}

// Compile compiles a definition. The Program is nil if one of the diagnostics is an error. The definition is not changed.
func Compile(def *v1alpha1.OperatorDefinition, opts Options) (*program.Program, diag.List) {
	return nil, nil
}
