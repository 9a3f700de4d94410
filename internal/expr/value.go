package expr

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"github.com/libretto-dev/libretto/internal/schema"
)

// toValue makes a CEL value of a JSON value. Objects and lists are wrapped, not copied; what is in them is made a value when
// it is read. The schema says how a scalar is read; without one its own type does.
func toValue(v any, s *schema.Schema) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case ref.Val:
		return v
	case map[string]any:
		return &objectValue{fields: v, schema: s.Resolved()}
	case []any:
		return &listValue{elements: v, items: s.Items()}
	case string:
		return textValue(v, s)
	case bool:
		return types.Bool(v)
	case int64:
		if s.Type() == schema.Number {
			return types.Double(v)
		}
		return types.Int(v)
	case int:
		return toValue(int64(v), s)
	case int32:
		return toValue(int64(v), s)
	case float64:
		if s.Type() == schema.Integer && v == float64(int64(v)) {
			return types.Int(int64(v))
		}
		return types.Double(v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(v)
	}
}

// textValue reads a string by its format.
func textValue(v string, s *schema.Schema) ref.Val {
	if s.Type() != schema.String {
		return types.String(v)
	}
	switch s.Format() {
	case schema.FormatByte:
		data, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return types.NewErr("the value is not base64")
		}
		return types.Bytes(data)
	case schema.FormatDateTime:
		t, err := strfmt.ParseDateTime(v)
		if err != nil {
			return types.NewErr("the value is not a time such as 2006-01-02T15:04:05Z")
		}
		return types.Timestamp{Time: time.Time(t)}
	case schema.FormatDate:
		t, err := time.Parse(time.DateOnly, v)
		if err != nil {
			return types.NewErr("the value is not a date such as 2006-01-02")
		}
		return types.Timestamp{Time: t}
	case schema.FormatDuration:
		d, err := strfmt.ParseDuration(v)
		if err != nil {
			return types.NewErr("the value is not a duration such as 1h30m")
		}
		return types.Duration{Duration: d}
	}
	return types.String(v)
}

// objectValue is a JSON object as a CEL map.
type objectValue struct {
	fields map[string]any
	schema *schema.Schema
}

var _ traits.Mapper = (*objectValue)(nil)

// lookup returns the JSON value of a key. A field of an object whose value is null is like one that is not there; a map may
// hold null.
func (o *objectValue) lookup(key string) (any, string, bool) {
	v, ok := o.fields[key]
	if !ok {
		if o.schema.HasFields() {
			if plain, isEscaped := apiservercel.Unescape(key); isEscaped && plain != key {
				key = plain
				v, ok = o.fields[key]
			}
		}
	}
	if ok && v == nil && o.schema.HasFields() {
		return nil, key, false
	}
	return v, key, ok
}

func (o *objectValue) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	v, plain, ok := o.lookup(string(name))
	if !ok {
		return nil, false
	}
	var field *schema.Schema
	if o.schema != nil {
		field, _ = o.schema.Field(plain)
	}
	return toValue(v, field), true
}

func (o *objectValue) Get(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if found {
		return v
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

func (o *objectValue) Contains(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

func (o *objectValue) Size() ref.Val { return types.Int(len(o.fields)) }

// Iterator goes through the keys in their order, so that the same object yields the same result.
func (o *objectValue) Iterator() traits.Iterator {
	return &keyIterator{keys: sortedKeys(o.fields)}
}

func (o *objectValue) ConvertToNative(t reflect.Type) (any, error) {
	if reflect.TypeOf(o.fields).AssignableTo(t) {
		return o.fields, nil
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, o.fields).ConvertToNative(t)
}

func (o *objectValue) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.MapType, t)
}

func (o *objectValue) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok || o.Size() != m.Size() {
		return types.False
	}
	for key := range o.fields {
		v, found := o.Find(types.String(key))
		w, foundOther := m.Find(types.String(key))
		if found != foundOther {
			return types.False
		}
		if found && types.Equal(v, w) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o *objectValue) Type() ref.Type { return types.MapType }
func (o *objectValue) Value() any     { return o.fields }

type keyIterator struct {
	ref.Val
	keys []string
	next int
}

func (it *keyIterator) HasNext() ref.Val { return types.Bool(it.next < len(it.keys)) }

func (it *keyIterator) Next() ref.Val {
	key := it.keys[it.next]
	it.next++
	return types.String(key)
}

// listValue is a JSON array as a CEL list.
type listValue struct {
	elements []any
	items    *schema.Schema
}

var _ traits.Lister = (*listValue)(nil)

func (l *listValue) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.WrapErr(err)
	}
	if i < 0 || i >= len(l.elements) {
		return types.NewErr("index out of bounds: %d", i)
	}
	return toValue(l.elements[i], l.items)
}

func (l *listValue) Size() ref.Val { return types.Int(len(l.elements)) }

func (l *listValue) Contains(value ref.Val) ref.Val {
	for _, e := range l.elements {
		if types.Equal(toValue(e, l.items), value) == types.True {
			return types.True
		}
	}
	return types.False
}

func (l *listValue) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	values := make([]ref.Val, 0, len(l.elements)+int(o.Size().(types.Int)))
	for _, list := range []traits.Lister{l, o} {
		for it := list.Iterator(); it.HasNext() == types.True; {
			values = append(values, it.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values)
}

func (l *listValue) Iterator() traits.Iterator { return &listIterator{list: l} }

func (l *listValue) ConvertToNative(t reflect.Type) (any, error) {
	if reflect.TypeOf(l.elements).AssignableTo(t) {
		return l.elements, nil
	}
	values := make([]ref.Val, len(l.elements))
	for i, e := range l.elements {
		values[i] = toValue(e, l.items)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values).ConvertToNative(t)
}

func (l *listValue) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.ListType, t)
}

func (l *listValue) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok || l.Size() != o.Size() {
		return types.False
	}
	for i := range l.elements {
		if types.Equal(toValue(l.elements[i], l.items), o.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

func (l *listValue) Type() ref.Type { return types.ListType }
func (l *listValue) Value() any     { return l.elements }

type listIterator struct {
	ref.Val
	list *listValue
	next int
}

func (it *listIterator) HasNext() ref.Val { return types.Bool(it.next < len(it.list.elements)) }

func (it *listIterator) Next() ref.Val {
	v := toValue(it.list.elements[it.next], it.list.items)
	it.next++
	return v
}

// omitValue is what omit() yields.
type omitValue struct{}

var omitType = types.NewOpaqueType("libretto.Omit")

func (omitValue) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("omit() is no %s", t)
}
func (v omitValue) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return omitType
	}
	return types.NewErr("omit() cannot be used within a computation: it can only be the result, an item or a field")
}
func (omitValue) Equal(other ref.Val) ref.Val {
	_, same := other.(omitValue)
	return types.Bool(same)
}
func (omitValue) Type() ref.Type { return omitType }
func (omitValue) Value() any     { return Omit{} }
