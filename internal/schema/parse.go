package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// document is a schema of OpenAPI v3 as JSON, in as far as it matters here.
type document struct {
	Ref                  string                     `json:"$ref,omitempty"`
	Type                 string                     `json:"type,omitempty"`
	Format               string                     `json:"format,omitempty"`
	Properties           map[string]*document       `json:"properties,omitempty"`
	AdditionalProperties *documentOrBool            `json:"additionalProperties,omitempty"`
	Items                *document                  `json:"items,omitempty"`
	AllOf                []*document                `json:"allOf,omitempty"`
	OneOf                []*document                `json:"oneOf,omitempty"`
	Required             []string                   `json:"required,omitempty"`
	Enum                 []any                      `json:"enum,omitempty"`
	Default              json.RawMessage            `json:"default,omitempty"`
	Nullable             bool                       `json:"nullable,omitempty"`
	Pattern              string                     `json:"pattern,omitempty"`
	Minimum              *float64                   `json:"minimum,omitempty"`
	Maximum              *float64                   `json:"maximum,omitempty"`
	ExclusiveMinimum     bool                       `json:"exclusiveMinimum,omitempty"`
	ExclusiveMaximum     bool                       `json:"exclusiveMaximum,omitempty"`
	MinLength            *int64                     `json:"minLength,omitempty"`
	MaxLength            *int64                     `json:"maxLength,omitempty"`
	MaxItems             *int64                     `json:"maxItems,omitempty"`
	MaxProperties        *int64                     `json:"maxProperties,omitempty"`
	IntOrString          bool                       `json:"x-kubernetes-int-or-string,omitempty"`
	Preserve             bool                       `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	Embedded             bool                       `json:"x-kubernetes-embedded-resource,omitempty"`
	ListType             string                     `json:"x-kubernetes-list-type,omitempty"`
	ListMapKeys          []string                   `json:"x-kubernetes-list-map-keys,omitempty"`
	GVKs                 []documentGroupVersionKind `json:"x-kubernetes-group-version-kind,omitempty"`
}

type documentGroupVersionKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// documentOrBool is a schema, true or false.
type documentOrBool struct {
	schema *document
	allows bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *documentOrBool) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("{")) {
		d.allows = true
		return json.Unmarshal(data, &d.schema)
	}
	return json.Unmarshal(data, &d.allows)
}

const refPrefix = "#/components/schemas/"

// build makes a Schema of a document. name is for people; definitions resolve its references.
func (d *document) build(name string, defs definitions) *Schema {
	if d == nil {
		return nil
	}
	if ref := d.reference(); ref != "" {
		return &Schema{ref: &reference{definitions: defs, name: strings.TrimPrefix(ref, refPrefix)}, hasDefault: d.hasDefault()}
	}
	s := &Schema{
		name: name, typ: Type(d.Type), format: d.Format, required: d.Required, enum: d.Enum,
		listType: d.ListType, listMapKeys: d.ListMapKeys, preserve: d.Preserve, embedded: d.Embedded,
		nullable: d.Nullable, hasDefault: d.hasDefault(), pattern: d.Pattern, minimum: d.Minimum, maximum: d.Maximum,
		exclusiveMin: d.ExclusiveMinimum, exclusiveMax: d.ExclusiveMaximum,
		minLength: d.MinLength, maxLength: d.MaxLength, maxItems: d.MaxItems, maxProperties: d.MaxProperties,
		items: d.Items.build(join(name, "[]"), defs),
	}
	switch {
	case d.IntOrString || d.Format == "int-or-string":
		s.typ, s.format = IntOrString, ""
	case d.Type == "" && len(d.Properties) > 0:
		s.typ = Object
	case d.Type == "" && isQuantity(d):
		s.typ, s.format = String, FormatQuantity
	}
	if len(d.Properties) > 0 {
		s.properties = make(map[string]*Schema, len(d.Properties))
		for field, property := range d.Properties {
			s.properties[field] = property.build(join(name, field), defs)
		}
	}
	if ap := d.AdditionalProperties; ap != nil && ap.schema != nil {
		s.additional = ap.schema.build(join(name, "{}"), defs)
	} else if ap != nil && ap.allows {
		s.preserve = true
	}
	if s.embedded {
		s.addObjectFields()
	}
	return s
}

// reference returns the name that the document stands for. A reference with a default is written as allOf with one entry.
func (d *document) reference() string {
	if d.Ref != "" {
		return d.Ref
	}
	if d.Type == "" && len(d.AllOf) == 1 && len(d.Properties) == 0 {
		return d.AllOf[0].Ref
	}
	return ""
}

func (d *document) hasDefault() bool { return len(d.Default) > 0 }

// isQuantity recognises how the API server writes a quantity: a string or a number, with nothing else about it.
func isQuantity(d *document) bool {
	if len(d.OneOf) != 2 {
		return false
	}
	return d.OneOf[0].Type == "string" && d.OneOf[1].Type == "number"
}

func join(name, part string) string {
	if name == "" || strings.HasPrefix(part, "[") || strings.HasPrefix(part, "{") {
		return name + part
	}
	return name + "." + part
}

// addObjectFields adds what every Kubernetes object has.
func (s *Schema) addObjectFields() {
	fields := make(map[string]*Schema, len(s.properties)+3)
	for field, property := range s.properties {
		fields[field] = property
	}
	fields["apiVersion"] = Scalar(String, "")
	fields["kind"] = Scalar(String, "")
	fields["metadata"] = &Schema{ref: &reference{definitions: embedded(), name: objectMeta}}
	s.typ, s.properties = Object, fields
}

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// pool holds definitions that are parsed when they are looked up.
type pool struct {
	raw func(name string) (json.RawMessage, error)

	mu     sync.Mutex
	parsed map[string]*Schema
}

// definition implements definitions. What cannot be read is not known.
func (p *pool) definition(name string) *Schema {
	s, _ := p.lookup(name)
	return s
}

func (p *pool) lookup(name string) (*Schema, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.parsed[name]; ok {
		return s, nil
	}
	raw, err := p.raw(name)
	if err != nil || raw == nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("cannot read the schema %s: %w", name, err)
	}
	s := d.build(shortName(name), p)
	if p.parsed == nil {
		p.parsed = map[string]*Schema{}
	}
	p.parsed[name] = s
	return s, nil
}

// shortName is the last part of a definition's name: PodSpec of io.k8s.api.core.v1.PodSpec.
func shortName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
