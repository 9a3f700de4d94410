package trigger

import (
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Input of Evaluate.
type Input struct {
	Now        time.Time
	Operations []*program.Operation
	// Self is the instance.
	Self map[string]any
	// Revision of the definition at work.
	Revision string
	// Memory is what was remembered, by operation.
	Memory []v1alpha1.OperationMemory
	// Known tells that an earlier process, or an earlier pass, has worked on the instance: its status says so. An operation that is
	// new to a known instance does not fire Create for it.
	Known bool
	// Memoryless: nothing can be remembered (the instance is of a foreign kind). Only Create, Delete, schedule and every fire; what
	// they need is read from Runs.
	Memoryless bool
	// Runs are the operation objects of the instance.
	Runs []*operation.Run
	// Engine identifies the start of the engine, for Resume: new at each start. Resumed tells that Resume has been dealt with since.
	Engine  string
	Resumed bool
	// EngineStart is when it started: times of a schedule before it, and after what is remembered, were missed.
	EngineStart time.Time
	Eval        operation.Evaluator
	// Watched returns what a variable that names a resource or external object is bound to; nil: it is not there. False: nobody
	// knows yet.
	Watched func(variable string) (value any, known bool)
}

// Output of Evaluate.
type Output struct {
	// Fire are the runs to begin, in order.
	Fire []Firing
	// Cancel names runs that a newer one replaces (Concurrency Replace).
	Cancel []string
	// Memory is what is to be remembered, by operation; it is persisted after the runs have been made.
	Memory []v1alpha1.OperationMemory
	// Notes are for events on the instance: times that were missed, and the like.
	Notes []Note
	// Problems are expressions that failed, a schedule that is none: the instance says so. Values that are not there yet are no problem.
	Problems []Problem
	// Wake is when to evaluate again; zero: when something changes.
	Wake time.Time
	// Resumed: Resume has been dealt with.
	Resumed bool
}

// Firing is a run to begin.
type Firing struct {
	Operation *program.Operation
	Trigger   v1alpha1.RunTrigger
	// Params of the run; nil: none.
	Params map[string]any
	// Name of the operation object: made of the instance's name, the operation's and a hash of the cause; the same for the same
	// cause, at most 253 characters.
	Name string
}

// Note is an event to write.
type Note struct {
	Reason, Message string
	Warning         bool
}

// Problem is what keeps a trigger from being evaluated.
type Problem struct {
	Operation string
	Trigger   int
	Err       error
}
