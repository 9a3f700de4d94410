package engine

import (
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Spec is what an Engine needs to know of a definition. The Program is in the registry as well: workers look there, so
// that a swap reaches them at once.
type Spec struct {
	// Definition is the name of the definition, UID its UID: empty for one that comes from a file.
	Definition string
	UID        types.UID
	// Program is the revision at work, Revision its name.
	Program  *program.Program
	Revision string
	// ServiceAccount is the identity that acts; nil: Libretto's own (`libretto run`).
	ServiceAccount *v1alpha1.ServiceAccountReference
	// ManagedKinds are the kinds that hold objects of the definition, in this revision or in an earlier one, sorted. All
	// kinds that the Program makes are among them. They have been persisted.
	ManagedKinds []runtimeschema.GroupVersionKind
	// Draining: the definition is being deleted with its instances. Instances that are not being deleted are left as they are.
	Draining bool
}

// State tells how the work for a definition stands.
type State struct {
	// Synced: every watch that can run has its first list.
	Synced bool
	// Watches, one for each kind that is watched, sorted by kind.
	Watches []WatchState
	// Total counts the instances, Ready and Stalled those with the condition. They lag behind by some seconds at most.
	Total, Ready, Stalled int
	// Quarantined says why no instance is worked on any more: a worker panicked. Empty: all is well.
	Quarantined string
	// Denied lists requests that the API server refused to the ServiceAccount lately, sorted, without names of objects.
	Denied []Denied
	// Idle are those of Spec.ManagedKinds that the Program does not make and of which no object is left: they need
	// not be watched any longer. Empty while it cannot be told.
	Idle []runtimeschema.GroupVersionKind
	// Failing is the foreign kind's summary of a target without status: how many instances could not be worked on, and the
	// message of the first one, by name.
	Failing        int
	FailingMessage string
	// Stale counts, by operation with a stale bound, the instances whose last success is too old.
	Stale map[string]int
}

// WatchState tells how one watch stands.
type WatchState struct {
	Kind runtimeschema.GroupVersionKind
	// Synced: the first list is there.
	Synced bool
	// Forbidden: the ServiceAccount may not list or watch the kind. NotFound: the API server does not serve the kind.
	Forbidden, NotFound bool
	// Resource is the resource of the kind, for the message; empty when it is not known.
	Resource runtimeschema.GroupVersionResource
	// Error is the last error, for people; empty: none.
	Error string
}

// Denied is a request that the API server refused.
type Denied struct {
	Verb, Group, Resource, Subresource, Namespace string
}
