package operation

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// Run is an operation object, as it was read.
type Run struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Created         time.Time
	// Deleting: it has a deletion timestamp.
	Deleting   bool
	Finalizers []string
	Spec       v1alpha1.OperationRunSpec
	// Params are the parameters of its operation.
	Params map[string]any
	Status v1alpha1.OperationRunStatus
}

// Evaluator computes expressions with the instance, its resources and externals, and the given further variables.
type Evaluator interface {
	// Bool of nil is true.
	Bool(x *expr.Expr, vars map[string]any) (bool, error)
	// Items computes the list of a forEach.
	Items(f *program.ForEach, most int, vars map[string]any) ([]any, error)
	// Template of nil yields nil.
	Template(t *program.Template, vars map[string]any) (any, error)
	// Text of nil yields none.
	Text(t *program.Template, vars map[string]any) (string, error)
}

// Outcome is how an attempt went.
type Outcome int

// How an attempt went.
const (
	// Waiting: it has begun something that is not done yet; it is to be looked at again. Decide keeps its Ref and message, and puts
	// it into Start with Resume each time; whoever starts it keeps the time (Result.Again), so Decide sets no Wake for it.
	Waiting Outcome = iota
	Succeeded
	// Failed: another attempt may succeed.
	Failed
	// FailedForGood: another attempt is in vain.
	FailedForGood
	// Unknown: nobody knows whether it had its effect.
	Unknown
)

// Result is what came of (a look at) an attempt.
type Result struct {
	Outcome Outcome
	// Result is what the expressions of output see as result. A verifying attempt (Attempt.Verify) that failed needs it too: only an
	// exitCode (but 126 and 127) or the status 404 in it says that there was no effect; all else says that nobody can tell.
	Result any
	// Output is what the step yields when it has no output of its own.
	Output any
	// Message is for people; it holds no secret.
	Message string
	// RetryAfter is the least pause before another attempt; 0: the step's backoff alone.
	RetryAfter time.Duration
	// Ref is kept in the attempt when not empty: what is needed to find again what was begun.
	Ref string
	// Again is when a Waiting attempt is looked at again, unless something wakes it before; 0: only when woken.
	Again time.Duration
}

// Standing is what this process knows of an attempt.
type Standing int

// What this process knows of an attempt.
const (
	// Absent: nothing. The attempt was begun by another process, or not at all.
	Absent Standing = iota
	// Active: it is being worked on.
	Active
	// Done: there is a Result.
	Done
	// NotBegun: this process was about to begin it, and has not, because the status could not be persisted, or so it seemed.
	NotBegun
)

// Turn says whether a run may go on.
type Turn struct {
	// Begin: a Pending run may begin.
	Begin bool
	// Reason and Message say why not, for the status.
	Reason, Message string
	// Cancel is why the run has to end: the instance is being deleted, or a newer run replaces it. Empty: it need not.
	Cancel string
	// Fail is why the run cannot be done at all: there is no such instance or operation. Empty: it can.
	Fail string
}

// Input of Decide.
type Input struct {
	Now       time.Time
	Operation *program.Operation
	Run       *Run
	Turn      Turn
	// Revision of the definition at work.
	Revision string
	// Engine identifies this process.
	Engine string
	Eval   Evaluator
	// Known tells what this process knows of an attempt, and its last Result.
	Known func(attempt string) (Standing, Result)
	// Removing: the run is being deleted, and the steps of onRemove have to be done (Operation.OnRemove) if it had succeeded.
	Removing bool
}

// Decision is what is to be done.
type Decision struct {
	// Status as it has to be persisted before anything of Start is begun. It is Run.Status, unchanged, if there is nothing new.
	Status *v1alpha1.OperationRunStatus
	// Changed tells whether Status differs from Run.Status.
	Changed bool
	// Start are the attempts to begin, or to look at again, once Status is persisted.
	Start []Start
	// Stop are the attempts whose work is to be stopped: they were ended here without having come to their end by themselves
	// (cancelled, out of time). Only Step, Action, Attempt, Item and Vars are set. An attempt of which this process knows nothing
	// (Absent) is among them too: a Job that another process began has to be stopped all the same.
	Stop []Start
	// Wake is when to decide again; zero: when something changes.
	Wake time.Time
	// Removed: the steps of onRemove are done (or there are none): the run may go.
	Removed bool
}

// Start is an attempt to begin or to look at.
type Start struct {
	Step    *program.Step
	Action  *program.Action
	Attempt v1alpha1.Attempt
	// Item is the index of the item of forEach; -1: none.
	Item int
	// Vars are the variables that the action's expressions see beside those of the instance.
	Vars map[string]any
	// Resume: the attempt was persisted before, perhaps begun by another process: look first.
	Resume bool
	// Key is the same for all attempts of the step (and item), but for a retry by a user: an idempotency key.
	Key string
	// Deadline of the attempt.
	Deadline time.Time
}
