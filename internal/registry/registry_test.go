package registry_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
)

func TestRegistryTellsOfChangesAlone(t *testing.T) {
	r := registry.New()
	var told []string
	cancel := r.Subscribe(func(name string) { told = append(told, name) })
	p := &program.Program{Name: "a"}
	r.Set("a", registry.Entry{Program: p, Revision: "a-1"})
	r.Set("a", registry.Entry{Program: p, Revision: "a-1"})
	r.Set("b", registry.Entry{Program: p, Revision: "b-1"})
	if r.Delete("c") {
		t.Error("Delete of what is not there reports a change")
	}
	r.Delete("b")
	cancel()
	r.Set("a", registry.Entry{Program: p, Revision: "a-2"})

	if diff := cmp.Diff([]string{"a", "b", "b"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, r.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if e, ok := r.Get("a"); !ok || e.Revision != "a-2" {
		t.Errorf("Get(a) = %v, %v", e.Revision, ok)
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	r := registry.New()
	names := []string{"a", "b", "c", "d"}
	var wg sync.WaitGroup
	for _, n := range names {
		wg.Go(func() {
			for range 200 {
				r.Set(n, registry.Entry{Program: &program.Program{Name: n}, Revision: n})
				if e, ok := r.Get(n); !ok || e.Program.Name != n {
					t.Errorf("Get(%s) = %+v, %v", n, e, ok)
				}
			}
		})
	}
	wg.Wait()
	if got := r.Names(); !slices.Equal(got, names) {
		t.Errorf("names %v", got)
	}
}
