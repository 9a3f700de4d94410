package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// wait waits. An expression that cannot be computed yet, on what there is, counts as not true: the message says why.
func (e *Executor) wait(ctx context.Context, req Request, a *program.WaitAction) (operation.Result, error) {
	if a.Until == nil {
		left := req.Start.Attempt.StartTime.Add(a.Duration).Sub(e.now())
		if left <= 0 {
			return operation.Result{Outcome: operation.Succeeded}, nil
		}
		return operation.Result{Outcome: operation.Waiting, Again: left, Message: "waiting until " + e.now().Add(left).UTC().Format(time.RFC3339)}, nil
	}
	if a.Object == nil {
		return e.until(req, a, nil)
	}
	t, err := e.resolve(req, a.Object)
	if err != nil {
		return operation.Result{}, err
	}
	if e.options.Live != nil {
		if cached := e.options.Live(t.Kind, t.Namespace, t.Name); cached != nil {
			if out, err := e.until(req, a, cached); err != nil || out.Outcome == operation.Waiting {
				return out, err
			}
		}
	}
	live, err := e.get(ctx, t)
	var forbidden *apply.ForbiddenError
	switch {
	case errors.As(err, &forbidden):
		return operation.Result{}, err
	case err != nil: // the API server cannot be asked, or the kind is not there yet
		return operation.Result{}, &waitError{again: e.again(req), message: err.Error()}
	case live == nil:
		return operation.Result{}, &waitError{again: e.again(req), message: fmt.Sprintf("%s is not there", t)}
	}
	if err := ofInstance(req, a.Object, t, live); err != nil {
		return operation.Result{}, err
	}
	return e.until(req, a, live)
}

func (e *Executor) until(req Request, a *program.WaitAction, object *unstructured.Unstructured) (operation.Result, error) {
	vars := maps.Clone(req.Start.Vars)
	if vars == nil {
		vars = map[string]any{}
	}
	if object != nil {
		vars[program.VarObject] = object.Object
	}
	reached, err := req.Eval.Bool(a.Until, vars)
	var cost *expr.CostError
	switch {
	case errors.As(err, &cost):
		return operation.Result{}, err
	case err != nil:
		return operation.Result{Outcome: operation.Waiting, Again: e.again(req), Message: bounded(err.Error(), maxMessage)}, nil
	case !reached:
		return operation.Result{Outcome: operation.Waiting, Again: e.again(req), Message: bounded("waiting until "+a.Until.Source(), maxMessage)}, nil
	}
	return operation.Result{Outcome: operation.Succeeded}, nil
}
