package expr

// Budget bounds what the expressions of one instance may cost together. It is for one goroutine.
type Budget struct {
	limit, left uint64
	interrupted func() bool
}

// NewBudget returns a budget of that many units of cost; 0: InstanceCostLimit. If interrupted is not nil, it is asked now
// and then during evaluation, and true ends the evaluation with an InterruptedError.
func NewBudget(limit uint64, interrupted func() bool) *Budget {
	if limit == 0 {
		limit = InstanceCostLimit
	}
	return &Budget{limit: limit, left: limit, interrupted: interrupted}
}

// Used returns the units of cost that have been spent.
func (b *Budget) Used() uint64 { return b.limit - b.left }

// Eval computes the value. vars binds variables to plain JSON values: map[string]any, []any, string, int64, float64, bool
// and nil. A variable may also be bound to an error: reading it then fails with that error. A variable that is not bound is
// missing as a whole. vars are not changed, and the result shares nothing with them. A nil budget bounds the expression alone.
//
// The result is a plain JSON value or Omit. Errors are *PendingError, *EvalError, *CostError, *InterruptedError or the
// error that a variable is bound to.
func (x *Expr) Eval(vars map[string]any, budget *Budget) (any, error) { return nil, nil }

// Format writes a value into text: strings as they are, numbers and booleans as in JSON. Objects, lists, null and Omit
// are an error.
func Format(v any) (string, error) { return "", nil }
