// Package render evaluates a Program for one instance: which objects it stands for, what its status says. It is pure: same
// Program, same instance, same observed objects, same bytes.
package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// ErrExcluded is returned for a node whose when is false.
var ErrExcluded = errors.New("excluded by its when")

// MaxItems is how many objects a node may stand for.
const MaxItems = 1000

// Evaluation is the evaluation of a Program for one instance. It is used by one goroutine at a time.
type Evaluation struct {
	program *program.Program
	self    *unstructured.Unstructured
	budget  *expr.Budget
	// vars binds names to values, or to the error that reading them is.
	vars map[string]any
	// excluded are the nodes whose when is false.
	excluded map[string]bool
	// ready tells that the variables have been computed since the last binding of an external.
	variablesDone bool
	// buffer is used for hashes.
	buffer []byte
}

// New returns an evaluation of p for the instance self, which must not be changed as long as the evaluation or what it
// rendered is in use. Nothing is bound yet but self.
func New(p *program.Program, self map[string]any) *Evaluation {
	return &Evaluation{
		program:  p,
		self:     &unstructured.Unstructured{Object: self},
		budget:   expr.NewBudget(0, nil),
		vars:     map[string]any{"self": self},
		excluded: map[string]bool{},
	}
}

// Interruptible ends the evaluation with an InterruptedError once the channel is closed. Call it before anything else.
func (e *Evaluation) Interruptible(interrupted <-chan struct{}) *Evaluation {
	e.budget = expr.NewBudget(0, interrupted)
	return e
}

// eval computes an expression with what is bound.
func (e *Evaluation) eval(x *expr.Expr) (any, error) { return e.evalWith(e.vars, x) }

func (e *Evaluation) evalWith(vars map[string]any, x *expr.Expr) (any, error) {
	e.variables()
	value, err := x.Eval(vars, e.budget)
	if err != nil {
		return nil, e.explain(err)
	}
	return value, nil
}

// variables computes the variables, once. One that fails is an error to those that read it.
func (e *Evaluation) variables() {
	if e.variablesDone {
		return
	}
	e.variablesDone = true
	for i := range e.program.Variables {
		v := &e.program.Variables[i]
		value, err := v.Expr.Eval(e.vars, e.budget)
		switch {
		case err != nil:
			e.vars[v.Name] = err
		case expr.IsOmit(value):
			delete(e.vars, v.Name)
		default:
			e.vars[v.Name] = value
		}
	}
}

// explain says of a value that is missing because its node is excluded, that it is.
func (e *Evaluation) explain(err error) error {
	var pending *expr.PendingError
	if errors.As(err, &pending) && e.excluded[pending.Variable] {
		return &ExcludedError{Node: pending.Variable, Pending: pending}
	}
	return err
}

// ExcludedError says that a value is missing because the resource that it is read from is excluded by its when. It unwraps
// to a *expr.PendingError: the value may come when the instance changes.
type ExcludedError struct {
	// Node is the name of the resource that is excluded.
	Node    string
	Pending *expr.PendingError
}

// Error implements error.
func (e *ExcludedError) Error() string {
	return fmt.Sprintf("%s: the resource %s is excluded by its when", e.Pending.Error(), e.Node)
}

// Unwrap returns the PendingError.
func (e *ExcludedError) Unwrap() error { return e.Pending }

func (e *Evaluation) boolean(vars map[string]any, x *expr.Expr) (bool, error) {
	value, err := e.evalWith(vars, x)
	if err != nil {
		return false, err
	}
	b, ok := value.(bool)
	if !ok {
		return false, &expr.EvalError{Source: x.Source(), Message: fmt.Sprintf("expected true or false, found %s", describe(value))}
	}
	return b, nil
}

func (e *Evaluation) str(t *program.Template) (string, error) {
	value, err := t.Evaluate(e.eval)
	if err != nil {
		return "", err
	}
	return program.FormatText(value)
}

func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case int64, float64:
		return "a number"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	if expr.IsOmit(value) {
		return "nothing"
	}
	return fmt.Sprintf("%T", value)
}

