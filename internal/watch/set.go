package watch

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/internal/program"
)

// Role is what objects of a watch are to the definition.
type Role int

// Roles.
const (
	RoleInstance Role = iota
	RoleChild
	RoleExternal
)

// Interest says what to watch of a kind.
type Interest struct {
	Kind program.Kind
	// Namespaces to watch; none: all. Without meaning for a cluster-scoped kind.
	Namespaces []string
	// Selector of labels; empty: all.
	Selector string
	// Fields are the paths, below the object, whose content is kept, beside metadata and what readiness needs. Nil: all
	// content; empty: none. Below a list, all is kept.
	Fields [][]string
}

// External names an object, or a list of objects, that expressions read.
type External struct {
	Kind program.Kind
	// Namespace is empty for a cluster-scoped kind, and for a list over all namespaces.
	Namespace string
	// Name of the object; empty for a list.
	Name string
	// Labels select the objects of a list.
	Labels map[string]string
	// Fields as in Interest.
	Fields [][]string
}

// Event is a change of an object. Old is nil for a new object, New is nil for one that is gone (or left the selection).
type Event struct {
	Role     Role
	Kind     program.Kind
	Old, New *Object
	// Initial: the object was there when the watch began.
	Initial bool
	// Own: the change is a write that Observe has told of; nothing new.
	Own bool
	// Readers are the instances that read an external.
	Readers []types.NamespacedName
}

// Object returns the newest known state.
func (e Event) Object() *Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Options of a Set.
type Options struct {
	// Client reads with the identity of the definition.
	Client dynamic.Interface
	// OnEvent is called for each change, in order per kind and namespace, from goroutines of the Set. It must not block.
	OnEvent func(Event)
	// OnState is called when the state of a kind changed. It must not block.
	OnState func(role Role, kind program.Kind, state State)
	// OnExternal is called with the instances that read an external when its watch became synced, forbidden or the like.
	OnExternal func(readers []types.NamespacedName)
}

// Set watches for one definition.
type Set struct{}

// NewSet returns a Set that watches nothing yet.
func NewSet(opts Options) *Set { return &Set{} }

// Ensure makes the Set watch exactly these kinds: instances (nil: none) and children. It starts and stops what is needed and
// does not wait.
func (s *Set) Ensure(instances *Interest, children []Interest) {}

// State returns how the watch of the children of a kind stands: the worst of its namespaces.
func (s *Set) State(kind program.Kind) State { return State{} }

// InstanceState returns how the watch of the instances stands.
func (s *Set) InstanceState() State { return State{} }

// States returns the states of all kinds of children that are watched.
func (s *Set) States() map[program.Kind]State { return nil }

// Retry makes watches that wait after an error of a kind try again now: a right was given, a CRD appeared.
func (s *Set) Retry() {}

// Get returns a child; nil: not known.
func (s *Set) Get(kind program.Kind, namespace, name string) *Object { return nil }

// ByInstance returns the children of an instance, of all kinds, sorted by kind, namespace and name.
func (s *Set) ByInstance(uid types.UID) []*Object { return nil }

// Children returns all children, in no particular order.
func (s *Set) Children() []*Object { return nil }

// Instance returns an instance; nil: not known.
func (s *Set) Instance(namespace, name string) *Object { return nil }

// InstanceByUID returns an instance; nil: not known.
func (s *Set) InstanceByUID(uid types.UID) *Object { return nil }

// Instances returns all instances, in no particular order.
func (s *Set) Instances() []*Object { return nil }

// Observe tells the Set of an object as the API server answered a write of ours, child or instance, so that nothing is written
// twice while the watch lags. It returns the object as the Set keeps it.
func (s *Set) Observe(role Role, kind program.Kind, obj *unstructured.Unstructured) *Object {
	return nil
}

// Forget tells the Set that we deleted an object; it is not seen any more, unless the watch tells something new of it.
func (s *Set) Forget(role Role, kind program.Kind, namespace, name string, uid types.UID) {}

// WatchExternals replaces what an instance reads. Watches that nobody needs any more stop. It does not wait.
func (s *Set) WatchExternals(reader types.NamespacedName, refs []External) {}

// External returns the objects of an external that some instance watches, sorted by namespace and name, and how its watch
// stands. Only if the state HasSynced does an empty list mean that there is nothing.
func (s *Set) External(ref External) ([]*Object, State) { return nil, State{} }

// Stop stops all watches and waits until their goroutines have ended. A Set cannot be started again.
func (s *Set) Stop() {}
