// Package inventory knows which objects an instance has made, in which order they are removed, and how that is written into
// the instance's status. It is pure.
//
// The inventory of an instance is what the watch sees of it by label, together with what its status lists for kinds that
// cannot be seen now. Nothing has to be written before the first object is created: label, wave and policy are part of the
// very request that creates an object, and the kinds that have to be looked at stand in the definition's status before any
// instance uses them.
package inventory

import (
	"cmp"
	"slices"
	"strconv"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// Key identifies an object.
type Key struct {
	GroupKind       runtimeschema.GroupKind
	Namespace, Name string
}

// Item is an object that an instance has made.
type Item struct {
	Key
	// Version in which it was written.
	Version string
	// UID is empty for an item that is known from the status alone.
	UID types.UID
	// Resource is the name of the resource in the definition.
	Resource string
	Wave     int32
	Retain   bool
	// Deleting: it has been deleted and waits for its finalizers.
	Deleting   bool
	Finalizers []string
}

// GVK returns the kind in the version in which the object was written.
func (i Item) GVK() runtimeschema.GroupVersionKind { return i.GroupKind.WithVersion(i.Version) }

// FromMetadata reads an item from the labels and annotations of an object.
func FromMetadata(gvk runtimeschema.GroupVersionKind, namespace, name string, uid types.UID, annotations map[string]string) Item {
	// An annotation that is not a number was changed by somebody: the object goes with the first wave, that is last.
	wave, err := strconv.ParseInt(annotations[v1alpha1.AnnotationWave], 10, 32)
	if err != nil {
		wave = 0
	}
	return Item{
		Key:      Key{GroupKind: gvk.GroupKind(), Namespace: namespace, Name: name},
		Version:  gvk.Version,
		UID:      uid,
		Resource: annotations[v1alpha1.AnnotationResource],
		Wave:     int32(wave),
		Retain:   annotations[v1alpha1.AnnotationDeletionPolicy] == string(v1alpha1.DeletionPolicyRetain),
	}
}

// Items reads the inventory of a status.
func Items(entries []v1alpha1.InventoryEntry) []Item {
	var items []Item
	for _, e := range entries {
		gvk := runtimeschema.FromAPIVersionAndKind(e.APIVersion, e.Kind)
		for _, name := range e.Names {
			items = append(items, Item{
				Key:      Key{GroupKind: gvk.GroupKind(), Namespace: e.Namespace, Name: name},
				Version:  gvk.Version,
				Resource: e.Resource,
				Wave:     e.Wave,
				Retain:   e.DeletionPolicy == v1alpha1.DeletionPolicyRetain,
			})
		}
	}
	return items
}

// Entries writes items as the inventory of a status, in the order of creation. Same items, same entries.
func Entries(items []Item) []v1alpha1.InventoryEntry {
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, compare)
	var entries []v1alpha1.InventoryEntry
	for _, i := range sorted {
		e := v1alpha1.InventoryEntry{
			Resource: i.Resource, APIVersion: i.GVK().GroupVersion().String(), Kind: i.GroupKind.Kind,
			Namespace: i.Namespace, Wave: i.Wave,
		}
		if i.Retain {
			e.DeletionPolicy = v1alpha1.DeletionPolicyRetain
		}
		if n := len(entries); n > 0 && same(entries[n-1], e) {
			if names := entries[n-1].Names; names[len(names)-1] != i.Name {
				entries[n-1].Names = append(names, i.Name)
			}
			continue
		}
		e.Names = []string{i.Name}
		entries = append(entries, e)
	}
	return entries
}

func same(a, b v1alpha1.InventoryEntry) bool {
	return a.Resource == b.Resource && a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Namespace == b.Namespace &&
		a.Wave == b.Wave && a.DeletionPolicy == b.DeletionPolicy
}

func compare(a, b Item) int {
	return cmp.Or(
		cmp.Compare(a.Wave, b.Wave),
		cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.GroupKind.Group, b.GroupKind.Group),
		cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.GroupKind.Kind, b.GroupKind.Kind),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// LastWave returns the items of the highest wave: those that are removed next.
func LastWave(items []Item) []Item {
	if len(items) == 0 {
		return nil
	}
	top := slices.MaxFunc(items, func(a, b Item) int { return cmp.Compare(a.Wave, b.Wave) }).Wave
	var last []Item
	for _, i := range items {
		if i.Wave == top {
			last = append(last, i)
		}
	}
	slices.SortFunc(last, compare)
	return last
}
