package scaffold

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// FieldType is the type of a field.
type FieldType string

// Types of fields.
const (
	TypeString  FieldType = "string"
	TypeInteger FieldType = "integer"
	TypeNumber  FieldType = "number"
	TypeBoolean FieldType = "boolean"
	// TypeList is a list of strings, TypeMap a map of strings.
	TypeList FieldType = "list"
	TypeMap  FieldType = "map"
)

// Field is a field of spec.
type Field struct {
	Name     string
	Type     FieldType
	Required bool
	// Default is the default as a JSON value; nil: none.
	Default any
	// Enum are the values that a string may have; nil: any.
	Enum []string
	// Min and Max limit a number, as written; empty: no limit.
	Min, Max string
}

const fieldSyntax = "write NAME:TYPE[=DEFAULT][,required][,enum=A|B][,min=N][,max=N], where TYPE is string, integer, number, boolean, list or map"

var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// ParseField reads replicas:integer=1, host:string, size:string=small,enum=small|large, count:integer,required,min=1.
func ParseField(s string) (Field, error) {
	name, rest, found := strings.Cut(s, ":")
	f := Field{Name: name}
	if !found || !fieldName.MatchString(name) {
		return f, fmt.Errorf("field %q: %s", s, fieldSyntax)
	}
	if contains([]string{"in", "true", "false", "null"}, name) {
		return f, fmt.Errorf("field %q: %s is a word of the expression language; choose another name", s, name)
	}
	head, options := cutOptions(rest)
	typ, def, hasDefault := strings.Cut(head, "=")
	f.Type = FieldType(typ)
	switch f.Type {
	case TypeString, TypeInteger, TypeNumber, TypeBoolean, TypeList, TypeMap:
	default:
		return f, fmt.Errorf("field %q: %q is not a type; %s", s, typ, fieldSyntax)
	}
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "required":
			f.Required = true
		case "enum":
			f.Enum = strings.Split(value, "|")
		case "min":
			f.Min = value
		case "max":
			f.Max = value
		}
	}
	if hasDefault {
		value, err := f.parse(def)
		if err != nil {
			return f, fmt.Errorf("field %q: %w", s, err)
		}
		f.Default = value
	}
	return f, f.check(s)
}

func (f *Field) check(s string) error {
	numeric := f.Type == TypeInteger || f.Type == TypeNumber
	for _, limit := range []string{f.Min, f.Max} {
		if limit == "" {
			continue
		}
		if _, err := f.parse(limit); err != nil || !numeric {
			return fmt.Errorf("field %q: min and max take a number and go with integer and number alone", s)
		}
	}
	if f.Enum != nil && f.Type != TypeString {
		return fmt.Errorf("field %q: enum goes with string alone", s)
	}
	if d, ok := f.Default.(string); ok && f.Enum != nil && !contains(f.Enum, d) {
		return fmt.Errorf("field %q: the default %q is not one of %s", s, d, strings.Join(f.Enum, ", "))
	}
	if f.Required && f.Default != nil {
		return fmt.Errorf("field %q: a field with a default is never missing; leave out required", s)
	}
	return nil
}

// cutOptions splits at the commas that begin an option, so that a default may contain commas.
func cutOptions(s string) (head string, options []string) {
	parts := strings.Split(s, ",")
	n := len(parts)
	for n > 1 {
		key, _, _ := strings.Cut(parts[n-1], "=")
		if key != "required" && key != "enum" && key != "min" && key != "max" {
			break
		}
		n--
	}
	return strings.Join(parts[:n], ","), parts[n:]
}

// parse reads a value of the field's type. Lists are written a,b and maps a=b,c=d.
func (f *Field) parse(s string) (any, error) {
	switch f.Type {
	case TypeString:
		return s, nil
	case TypeInteger:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not an integer", s)
		}
		return n, nil
	case TypeNumber:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", s)
		}
		return n, nil
	case TypeBoolean:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not true or false", s)
		}
		return b, nil
	case TypeList:
		list := []any{}
		for _, item := range splitList(s) {
			list = append(list, item)
		}
		return list, nil
	case TypeMap:
		m := map[string]any{}
		for _, item := range splitList(s) {
			key, value, found := strings.Cut(item, "=")
			if !found {
				return nil, fmt.Errorf("%q is not KEY=VALUE", item)
			}
			m[key] = value
		}
		return m, nil
	}
	return nil, fmt.Errorf("%q is not a type", f.Type)
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// always tells whether every instance has the field.
func (f *Field) always() bool { return f.Required || f.Default != nil }

// text is an expression that yields the value as a string; what is not set is "".
func (f *Field) text() string {
	path := "self.spec." + f.Name
	value := path
	switch f.Type {
	case TypeString:
		if !f.always() {
			return "self.spec.?" + f.Name + `.orValue("")`
		}
		return value
	case TypeInteger, TypeNumber, TypeBoolean:
		value = "string(" + path + ")"
	case TypeList, TypeMap:
		value = "json(" + path + ")"
	}
	if f.always() {
		return value
	}
	return "has(" + path + ") ? " + value + ` : ""`
}

// sample is a value for the instance that comes with the definition.
func (f *Field) sample(o *Options) any {
	if f.Default != nil {
		return f.Default
	}
	switch f.Type {
	case TypeString:
		switch {
		case len(f.Enum) > 0:
			return f.Enum[0]
		case f.Name == "image":
			return defaultImage
		case f.Name == "host":
			return o.singular() + ".example.com"
		}
		return "an example"
	case TypeInteger, TypeNumber:
		for _, limit := range []string{f.Min, f.Max} {
			if v, err := f.parse(limit); limit != "" && err == nil {
				return v
			}
		}
		return int64(1)
	case TypeBoolean:
		return true
	case TypeList:
		return []any{"an example"}
	case TypeMap:
		return map[string]any{"key": "an example"}
	}
	return nil
}

// schema is the field's OpenAPI schema in flow style.
func (f *Field) schema() string {
	parts := []string{"type: " + map[FieldType]string{
		TypeString: "string", TypeInteger: "integer", TypeNumber: "number", TypeBoolean: "boolean", TypeList: "array", TypeMap: "object",
	}[f.Type]}
	switch f.Type {
	case TypeList:
		parts = append(parts, "items: {type: string}")
	case TypeMap:
		parts = append(parts, "additionalProperties: {type: string}")
	case TypeString:
		if f.Required {
			parts = append(parts, "minLength: 1")
		}
	case TypeInteger, TypeNumber, TypeBoolean:
	}
	if f.Enum != nil {
		parts = append(parts, "enum: "+jsonText(f.Enum))
	}
	if f.Min != "" {
		parts = append(parts, "minimum: "+f.Min)
	} else if f.Name == "replicas" && f.Type == TypeInteger {
		parts = append(parts, "minimum: 0")
	}
	if f.Max != "" {
		parts = append(parts, "maximum: "+f.Max)
	}
	if f.Default != nil {
		parts = append(parts, "default: "+jsonText(f.Default))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// jsonText prints a value as JSON, which is YAML in flow style.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil { // strings, numbers, booleans, lists and maps of strings: cannot happen
		return "null"
	}
	return string(data)
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
