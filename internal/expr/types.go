package expr

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/libretto-dev/libretto/internal/schema"
)

// objectPrefix stands before the names of object types, so that none of them is an identifier that an author may write.
const objectPrefix = "object:"

// typeProvider gives CEL the types of schemas. An object with declared fields is a struct type that is named after its
// definition; what is behind a field is looked at when an expression selects it, so that a type costs nothing until then and
// may contain itself.
type typeProvider struct {
	types.Provider // of the base environment

	mu     sync.Mutex
	byName map[string]*schema.Schema
	byType map[*schema.Schema]*cel.Type
}

func newTypeProvider(base types.Provider) *typeProvider {
	return &typeProvider{Provider: base, byName: map[string]*schema.Schema{}, byType: map[*schema.Schema]*cel.Type{}}
}

// typeOf returns the CEL type of a schema.
func (p *typeProvider) typeOf(s *schema.Schema) *cel.Type {
	s = s.Resolved()
	switch s.Type() {
	case schema.Object:
		if s.HasFields() {
			return p.objectType(s)
		}
		return cel.MapType(cel.StringType, p.typeOf(s.Additional()))
	case schema.Array:
		return cel.ListType(p.typeOf(s.Items()))
	case schema.Boolean:
		return cel.BoolType
	case schema.Integer:
		return cel.IntType
	case schema.Number:
		return cel.DoubleType
	case schema.String:
		switch s.Format() {
		case schema.FormatByte:
			return cel.BytesType
		case schema.FormatDateTime, schema.FormatDate:
			return cel.TimestampType
		case schema.FormatDuration:
			return cel.DurationType
		}
		return cel.StringType
	}
	return cel.DynType
}

func (p *typeProvider) objectType(s *schema.Schema) *cel.Type {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.byType[s]; ok {
		return t
	}
	name := objectPrefix + s.Name()
	for n := 2; p.byName[name] != nil; n++ { // another definition of the same name
		name = fmt.Sprintf("%s%s#%d", objectPrefix, s.Name(), n)
	}
	t := cel.ObjectType(name)
	p.byName[name], p.byType[s] = s, t
	return t
}

// schemaNamed returns the schema of an object type.
func (p *typeProvider) schemaNamed(name string) *schema.Schema {
	if !strings.HasPrefix(name, objectPrefix) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name]
}

// FindStructType implements types.Provider.
func (p *typeProvider) FindStructType(name string) (*types.Type, bool) {
	if s := p.schemaNamed(name); s != nil {
		return types.NewTypeTypeWithParam(p.objectType(s)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldType implements types.Provider.
func (p *typeProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	s := p.schemaNamed(name)
	if s == nil {
		return p.Provider.FindStructFieldType(name, field)
	}
	f, ok := fieldOf(s, field)
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: p.typeOf(f)}, true
}

// NativeToValue implements types.Adapter.
func (p *typeProvider) NativeToValue(value any) ref.Val { return toValue(value, nil) }

// schemaOf returns what is known about a value of the type once it is a JSON value; nil: nothing.
func (p *typeProvider) schemaOf(t *cel.Type) *schema.Schema {
	switch t.Kind() {
	case types.BoolKind:
		return schema.Scalar(schema.Boolean, "")
	case types.IntKind, types.UintKind:
		return schema.Scalar(schema.Integer, "")
	case types.DoubleKind:
		return schema.Scalar(schema.Number, "")
	case types.StringKind:
		return schema.Scalar(schema.String, "")
	case types.BytesKind:
		return schema.Scalar(schema.String, schema.FormatByte)
	case types.TimestampKind:
		return schema.Scalar(schema.String, schema.FormatDateTime)
	case types.DurationKind:
		return schema.Scalar(schema.String, schema.FormatDuration)
	case types.ListKind:
		return schema.ListOf(p.schemaOf(t.Parameters()[0]))
	case types.MapKind:
		return schema.MapOf(p.schemaOf(t.Parameters()[1]))
	case types.StructKind:
		return p.schemaNamed(t.TypeName())
	case types.OpaqueKind:
		if isOptional(t) {
			return p.schemaOf(t.Parameters()[0])
		}
		if isText(t) {
			return schema.Scalar(schema.String, "")
		}
	}
	return nil
}

// fieldOf looks a field up as CEL writes it: a name that is no identifier is escaped (__dash__ and so on).
func fieldOf(s *schema.Schema, name string) (*schema.Schema, bool) {
	if f, ok := s.Field(name); ok {
		return f, true
	}
	if plain, ok := apiservercel.Unescape(name); ok && plain != name {
		return s.Field(plain)
	}
	return nil, false
}

// textTypes are the types of Kubernetes' libraries whose values are text in an object.
var textTypes = []string{"kubernetes.Quantity", "net.IP", "net.CIDR", "kubernetes.Semver"}

func isText(t *cel.Type) bool { return slices.Contains(textTypes, t.TypeName()) }

// describeType writes a type in the words that authors know from schemas.
func describeType(t *cel.Type) string { return describeTypeName(cel.FormatCELType(t)) }

var typeWords = map[string]string{
	"int": "integer", "uint": "integer", "double": "number", "bool": "boolean", "dyn": "any value", "any": "any value",
	"null": "null", "null_type": "null", "google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration",
	"bytes": "bytes", "kubernetes.Quantity": "quantity", "net.IP": "IP address", "net.CIDR": "CIDR", "kubernetes.Semver": "semantic version",
	"kubernetes.URL": "URL",
}

// describeTypeName turns CEL's way of writing a type, such as list(map(string, int)), into words.
func describeTypeName(name string) string {
	name = strings.TrimSpace(name)
	if word, ok := typeWords[name]; ok {
		return word
	}
	if object, ok := strings.CutPrefix(name, objectPrefix); ok {
		object, _, _ = strings.Cut(object, "#")
		if object == "" {
			return "object"
		}
		return "object (" + object + ")"
	}
	head, rest, ok := strings.Cut(name, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return name
	}
	args := splitArguments(strings.TrimSuffix(rest, ")"))
	switch {
	case head == "list" && len(args) == 1:
		return "list of " + describeTypeName(args[0])
	case head == "map" && len(args) == 2:
		return "map of " + describeTypeName(args[1])
	case (head == "optional_type" || head == "optional") && len(args) == 1:
		return "optional " + describeTypeName(args[0])
	case (head == "wrapper" || head == "type") && len(args) == 1:
		return describeTypeName(args[0])
	}
	return name
}

// splitArguments splits at the commas that are not within parentheses.
func splitArguments(s string) []string {
	var args []string
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				args = append(args, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(s[start:]); rest != "" {
		args = append(args, rest)
	}
	return args
}

func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type"
}
