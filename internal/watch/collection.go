package watch

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// collection holds the objects of one watch. It is the store of a client-go Reflector, which calls Add, Update, Delete and
// Replace from one goroutine; all else may be called from anywhere.
//
// On top of what the watch told lies what our own writes told: own holds the resourceVersion of an object that Observe brought
// and the watch has not yet caught up with, hidden the UID of an object that we deleted and the watch still shows.
type collection struct {
	projector *projector
	emit      func(Event)
	stopped   atomic.Bool

	// ownerOf tells whose an object is: the UID of the instance by its label, or, for an operation object, its target.
	ownerOf func(*Object) string

	mu       sync.RWMutex
	objects  map[types.NamespacedName]*Object
	byOwner  map[string]map[types.NamespacedName]*Object
	byUID    map[types.UID]*Object
	own      map[types.NamespacedName]string
	hidden   map[types.NamespacedName]types.UID
	replaced bool
}

var _ cache.TransformingStore = (*collection)(nil)

func newCollection(p *projector, emit func(Event)) *collection {
	return &collection{
		projector: p,
		emit:      emit,
		ownerOf:   func(o *Object) string { return o.Labels[v1alpha1.LabelInstance] },
		objects:   map[types.NamespacedName]*Object{},
		byOwner:   map[string]map[types.NamespacedName]*Object{},
		byUID:     map[types.UID]*Object{},
		own:       map[types.NamespacedName]string{},
		hidden:    map[types.NamespacedName]types.UID{},
	}
}

func keyOf(o *Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Transformer implements cache.TransformingStore: the initial list is kept in its small form while it streams in.
func (c *collection) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return c.object(obj), nil }
}

func (c *collection) object(obj any) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return c.projector.object(u)
	}
	return obj
}

// Add implements cache.ReflectorStore.
func (c *collection) Add(obj any) error { return c.Update(obj) }

// Update implements cache.ReflectorStore.
func (c *collection) Update(obj any) error {
	o, ok := c.object(obj).(*Object)
	if !ok {
		return nil
	}
	k := keyOf(o)
	c.mu.Lock()
	old := c.objects[k]
	mine, overlaid := c.own[k]
	if overlaid && older(o.ResourceVersion, mine) {
		c.mu.Unlock()
		return nil // the watch has not caught up with our write
	}
	event := Event{Old: old, New: o, Own: overlaid && o.ResourceVersion == mine}
	if _, ok := c.hidden[k]; ok && old != nil && old.UID != o.UID {
		event.Old = nil
	}
	delete(c.own, k)
	delete(c.hidden, k)
	c.put(k, o)
	c.mu.Unlock()
	c.send(event)
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *collection) Delete(obj any) error {
	o, ok := c.object(obj).(*Object)
	if !ok {
		return nil
	}
	k := keyOf(o)
	c.mu.Lock()
	old := c.objects[k]
	if mine, overlaid := c.own[k]; overlaid && older(o.ResourceVersion, mine) {
		c.mu.Unlock()
		return nil // we have made it anew since
	}
	_, hidden := c.hidden[k]
	delete(c.own, k)
	delete(c.hidden, k)
	c.remove(k)
	c.mu.Unlock()
	if old != nil {
		c.send(Event{Old: old, Own: hidden})
	}
	return nil
}

