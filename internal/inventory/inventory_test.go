package inventory_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/inventory"
)

func item(resource, kind, name string, wave int32, retain bool) inventory.Item {
	return inventory.Item{
		Key:     inventory.Key{GroupKind: runtimeschema.GroupKind{Group: "apps", Kind: kind}, Namespace: "shop", Name: name},
		Version: "v1", Resource: resource, Wave: wave, Retain: retain,
	}
}

func TestEntriesAreTheSameWhateverTheOrder(t *testing.T) {
	items := []inventory.Item{
		item("config", "ConfigMap", "a", 0, false), item("shards", "Deployment", "s-0", 1, false),
		item("shards", "Deployment", "s-1", 1, false), item("data", "Volume", "d", 1, true),
		item("shards", "Deployment", "s-1", 1, false), // twice: once seen, once from the status
	}
	want := []v1alpha1.InventoryEntry{
		{Resource: "config", APIVersion: "apps/v1", Kind: "ConfigMap", Namespace: "shop", Names: []string{"a"}},
		{Resource: "data", APIVersion: "apps/v1", Kind: "Volume", Namespace: "shop", Names: []string{"d"}, Wave: 1, DeletionPolicy: "Retain"},
		{Resource: "shards", APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Names: []string{"s-0", "s-1"}, Wave: 1},
	}
	for range 20 {
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		if diff := cmp.Diff(want, inventory.Entries(items)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	back := inventory.Items(want)
	if diff := cmp.Diff(want, inventory.Entries(back)); diff != "" {
		t.Errorf("entries, read and written again (-want +got):\n%s", diff)
	}
}

func TestLastWaveComesFirst(t *testing.T) {
	items := []inventory.Item{item("a", "A", "a", 0, false), item("c", "C", "c2", 2, false), item("b", "B", "b", 1, false), item("c", "C", "c1", 2, false)}
	var order []string
	for len(items) > 0 {
		wave := inventory.LastWave(items)
		for _, i := range wave {
			order = append(order, i.Name)
		}
		items = slices.DeleteFunc(items, func(i inventory.Item) bool { return i.Wave == wave[0].Wave })
	}
	if diff := cmp.Diff([]string{"c1", "c2", "b", "a"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if inventory.LastWave(nil) != nil {
		t.Error("nothing has a last wave")
	}
}

func TestFromMetadata(t *testing.T) {
	gvk := runtimeschema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	got := inventory.FromMetadata(gvk, "shop", "web", "u1", map[string]string{
		v1alpha1.AnnotationWave: "3", v1alpha1.AnnotationResource: "workload", v1alpha1.AnnotationDeletionPolicy: "Retain",
	})
	want := item("workload", "Deployment", "web", 3, true)
	want.UID = "u1"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	broken := inventory.FromMetadata(gvk, "shop", "web", "u1", map[string]string{v1alpha1.AnnotationWave: "first"})
	if broken.Wave != 0 {
		t.Errorf("wave %d of an annotation that is no number", broken.Wave)
	}
}
