package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// FromOpenAPI returns a catalog that reads the OpenAPI v3 documents of an API server, as served at /openapi/v3/apis/GROUP/VERSION.
// fetch is called at most once per group-version, when the first kind of it is looked up; if it fails, it is called again
// the next time. It returns ErrUnknownKind (errors.Is) for a group-version that the server does not have.
func FromOpenAPI(fetch func(gv runtimeschema.GroupVersion) ([]byte, error)) Catalog {
	return &openAPI{fetch: fetch, groupVersions: map[runtimeschema.GroupVersion]*groupVersion{}}
}

type openAPI struct {
	fetch func(gv runtimeschema.GroupVersion) ([]byte, error)

	mu            sync.Mutex
	groupVersions map[runtimeschema.GroupVersion]*groupVersion
}

// groupVersion is what is kept of one document.
type groupVersion struct {
	kinds map[string]*Kind
	// definitions by kind, and the pool that they are in.
	definitions map[string]string
	pool        *pool
}

// Kind implements Catalog.
func (o *openAPI) Kind(gvk runtimeschema.GroupVersionKind) (*Kind, error) {
	gv, err := o.groupVersion(gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	known, ok := gv.kinds[gvk.Kind]
	if !ok {
		return nil, unknownKind(gvk)
	}
	kind := *known
	if name := gv.definitions[gvk.Kind]; name != "" {
		if kind.Schema, err = gv.pool.lookup(name); err != nil {
			return nil, err
		}
	}
	return &kind, nil
}

func (o *openAPI) groupVersion(gv runtimeschema.GroupVersion) (*groupVersion, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.groupVersions[gv]; ok {
		return known, nil
	}
	data, err := o.fetch(gv)
	if err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document of %s: %w", gv, err)
	}
	resources, schemas, err := ParseOpenAPI(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document of %s: %w", gv, err)
	}
	known := &groupVersion{
		kinds:       map[string]*Kind{},
		definitions: map[string]string{},
		pool:        &pool{raw: func(name string) (json.RawMessage, error) { return schemas[name], nil }},
	}
	for _, r := range resources {
		if r.GVK.GroupVersion() != gv {
			continue
		}
		known.kinds[r.GVK.Kind] = &Kind{GVK: r.GVK, Resource: r.Resource, Namespaced: r.Namespaced, HasStatus: r.HasStatus}
		known.definitions[r.GVK.Kind] = r.Definition
	}
	o.groupVersions[gv] = known
	return known, nil
}

// Kinds implements Lister, for the group-versions that have been read.
func (o *openAPI) Kinds() []runtimeschema.GroupVersionKind {
	o.mu.Lock()
	defer o.mu.Unlock()
	var kinds []runtimeschema.GroupVersionKind
	for _, gv := range o.groupVersions {
		for _, k := range gv.kinds {
			kinds = append(kinds, k.GVK)
		}
	}
	return kinds
}

// APIResource is a kind that an OpenAPI document serves.
type APIResource struct {
	GVK        runtimeschema.GroupVersionKind
	Resource   string
	Namespaced bool
	HasStatus  bool
	// Definition is the name of the schema in the document; empty if it has none.
	Definition string
}

type openAPIDocument struct {
	Paths map[string]struct {
		Get, Put, Patch *struct {
			GVK *documentGroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
	} `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

// ParseOpenAPI reads an OpenAPI v3 document of one group-version: the kinds that are served, sorted by kind, and the schemas
// by name. Kinds whose objects have no path of their own, such as reviews and lists, are left out.
func ParseOpenAPI(data []byte) ([]APIResource, map[string]json.RawMessage, error) {
	var doc openAPIDocument
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, nil, err
	}
	byKind, err := definitionsByKind(doc.Components.Schemas)
	if err != nil {
		return nil, nil, err
	}
	found := map[string]*APIResource{}
	for path, item := range doc.Paths {
		resource, namespaced, subresource := splitPath(path)
		if resource == "" || subresource != "" {
			continue
		}
		for _, op := range []*struct {
			GVK *documentGroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}{item.Get, item.Put, item.Patch} {
			if op != nil && op.GVK != nil {
				gvk := runtimeschema.GroupVersionKind(*op.GVK)
				found[resource] = &APIResource{GVK: gvk, Resource: resource, Namespaced: namespaced, Definition: byKind[gvk]}
				break
			}
		}
	}
	for path := range doc.Paths {
		if resource, _, subresource := splitPath(path); subresource == "status" && found[resource] != nil {
			found[resource].HasStatus = true
		}
	}
	resources := make([]APIResource, 0, len(found))
	for _, r := range found {
		resources = append(resources, *r)
	}
	slices.SortFunc(resources, func(a, b APIResource) int {
		return strings.Compare(a.GVK.Kind+"/"+a.Resource, b.GVK.Kind+"/"+b.Resource)
	})
	return resources, doc.Components.Schemas, nil
}

func definitionsByKind(schemas map[string]json.RawMessage) (map[runtimeschema.GroupVersionKind]string, error) {
	byKind := map[runtimeschema.GroupVersionKind]string{}
	for name, raw := range schemas {
		if !strings.Contains(string(raw), "x-kubernetes-group-version-kind") {
			continue
		}
		var d struct {
			GVKs []documentGroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return nil, fmt.Errorf("cannot read the schema %s: %w", name, err)
		}
		for _, gvk := range d.GVKs {
			byKind[runtimeschema.GroupVersionKind(gvk)] = name
		}
	}
	return byKind, nil
}

// splitPath takes a path such as /apis/apps/v1/namespaces/{namespace}/deployments/{name}/status apart. resource is empty for
// paths that are not of a single object.
func splitPath(path string) (resource string, namespaced bool, subresource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", false, ""
	}
	if len(parts) > 3 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		namespaced, parts = true, parts[2:]
	}
	switch {
	case len(parts) == 2 && parts[1] == "{name}":
		return parts[0], namespaced, ""
	case len(parts) == 3 && parts[1] == "{name}":
		return parts[0], namespaced, parts[2]
	default:
		return "", false, ""
	}
}
