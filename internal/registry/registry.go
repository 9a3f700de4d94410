// Package registry holds what every worker looks up first: the Program at work for each definition. It knows no client and
// no status; who puts a Program here has persisted its revision before.
//
// Reading takes no lock and never waits: workers of one definition do not slow those of another. A swap is atomic: a reader
// sees the old entry or the new one.
package registry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/libretto-dev/libretto/internal/program"
)

// Entry is what is at work for a definition. It is immutable.
type Entry struct {
	// Program is the compiled revision.
	Program *program.Program
	// Revision is the name of the OperatorRevision, or, for a definition from a file, a name of the same form.
	Revision string
}

// Registry maps names of definitions to entries. It is safe for concurrent use. Its zero value is not usable; use New.
type Registry struct {
	entries atomic.Pointer[map[string]Entry]

	mu          sync.Mutex // of writers
	subscribers map[int]func(definition string)
	next        int
}

// New returns an empty Registry.
func New() *Registry {
	r := &Registry{subscribers: map[int]func(string){}}
	r.entries.Store(&map[string]Entry{})
	return r
}

// Get returns the entry of a definition.
func (r *Registry) Get(definition string) (Entry, bool) {
	e, ok := (*r.entries.Load())[definition]
	return e, ok
}

// Names returns the names of all definitions, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(*r.entries.Load())) }

// All returns all entries by the name of their definition. The map must not be changed.
func (r *Registry) All() map[string]Entry { return *r.entries.Load() }

// Set puts an entry in place and tells whether something changed. Subscribers are told when it did.
func (r *Registry) Set(definition string, e Entry) bool {
	return r.change(definition, func(m map[string]Entry) bool {
		if old, ok := m[definition]; ok && old == e {
			return false
		}
		m[definition] = e
		return true
	})
}

// Delete removes an entry and tells whether there was one. Subscribers are told when there was.
func (r *Registry) Delete(definition string) bool {
	return r.change(definition, func(m map[string]Entry) bool {
		_, ok := m[definition]
		delete(m, definition)
		return ok
	})
}

func (r *Registry) change(definition string, f func(map[string]Entry) bool) bool {
	r.mu.Lock()
	next := maps.Clone(*r.entries.Load())
	changed := f(next)
	var told []func(string)
	if changed {
		r.entries.Store(&next)
		for _, k := range slices.Sorted(maps.Keys(r.subscribers)) {
			told = append(told, r.subscribers[k])
		}
	}
	r.mu.Unlock()
	for _, f := range told {
		f(definition)
	}
	return changed
}

// Subscribe has f called with the name of each definition whose entry changes from now on, after the change, and returns
// what ends that. f is called on the goroutine of the one who changes and must not block; it may read the Registry. A call
// may still be under way when cancel returns.
func (r *Registry) Subscribe(f func(definition string)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.next
	r.next++
	r.subscribers[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, id)
	}
}
