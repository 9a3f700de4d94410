package expr

import (
	"github.com/libretto-dev/libretto/internal/schema"
)

// Want says what an expression has to yield.
type Want struct {
	kind wantKind
	to   *schema.Schema
}

type wantKind int

const (
	wantAny wantKind = iota
	wantBool
	wantString
	wantText
	wantList
	wantSchema
)

// What an expression has to yield.
var (
	// Any value.
	Any = Want{kind: wantAny}
	// Bool is true or false.
	Bool = Want{kind: wantBool}
	// String is a string.
	String = Want{kind: wantString}
	// Text is what can stand within a text: a string, a number, a boolean, a time; see Format.
	Text = Want{kind: wantText}
	// List is a list.
	List = Want{kind: wantList}
)

// For wants a value that a place with the schema takes. The nil schema takes any.
func For(s *schema.Schema) Want { return Want{kind: wantSchema, to: s} }

// Ref is a value that an expression reads.
type Ref struct {
	// Variable that is read.
	Variable string
	// Path of fields below the variable, as far as it is known without running the expression. "*" stands for any item of
	// a list or entry of a map. The path ends where the value is used as a whole.
	Path []string
}

// Omit is the value of an expression whose result is to be left out: omit(), or an optional that is none.
type Omit struct{}

// Expr is a compiled expression. It is immutable and safe for concurrent use.
type Expr struct {
}

// Source returns the expression as it was written.
func (x *Expr) Source() string { return "" }

// Refs returns what the expression reads, sorted, each once.
func (x *Expr) Refs() []Ref { return nil }

// Variables returns the names of the variables that the expression reads, sorted.
func (x *Expr) Variables() []string { return nil }

// Type returns the type of the result in words, such as "list of string".
func (x *Expr) Type() string { return "" }

// Schema returns what is known about the result once it is a JSON value: a time is a string with format date-time. It is nil
// if nothing is known. A variable with this schema may be bound to the result.
func (x *Expr) Schema() *schema.Schema { return nil }

// MayOmit tells whether the result may be Omit.
func (x *Expr) MayOmit() bool { return false }

// Assignable checks the result against the schema of the place that it goes to; nil: it fits, or that is not known before
// it runs.
func (x *Expr) Assignable(to *schema.Schema) *Problem { return nil }

// IsOmit tells whether a value is Omit.
func IsOmit(v any) bool {
	_, ok := v.(Omit)
	return ok
}
