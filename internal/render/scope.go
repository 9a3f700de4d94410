package render

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// Scope computes expressions that see further variables beside those of the evaluation. It is used by one goroutine at a time,
// and by none while the evaluation is in use elsewhere.
type Scope struct {
	evaluation *Evaluation
	vars       map[string]any
}

// With returns a Scope. A variable that is bound to nil is not bound.
func (e *Evaluation) With(vars map[string]any) *Scope {
	e.variables()
	all := make(map[string]any, len(e.vars)+len(vars))
	maps.Copy(all, e.vars)
	for name, value := range vars {
		if value != nil {
			all[name] = value
		}
	}
	return &Scope{evaluation: e, vars: all}
}

// Value computes an expression.
func (s *Scope) Value(x *expr.Expr) (any, error) { return s.evaluation.evalWith(s.vars, x) }

// Bool computes an expression that yields a boolean; nil is true.
func (s *Scope) Bool(x *expr.Expr) (bool, error) {
	if x == nil {
		return true, nil
	}
	return s.evaluation.boolean(s.vars, x)
}

// Template computes a template; nil yields nil.
func (s *Scope) Template(t *program.Template) (any, error) {
	if t == nil {
		return nil, nil
	}
	return t.Evaluate(s.Value)
}

// Text computes a template that yields text; nil yields none.
func (s *Scope) Text(t *program.Template) (string, error) {
	if t == nil {
		return "", nil
	}
	value, err := s.Template(t)
	if err != nil {
		return "", err
	}
	return program.FormatText(value)
}

// Observe binds every node to its live objects without applying anything: get returns the live object, or nil. A node that
// cannot be computed yet, or of which an object is not there, is not bound: reading it is a PendingError.
func (e *Evaluation) Observe(get func(kind program.Kind, namespace, name string) *unstructured.Unstructured) {
	for _, n := range e.program.Nodes {
		objects, err := e.Render(n)
		if err != nil {
			continue
		}
		live := make([]*unstructured.Unstructured, len(objects))
		for i, o := range objects {
			live[i] = get(o.Kind, o.GetNamespace(), o.GetName())
		}
		e.Bind(n, live)
	}
}

// Bound returns what a variable that names a resource or an external is bound to; nil: it is not there, or excluded. False: nobody
// knows yet.
func (e *Evaluation) Bound(name string) (value any, known bool) {
	value, bound := e.vars[name]
	switch _, failed := value.(error); {
	case failed:
		return nil, false
	case e.excluded[name]:
		return nil, true
	case bound:
		return value, true
	}
	for i := range e.program.Externals {
		if e.program.Externals[i].Name == name {
			return nil, true
		}
	}
	return nil, false
}

// AwaitExternal notes that nobody knows yet whether an external is there: reading it is a PendingError.
func (e *Evaluation) AwaitExternal(name string) {
	e.variablesDone = false
	e.vars[name] = &expr.PendingError{Variable: name}
}

// Items computes the list of a forEach.
func (s *Scope) Items(f *program.ForEach, most int) ([]any, error) {
	value, err := s.Value(f.In)
	if err != nil {
		return nil, fmt.Errorf("forEach: %w", err)
	}
	items, ok := value.([]any)
	if !ok {
		return nil, &expr.EvalError{Source: f.In.Source(), Message: "forEach: expected a list, found " + describe(value)}
	}
	if len(items) > most {
		return nil, &expr.EvalError{Source: f.In.Source(), Message: fmt.Sprintf("forEach: %d items; at most %d are possible", len(items), most)}
	}
	return items, nil
}