// Matches tells whether an object of the target kind is an instance: target.when. True without one.
func (e *Evaluation) Matches() (bool, error) {
	if e.program.Match == nil {
		return true, nil
	}
	return e.boolean(e.vars, e.program.Match)
}

// ExternalRef says which object, or objects, an external is for this instance.
type ExternalRef struct {
	// Name of the external in the definition.
	Name string
	Kind program.Kind
	// Namespace is empty for a cluster-scoped kind, and for a list over all namespaces.
	Namespace string
	// ObjectName is the name of the object; empty for a list, and when there is none to look up.
	ObjectName string
	// Labels select the objects of a list.
	Labels         map[string]string
	List, Optional bool
}

// Externals returns what to look up for this instance. One whose reference cannot be computed is left out, and reading it
// yields the reason; the error joins these reasons.
func (e *Evaluation) Externals() ([]ExternalRef, error) {
	e.variablesDone = true // references use self only
	defer func() { e.variablesDone = false }()
	var refs []ExternalRef
	var failures []error
	for i := range e.program.Externals {
		x := &e.program.Externals[i]
		ref, err := e.external(x)
		if err != nil {
			err = fmt.Errorf("cannot tell which object %s is: %w", x.Name, err)
			e.vars[x.Name] = err
			failures = append(failures, err)
			continue
		}
		refs = append(refs, ref)
	}
	return refs, errors.Join(failures...)
}

func (e *Evaluation) external(x *program.External) (ref ExternalRef, err error) {
	ref = ExternalRef{Name: x.Name, Kind: x.Kind, List: x.List, Optional: x.Optional}
	switch {
	case x.Namespace != nil:
		if ref.Namespace, err = e.str(x.Namespace); err != nil {
			return ref, err
		}
	case x.Kind.Namespaced || x.Kind.Pending:
		ref.Namespace = e.self.GetNamespace()
		if ref.Namespace == "" && e.program.Instance.Kind == "Namespace" && e.program.Instance.Group == "" {
			ref.Namespace = e.self.GetName()
		}
	}
	if x.ObjectName != nil {
		if ref.ObjectName, err = e.str(x.ObjectName); err != nil {
			return ref, err
		}
	}
	if x.Labels != nil {
		value, err := x.Labels.Evaluate(e.eval)
		if err != nil {
			return ref, err
		}
		labels, _ := value.(map[string]any)
		ref.Labels = make(map[string]string, len(labels))
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			text, err := program.FormatText(labels[name])
			if err != nil {
				return ref, fmt.Errorf("label %s: %w", name, err)
			}
			ref.Labels[name] = text
		}
	}
	return ref, nil
}

// BindExternal gives an external its objects; nil or none: not there.
func (e *Evaluation) BindExternal(name string, objs []map[string]any) {
	e.variablesDone = false
	for i := range e.program.Externals {
		x := &e.program.Externals[i]
		if x.Name != name {
			continue
		}
		switch {
		case x.List:
			items := make([]any, len(objs))
			for i, o := range objs {
				items[i] = o
			}
			e.vars[name] = items
		case len(objs) > 0 && objs[0] != nil:
			e.vars[name] = objs[0]
		default:
			delete(e.vars, name)
		}
		return
	}
}

// Bind gives a node its live objects, in the order of Render. They must not be changed afterwards. With one of them nil, or
// none for a node of a single object, the node counts as not there yet.
func (e *Evaluation) Bind(node *program.Node, objs []*unstructured.Unstructured) {
	delete(e.excluded, node.Name)
	delete(e.vars, node.Name)
	if slices.ContainsFunc(objs, func(o *unstructured.Unstructured) bool { return o == nil || o.Object == nil }) {
		return
	}
	if node.Single() {
		if len(objs) > 0 {
			e.vars[node.Name] = objs[0].Object
		}
		return
	}
	items := make([]any, len(objs))
	for i, o := range objs {
		items[i] = o.Object
	}
	e.vars[node.Name] = items
}

// exclude notes that the when of a node is false: to readers it is an object without fields, or an empty list.
func (e *Evaluation) exclude(node *program.Node) {
	e.excluded[node.Name] = true
	if node.Single() {
		e.vars[node.Name] = map[string]any{}
	} else {
		e.vars[node.Name] = []any{}
	}
}
