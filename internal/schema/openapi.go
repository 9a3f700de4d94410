package schema

import (
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// FromOpenAPI returns a catalog that reads the OpenAPI v3 documents of an API server, as served at /openapi/v3/apis/GROUP/VERSION.
// fetch is called at most once per group-version, when the first kind of it is looked up; if it fails, it is called again
// the next time. It returns ErrUnknownKind (errors.Is) for a group-version that the server does not have.
func FromOpenAPI(fetch func(gv runtimeschema.GroupVersion) ([]byte, error)) Catalog { return nil }
