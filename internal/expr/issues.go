package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/schema"
)

// problems puts what the parser or the checker found into words. tree is what was checked; nil for the parser.
func (e *Env) problems(src string, tree *ast.AST, issues *cel.Issues) []*Problem {
	var ps []*Problem
	for _, err := range issues.Errors() {
		p := e.problem(tree, err)
		p.Offset = offsetOf(src, err.Location)
		same := func(other *Problem) bool { return *other == *p }
		if !slices.ContainsFunc(ps, same) {
			ps = append(ps, p)
		}
	}
	return ps
}

// What the checker says. The versions of cel-go are pinned, and tests compare these with what it says.
var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	undefined  = regexp.MustCompile(`^undefined field '([^']*)'`)
	noOverload = regexp.MustCompile(`(?s)^found no matching overload for '([^']*)' applied to '(.*)'$`)
	mismatch   = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)
	noRange    = regexp.MustCompile(`^expression of type '(.*)' cannot be range of a comprehension`)
	noSelect   = regexp.MustCompile(`^type '(.*)' does not support field selection`)
)

func (e *Env) problem(tree *ast.AST, err *common.Error) *Problem {
	text := err.Message
	if m := undeclared.FindStringSubmatch(text); m != nil {
		return e.unknownName(tree, err.ExprID, m[1])
	}
	if m := undefined.FindStringSubmatch(text); m != nil {
		return e.unknownField(tree, err.ExprID, m[1])
	}
	if m := noOverload.FindStringSubmatch(text); m != nil {
		return overloadProblem(m[1], m[2])
	}
	if m := mismatch.FindStringSubmatch(text); m != nil {
		return &Problem{Message: "this has the wrong type", Expected: describeTypeName(m[1]), Found: describeTypeName(m[2])}
	}
	if m := noRange.FindStringSubmatch(text); m != nil {
		p := &Problem{Message: "this cannot be iterated over", Expected: "list or map", Found: describeTypeName(m[1])}
		if strings.HasPrefix(p.Found, "optional ") {
			p.Hint = "say what it is when it is absent: orValue([])"
		}
		return p
	}
	if m := noSelect.FindStringSubmatch(text); m != nil {
		return &Problem{Message: "this has no fields", Expected: "object", Found: describeTypeName(m[1])}
	}
	if rest, ok := strings.CutPrefix(text, "Syntax error: "); ok {
		return syntaxProblem(rest)
	}
	return &Problem{Message: strings.ReplaceAll(text, objectPrefix, "")}
}

// syntaxProblem leaves out the parser's list of all that might have come.
func syntaxProblem(text string) *Problem {
	if before, _, ok := strings.Cut(text, " expecting "); ok {
		text = before
	}
	p := &Problem{Message: "syntax error: " + text}
	switch {
	case strings.Contains(text, "'='"):
		p.Hint = "compare with =="
	case strings.Contains(text, "'&'"), strings.Contains(text, "'|'"):
		p.Hint = "write && and ||"
	case strings.Contains(text, "<EOF>"):
		p.Hint = "the expression ends too early"
	case strings.Contains(text, "'{'"), strings.Contains(text, "'$'"):
		p.Hint = "inside an expression, names are written without ${…}"
	}
	return p
}

// unknownName is about a variable or function that is not there.
func (e *Env) unknownName(tree *ast.AST, id int64, name string) *Problem {
	variables := slices.Sorted(maps.Keys(e.vars))
	if n := find(tree, id); n != nil && n.Kind() == ast.CallKind {
		p := &Problem{Message: "there is no function " + name}
		if similar, ok := diag.Nearest(name, functionNames(e.names(), e.vars)); ok {
			p.Hint = fmt.Sprintf("did you mean %s?", similar)
		}
		return p
	}
	short := strings.TrimPrefix(name, ".")
	first, _, _ := strings.Cut(short, ".")
	p := &Problem{Message: "there is no resource, external or variable named " + first}
	if similar, ok := diag.Nearest(first, variables); ok {
		p.Hint = fmt.Sprintf("did you mean %s?", similar)
	} else if len(variables) > 0 {
		p.Hint = "the names are " + enumerate(variables)
	}
	return p
}

// functionNames are the names that are no variables, and the last words of those with a namespace.
func functionNames(names []string, vars map[string]Variable) []string {
	var functions []string
	for _, name := range names {
		if _, isVariable := vars[name]; !isVariable {
			functions = append(functions, name)
			if i := strings.LastIndexByte(name, '.'); i > 0 {
				functions = append(functions, name[i+1:])
			}
		}
	}
	return functions
}

