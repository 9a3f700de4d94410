package registry_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
)

func TestRegistryTellsWhatChanged(t *testing.T) {
	r := registry.New()
	p := &program.Program{Name: "a"}
	for i, got := range []bool{
		r.Set("a", registry.Entry{Program: p, Revision: "a-1"}),
		!r.Set("a", registry.Entry{Program: p, Revision: "a-1"}),
		r.Set("b", registry.Entry{Program: p, Revision: "b-1"}),
		!r.Delete("c"),
		r.Delete("b"),
		r.Set("a", registry.Entry{Program: p, Revision: "a-2"}),
	} {
		if !got {
			t.Errorf("change %d is not told as it was", i)
		}
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
