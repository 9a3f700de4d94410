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

// worse returns the worse of two states; the zero State is better than any. All is known only if it is in both.
func worse(a, b State) State {
	if a.Phase == "" {
		return b
	}
	hasSynced := a.HasSynced && b.HasSynced
	if rank(b.Phase) > rank(a.Phase) {
		a = b
	}
	a.HasSynced = hasSynced
	return a
}

func rank(p Phase) int {
	switch p {
	case PhaseForbidden:
		return 4
	case PhaseNotFound:
		return 3
	case PhaseError:
		return 2
	case PhasePending:
		return 1
	case PhaseSynced:
		return 0
	}
	return 0
}
