package render

import (
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// Ready computes the author's ready expression of a node for one of its objects; message says why it is not ready. It may be
// called only if the node has such an expression.
func (e *Evaluation) Ready(node *program.Node, obj *unstructured.Unstructured) (ready bool, message string, err error) {
	vars := e.vars
	if !node.Single() || vars[node.Name] == nil {
		e.variables()
		vars = maps.Clone(e.vars)
	}
	before, had := vars[node.Name]
	vars[node.Name] = obj.Object
	ready, err = e.boolean(vars, node.Ready)
	if had {
		vars[node.Name] = before
	} else {
		delete(vars, node.Name)
	}
	var pending *expr.PendingError
	switch {
	case errors.As(err, &pending):
		return false, err.Error(), nil
	case err != nil:
		return false, "", fmt.Errorf("ready: %w", err)
	case !ready:
		return false, "not ready: " + node.Ready.Source(), nil
	}
	return true, "", nil
}

// StatusFields computes the author's status fields. A field that is omitted, or that reads a resource which its when excludes,
// is nil: it is to be removed. A field that cannot be
// computed yet is left out, so that it keeps its last value; so is one whose expression fails: the error joins these failures,
// and the fields are valid beside it.
func (e *Evaluation) StatusFields() (map[string]any, error) {
	t := e.program.StatusFields
	if t == nil {
		return nil, nil
	}
	fields := make(map[string]any, len(t.Root.Fields))
	var failures []error
	for i := range t.Root.Fields {
		f := &t.Root.Fields[i]
		value, err := (&program.Template{Root: f.Value}).Evaluate(e.eval)
		var pending *expr.PendingError
		var excluded *ExcludedError
		switch {
		case errors.As(err, &excluded):
			fields[f.Name] = nil // what it reads is not there, and is not to come
		case errors.As(err, &pending):
		case err != nil:
			failures = append(failures, fmt.Errorf("status.%s: %w", f.Name, err))
		case expr.IsOmit(value):
			fields[f.Name] = nil
		default:
			fields[f.Name] = value
		}
	}
	return fields, errors.Join(failures...)
}

// Condition is one of the author's conditions.
type Condition struct {
	Type            string
	Status          metav1.ConditionStatus
	Reason, Message string
}

// Conditions computes the author's conditions, in order. A condition that cannot be computed is Unknown, with the reason
// Waiting or EvaluationFailed.
func (e *Evaluation) Conditions() []Condition {
	out := make([]Condition, 0, len(e.program.Conditions))
	for i := range e.program.Conditions {
		out = append(out, e.condition(&e.program.Conditions[i]))
	}
	return out
}

func (e *Evaluation) condition(c *program.Condition) Condition {
	out := Condition{Type: c.Type}
	holds, err := e.boolean(e.vars, c.Status)
	if err != nil {
		return unknown(out, err)
	}
	out.Status, out.Reason = metav1.ConditionFalse, "Not"+c.Type
	if holds {
		out.Status, out.Reason = metav1.ConditionTrue, c.Type
	}
	if c.Reason != nil {
		reason, err := e.str(c.Reason)
		if err != nil {
			return unknown(out, fmt.Errorf("reason: %w", err))
		}
		if reason != "" {
			out.Reason = reason
		}
	}
	if c.Message != nil {
		if out.Message, err = e.str(c.Message); err != nil {
			return unknown(out, fmt.Errorf("message: %w", err))
		}
	}
	return out
}

func unknown(c Condition, err error) Condition {
	c.Status, c.Message = metav1.ConditionUnknown, err.Error()
	c.Reason = "EvaluationFailed"
	var pending *expr.PendingError
	if errors.As(err, &pending) {
		c.Reason = "Waiting"
	}
	return c
}
