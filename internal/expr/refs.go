package expr

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Ref is a value that an expression reads.
type Ref struct {
	// Variable that is read.
	Variable string
	// Path of fields below the variable, as far as it is known without running the expression. "*" stands for any item of
	// a list or entry of a map. The path ends where the value is used as a whole.
	Path []string
}

// step is a field, an item, or any of them.
type step struct {
	field string
	index int64
	kind  stepKind
}

type stepKind int

const (
	stepField stepKind = iota
	stepIndex
	stepAny
)

func (s step) String() string {
	switch s.kind {
	case stepIndex:
		return "[" + strconv.FormatInt(s.index, 10) + "]"
	case stepAny:
		return "[*]"
	default:
		return s.field
	}
}

// chain is a variable and the way down from it.
type chain struct {
	root  string
	steps []step
}

func (c chain) to(s step) chain {
	return chain{root: c.root, steps: append(slices.Clip(c.steps), s)}
}

// path is the way down in words.
func path(steps []step) []string {
	words := make([]string, len(steps))
	for i, s := range steps {
		words[i] = s.String()
	}
	return words
}

// reader finds what an expression reads. Names that the expression itself introduces stand for what they go through.
type reader struct {
	vars  map[string]Variable
	scope map[string][]chain
	// read is called for every value that is used, selected for every field that is selected.
	read     func(chain)
	selected func(id int64, operand []chain)
}

// visit reads all that an expression uses.
func (r *reader) visit(e ast.Expr) {
	for _, c := range r.follow(e) {
		r.read(c)
	}
}

// follow returns the values that an expression leads to, if it does nothing but go down from a variable. Whatever else the
// expression uses is read.
func (r *reader) follow(e ast.Expr) []chain {
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		if chains, local := r.scope[name]; local {
			return chains
		}
		if _, known := r.vars[name]; known {
			return []chain{{root: name}}
		}
	case ast.SelectKind:
		operand := r.follow(e.AsSelect().Operand())
		if r.selected != nil {
			r.selected(e.ID(), operand)
		}
		return down(operand, step{field: e.AsSelect().FieldName()})
	case ast.CallKind:
		return r.followCall(e)
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			r.visit(item)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visit(entry.AsMapEntry().Key())
			r.visit(entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		r.comprehension(e.AsComprehension())
	}
	return nil
}

func down(chains []chain, s step) []chain {
	out := make([]chain, len(chains))
	for i, c := range chains {
		out[i] = c.to(s)
	}
	return out
}

func (r *reader) followCall(e ast.Expr) []chain {
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		if len(args) != 2 {
			break
		}
		operand := r.follow(args[0])
		if args[1].Kind() == ast.LiteralKind {
			switch key := args[1].AsLiteral().(type) {
			case types.String:
				if r.selected != nil {
					r.selected(e.ID(), operand)
				}
				return down(operand, step{field: string(key)})
			case types.Int:
				return down(operand, step{kind: stepIndex, index: int64(key)})
			}
		}
		r.visit(args[1])
		return down(operand, step{kind: stepAny})
	case operators.Conditional:
		r.visit(args[0])
		return append(r.follow(args[1]), r.follow(args[2])...)
	}
	if call.IsMemberFunction() {
		r.visit(call.Target())
	}
	for _, arg := range args {
		r.visit(arg)
	}
	return nil
}

func (r *reader) comprehension(c ast.ComprehensionExpr) {
	items := down(r.follow(c.IterRange()), step{kind: stepAny})
	initial := r.follow(c.AccuInit())
	outer := r.scope
	defer func() { r.scope = outer }()
	r.scope = maps.Clone(outer)
	if r.scope == nil {
		r.scope = map[string][]chain{}
	}
	r.scope[c.AccuVar()] = initial
	if c.HasIterVar2() {
		r.scope[c.IterVar()], r.scope[c.IterVar2()] = nil, items
	} else {
		r.scope[c.IterVar()] = items
	}
	used := false
	read := r.read
	r.read = func(found chain) {
		for _, item := range items {
			used = used || found.root == item.root && len(found.steps) >= len(item.steps)
		}
		read(found)
	}
	defer func() { r.read = read }()
	r.visit(c.LoopCondition())
	if step := c.LoopStep(); step.Kind() != ast.IdentKind { // that of cel.bind is the bound name, and reads nothing
		r.visit(step)
	}
	r.visit(c.Result())
	if !used { // the number of items matters even if what is in them does not
		for _, item := range items {
			read(item)
		}
	}
}

// readRefs fills in what the expression reads.
func (x *Expr) readRefs(vars map[string]Variable) {
	seen := map[string]bool{}
	x.vars = map[string]Variable{}
	r := reader{vars: vars, read: func(c chain) {
		key := joinPath(c.root, path(c.steps))
		if !seen[key] {
			seen[key] = true
			x.reads = append(x.reads, c)
			x.vars[c.root] = vars[c.root]
		}
	}}
	r.visit(x.ast.Expr())
	refs := map[string]Ref{}
	for _, c := range x.reads {
		ref := Ref{Variable: c.root, Path: make([]string, len(c.steps))}
		for i, s := range c.steps {
			ref.Path[i] = s.field
			if s.kind != stepField {
				ref.Path[i] = "*"
			}
		}
		refs[ref.Variable+"\x00"+strings.Join(ref.Path, "\x00")] = ref
	}
	for _, key := range slices.Sorted(maps.Keys(refs)) {
		x.refs = append(x.refs, refs[key])
	}
}
