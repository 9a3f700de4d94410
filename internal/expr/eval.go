package expr

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Budget bounds what the expressions of one instance may cost together. It is for one goroutine.
type Budget struct {
	limit, left uint64
	done        <-chan struct{}
}

// NewBudget returns a budget of that many units of cost; 0: InstanceCostLimit. If done is not nil, closing it ends an
// evaluation with an InterruptedError.
func NewBudget(limit uint64, done <-chan struct{}) *Budget {
	if limit == 0 {
		limit = InstanceCostLimit
	}
	return &Budget{limit: limit, left: limit, done: done}
}

// Used returns the units of cost that have been spent.
func (b *Budget) Used() uint64 { return b.limit - b.left }

func (b *Budget) spend(cost uint64) { b.left -= min(cost, b.left) }

// Eval computes the value. vars binds variables to plain JSON values: map[string]any, []any, string, int64, float64, bool
// and nil. A variable may also be bound to an error: reading it then fails with that error. A variable that is not bound is
// missing as a whole. vars are not changed, and the result shares nothing with them. A nil budget bounds the expression alone.
//
// The result is a plain JSON value or Omit. Errors are *PendingError, *EvalError, *CostError, *InterruptedError or the
// error that a variable is bound to.
func (x *Expr) Eval(vars map[string]any, budget *Budget) (any, error) {
	if budget != nil && budget.left == 0 {
		return nil, &CostError{Source: x.source, Limit: budget.limit, Instance: true}
	}
	a := &activation{x: x, vars: vars}
	var value ref.Val
	var err error
	var cost *uint64
	if budget != nil && budget.done != nil {
		val, details, evalErr := x.program.ContextEval(doneContext{budget.done}, a)
		value, err, cost = val, evalErr, details.ActualCost()
	} else {
		val, details, evalErr := x.program.Eval(a)
		value, err, cost = val, evalErr, details.ActualCost()
	}
	if budget != nil && cost != nil {
		budget.spend(*cost)
	}
	if err == nil {
		var plain any
		if plain, err = toJSON(value); err == nil {
			return plain, nil
		}
	}
	return nil, x.failure(err, vars, budget)
}

// activation binds the variables of an expression.
type activation struct {
	x    *Expr
	vars map[string]any
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	variable, known := a.x.vars[name]
	if !known {
		return nil, false
	}
	v, bound := a.vars[name]
	if err, failed := v.(error); failed {
		return types.WrapErr(&boundError{err}), true
	}
	if variable.Optional {
		if !bound || v == nil {
			return types.OptionalNone, true
		}
		return types.OptionalOf(toValue(v, variable.valueSchema())), true
	}
	if !bound {
		return nil, false
	}
	return toValue(v, variable.valueSchema()), true
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }

// boundError carries the error that a variable is bound to through CEL.
type boundError struct{ err error }

func (e *boundError) Error() string { return e.err.Error() }
func (e *boundError) Unwrap() error { return e.err }

// doneContext is a context that knows only when it is over.
type doneContext struct{ done <-chan struct{} }

