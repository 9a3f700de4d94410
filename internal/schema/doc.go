// Package schema knows what kinds look like: their plural, their scope and the types of their fields. It answers from data,
// never from a cluster: from the OpenAPI documents of Kubernetes' own kinds, which are embedded (Embedded), from
// CustomResourceDefinitions (FromCRDs), and from OpenAPI documents that somebody else has fetched (FromOpenAPI). Chain puts
// several catalogs behind each other.
//
// A Schema is immutable and shared. References between schemas are resolved when they are followed, so that a schema costs
// only what is looked at, and a schema may contain itself.
package schema

//go:generate go run ./gen -o kubernetes.zip
