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

	mu sync.Mutex // of writers
}

// New returns an empty Registry.
func New() *Registry {
	r := &Registry{}
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

// Set puts an entry in place and tells whether something changed.
func (r *Registry) Set(definition string, e Entry) bool {
	return r.change(func(m map[string]Entry) bool {
		if old, ok := m[definition]; ok && old == e {
			return false
		}
		m[definition] = e
		return true
	})
}

// Delete removes an entry and tells whether there was one.
func (r *Registry) Delete(definition string) bool {
	return r.change(func(m map[string]Entry) bool {
		_, ok := m[definition]
		delete(m, definition)
		return ok
	})
}

func (r *Registry) change(f func(map[string]Entry) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(*r.entries.Load())
	changed := f(next)
	if changed {
		r.entries.Store(&next)
	}
	return changed
}
