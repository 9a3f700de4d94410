package discovery_test

import (
	"errors"
	"testing"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/discovery"
	"github.com/libretto-dev/libretto/internal/schema"
	"github.com/libretto-dev/libretto/internal/testkit"
)

func TestCatalog(t *testing.T) {
	recorder := testkit.NewRecorder()
	source, err := discovery.NewSource(recorder.Wrap(testkit.Config(t)))
	if err != nil {
		t.Fatal(err)
	}
	catalog := source.Catalog(t.Context())
	for _, gvk := range []runtimeschema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	} {
		kind, err := catalog.Kind(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if !kind.Namespaced || kind.Resource == "" || kind.Schema == nil || !kind.HasStatus {
			t.Errorf("%s: %+v", gvk, kind)
		}
	}
	if _, err := catalog.Kind(runtimeschema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "Thing"}); !errors.Is(err, schema.ErrUnknownKind) {
		t.Errorf("an unknown kind: %v", err)
	}
	if got := len(recorder.Requests()); got != 2 {
		t.Errorf("%d requests, want 2: the index and one document: %v", got, recorder.Requests())
	}
}