// Replace implements cache.ReflectorStore: it takes a new list, of the given resourceVersion, and reports what differs.
func (c *collection) Replace(list []any, version string) error {
	fresh := make(map[types.NamespacedName]*Object, len(list))
	for _, item := range list {
		if o, ok := c.object(item).(*Object); ok {
			fresh[keyOf(o)] = o
		}
	}
	c.mu.Lock()
	initial := !c.replaced
	c.replaced = true
	events := make([]Event, 0, len(fresh))
	for k, old := range c.objects {
		mine, overlaid := c.own[k]
		if overlaid && older(version, mine) {
			delete(fresh, k)
			continue // newer than the list
		}
		delete(c.own, k)
		if fresh[k] == nil {
			c.remove(k)
			events = append(events, Event{Old: old})
		}
	}
	clear(c.hidden)
	for k, o := range fresh {
		old := c.objects[k]
		c.put(k, o)
		if old == nil || old.ResourceVersion != o.ResourceVersion || old.UID != o.UID {
			events = append(events, Event{Old: old, New: o, Initial: initial && old == nil})
		}
	}
	c.mu.Unlock()
	for _, e := range events {
		c.send(e)
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is none.
func (c *collection) Resync() error { return nil }

// observe takes an object as answered to a write of ours.
func (c *collection) observe(o *Object) *Object {
	k := keyOf(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.objects[k]; old != nil && !older(old.ResourceVersion, o.ResourceVersion) {
		return old // the watch was quicker
	}
	c.own[k] = o.ResourceVersion
	delete(c.hidden, k)
	c.put(k, o)
	return o
}

// forget hides an object that we deleted. One with finalizers stays in sight: it is still there.
func (c *collection) forget(k types.NamespacedName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[k]
	if o == nil || o.UID != uid || len(o.Finalizers) > 0 {
		return
	}
	if _, overlaid := c.own[k]; overlaid && !c.replaced {
		c.remove(k) // no watch will ever tell
		delete(c.own, k)
		return
	}
	c.hidden[k] = uid
}

func (c *collection) get(k types.NamespacedName) *Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.visible(k, c.objects[k])
}

// visible returns o unless it is hidden. The lock must be held.
func (c *collection) visible(k types.NamespacedName, o *Object) *Object {
	if o == nil {
		return nil
	}
	if uid, ok := c.hidden[k]; ok && uid == o.UID {
		return nil
	}
	return o
}

func (c *collection) withUID(uid types.UID) *Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if o := c.byUID[uid]; o != nil {
		return c.visible(keyOf(o), o)
	}
	return nil
}

// appendAll appends the objects of an owner, or all of them when it is empty.
func (c *collection) appendAll(out []*Object, owner string) []*Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	objects := c.objects
	if owner != "" {
		objects = c.byOwner[owner]
	}
	for k, o := range objects {
		if o = c.visible(k, o); o != nil {
			out = append(out, o)
		}
	}
	return out
}

// put stores an object. The lock must be held.
func (c *collection) put(k types.NamespacedName, o *Object) {
	c.unindex(k)
	c.objects[k] = o
	c.byUID[o.UID] = o
	if owner := c.ownerOf(o); owner != "" {
		objects := c.byOwner[owner]
		if objects == nil {
			objects = make(map[types.NamespacedName]*Object, 1)
			c.byOwner[owner] = objects
		}
		objects[k] = o
	}
}

// remove drops an object. The lock must be held.
func (c *collection) remove(k types.NamespacedName) {
	c.unindex(k)
	delete(c.objects, k)
}

func (c *collection) unindex(k types.NamespacedName) {
	old := c.objects[k]
	if old == nil {
		return
	}
	delete(c.byUID, old.UID)
	owner := c.ownerOf(old)
	if objects := c.byOwner[owner]; objects != nil {
		delete(objects, k)
		if len(objects) == 0 {
			delete(c.byOwner, owner)
		}
	}
}

func (c *collection) send(e Event) {
	if c.stopped.Load() {
		return
	}
	e.Kind = c.projector.kind
	c.emit(e)
}

// older tells whether resourceVersion a came before b. Versions that cannot be compared are taken for new: what the watch tells
// is then believed.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// sortObjects sorts by kind, namespace and name.
func sortObjects(objects []*Object) {
	slices.SortFunc(objects, func(a, b *Object) int {
		for _, pair := range [][2]string{
			{a.Kind.Group, b.Kind.Group}, {a.Kind.Kind, b.Kind.Kind}, {a.Namespace, b.Namespace}, {a.Name, b.Name},
		} {
			if order := strings.Compare(pair[0], pair[1]); order != 0 {
				return order
			}
		}
		return 0
	})
}
