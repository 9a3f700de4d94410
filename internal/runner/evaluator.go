package runner

import (
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/watch"
)

// evaluator computes expressions with what is known of an instance at its first use.
type evaluator struct {
	run        *engine.Run
	program    *program.Program
	instance   *watch.Object
	evaluation *render.Evaluation
}

// NewEvaluator returns an Evaluator. It looks at the instance, its resources and externals when it is first used. It may be used
// by one goroutine, that does not hold Computing.
func NewEvaluator(run *engine.Run, p *program.Program, instance *watch.Object) operation.Evaluator {
	return &evaluator{run: run, program: p, instance: instance}
}

// EvaluatorOf returns an Evaluator that works with an evaluation to which all is bound already.
func EvaluatorOf(run *engine.Run, evaluation *render.Evaluation) operation.Evaluator {
	return &evaluator{run: run, evaluation: evaluation}
}

// scope returns what computes; Computing must be held.
func (e *evaluator) scope(vars map[string]any) *render.Scope {
	if e.evaluation == nil {
		e.evaluation = e.run.Evaluate(e.program, e.instance)
	}
	return e.evaluation.With(vars)
}

// Bool implements operation.Evaluator.
func (e *evaluator) Bool(x *expr.Expr, vars map[string]any) (bool, error) {
	if x == nil {
		return true, nil
	}
	e.run.Computing.Lock()
	defer e.run.Computing.Unlock()
	return e.scope(vars).Bool(x)
}

// Items implements operation.Evaluator.
func (e *evaluator) Items(f *program.ForEach, most int, vars map[string]any) ([]any, error) {
	e.run.Computing.Lock()
	defer e.run.Computing.Unlock()
	return e.scope(vars).Items(f, most)
}

// Template implements operation.Evaluator.
func (e *evaluator) Template(t *program.Template, vars map[string]any) (any, error) {
	if t == nil {
		return nil, nil
	}
	e.run.Computing.Lock()
	defer e.run.Computing.Unlock()
	return e.scope(vars).Template(t)
}

// Text implements operation.Evaluator.
func (e *evaluator) Text(t *program.Template, vars map[string]any) (string, error) {
	if t == nil {
		return "", nil
	}
	e.run.Computing.Lock()
	defer e.run.Computing.Unlock()
	return e.scope(vars).Text(t)
}
