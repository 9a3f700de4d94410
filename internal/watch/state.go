package watch

import "time"

// Phase is a word for how a watch stands.
type Phase string

// Phases.
const (
	// PhasePending: started, no answer yet.
	PhasePending Phase = "Pending"
	// PhaseSynced: the watch runs and all is known.
	PhaseSynced Phase = "Synced"
	// PhaseForbidden: the identity may not list or watch the kind.
	PhaseForbidden Phase = "Forbidden"
	// PhaseNotFound: the API server does not have the kind.
	PhaseNotFound Phase = "NotFound"
	// PhaseError: anything else; it is tried again.
	PhaseError Phase = "Error"
)

// State is how a watch stands.
type State struct {
	Phase Phase
	// HasSynced: all was known at some time; what is known may be old unless the phase is Synced.
	HasSynced bool
	// Err is why, for Forbidden, NotFound and Error. Forbidden has a *ForbiddenError.
	Err error
	// Since is when the phase began.
	Since time.Time
}

// Synced tells whether the watch runs and all is known.
func (s State) Synced() bool { return s.Phase == PhaseSynced }
