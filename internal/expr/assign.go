package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/schema"
)

// assigner checks whether the result of an expression fits a schema.
type assigner struct {
	x *Expr
	// seen are the pairs of object schemas that are being compared, since schemas may contain themselves.
	seen map[[2]*schema.Schema]bool
}

// expr checks an expression. The parts of a literal, and the branches of a condition, are checked one by one.
func (a *assigner) expr(e ast.Expr, t *cel.Type, to *schema.Schema) *Problem {
	if to.Type() == schema.Unknown {
		return nil
	}
	switch {
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Conditional:
		for _, branch := range e.AsCall().Args()[1:] {
			if p := a.expr(branch, a.x.ast.GetType(branch.ID()), to); p != nil {
				return p
			}
		}
		return nil
	case mayOmit(e):
		return nil
	case e.Kind() == ast.MapKind && to.Type() == schema.Object:
		return a.mapLiteral(e, to)
	case e.Kind() == ast.ListKind && to.Type() == schema.Array:
		for _, item := range e.AsList().Elements() {
			if p := a.expr(item, a.x.ast.GetType(item.ID()), to.Items()); p != nil {
				return p
			}
		}
		return nil
	case e.Kind() == ast.LiteralKind:
		if value, err := toJSON(e.AsLiteral()); err == nil && value != nil && t.Kind() != types.BytesKind {
			if m := to.Check(value); m != nil && a.value(t, to) == nil {
				return a.at(e, &Problem{Message: m.Message, Expected: m.Expected, Found: m.Found, Hint: m.Hint})
			}
		}
	}
	return a.at(e, a.value(t, to))
}

func (a *assigner) mapLiteral(e ast.Expr, to *schema.Schema) *Problem {
	for _, entry := range e.AsMap().Entries() {
		key, value := entry.AsMapEntry().Key(), entry.AsMapEntry().Value()
		if key.Kind() != ast.LiteralKind {
			continue
		}
		name, ok := key.AsLiteral().(types.String)
		if !ok {
			continue
		}
		field, ok := to.Field(string(name))
		if !ok {
			return a.at(key, noField(string(name), to))
		}
		if p := a.expr(value, a.x.ast.GetType(value.ID()), field); p != nil {
			if p.Message == wrongType {
				p.Message += " for the field " + string(name)
			}
			return p
		}
	}
	return nil
}

const wrongType = "the expression has the wrong type"

// at adds the place to a problem.
func (a *assigner) at(e ast.Expr, p *Problem) *Problem {
	if p != nil {
		p.Offset = offsetOf(a.x.source, a.x.ast.SourceInfo().GetStartLocation(e.ID()))
	}
	return p
}

// value checks a type.
func (a *assigner) value(t *cel.Type, to *schema.Schema) *Problem {
	if t == nil || to.Type() == schema.Unknown {
		return nil
	}
	wrong := func(hint string) *Problem {
		return &Problem{Message: wrongType, Expected: to.Describe(), Found: describeType(t), Hint: hint}
	}
	switch t.Kind() {
	case types.DynKind, types.TypeParamKind, types.AnyKind, types.NullTypeKind, types.ErrorKind:
		return nil
	case types.OpaqueKind:
		if isOptional(t) {
			return a.value(t.Parameters()[0], to)
		}
		if isText(t) && (to.Type() == schema.String || to.Type() == schema.IntOrString) {
			return nil
		}
		return wrong("use string(…)")
	case types.StructKind:
		from := a.x.provider.schemaNamed(t.TypeName())
		if from == nil {
			return wrong("")
		}
		if p := a.object(from, to); p != nil {
			return p
		}
		return nil
	case types.MapKind:
		if to.Type() != schema.Object {
			return wrong("")
		}
		if to.HasFields() {
			return nil // which fields it has is not known before it runs
		}
		return a.value(t.Parameters()[1], to.Additional())
	case types.ListKind:
		if to.Type() != schema.Array {
			return wrong("")
		}
		if p := a.value(t.Parameters()[0], to.Items()); p != nil {
			return wrong(p.Hint)
		}
		return nil
	}
	if scalarFits(t, to) {
		return nil
	}
	return wrong(conversion(t, to))
}

// scalarFits tells whether a scalar of the type fits.
func scalarFits(t *cel.Type, to *schema.Schema) bool {
	target := to.Type()
	switch t.Kind() {
	case types.BoolKind:
		return target == schema.Boolean
	case types.IntKind, types.UintKind:
		return target == schema.Integer || target == schema.Number || target == schema.IntOrString ||
			target == schema.String && to.Format() == schema.FormatQuantity
	case types.DoubleKind:
		return target == schema.Number || target == schema.String && to.Format() == schema.FormatQuantity
	case types.StringKind:
		return target == schema.String || target == schema.IntOrString
	case types.TimestampKind, types.DurationKind:
		return target == schema.String
	case types.BytesKind:
		return target == schema.String && to.Format() == schema.FormatByte
	}
	return false
}

// conversion says how to make what is wanted of a scalar.
func conversion(t *cel.Type, to *schema.Schema) string {
	if t.Kind() == types.BytesKind && to.Type() == schema.String {
		return "use string(…) for the text itself, or base64.encode(…)"
	}
	switch to.Type() {
	case schema.String:
		return "use string(…)"
	case schema.Integer, schema.IntOrString:
		return "use int(…)"
	case schema.Number:
		return "use double(…)"
	case schema.Boolean:
		return "compare it with something, as in x == 'a'"
	}
	return ""
}

// object checks an object of one schema against another: every field that it may have must fit.
func (a *assigner) object(from, to *schema.Schema) *Problem {
	from, to = from.Resolved(), to.Resolved()
	pair := [2]*schema.Schema{from, to}
	if from == to || a.seen[pair] {
		return nil
	}
	a.seen[pair] = true
	if to.Type() != schema.Object {
		return &Problem{Message: wrongType, Expected: to.Describe(), Found: from.Describe()}
	}
	for _, name := range from.Fields() {
		source, _ := from.Field(name)
		target, ok := to.Field(name)
		if !ok {
			p := noField(name, to)
			p.Found = from.Describe()
			return p
		}
		if source.Type() == schema.Unknown || target.Type() == schema.Unknown {
			continue
		}
		if p := a.value(a.x.provider.typeOf(source), target); p != nil {
			return &Problem{
				Message:  fmt.Sprintf("%s: its field %s does not fit", wrongType, name),
				Expected: p.Expected, Found: p.Found, Hint: p.Hint,
			}
		}
	}
	return nil
}

// noField is the problem of a field that an object does not have.
func noField(name string, of *schema.Schema) *Problem {
	p := &Problem{Message: fmt.Sprintf("there is no field %s in %s", name, of.Describe())}
	if similar, ok := diag.Nearest(name, of.Fields()); ok {
		p.Hint = fmt.Sprintf("did you mean %s?", similar)
	} else if fields := of.Fields(); len(fields) > 0 {
		p.Hint = "it has " + enumerate(fields)
	}
	return p
}
