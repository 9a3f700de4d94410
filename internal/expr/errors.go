package expr

import (
	"fmt"
	"strings"
)

// PendingError says that a value of another object is not there yet. It is no failure: the reader waits.
type PendingError struct {
	// Variable whose value is missing.
	Variable string
	// Path of the first field that is missing, below the variable; empty: the object itself.
	Path []string
	// Source of the expression.
	Source string
}

// Error implements error.
func (e *PendingError) Error() string {
	if len(e.Path) == 0 {
		return fmt.Sprintf("waiting for %s", e.Variable)
	}
	return fmt.Sprintf("waiting for %s", joinPath(e.Variable, e.Path))
}

// EvalError says that an expression failed on the values that it was given.
type EvalError struct {
	// Source of the expression.
	Source string
	// Message says what is wrong. It contains no values of objects.
	Message string
	// Hint says what to do; may be empty.
	Hint string
}

// Error implements error.
func (e *EvalError) Error() string {
	text := fmt.Sprintf("%s in %q", e.Message, e.Source)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// CostError says that an expression, or all those of an instance together, cost more than they may.
type CostError struct {
	// Source of the expression that went over the limit.
	Source string
	// Limit that was crossed, in CEL's units of cost.
	Limit uint64
	// Instance tells whether the limit is that of all expressions of the instance together.
	Instance bool
}

// Error implements error.
func (e *CostError) Error() string {
	what := "the expression"
	if e.Instance {
		what = "all expressions of the instance together"
	}
	return fmt.Sprintf("%q: %s may cost %d units; iterate over less", e.Source, what, e.Limit)
}

// InterruptedError says that evaluation was given up because the budget said so.
type InterruptedError struct {
	// Source of the expression.
	Source string
}

// Error implements error.
func (e *InterruptedError) Error() string { return fmt.Sprintf("%q: interrupted", e.Source) }

// joinPath writes a path the way that expressions write it: svc.spec.ports[0].port.
func joinPath(variable string, path []string) string {
	var b strings.Builder
	b.WriteString(variable)
	for _, step := range path {
		if !strings.HasPrefix(step, "[") {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}
