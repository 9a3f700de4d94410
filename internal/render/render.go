// Package render evaluates a Program for one instance: which objects it stands for, what its status says. It is pure: same
// Program, same instance, same observed objects, same bytes.
package render

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// ErrExcluded is returned for a node whose when is false.
var ErrExcluded = errors.New("excluded by its when")

// Object is an object as it is to be applied.
type Object struct {
	// Item names the object within its node: empty for a single one, the item of forEach, or KIND/NAME of a kustomization.
	Item string
	*unstructured.Unstructured
	Kind program.Kind
	// Hash of the object, as in its annotation libretto.dev/desired.
	Hash string
}

// ExternalRef says which object, or objects, an external is for this instance.
type ExternalRef struct {
	// Name of the external in the definition.
	Name string
	Kind program.Kind
	// Namespace is empty for a cluster-scoped kind, and for a list over all namespaces.
	Namespace string
	// ObjectName is the name of the object; empty for a list, and when there is none.
	ObjectName string
	// Labels select the objects of a list.
	Labels         map[string]string
	List, Optional bool
	// Err: the reference cannot be computed, for the reason given.
	Err error
}

// Condition is one of the author's conditions.
type Condition struct {
	Type string
	// Status is True, False or Unknown.
	Status          string
	Reason, Message string
}

// Evaluation is the evaluation of a Program for one instance. It is used by one goroutine at a time.
type Evaluation struct {
	program *program.Program
	self    map[string]any
	vars    map[string]any
	budget  *expr.Budget
}

// New returns an evaluation of p for the instance self, which must not be changed as long as the evaluation or what it
// rendered is in use.
func New(p *program.Program, self map[string]any) *Evaluation {
	return &Evaluation{program: p, self: self}
}

// Matches tells whether an object of the target kind is an instance: target.when. True without one.
func (e *Evaluation) Matches() (bool, error) { return true, nil }

// Externals returns what to look up for this instance.
func (e *Evaluation) Externals() ([]ExternalRef, error) { return nil, nil }

// BindExternal gives an external its objects; nil or none: not there.
func (e *Evaluation) BindExternal(name string, objs []map[string]any) {}

// Bind gives a node its live objects, in the order of Render. They must not be changed afterwards.
func (e *Evaluation) Bind(node *program.Node, objs []*unstructured.Unstructured) {}

// Render computes the objects of a node.
//
// Errors: ErrExcluded (when is false), *expr.PendingError (a value of another object is not there yet), *expr.EvalError,
// *expr.CostError.
func (e *Evaluation) Render(node *program.Node) ([]Object, error) { return nil, nil }

// Ready computes the author's ready expression of a node for one of its objects; message says why not.
func (e *Evaluation) Ready(node *program.Node, obj *unstructured.Unstructured) (ready bool, message string, err error) {
	return true, "", nil
}

// StatusFields computes the author's status fields. Fields that cannot be computed yet are left out.
func (e *Evaluation) StatusFields() (map[string]any, error) { return nil, nil }

// Conditions computes the author's conditions, in order.
func (e *Evaluation) Conditions() []Condition { return nil }
