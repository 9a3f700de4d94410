package engine

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// orphans are UIDs of instances that are not seen but may have left objects, by the name of the instance.
type orphans struct {
	mu   sync.Mutex
	uids map[Request]map[types.UID]bool
}

func (o *orphans) add(req Request, uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uids == nil {
		o.uids = map[Request]map[types.UID]bool{}
	}
	if o.uids[req] == nil {
		o.uids[req] = map[types.UID]bool{}
	}
	o.uids[req][uid] = true
}

func (o *orphans) requests() []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.uids))
}

// Orphans returns the UIDs under which an instance that is not seen may have left objects.
func (r *Run) Orphans(req Request) []types.UID {
	r.orphans.mu.Lock()
	defer r.orphans.mu.Unlock()
	return slices.Sorted(maps.Keys(r.orphans.uids[req]))
}

// DropOrphan notes that an instance is seen. Earlier ones of its name may still have left objects.
func (r *Run) DropOrphan(req Request, uid types.UID) {
	r.orphans.mu.Lock()
	defer r.orphans.mu.Unlock()
	if uids := r.orphans.uids[req]; uids != nil {
		if delete(uids, uid); len(uids) == 0 {
			delete(r.orphans.uids, req)
		}
	}
}

// DropOrphans notes that nothing is left of what instances of that name have made.
func (r *Run) DropOrphans(req Request) {
	r.orphans.mu.Lock()
	defer r.orphans.mu.Unlock()
	delete(r.orphans.uids, req)
}
