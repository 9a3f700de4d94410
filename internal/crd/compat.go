package crd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Rule names a sort of change that stored objects may not stand.
type Rule string

// Rules.
const (
	// RuleVersionRemoved: a version goes in which objects are stored, or that clients use.
	RuleVersionRemoved Rule = "VersionRemoved"
	// RuleScopeChanged: the scope changes.
	RuleScopeChanged Rule = "ScopeChanged"
	// RuleFieldRemoved: a field goes; the API server drops its stored values at the next write.
	RuleFieldRemoved Rule = "FieldRemoved"
	// RuleTypeChanged: a field gets another type.
	RuleTypeChanged Rule = "TypeChanged"
	// RuleRequiredAdded: a field becomes required and has no default.
	RuleRequiredAdded Rule = "RequiredAdded"
	// RuleValidationTightened: a value that was good may no longer be.
	RuleValidationTightened Rule = "ValidationTightened"
)

// Change is one breaking change.
type Change struct {
	Rule Rule
	// Version is the version of the kind, Path the field within an object: spec.replicas.
	Version, Path string
	// Message says what changes: `removes the field`.
	Message string
}

// String prints the change for people: FieldRemoved: v1 spec.size: removes the field.
func (c Change) String() string {
	s := string(c.Rule) + ": " + c.Version
	if c.Path != "" {
		s += " " + c.Path
	}
	return s + ": " + c.Message
}

// Breaking lists what in the new CustomResourceDefinition objects that the old one let in may not stand, sorted by version
// and path. The status is not looked at: Libretto writes it anew.
func Breaking(old, next *apiextensionsv1.CustomResourceDefinition) []Change {
	var d differ
	if old.Spec.Scope != next.Spec.Scope {
		d.version = ""
		d.add(RuleScopeChanged, "", "changes the scope from %s to %s", old.Spec.Scope, next.Spec.Scope)
	}
	for i := range old.Spec.Versions {
		was := &old.Spec.Versions[i]
		d.version = was.Name
		j := slices.IndexFunc(next.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == was.Name })
		stored := slices.Contains(old.Status.StoredVersions, was.Name) || was.Storage
		switch {
		case j < 0 && stored:
			d.add(RuleVersionRemoved, "", "removes a version in which objects are stored")
			continue
		case j < 0:
			if was.Served {
				d.add(RuleVersionRemoved, "", "removes a version that is served")
			}
			continue
		case was.Served && !next.Spec.Versions[j].Served:
			d.add(RuleVersionRemoved, "", "no longer serves the version")
		}
		a, b := schemaOf(was), schemaOf(&next.Spec.Versions[j])
		if a != nil && b != nil {
			d.compare("", a, b)
		}
	}
	sort.SliceStable(d.changes, func(i, j int) bool {
		a, b := d.changes[i], d.changes[j]
		if a.Version != b.Version {
			return a.Version < b.Version
		}
		return a.Path < b.Path
	})
	return d.changes
}

func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}

type differ struct {
	version string
	changes []Change
}

