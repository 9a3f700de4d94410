package watch

import (
	"context"
	"iter"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// RoleOperation: operation objects.
	RoleOperation
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

// Set watches for one definition. It is safe for concurrent use.
type Set struct {
	opts   Options
	ctx    context.Context //nolint:containedctx // the life of the Set, not of a call
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.RWMutex
	stopped    bool
	instances  []*watcher
	operations []*watcher
	children   map[childKey]*watcher
	externals  map[string]*external
	// reads holds what each instance reads.
	reads map[types.NamespacedName][]string
}

// childKey identifies a watch of children.
type childKey struct {
	gvk                 schema.GroupVersionKind
	namespace, selector string
}

// NewSet returns a Set that watches nothing yet.
func NewSet(opts Options) *Set {
	ctx, cancel := context.WithCancel(context.Background())
	if opts.OnEvent == nil {
		opts.OnEvent = func(Event) {}
	}
	if opts.OnState == nil {
		opts.OnState = func(Role, program.Kind, State) {}
	}
	if opts.OnExternal == nil {
		opts.OnExternal = func([]types.NamespacedName) {}
	}
	return &Set{opts: opts, ctx: ctx, cancel: cancel, children: map[childKey]*watcher{}, externals: map[string]*external{},
		reads: map[types.NamespacedName][]string{}}
}

// Ensure makes the Set watch exactly these kinds: instances and operation objects (nil: none), and children. It starts and
// stops what is needed and does not wait. A watch that keeps more than is asked for goes on.
func (s *Set) Ensure(instances, operations *Interest, children []Interest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.instances = s.ensure(RoleInstance, s.instances, instances)
	s.operations = s.ensure(RoleOperation, s.operations, operations)
	wanted := map[childKey]bool{}
	for _, in := range children {
		for _, namespace := range in.namespaces() {
			k := childKey{in.Kind.GroupVersionKind, namespace, in.Selector}
			wanted[k] = true
			p := newProjector(in.Kind, in.Fields)
			if w := s.children[k]; w != nil {
				if w.kind == in.Kind && w.projector.fields.covers(p.fields) {
					continue
				}
				w.stop()
			}
			s.children[k] = s.watch(RoleChild, target{kind: in.Kind, namespace: namespace, selector: in.Selector}, p)
		}
	}
	for k, w := range s.children {
		if !wanted[k] {
			w.stop()
			delete(s.children, k)
		}
	}
}

// ensure fits the watches of a role to an interest and returns them.
func (s *Set) ensure(role Role, old []*watcher, in *Interest) []*watcher {
	var fit []*watcher
	old = slices.Clone(old)
	if in != nil {
		for _, namespace := range in.namespaces() {
			t := target{kind: in.Kind, namespace: namespace, selector: in.Selector}
			p := newProjector(in.Kind, in.Fields)
			i := slices.IndexFunc(old, func(w *watcher) bool { return w.target == t && w.projector.fields.covers(p.fields) })
			if i >= 0 {
				fit = append(fit, old[i])
				old = slices.Delete(old, i, i+1)
				continue
			}
			fit = append(fit, s.watch(role, t, p))
		}
	}
	for _, w := range old {
		w.stop()
	}
	return fit
}

// namespaces to watch; the empty one stands for all.
func (in Interest) namespaces() []string {
	if len(in.Namespaces) == 0 || !in.Kind.Namespaced {
		return []string{metav1.NamespaceAll}
	}
	return in.Namespaces
}

// watch starts a watcher. The lock must be held.
func (s *Set) watch(role Role, t target, p *projector) *watcher {
	c := newCollection(p, func(e Event) {
		e.Role = role
		s.opts.OnEvent(e)
	})
	if role == RoleOperation {
		c.ownerOf = func(o *Object) string { return o.Namespace + "/" + TargetOf(o) }
	}
	w := newWatcher(s.opts.Client, t, c, func(state State) { s.opts.OnState(role, t.kind, state) })
	s.launch(w)
	return w
}

func (s *Set) launch(w *watcher) {
	s.wg.Add(1)
	w.start(s.ctx, s.wg.Done)
}

// State returns how the watch of the children of a kind stands: the worst of its namespaces. The zero State: it is not watched.
func (s *Set) State(kind program.Kind) State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out State
	for k, w := range s.children {
		if k.gvk == kind.GroupVersionKind {
			out = worse(out, w.currentState())
		}
	}
	return out
}

// InstanceState returns how the watch of the instances stands: the worst of its namespaces.
func (s *Set) InstanceState() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out State
	for _, w := range s.instances {
		out = worse(out, w.currentState())
	}
	return out
}

// OperationState returns how the watch of the operation objects stands: the worst of its namespaces.
func (s *Set) OperationState() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out State
	for _, w := range s.operations {
		out = worse(out, w.currentState())
	}
	return out
}

// TargetOf returns the name of the instance that an operation object is for.
func TargetOf(o *Object) string {
	spec, _ := o.Content["spec"].(map[string]any)
	target, _ := spec["target"].(string)
	return target
}