// unknownField is about a field that the schema does not have.
func (e *Env) unknownField(tree *ast.AST, id int64, name string) *Problem {
	var of *schema.Schema
	if tree != nil {
		r := reader{vars: e.vars, read: func(chain) {}, selected: func(selectID int64, operand []chain) {
			if selectID != id {
				return
			}
			for _, c := range operand {
				if s := e.schemaAt(c); s != nil && s.HasFields() {
					of = s
				}
			}
		}}
		r.visit(tree.Expr())
	}
	if of == nil {
		return &Problem{Message: "there is no field " + name}
	}
	return noField(name, of)
}

// schemaAt follows a way down from a variable.
func (e *Env) schemaAt(c chain) *schema.Schema {
	s := e.vars[c.root].valueSchema()
	for _, step := range c.steps {
		switch {
		case s.Type() == schema.Array:
			s = s.Items()
		case step.kind == stepField:
			s, _ = fieldOf(s, step.field)
		default:
			s = s.Additional()
		}
	}
	return s.Resolved()
}

var operatorWords = map[string]string{
	"_+_": "+", "_-_": "-", "_*_": "*", "_/_": "/", "_%_": "%", "_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=",
	"_>_": ">", "_>=_": ">=", "_&&_": "&&", "_||_": "||", "!_": "!", "-_": "-", "_[_]": "[…]", "@in": "in", "_?_:_": "? :",
}

// overloadProblem is about an operator or function that does not take what it is given.
func overloadProblem(function, signature string) *Problem {
	receiver := ""
	if before, after, ok := strings.Cut(signature, ".("); ok {
		receiver, signature = before, "("+after
	}
	args := splitArguments(strings.TrimSuffix(strings.TrimPrefix(signature, "("), ")"))
	if receiver != "" {
		args = append([]string{receiver}, args...)
	}
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = describeTypeName(arg)
	}
	found := strings.Join(words, " and ")
	name, isOperator := operatorWords[function]
	if !isOperator {
		name = function + "(…)"
	}
	p := &Problem{Message: name + " cannot be used here", Found: found}
	if found == "" {
		p.Found = "no arguments"
	}
	if name == "? :" && len(words) == 3 {
		p.Found = words[1] + " and " + words[2]
	}
	switch {
	case (function == "orValue" || function == "or") && len(words) == 2:
		p.Hint = "both must have the same type; to make the optional a string first: .optMap(v, string(v)).orValue(…)"
	case slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "optional ") }):
		p.Hint = "an optional needs orValue(…) before it is used"
	case name == "? :":
		p.Hint = "both branches must have the same type"
	case name == "+" && slices.Contains(words, "string"):
		p.Hint = "turn the other side into a string: string(…)"
	case isOperator && slices.Contains(words, "integer") && slices.Contains(words, "number"):
		p.Hint = "turn the integer into a number: double(…)"
	case (name == "==" || name == "!=") && slices.Contains(words, "timestamp"):
		p.Hint = "write a time as timestamp('2006-01-02T15:04:05Z')"
	case slices.Contains(words, "bytes"):
		p.Hint = "turn bytes into a string: string(…)"
	case isOperator && len(words) == 2 && words[0] != words[1] && name != "[…]" && name != "in":
		p.Hint = "both sides must have the same type"
	case name == "[…]" && strings.HasPrefix(found, "object"):
		p.Hint = "select a field with a dot; a name that is no identifier stands in backquotes: x.`my-name`"
	}
	return p
}

func find(tree *ast.AST, id int64) ast.Expr {
	if tree == nil {
		return nil
	}
	var found ast.Expr
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(n ast.Expr) {
		if n.ID() == id {
			found = n
		}
	}))
	return found
}

// offsetOf returns the place in bytes. CEL counts lines from 1 and columns, in characters, from 0.
func offsetOf(src string, at common.Location) int {
	offset := 0
	for line := 1; line < at.Line(); line++ {
		i := strings.IndexByte(src[offset:], '\n')
		if i < 0 {
			break
		}
		offset += i + 1
	}
	for column := 0; column < at.Column() && offset < len(src); column++ {
		_, size := utf8.DecodeRuneInString(src[offset:])
		offset += size
	}
	return offset
}

// enumerate lists words, the first ten of them.
func enumerate(words []string) string {
	if len(words) > 10 {
		return strings.Join(words[:10], ", ") + " and others"
	}
	return strings.Join(words, ", ")
}
