// Package discovery finds out what kinds a live API server serves and what they look like, from its OpenAPI v3 documents. A
// document is fetched when the first kind of its group-version is asked for; one that cannot be had hurts no other group. What
// was fetched is kept as long as its catalog is, so hold on to a catalog for one compilation, not longer.
package discovery

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/internal/schema"
)

// Source makes catalogs of an API server. It is safe for concurrent use.
type Source struct{ client openapi.ClientWithContext }

// NewSource returns a Source that asks with the configuration's identity; every authenticated user may read what there is.
func NewSource(cfg *rest.Config) (*Source, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	return &Source{client: openapi.NewClientWithContext(client.RESTClient())}, nil
}

// Catalog returns a catalog of what the API server serves from now on. It asks the server when it is asked, with ctx. A kind of a
// CustomResourceDefinition appears in it within seconds after the definition is established.
func (s *Source) Catalog(ctx context.Context) schema.Catalog {
	paths := sync.OnceValues(func() (map[string]openapi.GroupVersionWithContext, error) { return s.client.PathsWithContext(ctx) })
	return schema.FromOpenAPI(func(gv runtimeschema.GroupVersion) ([]byte, error) {
		found, err := paths()
		if err != nil {
			return nil, fmt.Errorf("cannot list the API groups: %w", err)
		}
		document, ok := found[pathOf(gv)]
		if !ok {
			return nil, fmt.Errorf("%w: the API server does not serve %s", schema.ErrUnknownKind, gv)
		}
		data, err := document.SchemaWithContext(ctx, runtime.ContentTypeJSON)
		if err != nil {
			return nil, fmt.Errorf("cannot read what %s looks like: %w", gv, err)
		}
		return data, nil
	})
}

// pathOf returns the key of a group-version in the index of OpenAPI documents.
func pathOf(gv runtimeschema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