func (c doneContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c doneContext) Done() <-chan struct{}       { return c.done }
func (c doneContext) Value(any) any               { return nil }
func (c doneContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// failure says what an error of CEL's means.
func (x *Expr) failure(err error, vars map[string]any, budget *Budget) error {
	var bound *boundError
	if errors.As(err, &bound) {
		return bound.err
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		if cancelled.Cause != interpreter.CostLimitExceeded {
			return &InterruptedError{Source: x.source}
		}
		if budget != nil {
			budget.spend(CostLimit)
		}
		return &CostError{Source: x.source, Limit: CostLimit}
	}
	if errors.Is(err, interpreter.InterruptError{}) {
		return &InterruptedError{Source: x.source}
	}
	text := err.Error()
	if key, ok := strings.CutPrefix(text, "no such key: "); ok {
		return x.missing(vars, key)
	}
	if index, ok := strings.CutPrefix(text, "index out of bounds: "); ok {
		return x.missing(vars, "["+index+"]")
	}
	if strings.HasPrefix(text, "no such attribute") {
		return x.missing(vars, "")
	}
	e := &EvalError{Source: x.source, Message: withoutValues(text)}
	switch {
	case strings.Contains(text, "no such overload"):
		e.Message = "a value has a type that the expression cannot work with"
		e.Hint = "convert it: string(…), int(…), double(…); or test it first: type(x) == string"
	case strings.Contains(text, "optional.none() dereference"):
		e.Message = "an optional value is absent"
		e.Hint = "say what it is when it is absent: orValue(…)"
	case strings.Contains(text, "division by zero"), strings.Contains(text, "modulus by zero"):
		e.Hint = "test the divisor first: n == 0 ? 0 : m / n"
	}
	return e
}

// missing finds out which value it was that CEL says was missing: key is the field or [index], empty for a whole variable.
func (x *Expr) missing(vars map[string]any, key string) error {
	var candidates []chain
	for _, c := range x.reads {
		value, bound := vars[c.root]
		if !bound || value == nil {
			if !x.vars[c.root].Optional {
				candidates = append(candidates, chain{root: c.root})
			}
			continue
		}
		if n := firstMissing(value, c.steps); n >= 0 && (key == "" || c.steps[n].String() == key || c.steps[n].kind == stepAny) {
			candidates = append(candidates, chain{root: c.root, steps: c.steps[:n+1]})
		}
	}
	for _, c := range candidates {
		if x.vars[c.root].Pending {
			return &PendingError{Variable: c.root, Path: path(c.steps), Source: x.source}
		}
	}
	if len(candidates) > 0 {
		return x.absent(candidates[0])
	}
	// It is in something that the expression has made of what it read.
	for _, c := range x.reads {
		if x.vars[c.root].Pending {
			return &PendingError{Variable: c.root, Path: path(untilAny(c.steps)), Source: x.source}
		}
	}
	if !strings.Contains(x.source, strings.Trim(key, "[]")) {
		key = "such key or item" // it was computed, and may be a secret
	}
	return &EvalError{Source: x.source, Message: fmt.Sprintf("there is no %s", key), Hint: "ask for it first: has(…), size(…), ? and orValue(…)"}
}

// withoutValues cuts out what functions quote of the values that they were given: it may be a secret, and errors are shown in
// conditions and events. Types stand in single quotes, and stay.
func withoutValues(text string) string {
	from := strings.IndexAny(text, "\"`")
	if from < 0 {
		return text
	}
	return text[:from] + "…" + text[strings.LastIndexAny(text, "\"`")+1:]
}

// untilAny cuts a way down at the first list or map that is gone through.
func untilAny(steps []step) []step {
	for i, s := range steps {
		if s.kind == stepAny {
			return steps[:i]
		}
	}
	return steps
}

// absent is the error for a value that will not come by itself.
func (x *Expr) absent(c chain) error {
	if len(c.steps) == 0 {
		return &EvalError{Source: x.source, Message: c.root + " has no value"}
	}
	last := len(c.steps) - 1
	optional := joinPath(c.root, path(c.steps[:last]))
	if c.steps[last].kind == stepField {
		optional += ".?" + c.steps[last].field
	} else {
		optional += "[?" + strings.Trim(c.steps[last].String(), "[]") + "]"
	}
	return &EvalError{
		Source:  x.source,
		Message: joinPath(c.root, path(c.steps)) + " is absent",
		Hint:    "write " + optional + ".orValue(…), or give it a default in the schema",
	}
}

// firstMissing returns the first step that the value does not have, or -1. Any item stands for all of them.
func firstMissing(value any, steps []step) int {
	for i, s := range steps {
		switch s.kind {
		case stepField:
			next, ok := child(value, s.field)
			if !ok {
				return i
			}
			value = next
		case stepIndex:
			list, ok := value.([]any)
			if !ok {
				next, ok := child(value, strconv.FormatInt(s.index, 10))
				if !ok {
					return i
				}
				value = next
				continue
			}
			if s.index < 0 || s.index >= int64(len(list)) {
				return i
			}
			value = list[s.index]
		case stepAny:
			return firstMissingInAny(value, steps, i)
		}
	}
	return -1
}

func firstMissingInAny(value any, steps []step, i int) int {
	rest := steps[i+1:]
	check := func(item any) int {
		if n := firstMissing(item, rest); n >= 0 {
			return i + 1 + n
		}
		return -1
	}
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if n := check(item); n >= 0 {
				return n
			}
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if n := check(v[key]); n >= 0 {
				return n
			}
		}
	}
	return -1
}

func child(value any, field string) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	if v, ok := object[field]; ok && v != nil {
		return v, true
	}
	if plain, ok := apiservercel.Unescape(field); ok {
		if v, ok := object[plain]; ok && v != nil {
			return v, true
		}
	}
	return nil, false
}
