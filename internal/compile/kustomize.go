package compile

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/kustomization"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// rememberedBuilds is how many builds of a base are remembered: about one for each instance.
const rememberedBuilds = 2048

// kustomization compiles a kustomize base: the expressions in its files, then a build with values in their places, which
// tells the kinds.
func (c *compiler) kustomization(n *node, env *expr.Env) {
	spec := n.spec.Kustomization
	at := n.path + ".kustomization"
	k := n.Kustomization
	if len(spec.Files) == 0 {
		c.add(diag.Diagnostic{Path: at, Message: "the files of the base are not in the definition", Hint: "a path is read by the command line only: put the files in place of it with libretto inline FILE | kubectl apply --server-side -f -"})
		return
	}
	before := len(c.list.Errors())
	data := kustomization.DataFiles(spec.Files)
	for _, name := range slices.Sorted(maps.Keys(spec.Files)) {
		k.Files = append(k.Files, c.baseFile(n, name, data[name], env))
	}
	k.Overlay = c.overlay(n, at, env)
	for _, use := range k.Uses {
		c.depend(n, use.Expr, at+"."+use.Path)
	}
	k.Builder = kustomization.NewBuilder(rememberedBuilds)
	if len(c.list.Errors()) == before && env != nil {
		c.tryBuild(n, at)
	}
}

func (c *compiler) baseFile(n *node, name string, isData bool, env *expr.Env) program.KustomizationFile {
	text := n.spec.Kustomization.Files[name]
	at := diag.Child(n.path+".kustomization.files", name)
	file := program.KustomizationFile{Path: name}
	isYAML := !isData && (kustomization.IsKustomization(name) || slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)))
	hasExpressions := strings.Contains(text, "${")
	if !isYAML {
		if !hasExpressions {
			file.Static = []byte(text)
			return file
		}
		t := &templater{c: c, env: env, root: at}
		before := len(c.list)
		file.Text = &program.Template{Root: t.str(text, schema.Scalar(schema.String, ""), "")}
		c.shellHint(before)
		c.keepUses(n, name, t.uses)
		return file
	}
	values, faults := load.Values(text)
	for _, d := range faults {
		d.Path = at
		c.add(d)
	}
	for _, v := range values {
		t := &templater{c: c, env: env, partial: true, place: func(path string, offset int) (string, int) { return at, v.Offset(path, offset) }}
		if kustomization.IsKustomization(name) {
			t.document = inlinePatch.MatchString
		}
		root := t.part(v.Value, c.schemaOf(v.Value), "")
		file.Documents = append(file.Documents, &program.Template{Root: root, Uses: t.uses})
		c.keepUses(n, name, t.uses)
	}
	if !hasExpressions {
		file.Static, file.Documents = []byte(text), nil
	}
	return file
}

// inlinePatch matches the strings of a kustomization that are YAML.
var inlinePatch = regexp.MustCompile(`^((patches|patchesJson6902)\[\d+\]\.patch|patchesStrategicMerge\[\d+\])$`)

func (c *compiler) keepUses(n *node, file string, uses []program.Use) {
	for _, use := range uses {
		n.Kustomization.Uses = append(n.Kustomization.Uses, program.Use{Path: diag.Child("files", file), Expr: use.Expr})
	}
}

var shellVariable = regexp.MustCompile(`named [A-Z_][A-Z0-9_]*$`)

// shellHint: what looks like a variable of a shell in a file that is no YAML probably is one.
func (c *compiler) shellHint(before int) {
	for i := before; i < len(c.list); i++ {
		if word := shellVariable.FindString(c.list[i].Message); word != "" || c.list[i].Hint == "" {
			c.list[i].Hint = "if that is a variable of a script or a configuration file, and not an expression, write $${…}"
		}
	}
}

// schemaOf is the schema of an object, or of a patch to one; nil: not known.
func (c *compiler) schemaOf(value any) *schema.Schema {
	object, _ := value.(map[string]any)
	u := unstructured.Unstructured{Object: object}
	if object == nil {
		return nil
	}
	if _, isText := object["apiVersion"].(string); !isText {
		return nil
	}
	if kind, err := c.catalog.Kind(u.GroupVersionKind()); err == nil {
		return kind.Schema
	}
	return nil
}

// nested compiles a string that is a YAML document of its own; nil: it is none.
func (t *templater) nested(text, path string) *program.Part {
	values, faults := load.Values(text)
	if len(faults) > 0 || len(values) != 1 {
		return nil
	}
	v := values[0]
	inner := &templater{c: t.c, env: t.env, partial: true, place: func(innerPath string, offset int) (string, int) {
		return t.at(path, v.Offset(innerPath, offset))
	}}
	root := inner.part(v.Value, t.c.schemaOf(v.Value), "")
	t.uses = append(t.uses, inner.uses...)
	return &program.Part{Kind: program.PartDocument, Items: []*program.Part{root}}
}

