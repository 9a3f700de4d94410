package expr

// Limits of cost, in CEL's units: about one for each step of a computation, and a tenth for each character of a text that is
// looked at.
const (
	// CostLimit is what one evaluation of an expression may cost. It takes less than a second.
	CostLimit uint64 = 5_000_000
	// InstanceCostLimit is what all expressions of an instance together may cost.
	InstanceCostLimit uint64 = 50_000_000
)
