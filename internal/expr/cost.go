package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/libretto-dev/libretto/internal/schema"
)

// Limits of cost, in CEL's units: about one for each step of a computation, and a tenth for each character of a text that is
// looked at.
const (
	// CostLimit is what one evaluation of an expression may cost. It is the limit of Kubernetes itself, and takes some tenths of a second.
	CostLimit uint64 = 1_000_000
	// InstanceCostLimit is what all expressions of an instance together may cost.
	InstanceCostLimit uint64 = 20_000_000
	// estimateLimit is what an expression may cost by estimate, with lists and texts of the greatest size that their schema
	// allows, or of assumedItems and assumedText where it sets no bound.
	estimateLimit uint64 = 1000 * CostLimit

	assumedItems = 100
	assumedText  = 256
)

var programOptions = []cel.ProgramOption{
	cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
	cel.CostTracking(costs{}),
	cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
	cel.CostLimit(CostLimit),
	cel.InterruptCheckFrequency(100),
}

// costs knows what functions cost when they run.
type costs struct{ library.CostEstimator }

// CallCost implements interpreter.ActualCostEstimator.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	switch function {
	case "json", "hash.sha256", "hash.fnv":
		size := uint64(1)
		for _, v := range append(args, result) {
			if s, ok := v.(types.String); ok {
				size += uint64(len(s)) / 10
			}
		}
		return &size
	}
	return c.CostEstimator.CallCost(function, overload, args, result)
}

// sizes estimates how large the values are that an expression reads.
type sizes struct{ vars map[string]Variable }

// EstimateSize implements checker.CostEstimator.
func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	assumed := uint64(assumedItems)
	switch node.Type().Kind() {
	case types.StringKind, types.BytesKind:
		assumed = assumedText
	}
	if path := node.Path(); len(path) > 0 {
		if v, ok := s.vars[path[0]]; ok {
			if bound, ok := along(v.valueSchema(), path[1:]).MaxSize(); ok {
				assumed = min(uint64(bound), 1_000_000)
			}
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: assumed}
}

// along follows a path of fields through a schema.
func along(s *schema.Schema, path []string) *schema.Schema {
	for _, step := range path {
		switch step {
		case "@items":
			s = s.Items()
		case "@values":
			s = s.Additional()
		case "@keys":
			return nil
		default:
			s, _ = fieldOf(s, step)
		}
	}
	return s
}

// EstimateCallCost implements checker.CostEstimator.
func (s sizes) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	return nil
}

// rangeCost takes lists.range for a list like any other whose size is not known.
func rangeCost(_ checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	size := checker.SizeEstimate{Min: 0, Max: assumedItems}
	if len(args) == 1 && args[0].Expr().Kind() == ast.LiteralKind {
		if n, ok := args[0].Expr().AsLiteral().(types.Int); ok && n >= 0 {
			size = checker.FixedSizeEstimate(uint64(n))
		}
	}
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: 1 + size.Max}, ResultSize: &size}
}

// estimate refuses an expression that may cost far too much, or certainly costs more than one evaluation may.
func (e *Env) estimate(tree *cel.Ast) *Problem {
	cost, err := e.env.EstimateCost(tree, &library.CostEstimator{SizeEstimator: sizes{vars: e.vars}})
	if err != nil {
		return &Problem{Message: "the cost of the expression cannot be estimated: " + err.Error()}
	}
	if cost.Min <= CostLimit && cost.Max <= estimateLimit {
		return nil
	}
	return &Problem{
		Message:  "the expression may cost too much",
		Expected: fmt.Sprintf("at most %d units of cost", estimateLimit),
		Found:    fmt.Sprintf("an estimate of %d", cost.Max),
		Hint:     "iterate over less: nest fewer loops, or set maxItems and maxLength in the schema",
	}
}