// overlay makes the kustomization over the base; nil: none is needed.
func (c *compiler) overlay(n *node, at string, env *expr.Env) *program.Template {
	spec := n.spec.Kustomization
	content := map[string]any{}
	var images, replicas []any
	for _, i := range spec.Images {
		image := map[string]any{"name": i.Name}
		for field, value := range map[string]string{"newName": i.NewName, "newTag": i.NewTag, "digest": i.Digest} {
			if value != "" {
				image[field] = value
			}
		}
		images = append(images, image)
	}
	for _, r := range spec.Replicas {
		replica := map[string]any{"name": r.Name, "count": r.Count}
		if count, err := strconv.ParseInt(r.Count, 10, 64); err == nil {
			replica["count"] = count
		}
		replicas = append(replicas, replica)
	}
	for field, list := range map[string][]any{"images": images, "replicas": replicas} {
		if len(list) > 0 {
			content[field] = list
		}
	}
	for field, value := range map[string]string{"namePrefix": spec.NamePrefix, "nameSuffix": spec.NameSuffix} {
		if value != "" {
			content[field] = value
		}
	}
	if len(content) == 0 {
		return nil
	}
	text, integer := schema.Scalar(schema.String, ""), schema.Scalar(schema.Integer, "")
	t := &templater{c: c, env: env, root: at}
	root := &program.Part{Kind: program.PartObject}
	for _, field := range slices.Sorted(maps.Keys(content)) {
		var part *program.Part
		switch value := content[field].(type) {
		case []any:
			part = &program.Part{Kind: program.PartList}
			for i, item := range value {
				part.Items = append(part.Items, t.overlayItem(item, diag.Index(field, i), text, integer))
			}
		default:
			part = t.part(value, text, field)
		}
		root.Fields = append(root.Fields, program.Field{Name: field, Value: part})
	}
	root.Fields = append(root.Fields, program.Field{Name: "resources", Value: static([]any{kustomization.OverlayBase})})
	n.Kustomization.Uses = append(n.Kustomization.Uses, t.uses...)
	return &program.Template{Root: root, Uses: t.uses}
}

func (t *templater) overlayItem(item any, path string, text, integer *schema.Schema) *program.Part {
	object, _ := item.(map[string]any)
	part := &program.Part{Kind: program.PartObject}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		s := text
		if name == "count" {
			s = integer
		}
		part.Fields = append(part.Fields, program.Field{Name: name, Value: t.part(object[name], s, diag.Child(path, name))})
	}
	return part
}

// tryBuild builds the base with values in place of the expressions.
func (c *compiler) tryBuild(n *node, at string) {
	counter := 0
	objects, err := n.Kustomization.Build(func(x *expr.Expr) (any, error) {
		counter++
		return placeholder(x.Schema(), counter), nil
	})
	var file *kustomization.FileError
	switch {
	case errors.As(err, &file):
		d := diag.Diagnostic{Path: at, Message: file.Message, Hint: file.Hint}
		if file.File != "" {
			d.Path = diag.Child(at+".files", file.File)
			d.Offset = max(0, strings.Index(n.spec.Kustomization.Files[file.File], file.Near))
		}
		c.add(d)
		return
	case err != nil:
		c.errorf(at, "the base does not build: %s", err)
		return
	case len(objects) == 0:
		c.errorf(at, "the base builds no object")
		return
	}
	for _, o := range objects {
		kind, known, ok := c.kind(o.GetAPIVersion(), o.GetKind(), at)
		if !ok {
			continue
		}
		if !slices.Contains(n.Kinds, kind) {
			n.Kinds = append(n.Kinds, kind)
		}
		c.builtObject(o, kind, known, at)
	}
}

func (c *compiler) builtObject(o *unstructured.Unstructured, kind program.Kind, known *schema.Kind, at string) {
	what := fmt.Sprintf("%s %q of the base", o.GetKind(), o.GetName())
	instance := c.program.Instance
	switch {
	case o.GetName() == "":
		c.errorf(at, "a %s of the base has no metadata.name", o.GetKind())
	case kind.Pending:
	case !kind.Namespaced && o.GetNamespace() != "":
		c.errorf(at, "%s stands in no namespace, and has one", what)
	case kind.Namespaced && o.GetNamespace() == "" && !instance.Namespaced && !instance.Pending:
		c.add(diag.Diagnostic{Path: at, Message: fmt.Sprintf("%s needs a namespace: instances of %s have none that it could be taken from", what, instance.Kind), Hint: "set namespace in the kustomization.yaml"})
	}
	if known == nil {
		return
	}
	for _, missing := range missingFields(o.Object, known.Schema, "") {
		c.errorf(at, "%s needs the field %s", what, missing)
	}
}

// missingFields lists the required fields that a value does not have.
func missingFields(value any, s *schema.Schema, path string) []string {
	var out []string
	switch v := value.(type) {
	case map[string]any:
		for _, name := range s.Required() {
			if _, ok := v[name]; !ok {
				out = append(out, diag.Child(path, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			field, _ := s.Field(name)
			out = append(out, missingFields(v[name], field, diag.Child(path, name))...)
		}
	case []any:
		for i, item := range v {
			out = append(out, missingFields(item, s.Items(), diag.Index(path, i))...)
		}
	}
	return out
}

// placeholder is a value that could be that of an expression.
func placeholder(s *schema.Schema, n int) any {
	if values := s.Enum(); len(values) > 0 {
		return values[0]
	}
	switch s.Type() {
	case schema.Integer, schema.IntOrString:
		return int64(1)
	case schema.Number:
		return 1.5
	case schema.Boolean:
		return true
	case schema.Array:
		return []any{}
	case schema.Object:
		return map[string]any{}
	case schema.String:
		if s.Format() == schema.FormatQuantity {
			return "1"
		}
	case schema.Unknown:
	}
	return "x" + strconv.Itoa(n)
}
