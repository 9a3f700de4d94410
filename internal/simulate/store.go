package simulate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/program"
)

// key identifies an object.
type key struct{ group, kind, namespace, name string }

func keyOfObject(o *unstructured.Unstructured) key {
	gvk := o.GroupVersionKind()
	return key{gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()}
}

func (k key) String() string {
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

// store holds objects, as an API server does. Objects in it are never changed, but replaced.
type store struct {
	now     func() time.Time
	objects map[key]*unstructured.Unstructured
	// applied is what each field manager applied last of an object.
	applied map[key]map[string]map[string]any
	// collected are the objects that went with their owner, and have not been made again.
	collected map[key]collected
	// made counts the objects that were made, version every change.
	made, version int64
}

// collected is an object that went with its owner.
type collected struct {
	object *unstructured.Unstructured
	owner  key
}

func newStore(now func() time.Time) *store {
	return &store{
		now: now, objects: map[key]*unstructured.Unstructured{}, applied: map[key]map[string]map[string]any{}, collected: map[key]collected{},
	}
}

func (s *store) get(k key) *unstructured.Unstructured { return s.objects[k] }

// live returns the object of a kind; nil: there is none.
func (s *store) live(kind program.Kind, namespace, name string) *unstructured.Unstructured {
	if !kind.Namespaced && !kind.Pending {
		namespace = ""
	}
	return s.objects[key{kind.Group, kind.Kind, namespace, name}]
}

// list returns the objects that pass, oldest first, then by name.
func (s *store) list(among func(*unstructured.Unstructured) bool) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range s.objects {
		if among(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		x, y := keyOfObject(a), keyOfObject(b)
		return cmp.Or(cmp.Compare(ordinal(a), ordinal(b)), cmp.Compare(x.String(), y.String()))
	})
	return out
}

// ordinal is the number of an object in the order of creation: its UID ends with it.
func ordinal(o *unstructured.Unstructured) int64 {
	uid := string(o.GetUID())
	if len(uid) < 12 {
		return 0
	}
	n, err := strconv.ParseInt(uid[len(uid)-12:], 16, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s *store) ofKind(gk runtimeschema.GroupKind) []*unstructured.Unstructured {
	return s.list(func(o *unstructured.Unstructured) bool { return o.GroupVersionKind().GroupKind() == gk })
}

// create adds an object.
func (s *store) create(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k := keyOfObject(o)
	if s.objects[k] != nil {
		return nil, fmt.Errorf("%s exists already", k)
	}
	s.made++
	o = o.DeepCopy()
	if o.GetUID() == "" || ordinal(o) != s.made {
		sum := sha256.Sum256([]byte(k.group + "/" + k.String()))
		h := hex.EncodeToString(sum[:])
		o.SetUID(types.UID(fmt.Sprintf("%s-%s-%s-%s-%012x", h[:8], h[8:12], h[12:16], h[16:20], s.made)))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(s.now()))
	}
	o.SetGeneration(1)
	defaults(o)
	if k.group == "" && k.kind == "Service" {
		s.address(o)
	}
	delete(s.collected, k)
	s.put(k, o)
	return o, nil
}

// address gives a Service the address that the API server would give it.
func (s *store) address(o *unstructured.Unstructured) {
	spec, ok := o.Object["spec"].(map[string]any)
	if ok && spec["clusterIP"] == nil && spec["type"] != "ExternalName" {
		spec["clusterIP"] = fmt.Sprintf("10.96.%d.%d", s.made/250, s.made%250+1)
	}
}

// defaults sets what the API server sets in kinds of Kubernetes, where expressions are likely to read it.
func defaults(o *unstructured.Unstructured) {
	gvk := o.GroupVersionKind()
	if gvk.Group != "apps" || gvk.Kind == "DaemonSet" {
		return
	}
	if spec, ok := o.Object["spec"].(map[string]any); ok && spec["replicas"] == nil {
		spec["replicas"] = int64(1)
	}
}

func (s *store) put(k key, o *unstructured.Unstructured) {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.objects[k] = o
}

// update replaces an object. It tells whether anything has changed.
func (s *store) update(o *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	k := keyOfObject(o)
	old := s.objects[k]
	o = o.DeepCopy()
	defaults(o)
	o.SetResourceVersion(old.GetResourceVersion())
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration())
	if reflect.DeepEqual(old.Object, o.Object) {
		return old, false
	}
	if !reflect.DeepEqual(content(old), content(o)) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		s.drop(k)
		return o, true
	}
	s.put(k, o)
	return o, true
}

// content is what counts for the generation.
func content(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// apply does what server-side apply does: fields that the manager set before and does not set now go, all others stay.
func (s *store) apply(manager string, o *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	k := keyOfObject(o)
	if s.applied[k] == nil {
		s.applied[k] = map[string]map[string]any{}
	}
	before := s.applied[k][manager]
	s.applied[k][manager] = runtime.DeepCopyJSON(o.Object)
	old := s.objects[k]
	if old == nil {
		made, err := s.create(o)
		return made, err == nil
	}
	merged := runtime.DeepCopyJSON(old.Object)
	removeLeft(merged, before, o.Object)
	setOver(merged, o.Object)
	return s.update(&unstructured.Unstructured{Object: merged})
}

// removeLeft removes from target what before had and now has not.
func removeLeft(target, before, now map[string]any) {
	for name, value := range before {
		kept, there := now[name]
		if !there {
			delete(target, name)
			continue
		}
		b, isObject := value.(map[string]any)
		n, stays := kept.(map[string]any)
		t, is := target[name].(map[string]any)
		if isObject && stays && is {
			removeLeft(t, b, n)
		}
	}
}

// setOver sets the fields of from in target; lists as a whole.
func setOver(target, from map[string]any) {
	for name, value := range from {
		object, isObject := value.(map[string]any)
		if t, is := target[name].(map[string]any); isObject && is {
			setOver(t, object)
			continue
		}
		target[name] = runtime.DeepCopyJSONValue(value)
	}
}

// mergePatch does what a JSON merge patch does (RFC 7386).
func mergePatch(target, patch map[string]any) {
	for name, value := range patch {
		if value == nil {
			delete(target, name)
			continue
		}
		object, isObject := value.(map[string]any)
		if !isObject {
			target[name] = runtime.DeepCopyJSONValue(value)
			continue
		}
		t, is := target[name].(map[string]any)
		if !is {
			t = map[string]any{}
			target[name] = t
		}
		mergePatch(t, object)
	}
}

// remove deletes an object, or marks it as being deleted if finalizers hold it. It tells whether anything has changed.
func (s *store) remove(k key) bool {
	o := s.objects[k]
	if o == nil {
		return false
	}
	if len(o.GetFinalizers()) == 0 {
		s.drop(k)
		return true
	}
	if o.GetDeletionTimestamp() != nil {
		return false
	}
	o = o.DeepCopy()
	at := metav1.NewTime(s.now())
	o.SetDeletionTimestamp(&at)
	o.SetGeneration(o.GetGeneration() + 1)
	s.put(k, o)
	return true
}

// drop removes an object and, as the garbage collector does, all that it owns.
func (s *store) drop(k key) {
	o := s.objects[k]
	delete(s.objects, k)
	delete(s.applied, k)
	s.version++
	for _, owned := range s.list(func(c *unstructured.Unstructured) bool {
		return slices.ContainsFunc(c.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() })
	}) {
		s.collected[keyOfObject(owned)] = collected{object: owned, owner: k}
		s.remove(keyOfObject(owned))
	}
}
