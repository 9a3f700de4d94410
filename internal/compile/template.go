package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

func decodeJSON(raw []byte) (any, error) {
	var value any
	err := utiljson.Unmarshal(raw, &value)
	return value, err
}

// templater makes a template of a value.
type templater struct {
	c   *compiler
	env *expr.Env
	// root is the path of the template in the definition.
	root string
	// place, if not nil, says where a fault stands in the definition: for documents within strings.
	place func(path string, offset int) (at string, atOffset int)
	// document, if not nil, tells which strings are YAML documents of their own.
	document func(path string) bool
	// partial: required fields may be missing.
	partial bool
	// removes: null stands for a field that is removed, as in a merge patch.
	removes bool
	uses    []program.Use
}

// template compiles a value against a schema; nil: any content.
func (c *compiler) template(value any, s *schema.Schema, path string, env *expr.Env, partial bool) *program.Template {
	t := &templater{c: c, env: env, root: path, partial: partial}
	root := t.part(value, s, "")
	return &program.Template{Root: root, Uses: t.uses}
}

// text compiles a string that may hold ${…}, and whose value is a string.
func (c *compiler) text(value, path string, env *expr.Env) *program.Template {
	return c.template(value, schema.Scalar(schema.String, ""), path, env, false)
}

func (t *templater) at(path string, offset int) (string, int) {
	if t.place != nil {
		return t.place(path, offset)
	}
	switch {
	case path == "":
		return t.root, offset
	case path[0] == '[':
		return t.root + path, offset
	}
	return t.root + "." + path, offset
}

func (t *templater) add(path string, offset int, d diag.Diagnostic) {
	d.Path, d.Offset = t.at(path, offset)
	t.c.add(d)
}

func (t *templater) problem(path string, offset int, p *expr.Problem) {
	t.add(path, offset+p.Offset, problemDiagnostic(p))
}

func problemDiagnostic(p *expr.Problem) diag.Diagnostic {
	return diag.Diagnostic{Message: p.Message, Expected: p.Expected, Found: p.Found, Hint: p.Hint}
}

func (t *templater) mismatch(path string, m *schema.Mismatch) {
	t.add(path, 0, diag.Diagnostic{Message: m.Message, Expected: m.Expected, Found: m.Found, Hint: m.Hint})
}

func static(value any) *program.Part { return &program.Part{Kind: program.PartStatic, Static: value} }

func (t *templater) part(value any, s *schema.Schema, path string) *program.Part {
	switch value := value.(type) {
	case string:
		return t.str(value, s, path)
	case map[string]any:
		return t.object(value, s, path)
	case []any:
		return t.array(value, s, path)
	}
	if value == nil && t.removes {
		return static(nil)
	}
	if m := s.Check(value); m != nil {
		t.mismatch(path, m)
	}
	return static(value)
}

func (t *templater) str(value string, s *schema.Schema, path string) *program.Part {
	if !strings.Contains(value, "${") {
		if m := s.Check(value); m != nil {
			t.mismatch(path, m)
		}
		return static(value)
	}
	if t.document != nil && t.document(path) {
		if part := t.nested(value, path); part != nil {
			return part
		}
	}
	segments, err := expr.Scan(value)
	if err != nil {
		p, ok := err.(*expr.Problem) //nolint:errorlint // Scan says so
		if !ok {
			p = &expr.Problem{Message: err.Error()}
		}
		t.problem(path, 0, p)
		return static(value)
	}
	if expr.IsWhole(segments) {
		return t.whole(segments[0], s, path)
	}
	if len(segments) <= 1 && (len(segments) == 0 || !segments[0].Expr) {
		text := ""
		if len(segments) == 1 {
			text = segments[0].Text
		}
		if m := s.Check(text); m != nil {
			t.mismatch(path, m)
		}
		return static(text)
	}
	return t.mixed(segments, s, path)
}

func (t *templater) whole(segment expr.Segment, s *schema.Schema, path string) *program.Part {
	x, ok := t.compile(segment, expr.For(s), path)
	if !ok {
		return static(nil)
	}
	if s.Format() == schema.FormatByte && x.Type() == "string" && x.Schema().Format() != schema.FormatByte &&
		!strings.Contains(segment.Text, "base64.") {
		t.add(path, segment.Offset, diag.Diagnostic{Severity: diag.Warning, Message: "the text is taken as base64 here",
			Hint: "for text as it is, write it below stringData, or ${bytes(…)} here"})
	}
	return &program.Part{Kind: program.PartExpr, Expr: x}
}

func (t *templater) mixed(segments []expr.Segment, s *schema.Schema, path string) *program.Part {
	switch s.Type() {
	case schema.String, schema.IntOrString, schema.Unknown:
	default:
		t.add(path, 0, diag.Diagnostic{Message: "text around ${…} makes a string", Expected: s.Describe(), Found: "string",
			Hint: "a single ${…} without anything around it, not even a space, keeps its type"})
	}
	if s.Format() == schema.FormatByte {
		t.add(path, 0, diag.Diagnostic{Message: "text with ${…} in it is not base64", Expected: s.Describe(), Found: "text",
			Hint: "write it below stringData, or ${bytes(…)} here"})
	}
	part := &program.Part{Kind: program.PartText}
	for _, segment := range segments {
		if !segment.Expr {
			part.Segments = append(part.Segments, program.Segment{Text: segment.Text})
			continue
		}
		if x, ok := t.compile(segment, expr.Text, path); ok {
			part.Segments = append(part.Segments, program.Segment{Expr: x})
		}
	}
	return part
}

