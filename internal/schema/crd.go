package schema

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// FromCRDs returns a catalog of the kinds that CustomResourceDefinitions declare, in all their served versions.
func FromCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) (Catalog, error) {
	kinds := crdCatalog{}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			if !version.Served {
				continue
			}
			s, err := fromVersion(crd, version)
			if err != nil {
				return nil, err
			}
			gvk := runtimeschema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			kinds[gvk] = &Kind{
				GVK:        gvk,
				Resource:   crd.Spec.Names.Plural,
				Namespaced: crd.Spec.Scope != apiextensionsv1.ClusterScoped,
				HasStatus:  version.Subresources != nil && version.Subresources.Status != nil,
				Schema:     s,
			}
		}
	}
	return kinds, nil
}

type crdCatalog map[runtimeschema.GroupVersionKind]*Kind

// Kind implements Catalog.
func (c crdCatalog) Kind(gvk runtimeschema.GroupVersionKind) (*Kind, error) {
	kind, ok := c[gvk]
	if !ok {
		return nil, unknownKind(gvk)
	}
	copied := *kind
	return &copied, nil
}

// Kinds implements Lister.
func (c crdCatalog) Kinds() []runtimeschema.GroupVersionKind {
	kinds := make([]runtimeschema.GroupVersionKind, 0, len(c))
	for gvk := range c {
		kinds = append(kinds, gvk)
	}
	return kinds
}

// FromCRDVersion returns the schema of the objects of one version of a CustomResourceDefinition, served or not.
func FromCRDVersion(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Schema, error) {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == version {
			return fromVersion(crd, &crd.Spec.Versions[i])
		}
	}
	return nil, fmt.Errorf("the CustomResourceDefinition %s has no version %s", crd.Name, version)
}

func fromVersion(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) (*Schema, error) {
	var root apiextensionsv1.JSONSchemaProps
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		root = *version.Schema.OpenAPIV3Schema
	}
	s, err := FromJSONSchemaProps(crd.Spec.Names.Kind, &root)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s %s: %w", crd.Spec.Names.Kind, version.Name, err)
	}
	s.addObjectFields()
	return s, nil
}

// FromJSONSchemaProps returns a structural schema as a Schema. name is for people, such as WebApp or parameters.
func FromJSONSchemaProps(name string, props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	data, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	return d.build(name, noDefinitions{}), nil
}

type noDefinitions struct{}

func (noDefinitions) definition(string) *Schema { return nil }

// ToJSONSchemaProps writes a schema as a structural schema of a CustomResourceDefinition. What contains itself, and what
// nothing is known about, preserves unknown fields.
func (s *Schema) ToJSONSchemaProps() *apiextensionsv1.JSONSchemaProps {
	return toProps(s, map[*Schema]bool{})
}

func toProps(s *Schema, above map[*Schema]bool) *apiextensionsv1.JSONSchemaProps {
	s = s.Resolved()
	yes := true
	if s == nil || above[s] || s.typ == Unknown {
		return &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: &yes}
	}
	above[s] = true
	defer delete(above, s)
	props := &apiextensionsv1.JSONSchemaProps{Type: string(s.typ), Format: s.format, Nullable: s.nullable}
	switch s.typ {
	case IntOrString:
		props.Type, props.XIntOrString = "", true
	case String:
		if s.format == FormatQuantity {
			props.Type, props.Format, props.XIntOrString = "", "", true
		}
	case Array:
		props.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: toProps(s.items, above)}
	case Object:
		if s.additional != nil {
			props.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: toProps(s.additional, above)}
			break
		}
		if s.Open() {
			props.XPreserveUnknownFields = &yes
		}
		if len(s.properties) > 0 {
			props.Properties = make(map[string]apiextensionsv1.JSONSchemaProps, len(s.properties))
			for name, field := range s.properties {
				props.Properties[name] = *toProps(field, above)
			}
		}
	}
	return props
}
