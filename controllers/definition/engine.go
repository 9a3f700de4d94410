package definition

import (
	"context"

	"github.com/libretto-dev/libretto/internal/engine"
)

// Engine works on the instances of definitions. It is safe for concurrent use; none of its methods waits for the API server.
// The one of the package engine is one.
type Engine interface {
	// Ensure starts the work for a definition, or fits what runs already to a new spec: watches are started and stopped as
	// the kinds differ, nothing else is restarted. It is called often with the same spec and then does nothing. A change of
	// the ServiceAccount starts the definition's watches anew. On a replica that is not elected, the engine fills caches
	// and lets no worker run.
	Ensure(ctx context.Context, spec engine.Spec) error
	// Stop ends the work for a definition: when it returns, no worker runs and no watch is left. Stopping what does not run
	// does nothing.
	Stop(definition string)
	// State tells how the work for a definition stands; false: none was started.
	State(definition string) (engine.State, bool)
	// Retry makes watches and instances that were refused try again now: a kind has appeared, a right was given.
	Retry()
	// OnChange sets whom to call when the State of a definition changes. It is called once, before the first Ensure. f does
	// not block.
	OnChange(f func(definition string))
}