func (d *differ) add(r Rule, path, format string, args ...any) {
	d.changes = append(d.changes, Change{Rule: r, Version: d.version, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (d *differ) tightened(path, format string, args ...any) {
	d.add(RuleValidationTightened, path, format, args...)
}

func (d *differ) compare(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	if !d.sameType(path, a, b) {
		return
	}
	d.properties(path, a, b)
	d.open(path, a, b)
	d.required(path, a, b)
	d.values(path, a, b)
	d.ranges(path, a, b)
	d.rules(path, a, b)
	if a.Items != nil && a.Items.Schema != nil && b.Items != nil && b.Items.Schema != nil {
		d.compare(path+"[]", a.Items.Schema, b.Items.Schema)
	}
	if a.AdditionalProperties != nil && a.AdditionalProperties.Schema != nil && b.AdditionalProperties != nil && b.AdditionalProperties.Schema != nil {
		d.compare(path+"[*]", a.AdditionalProperties.Schema, b.AdditionalProperties.Schema)
	}
}

// sameType reports a change of type; one to a type that takes all values of the old one is none.
func (d *differ) sameType(path string, a, b *apiextensionsv1.JSONSchemaProps) bool {
	from, to := typeOf(a), typeOf(b)
	switch {
	case from == to, to == anyType, from == "integer" && to == "number",
		to == intOrString && (from == "integer" || from == "string"):
		return true
	}
	d.add(RuleTypeChanged, path, "changes the type from %s to %s", from, to)
	return false
}

const (
	anyType     = "any"
	intOrString = "integer or string"
)

func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return intOrString
	case s.Type == "":
		return anyType
	}
	return s.Type
}

func (d *differ) properties(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	for _, name := range sortedKeys(a.Properties) {
		child := join(path, name)
		if path == "" && (name == "status" || name == "metadata") {
			continue
		}
		was, is := a.Properties[name], b.Properties[name]
		if _, ok := b.Properties[name]; ok {
			d.compare(child, &was, &is)
		} else if !preserves(b) && !takesMore(b) {
			d.add(RuleFieldRemoved, child, "removes the field")
		}
	}
}

// open reports that what was open for any field no longer is.
func (d *differ) open(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	if preserves(a) && !preserves(b) && !takesMore(b) {
		d.add(RuleFieldRemoved, path, "no longer preserves unknown fields")
	} else if takesMore(a) && !takesMore(b) && !preserves(b) {
		d.add(RuleFieldRemoved, path, "no longer takes additional properties")
	}
}

func preserves(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

func takesMore(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.AdditionalProperties != nil && (s.AdditionalProperties.Allows || s.AdditionalProperties.Schema != nil)
}

func (d *differ) required(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	for _, name := range b.Required {
		if p, ok := b.Properties[name]; slices.Contains(a.Required, name) || (ok && p.Default != nil) || (path == "" && name == "status") {
			continue
		}
		d.add(RuleRequiredAdded, join(path, name), "requires the field, and there is no default")
	}
}

// values reports what limits a value by itself: enum, pattern, format, null, uniqueness.
func (d *differ) values(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	if len(b.Enum) > 0 {
		if len(a.Enum) == 0 {
			d.tightened(path, "limits the values to an enum")
		}
		for _, v := range a.Enum {
			if !slices.ContainsFunc(b.Enum, func(w apiextensionsv1.JSON) bool { return sameJSON(v.Raw, w.Raw) }) {
				d.tightened(path, "takes %s out of the enum", v.Raw)
			}
		}
	}
	if b.Pattern != "" && b.Pattern != a.Pattern {
		d.tightened(path, "changes the pattern to %s", b.Pattern)
	}
	if b.Format != "" && b.Format != a.Format && (a.Format != "int32" || b.Format != "int64") {
		d.tightened(path, "changes the format to %s", b.Format)
	}
	if a.Nullable && !b.Nullable {
		d.tightened(path, "no longer takes null")
	}
	if b.UniqueItems && !a.UniqueItems {
		d.tightened(path, "no longer takes an item twice")
	}
	if lt := listType(b); lt != "atomic" && lt != listType(a) {
		d.tightened(path, "changes the list type to %s, which takes no item twice", lt)
	}
}

func listType(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XListType == nil {
		return "atomic"
	}
	return *s.XListType
}

// ranges reports limits that became narrower.
func (d *differ) ranges(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	for _, l := range []struct {
		name   string
		a, b   *float64
		narrow func(a, b float64) bool
	}{
		{"minimum", a.Minimum, b.Minimum, above}, {"maximum", a.Maximum, b.Maximum, below},
		{"minLength", number(a.MinLength), number(b.MinLength), above}, {"maxLength", number(a.MaxLength), number(b.MaxLength), below},
		{"minItems", number(a.MinItems), number(b.MinItems), above}, {"maxItems", number(a.MaxItems), number(b.MaxItems), below},
		{"minProperties", number(a.MinProperties), number(b.MinProperties), above},
		{"maxProperties", number(a.MaxProperties), number(b.MaxProperties), below},
		{"multipleOf", a.MultipleOf, b.MultipleOf, func(a, b float64) bool { return a != b }},
	} {
		switch {
		case l.b == nil:
		case l.a == nil:
			d.tightened(path, "adds %s %v", l.name, *l.b)
		case l.narrow(*l.a, *l.b):
			d.tightened(path, "changes %s from %v to %v", l.name, *l.a, *l.b)
		}
	}
	if b.ExclusiveMinimum && !a.ExclusiveMinimum && b.Minimum != nil && a.Minimum != nil && *a.Minimum >= *b.Minimum {
		d.tightened(path, "makes the minimum exclusive")
	}
	if b.ExclusiveMaximum && !a.ExclusiveMaximum && b.Maximum != nil && a.Maximum != nil && *a.Maximum <= *b.Maximum {
		d.tightened(path, "makes the maximum exclusive")
	}
}

func above(a, b float64) bool { return b > a }
func below(a, b float64) bool { return b < a }

func number(p *int64) *float64 {
	if p == nil {
		return nil
	}
	f := float64(*p)
	return &f
}

// rules reports CEL rules and combinations of schemas that are new.
func (d *differ) rules(path string, a, b *apiextensionsv1.JSONSchemaProps) {
	for _, r := range b.XValidations {
		if !slices.ContainsFunc(a.XValidations, func(o apiextensionsv1.ValidationRule) bool { return o.Rule == r.Rule }) {
			d.tightened(path, "adds the rule %s", r.Rule)
		}
	}
	for _, c := range []struct {
		name string
		a, b any
		set  bool
	}{
		{"allOf", a.AllOf, b.AllOf, len(b.AllOf) > 0}, {"anyOf", a.AnyOf, b.AnyOf, len(b.AnyOf) > 0},
		{"oneOf", a.OneOf, b.OneOf, len(b.OneOf) > 0}, {"not", a.Not, b.Not, b.Not != nil},
	} {
		if c.set && !reflect.DeepEqual(c.a, c.b) {
			d.tightened(path, "changes %s", c.name)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return string(a) == string(b)
	}
	return reflect.DeepEqual(x, y)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