// Operation returns an operation object; nil: not known.
func (s *Set) Operation(namespace, name string) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.operations {
		if o := w.get(types.NamespacedName{Namespace: namespace, Name: name}); o != nil {
			return o
		}
	}
	return nil
}

// OperationByUID returns an operation object; nil: not known.
func (s *Set) OperationByUID(uid types.UID) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.operations {
		if o := w.withUID(uid); o != nil {
			return o
		}
	}
	return nil
}

// OperationsOf returns the operation objects for an instance of that name, sorted by name.
func (s *Set) OperationsOf(instance types.NamespacedName) []*Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Object
	for _, w := range s.operations {
		out = w.appendAll(out, instance.Namespace+"/"+instance.Name)
	}
	sortObjects(out)
	return out
}

// Operations returns all operation objects, in no particular order.
func (s *Set) Operations() []*Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Object
	for _, w := range s.operations {
		out = w.appendAll(out, "")
	}
	return out
}

// States returns the states of all kinds of children that are watched.
func (s *Set) States() map[program.Kind]State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[program.Kind]State{}
	for _, w := range s.children {
		out[w.kind] = worse(out[w.kind], w.currentState())
	}
	return out
}

// Retry makes watches that wait after an error try again now: a right was given, a CRD appeared.
func (s *Set) Retry() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for w := range s.watchers() {
		if w.currentState().Phase != PhaseSynced {
			w.again()
		}
	}
}

// watchers yields all watchers. The lock must be held.
func (s *Set) watchers() iter.Seq[*watcher] {
	return func(yield func(*watcher) bool) {
		for _, w := range s.instances {
			if !yield(w) {
				return
			}
		}
		for _, w := range s.operations {
			if !yield(w) {
				return
			}
		}
		for _, w := range s.children {
			if !yield(w) {
				return
			}
		}
		for _, e := range s.externals {
			if !yield(e.watcher) {
				return
			}
		}
	}
}

// Get returns a child; nil: not known.
func (s *Set) Get(kind program.Kind, namespace, name string) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for k, w := range s.children {
		if k.gvk == kind.GroupVersionKind && (k.namespace == "" || k.namespace == namespace) {
			if o := w.get(types.NamespacedName{Namespace: namespace, Name: name}); o != nil {
				return o
			}
		}
	}
	return nil
}

// ByInstance returns the children of an instance, of all kinds, sorted by kind, namespace and name.
func (s *Set) ByInstance(uid types.UID) []*Object {
	if uid == "" {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Object
	for _, w := range s.children {
		out = w.appendAll(out, string(uid))
	}
	sortObjects(out)
	return out
}

// Children returns all children, in no particular order.
func (s *Set) Children() []*Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Object
	for _, w := range s.children {
		out = w.appendAll(out, "")
	}
	return out
}

// Instance returns an instance; nil: not known.
func (s *Set) Instance(namespace, name string) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.instances {
		if o := w.get(types.NamespacedName{Namespace: namespace, Name: name}); o != nil {
			return o
		}
	}
	return nil
}

// InstanceByUID returns an instance; nil: not known.
func (s *Set) InstanceByUID(uid types.UID) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.instances {
		if o := w.withUID(uid); o != nil {
			return o
		}
	}
	return nil
}

// Instances returns all instances, in no particular order.
func (s *Set) Instances() []*Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Object
	for _, w := range s.instances {
		out = w.appendAll(out, "")
	}
	return out
}

// Observe tells the Set of an object as the API server answered a write of ours, child or instance, so that nothing is written
// twice while the watch lags. It returns the object as the Set keeps it, or a newer state that the watch has told of. It takes
// over parts of obj.
func (s *Set) Observe(role Role, kind program.Kind, obj *unstructured.Unstructured) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	w := s.find(role, kind, obj.GetNamespace())
	if w == nil {
		return NewObject(kind, obj)
	}
	return w.collection.observe(w.projector.object(obj))
}

// Forget tells the Set that we deleted an object; it is not seen any more, unless the watch tells something new of it.
func (s *Set) Forget(role Role, kind program.Kind, namespace, name string, uid types.UID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if w := s.find(role, kind, namespace); w != nil {
		w.forget(types.NamespacedName{Namespace: namespace, Name: name}, uid)
	}
}

// find returns the watcher that an object belongs to. The lock must be held.
func (s *Set) find(role Role, kind program.Kind, namespace string) *watcher {
	if role == RoleInstance || role == RoleOperation {
		list := s.instances
		if role == RoleOperation {
			list = s.operations
		}
		for _, w := range list {
			if w.kind.GroupVersionKind == kind.GroupVersionKind && (w.namespace == "" || w.namespace == namespace) {
				return w
			}
		}
		return nil
	}
	for k, w := range s.children {
		if k.gvk == kind.GroupVersionKind && (k.namespace == "" || k.namespace == namespace) {
			return w
		}
	}
	return nil
}

// Stop stops all watches and waits until their goroutines have ended. A Set cannot be started again.
func (s *Set) Stop() {
	s.mu.Lock()
	s.stopped = true
	for w := range s.watchers() {
		w.stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}
