package engine

import (
	"time"

	"github.com/libretto-dev/libretto/internal/program"
)

// Observer is told what the engine does. It is called from several workers at once and must not block.
type Observer func(Event)

// Event is one thing that happened to an instance or to one of its objects. It is reported on transitions alone: a converged
// instance reports nothing.
type Event struct {
	Time       time.Time
	Definition string
	// Instance is the object of the declared or target kind; zero for what concerns the definition as a whole.
	Instance Ref
	// Resource is the name of the resource in the definition; empty when the event is about the instance itself.
	Resource string
	// Operation and Run are the names of the operation and of its object, for what concerns a run; Step is its step.
	Operation, Run, Step string
	Action               Action
	// Object is the child; zero when the event is about the instance itself.
	Object Ref
	// Message is one line for people: why, by whom, what to do. It holds no secret values.
	Message string
}

// Ref names an object.
type Ref struct {
	Kind program.Kind
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
}

// Action is what happened.
type Action string

// What happens to an object.
const (
	ActionCreated   Action = "created"
	ActionUpdated   Action = "updated"
	ActionRepaired  Action = "repaired"  // drift put right; Message names the other field managers
	ActionAdopted   Action = "adopted"   // taken over
	ActionRecreated Action = "recreated" // deleted and made anew
	ActionDeleted   Action = "deleted"
	ActionRetained  Action = "retained" // no longer wanted, left in place
)

// What happens to an instance as a whole.
const (
	ActionReady   Action = "ready"
	ActionWaiting Action = "waiting" // Reconciling; Message says for what
	ActionFailed  Action = "failed"  // Stalled; Message says what to do
	ActionGone    Action = "gone"    // deleted, with all that it stood for
)

// What happens to a run of an operation.
const (
	ActionStarted         Action = "started"
	ActionStep            Action = "step"             // a step ended; Message says how, if not well
	ActionSucceeded       Action = "succeeded"        // the run did
	ActionOperationFailed Action = "operation failed" // the run did; Message says at which step, why, and what to do
	ActionCancelled       Action = "cancelled"
	ActionUnknown         Action = "unknown" // nobody knows whether a step had its effect
	ActionLog             Action = "log"     // Message is the line of a log step
)

// What happens to a definition as a whole.
const (
	ActionServing Action = "serving" // watches run
)
