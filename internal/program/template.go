package program

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/libretto-dev/libretto/internal/expr"
)

// Template is a JSON value in which strings that hold ${…} have been replaced by what computes them. It is immutable.
type Template struct {
	// Root is the value.
	Root *Part
	// Uses are the expressions in it, in order of their paths.
	Uses []Use
}

// Use is an expression at its place.
type Use struct {
	// Path of the string within the template, such as spec.replicas.
	Path string
	Expr *expr.Expr
}

// PartKind says what a Part is.
type PartKind int

// Kinds of parts.
const (
	// PartStatic is a JSON value without expressions.
	PartStatic PartKind = iota
	// PartExpr is a whole ${…}: the value of the expression with its type.
	PartExpr
	// PartText is text with ${…} in it.
	PartText
	// PartObject is an object with expressions somewhere below.
	PartObject
	// PartList is a list with expressions somewhere below.
	PartList
	// PartDocument is a string that holds a document of its own (YAML within YAML, as inline patches of kustomize): its
	// value is the text of the value of Items[0], as JSON.
	PartDocument
)

// Part is a node of a template.
type Part struct {
	Kind PartKind
	// Static is the value of a PartStatic. It is shared by all that was computed from the template: nobody may change it.
	Static any
	// Expr is the expression of a PartExpr.
	Expr *expr.Expr
	// Segments are the pieces of a PartText.
	Segments []Segment
	// Fields are the fields of a PartObject, sorted by name.
	Fields []Field
	// Items are the items of a PartList, or the content of a PartDocument.
	Items []*Part
}

// Field is a field of an object.
type Field struct {
	Name  string
	Value *Part
}

// Segment is a piece of text: Expr is nil for literal text.
type Segment struct {
	Text string
	Expr *expr.Expr
}

// StaticTemplate returns a template without expressions.
func StaticTemplate(value any) *Template {
	return &Template{Root: &Part{Kind: PartStatic, Static: value}}
}

// IsStatic tells whether there is no expression in the template.
func (t *Template) IsStatic() bool { return t.Root.Kind == PartStatic }

// Lookup returns the part at a path of field names, or nil. Static tells that the path lies in a part without expressions,
// whose value is then returned.
func (t *Template) Lookup(names ...string) (part *Part, value any, static bool) {
	p := t.Root
	for i, name := range names {
		switch p.Kind {
		case PartStatic:
			value, ok := lookupValue(p.Static, names[i:])
			return nil, value, ok
		case PartObject:
			next := p.field(name)
			if next == nil {
				return nil, nil, false
			}
			p = next
		case PartExpr, PartText, PartList, PartDocument:
			return nil, nil, false
		}
	}
	if p.Kind == PartStatic {
		return p, p.Static, true
	}
	return p, nil, false
}

func (p *Part) field(name string) *Part {
	for i := range p.Fields {
		if p.Fields[i].Name == name {
			return p.Fields[i].Value
		}
	}
	return nil
}

func lookupValue(value any, names []string) (any, bool) {
	for _, name := range names {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// Evaluate computes the value. Objects and lists that hold expressions are new, all else is shared with the template and
// must not be changed. A field or item whose expression yields expr.Omit is left out; when all is left out, the value is
// expr.Omit itself. The first error of eval ends the evaluation; it is returned as an *EvaluateError with the path.
func (t *Template) Evaluate(eval func(*expr.Expr) (any, error)) (any, error) {
	value, err := t.Root.evaluate(eval)
	if err != nil {
		return nil, err
	}
	return value, nil
}

// EvaluateError says where in a template an expression failed. It unwraps to the error of the expression.
type EvaluateError struct {
	// Path within the template.
	Path string
	Err  error
}

func (e *EvaluateError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

func (e *EvaluateError) Unwrap() error { return e.Err }

func at(step string, err error) error {
	inner, ok := err.(*EvaluateError) //nolint:errorlint // made by this file alone, never wrapped on the way
	if !ok {
		return &EvaluateError{Path: step, Err: err}
	}
	switch {
	case inner.Path == "":
		inner.Path = step
	case inner.Path[0] == '[':
		inner.Path = step + inner.Path
	default:
		inner.Path = step + "." + inner.Path
	}
	return inner
}

func (p *Part) evaluate(eval func(*expr.Expr) (any, error)) (any, error) {
	switch p.Kind {
	case PartStatic:
		return p.Static, nil
	case PartExpr:
		return eval(p.Expr)
	case PartText:
		return p.text(eval)
	case PartObject:
		object := make(map[string]any, len(p.Fields)+1)
		for i := range p.Fields {
			f := &p.Fields[i]
			value, err := f.Value.evaluate(eval)
			if err != nil {
				return nil, at(f.Name, err)
			}
			if !expr.IsOmit(value) {
				object[f.Name] = value
			}
		}
		return object, nil
	case PartList:
		list := make([]any, 0, len(p.Items))
		for i, item := range p.Items {
			value, err := item.evaluate(eval)
			if err != nil {
				return nil, at("["+strconv.Itoa(i)+"]", err)
			}
			if !expr.IsOmit(value) {
				list = append(list, value)
			}
		}
		return list, nil
	case PartDocument:
		value, err := p.Items[0].evaluate(eval)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("cannot write a value as JSON: %w", err)
		}
		return string(text), nil
	}
	return nil, fmt.Errorf("unknown part of a template: %d", p.Kind)
}

func (p *Part) text(eval func(*expr.Expr) (any, error)) (any, error) {
	var b strings.Builder
	for i := range p.Segments {
		s := &p.Segments[i]
		if s.Expr == nil {
			b.WriteString(s.Text)
			continue
		}
		value, err := eval(s.Expr)
		if err != nil {
			return nil, err
		}
		text, err := FormatText(value)
		if err != nil {
			return nil, &expr.EvalError{Source: s.Expr.Source(), Message: err.Error()}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// FormatText formats a value for use within text, as expr.Format does, and an omitted value as nothing.
func FormatText(value any) (string, error) {
	if expr.IsOmit(value) {
		return "", nil
	}
	return expr.Format(value)
}
