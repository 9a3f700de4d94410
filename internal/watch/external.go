package watch

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// external is a watch of an external object, or of a list of them, that instances share.
type external struct {
	*watcher
	readers map[types.NamespacedName]bool
}

// key identifies what is watched, whatever is kept of it.
func (e External) key() string {
	return strings.Join([]string{e.Kind.GroupVersionKind.String(), e.Namespace, e.Name, labels.Set(e.Labels).String()}, "|")
}

func (e External) target() target {
	t := target{kind: e.Kind, namespace: e.Namespace, name: e.Name}
	if !e.Kind.Namespaced {
		t.namespace = ""
	}
	if e.Name == "" {
		t.selector = labels.SelectorFromSet(e.Labels).String()
	}
	return t
}

// WatchExternals replaces what an instance reads. Watches that nobody needs any more stop. It does not wait. Instances of one
// definition that read the same object share one watch.
func (s *Set) WatchExternals(reader types.NamespacedName, refs []External) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	keys := make([]string, 0, len(refs))
	for _, ref := range refs {
		k := ref.key()
		keys = append(keys, k)
		p := newProjector(ref.Kind, ref.Fields)
		e := s.externals[k]
		if e != nil && (e.kind != ref.Kind || !e.projector.fields.covers(p.fields)) {
			e.stop()
			e = s.watchExternal(k, ref.target(), p, e.readers)
		}
		if e == nil {
			e = s.watchExternal(k, ref.target(), p, map[types.NamespacedName]bool{})
		}
		e.readers[reader] = true
	}
	for _, k := range s.reads[reader] {
		if !slices.Contains(keys, k) {
			s.release(k, reader)
		}
	}
	if len(keys) == 0 {
		delete(s.reads, reader)
		return
	}
	s.reads[reader] = keys
}

// watchExternal starts a watch. The lock must be held.
func (s *Set) watchExternal(k string, t target, p *projector, readers map[types.NamespacedName]bool) *external {
	e := &external{readers: readers}
	c := newCollection(p, func(event Event) {
		event.Role, event.Readers = RoleExternal, s.readers(e)
		s.opts.OnEvent(event)
	})
	e.watcher = newWatcher(s.opts.Client, t, c, func(State) { s.opts.OnExternal(s.readers(e)) })
	s.externals[k] = e
	s.launch(e.watcher)
	return e
}

func (s *Set) readers(e *external) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(e.readers))
}

// release drops a reader of an external. The lock must be held.
func (s *Set) release(k string, reader types.NamespacedName) {
	e := s.externals[k]
	if e == nil {
		return
	}
	delete(e.readers, reader)
	if len(e.readers) == 0 {
		e.stop()
		delete(s.externals, k)
	}
}

// External returns the objects of an external that some instance watches, sorted by namespace and name, and how its watch
// stands. Only if the state HasSynced does an empty list mean that there is nothing.
func (s *Set) External(ref External) ([]*Object, State) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.externals[ref.key()]
	if e == nil {
		return nil, State{}
	}
	objects := e.appendAll(nil, "")
	sortObjects(objects)
	return objects, e.currentState()
}
