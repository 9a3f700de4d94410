package expr

import (
	"github.com/libretto-dev/libretto/internal/schema"
)

// Variable is a name that expressions may use.
type Variable struct {
	// Name as expressions write it.
	Name string
	// Schema of the value, or of one item if List; nil: not known, checked at run time.
	Schema *schema.Schema
	// List: the value is a list of what Schema describes.
	List bool
	// Optional: expressions see an optional, which is none when the variable is not bound or bound to nil.
	Optional bool
	// Pending: what is missing in the value may come later, as in an object that somebody else makes. Reading it is a
	// PendingError. Without it, reading what is missing is an EvalError.
	Pending bool
}

// Options of an environment.
type Options struct {
	// AllowRandom allows the functions random.*. They are otherwise a Problem.
	AllowRandom bool
}

// Env is a set of names, with their types, that expressions are compiled against. It is immutable and safe for concurrent
// use.
type Env struct {
}

// NewEnv returns an environment with the variables. The error is a fault of the caller's: a variable twice, or a name that
// is none.
func NewEnv(vars []Variable, opts Options) (*Env, error) { return nil, nil }

// With returns an environment that has further variables.
func (e *Env) With(vars ...Variable) (*Env, error) { return nil, nil }

// Compile parses and checks an expression. All that is wrong with it is returned at once; the Expr is nil if anything is.
func (e *Env) Compile(src string, want Want) (*Expr, []*Problem) { return nil, nil }
