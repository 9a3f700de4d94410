package schema

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// FromCRDs returns a catalog of the kinds that CustomResourceDefinitions declare, in all their served versions.
func FromCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) (Catalog, error) { return nil, nil }

// FromCRDVersion returns the schema of the objects of one version of a CustomResourceDefinition, served or not.
func FromCRDVersion(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Schema, error) {
	return nil, nil
}

// ToJSONSchemaProps writes a schema as a structural schema of a CustomResourceDefinition. What contains itself, and what
// nothing is known about, preserves unknown fields.
func (s *Schema) ToJSONSchemaProps() *apiextensionsv1.JSONSchemaProps { return nil }
