package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

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

// valueSchema is the schema of what the variable is bound to.
func (v Variable) valueSchema() *schema.Schema {
	if v.List {
		return schema.ListOf(v.Schema)
	}
	return v.Schema
}

// Options of an environment.
type Options struct {
	// AllowRandom allows the functions random.*. They are otherwise a Problem.
	AllowRandom bool
}

// Env is a set of names, with their types, that expressions are compiled against. It is immutable and safe for concurrent
// use.
type Env struct {
	env      *cel.Env
	provider *typeProvider
	vars     map[string]Variable
	opts     Options
}

// NewEnv returns an environment with the variables. The error is a fault of the caller's: a variable twice, or a name that
// is none.
func NewEnv(vars []Variable, opts Options) (*Env, error) {
	base, err := baseEnv()
	if err != nil {
		return nil, fmt.Errorf("cannot make the base environment: %w", err)
	}
	p := newTypeProvider(base.CELTypeProvider())
	e := &Env{env: base, provider: p, opts: opts}
	return e.extend(vars, cel.CustomTypeProvider(p), cel.CustomTypeAdapter(p))
}

// With returns an environment that has further variables.
func (e *Env) With(vars ...Variable) (*Env, error) {
	if len(vars) == 0 {
		return e, nil
	}
	return e.extend(vars)
}

// Allowing returns an environment with the same variables and other options.
func (e *Env) Allowing(opts Options) *Env {
	other := *e
	other.opts = opts
	return &other
}

var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

func (e *Env) extend(vars []Variable, options ...cel.EnvOption) (*Env, error) {
	all := maps.Clone(e.vars)
	if all == nil {
		all = make(map[string]Variable, len(vars))
	}
	for _, v := range vars {
		if !identifier.MatchString(v.Name) {
			return nil, fmt.Errorf("%q is no name", v.Name)
		}
		if _, twice := all[v.Name]; twice {
			return nil, fmt.Errorf("the name %s is there twice", v.Name)
		}
		all[v.Name] = v
		t := e.provider.typeOf(v.valueSchema())
		if v.Optional {
			t = cel.OptionalType(t)
		}
		options = append(options, cel.Variable(v.Name, t))
	}
	env, err := e.env.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("cannot extend the environment: %w", err)
	}
	return &Env{env: env, provider: e.provider, vars: all, opts: e.opts}, nil
}

// Compile parses and checks an expression. All that is wrong with it is returned at once; the Expr is nil if anything is.
func (e *Env) Compile(src string, want Want) (*Expr, []*Problem) {
	if strings.TrimSpace(src) == "" {
		return nil, []*Problem{{Message: "the expression is empty"}}
	}
	parsed, issues := e.env.Parse(src)
	if issues.Err() != nil {
		return nil, e.problems(src, nil, issues)
	}
	if ps := e.checkRandom(src, parsed.NativeRep()); len(ps) > 0 {
		return nil, ps
	}
	checked, issues := e.env.Check(parsed)
	if issues.Err() != nil {
		return nil, e.problems(src, parsed.NativeRep(), issues)
	}
	x := &Expr{source: src, ast: checked.NativeRep(), result: checked.OutputType(), provider: e.provider}
	x.readRefs(e.vars)
	if p := want.check(x); p != nil {
		return nil, []*Problem{p}
	}
	if p := e.estimate(checked); p != nil {
		return nil, []*Problem{p}
	}
	program, err := e.env.PlanProgram(checked.NativeRep(), programOptions...)
	if err != nil {
		return nil, []*Problem{{Message: "the expression cannot be planned: " + err.Error()}}
	}
	x.program = program
	return x, nil
}

// checkRandom finds functions of random where they are not allowed.
func (e *Env) checkRandom(src string, tree *ast.AST) []*Problem {
	if e.opts.AllowRandom || !strings.Contains(src, "random") {
		return nil
	}
	var ps []*Problem
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(n ast.Expr) {
		if n.Kind() != ast.CallKind {
			return
		}
		call := n.AsCall()
		name := call.FunctionName()
		if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind {
			name = call.Target().AsIdent() + "." + name
		}
		if strings.HasPrefix(name, randomPrefix) {
			ps = append(ps, &Problem{
				Message: name + " yields something else every time, so it would change the object every time",
				Hint:    "set createOnce: true on the resource, so that it is made once and kept",
				Offset:  offsetOf(src, tree.SourceInfo().GetStartLocation(n.ID())),
			})
		}
	}))
	return ps
}

// names lists what an expression may begin with: variables and functions.
func (e *Env) names() []string {
	names := slices.Collect(maps.Keys(e.vars))
	for name := range e.env.Functions() {
		if name[0] >= 'a' && name[0] <= 'z' {
			names = append(names, name)
		}
	}
	return names
}
