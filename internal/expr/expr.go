package expr

import (
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

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

// Expr is a compiled expression. It is immutable and safe for concurrent use.
type Expr struct {
	source   string
	ast      *ast.AST
	result   *cel.Type
	provider *typeProvider
	program  cel.Program
	// vars are those that are read, reads the ways down from them, refs the same for callers.
	vars  map[string]Variable
	reads []chain
	refs  []Ref
}

// Source returns the expression as it was written.
func (x *Expr) Source() string { return x.source }

// Refs returns what the expression reads, sorted, each once. The caller must not change it.
func (x *Expr) Refs() []Ref { return x.refs }

// Variables returns the names of the variables that the expression reads, sorted.
func (x *Expr) Variables() []string { return slices.Sorted(maps.Keys(x.vars)) }

// Type returns the type of the result in words, such as "list of string".
func (x *Expr) Type() string { return describeType(x.result) }

// Schema returns what is known about the result once it is a JSON value: a time is a string with format date-time. It is nil
// if nothing is known. A variable with this schema may be bound to the result.
func (x *Expr) Schema() *schema.Schema { return x.provider.schemaOf(x.result) }

// MayOmit tells whether the result may be Omit.
func (x *Expr) MayOmit() bool {
	if isOptional(x.result) {
		return true
	}
	return mayOmit(x.ast.Expr())
}

func mayOmit(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	switch call := e.AsCall(); call.FunctionName() {
	case "omit":
		return true
	case "_?_:_":
		return mayOmit(call.Args()[1]) || mayOmit(call.Args()[2])
	}
	return false
}

// Assignable checks the result against the schema of the place that it goes to; nil: it fits, or that is not known before
// it runs.
func (x *Expr) Assignable(to *schema.Schema) *Problem {
	a := assigner{x: x, seen: map[[2]*schema.Schema]bool{}}
	return a.expr(x.ast.Expr(), x.result, to)
}

// check compares the result with what is wanted.
func (w Want) check(x *Expr) *Problem {
	t := x.result
	if t.Kind() == types.DynKind || w.kind == wantAny {
		return nil
	}
	if w.kind == wantSchema {
		return x.Assignable(w.to)
	}
	p := &Problem{Message: "the expression has the wrong type", Found: x.Type()}
	optional := isOptional(t)
	var ok bool
	switch w.kind {
	case wantBool:
		ok, p.Expected = t.Kind() == types.BoolKind, "boolean"
		p.Hint = "compare it with something, as in x == 'a' or has(x.y)"
		if optional {
			p.Hint = "say what it is when it is absent: orValue(false)"
		}
	case wantString:
		ok, p.Expected = t.Kind() == types.StringKind || isText(t), "string"
		p.Hint = "use string(…)"
		if optional {
			p.Hint = "say what it is when it is absent: orValue('…')"
		}
	case wantList:
		ok, p.Expected = t.Kind() == types.ListKind, "list"
		p.Hint = ""
		if optional {
			p.Hint = "say what it is when it is absent: orValue([])"
		}
	case wantText:
		ok, p.Expected = formattable(t), "something that can stand within a text"
		p.Hint = textHint(t)
	}
	if ok {
		return nil
	}
	return p
}

// formattable tells whether values of the type can stand within a text.
func formattable(t *cel.Type) bool {
	switch t.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind,
		types.DurationKind, types.DynKind:
		return true
	}
	return isText(t)
}

func textHint(t *cel.Type) string {
	switch {
	case isOptional(t):
		return "say what it is when it is absent: orValue('…')"
	case t.Kind() == types.BytesKind:
		return "use string(…) for the text itself, or base64.encode(…)"
	case t.Kind() == types.ListKind:
		return "use join(', ') or json(…)"
	default:
		return "select a field, or use json(…)"
	}
}

// Omit is the value of an expression whose result is to be left out: omit(), or an optional that is none.
type Omit struct{}

// IsOmit tells whether a value is Omit.
func IsOmit(v any) bool {
	_, ok := v.(Omit)
	return ok
}
