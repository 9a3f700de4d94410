package schema

import (
	"slices"
	"sort"
)

// Type is the JSON type of a value.
type Type string

// Types of values.
const (
	// Unknown: nothing is known about the value.
	Unknown Type = ""
	Object  Type = "object"
	Array   Type = "array"
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	// IntOrString is an integer or a string.
	IntOrString Type = "int-or-string"
)

// Formats of strings that matter: the API server reads such strings as something else than text.
const (
	FormatByte     = "byte"
	FormatDateTime = "date-time"
	FormatDate     = "date"
	FormatDuration = "duration"
	// FormatQuantity marks Kubernetes' quantities, such as 100m and 2Gi. A number is accepted too.
	FormatQuantity = "quantity"
)

// Schema is what is known about a value: its type, and that of what it consists of. It is immutable and safe for concurrent
// use. The nil Schema is the one of which nothing is known; every method may be called on it.
type Schema struct {
	ref *reference // if set, all else is at its target

	name             string
	typ              Type
	format           string
	properties       map[string]*Schema
	additional       *Schema
	items            *Schema
	required         []string
	enum             []any
	listType         string
	listMapKeys      []string
	preserve         bool
	embedded         bool
	nullable         bool
	hasDefault       bool
	pattern          string
	minimum, maximum *float64
	exclusiveMin     bool
	exclusiveMax     bool
	maxItems         *int64
	minLength        *int64
	maxLength        *int64
	maxProperties    *int64
}

// reference names a definition that is looked up when it is needed.
type reference struct {
	definitions definitions
	name        string
}

// definitions are schemas with names. The same name yields the same Schema every time; nil if there is none.
type definitions interface {
	definition(name string) *Schema
}

// Resolved follows references: two schemas are the same definition if and only if their Resolved pointers are equal. It is
// nil when nothing is known.
func (s *Schema) Resolved() *Schema {
	for range 100 { // a definition may be a reference to another one; a circle of these means nothing
		if s == nil || s.ref == nil {
			return s
		}
		s = s.ref.definitions.definition(s.ref.name)
	}
	return nil
}

// Name is a name for people: the short name of the definition (PodSpec), the path in the CRD (WebApp.spec.backup), or empty.
func (s *Schema) Name() string {
	if s = s.Resolved(); s == nil {
		return ""
	}
	return s.name
}

// Type of the value.
func (s *Schema) Type() Type {
	if s = s.Resolved(); s == nil {
		return Unknown
	}
	return s.typ
}

// Format of a string or number; empty if it has none.
func (s *Schema) Format() string {
	if s = s.Resolved(); s == nil {
		return ""
	}
	return s.format
}

// Field returns the schema of a field of an object. ok is false if the object cannot have the field. A field that an open
// object may have, but of which nothing is known, has the nil schema.
func (s *Schema) Field(name string) (field *Schema, ok bool) {
	if s = s.Resolved(); s == nil {
		return nil, true
	}
	if f, ok := s.properties[name]; ok {
		return f, true
	}
	if s.additional != nil {
		return s.additional, true
	}
	return nil, s.Open()
}

// Fields lists the names of the declared fields of an object, sorted.
func (s *Schema) Fields() []string {
	if s = s.Resolved(); s == nil {
		return nil
	}
	names := make([]string, 0, len(s.properties))
	for name := range s.properties {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// HasFields tells whether the object has declared fields; an object without them is a map.
func (s *Schema) HasFields() bool {
	s = s.Resolved()
	return s != nil && len(s.properties) > 0
}

// Additional is the schema of the values of a map; nil if it is not one or nothing is known about them.
func (s *Schema) Additional() *Schema {
	if s = s.Resolved(); s == nil {
		return nil
	}
	return s.additional
}

// Open tells whether fields that are not declared are allowed, with any content: the type is unknown, unknown fields are
// preserved, or it is an object of which no fields are declared.
func (s *Schema) Open() bool {
	if s = s.Resolved(); s == nil {
		return true
	}
	switch s.typ {
	case Unknown:
		return true
	case Object:
		return s.preserve || len(s.properties) == 0 && s.additional == nil
	default:
		return false
	}
}

// Items is the schema of the items of an array; nil if it is not one or nothing is known about them.
func (s *Schema) Items() *Schema {
	if s = s.Resolved(); s == nil {
		return nil
	}
	return s.items
}

// Required lists the fields that an object must have, without those that have a default.
func (s *Schema) Required() []string {
	if s = s.Resolved(); s == nil {
		return nil
	}
	var names []string
	for _, name := range s.required {
		if f, ok := s.properties[name]; !ok || !f.HasDefault() {
			names = append(names, name)
		}
	}
	return names
}

// IsRequired tells whether an object must have the field. A field with a default need not be written.
func (s *Schema) IsRequired(field string) bool {
	if s = s.Resolved(); s == nil || !slices.Contains(s.required, field) {
		return false
	}
	return !s.properties[field].HasDefault()
}

// Enum lists the values that are allowed; nil: all of the type.
func (s *Schema) Enum() []any {
	if s = s.Resolved(); s == nil {
		return nil
	}
	return slices.Clone(s.enum)
}

// HasDefault tells whether the API server fills in the value.
func (s *Schema) HasDefault() bool {
	if s == nil {
		return false
	}
	if s.hasDefault {
		return true
	}
	s = s.Resolved()
	return s != nil && s.hasDefault
}

// Nullable tells whether null is a value of its own.
func (s *Schema) Nullable() bool {
	s = s.Resolved()
	return s != nil && s.nullable
}

// Embedded tells whether the object is a whole Kubernetes object, with apiVersion, kind and metadata.
func (s *Schema) Embedded() bool {
	s = s.Resolved()
	return s != nil && s.embedded
}

// ListMapKeys lists the fields that identify the items of an array that is a map by these; nil if it is none.
func (s *Schema) ListMapKeys() []string {
	if s = s.Resolved(); s == nil || s.listType != "map" {
		return nil
	}
	return slices.Clone(s.listMapKeys)
}

// IsSet tells whether the items of an array must differ from each other.
func (s *Schema) IsSet() bool {
	s = s.Resolved()
	return s != nil && s.listType == "set"
}

// MaxSize is the greatest number of items of an array, of entries of a map or of characters of a string; ok is false if
// there is no bound.
func (s *Schema) MaxSize() (size int64, ok bool) {
	if s = s.Resolved(); s == nil {
		return 0, false
	}
	var bound *int64
	switch s.typ {
	case Array:
		bound = s.maxItems
	case Object:
		bound = s.maxProperties
	case String:
		bound = s.maxLength
		if bound == nil && len(s.enum) > 0 {
			return longest(s.enum), true
		}
	}
	if bound == nil {
		return 0, false
	}
	return max(0, *bound), true
}

func longest(enum []any) int64 {
	var n int
	for _, v := range enum {
		if text, ok := v.(string); ok {
			n = max(n, len(text))
		}
	}
	return int64(n)
}

// ListOf returns the schema of an array.
func ListOf(items *Schema) *Schema { return &Schema{typ: Array, items: items} }

// MapOf returns the schema of a map from strings.
func MapOf(values *Schema) *Schema {
	return &Schema{typ: Object, additional: values, preserve: values == nil}
}

// Scalar returns the schema of a value that has no parts. Format may be empty.
func Scalar(t Type, format string) *Schema { return &Schema{typ: t, format: format} }