func (t *templater) compile(segment expr.Segment, want expr.Want, path string) (*expr.Expr, bool) {
	if t.env == nil {
		return nil, false
	}
	x, problems := t.env.Compile(segment.Text, want)
	for _, p := range problems {
		t.problem(path, segment.Offset, p)
	}
	if len(problems) > 0 || x == nil {
		return nil, false
	}
	t.uses = append(t.uses, program.Use{Path: path, Expr: x})
	return x, true
}

func (t *templater) object(value map[string]any, s *schema.Schema, path string) *program.Part {
	if m := s.Check(value); m != nil {
		t.mismatch(path, m)
		s = nil
	}
	fields := make([]program.Field, 0, len(value))
	isStatic := true
	for _, name := range slices.Sorted(maps.Keys(value)) {
		child := diag.Child(path, name)
		if strings.Contains(name, "${") {
			t.add(child, 0, diag.Diagnostic{Message: "a key cannot hold ${…}", Hint: "make the whole object an expression: ${ {'key': value} }"})
			continue
		}
		field, ok := s.Field(name)
		if !ok && !(t.partial && strings.HasPrefix(name, "$")) { // directives of strategic merge patches
			t.unknownField(child, name, s)
		}
		part := t.part(value[name], field, child)
		isStatic = isStatic && part.Kind == program.PartStatic
		fields = append(fields, program.Field{Name: name, Value: part})
	}
	t.required(value, s, path)
	if !isStatic {
		return &program.Part{Kind: program.PartObject, Fields: fields}
	}
	object := make(map[string]any, len(fields))
	for _, f := range fields {
		object[f.Name] = f.Value.Static
	}
	return static(object)
}

func (t *templater) unknownField(path, name string, s *schema.Schema) {
	what := "the object"
	if s.Name() != "" {
		what = s.Name()
	}
	d := diag.Diagnostic{Message: fmt.Sprintf("%s has no field %q", what, name)}
	if near, ok := diag.Nearest(name, s.Fields()); ok {
		d.Hint = fmt.Sprintf("did you mean %q?", near)
	} else {
		d.Expected = "one of " + diag.OneOf(s.Fields(), 12)
	}
	t.add(path, 0, d)
}

func (t *templater) required(value map[string]any, s *schema.Schema, path string) {
	if t.partial {
		return
	}
	for _, name := range s.Required() {
		if _, ok := value[name]; ok {
			continue
		}
		what := "the object"
		if s.Name() != "" {
			what = s.Name()
		}
		field, _ := s.Field(name)
		t.add(path, 0, diag.Diagnostic{Message: fmt.Sprintf("%s needs the field %q", what, name), Expected: field.Describe()})
	}
}

func (t *templater) array(value []any, s *schema.Schema, path string) *program.Part {
	if m := s.Check(value); m != nil {
		t.mismatch(path, m)
		s = nil
	}
	t.twice(value, s, path)
	items := make([]*program.Part, 0, len(value))
	isStatic := true
	for i, item := range value {
		part := t.part(item, s.Items(), diag.Index(path, i))
		isStatic = isStatic && part.Kind == program.PartStatic
		items = append(items, part)
	}
	if !isStatic {
		return &program.Part{Kind: program.PartList, Items: items}
	}
	list := make([]any, 0, len(items))
	for _, item := range items {
		list = append(list, item.Static)
	}
	return static(list)
}

// twice finds items of a list that have the same identity: server-side apply refuses them.
func (t *templater) twice(value []any, s *schema.Schema, path string) {
	keys := s.ListMapKeys()
	if len(keys) == 0 && !s.IsSet() {
		return
	}
	first := map[string]int{}
	for i, item := range value {
		id, ok := identity(item, keys)
		if !ok {
			continue
		}
		if before, seen := first[id]; seen {
			t.add(diag.Index(path, i), 0, diag.Diagnostic{Message: fmt.Sprintf("the same item as [%d]: %s", before, id),
				Hint: "server-side apply tells the items of this list apart by " + strings.Join(keys, ", ")})
			continue
		}
		first[id] = i
	}
}

func identity(item any, keys []string) (string, bool) {
	if len(keys) == 0 {
		text, ok := item.(string)
		return fmt.Sprintf("%q", text), ok && !strings.Contains(text, "${")
	}
	object, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var id []string
	for _, key := range keys {
		value, have := object[key]
		if !have {
			continue // it may have a default
		}
		text := fmt.Sprint(value)
		if strings.Contains(text, "${") {
			return "", false
		}
		id = append(id, key+" "+text)
	}
	return strings.Join(id, ", "), len(id) > 0
}
