package engine

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// Report tells how the work on an instance ended.
type Report struct {
	UID types.UID
	// Ready and Stalled are the conditions of the instance.
	Ready, Stalled bool
	// Reason and Message of the condition Ready.
	Reason, Message string
	// Denied are the requests that were refused.
	Denied []Denied
	// Failures counts how often in a row the work ended with something that somebody has to mend; the next try is the later
	// the higher it is.
	Failures int
	// Stale are the names of operations whose last success is too old.
	Stale []string
}

// reports holds the last report on each instance, and the sums.
type reports struct {
	mu             sync.Mutex
	byInstance     map[Request]Report
	ready, stalled int
}

func newReports() *reports { return &reports{byInstance: map[Request]Report{}} }

func (s *reports) get(req Request) (Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.byInstance[req]
	return r, ok
}

// put replaces a report and tells whether something changed that the definition shows.
func (s *reports) put(req Request, r Report) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.byInstance[req]
	s.byInstance[req] = r
	s.ready += number(r.Ready) - number(old.Ready)
	s.stalled += number(r.Stalled) - number(old.Stalled)
	old.Failures, old.UID = r.Failures, r.UID
	return !known || !reflect.DeepEqual(old, r)
}

func (s *reports) drop(req Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.byInstance[req]
	delete(s.byInstance, req)
	s.ready -= number(old.Ready)
	s.stalled -= number(old.Stalled)
	return known
}

// refused returns the instances that lack a right or a kind.
func (s *reports) refused() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Request
	for req, r := range s.byInstance {
		if len(r.Denied) > 0 || r.Reason == v1alpha1.ReasonKindNotFound {
			list = append(list, req)
		}
	}
	return list
}

// sum fills in what the definition shows of its instances.
func (s *reports) sum(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Total, state.Ready, state.Stalled = len(s.byInstance), s.ready, s.stalled
	denied := map[Denied]bool{}
	var first Request
	for req, r := range s.byInstance {
		for _, d := range r.Denied {
			denied[d] = true
		}
		for _, name := range r.Stale {
			if _, bound := state.Stale[name]; bound {
				state.Stale[name]++
			}
		}
		if !r.Ready && r.Stalled {
			state.Failing++
			if state.FailingMessage == "" || req.String() < first.String() {
				first, state.FailingMessage = req, req.String()+": "+r.Message
			}
		}
	}
	for d := range denied {
		state.Denied = append(state.Denied, d)
	}
	slices.SortFunc(state.Denied, func(a, b Denied) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Subresource, b.Subresource),
			cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Namespace, b.Namespace))
	})
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
