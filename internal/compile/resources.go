package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// node is a resource that is being compiled.
type node struct {
	*program.Node
	spec  *v1alpha1.Resource
	index int
	path  string
	// schema of the objects; nil: not known.
	schema *schema.Schema
	object map[string]any
	// ok: the kind is known, or pending.
	ok bool
	// reads says where the node reads another one or has it in dependsOn: the path of the first place.
	reads map[string]edge
}

type edge struct {
	path   string
	offset int
}

// resources compiles the resources, first what they are, so that expressions can use them in any order, then what is in them.
func (c *compiler) resources() {
	var vars []expr.Variable
	for i := range c.spec.Resources {
		n := c.newNode(i)
		c.nodes = append(c.nodes, n)
		if !slices.ContainsFunc(append(vars, c.vars...), func(v expr.Variable) bool { return v.Name == n.Name }) {
			vars = append(vars, expr.Variable{Name: n.Name, Schema: n.schema, List: !n.Single(), Pending: true})
		}
	}
	c.extend("spec.resources", vars...)
	for _, n := range c.nodes {
		c.compileNode(n)
	}
	c.sameObject()
}

func (c *compiler) newNode(i int) *node {
	spec := &c.spec.Resources[i]
	n := &node{
		spec: spec, index: i, path: diag.Index("spec.resources", i), reads: map[string]edge{},
		Node: &program.Node{
			Name: string(spec.Name), DeletionPolicy: spec.DeletionPolicy, Adoption: spec.Adoption, UpdatePolicy: spec.UpdatePolicy,
			CreateOnce: spec.CreateOnce != nil && *spec.CreateOnce,
		},
	}
	if n.UpdatePolicy == "" {
		n.UpdatePolicy = v1alpha1.UpdatePolicyFail
	}
	if spec.ForEach != nil {
		n.ForEach = &program.ForEach{Var: string(spec.ForEach.Var)}
	}
	switch {
	case (spec.Template != nil) == (spec.Kustomization != nil):
		c.errorf(n.path, "exactly one of template and kustomization must be set")
	case spec.Kustomization != nil:
		n.Kustomization = &program.Kustomization{}
		n.ok = true
	default:
		c.identify(n)
	}
	return n
}

// identify finds the kind of a template.
func (c *compiler) identify(n *node) {
	path := n.path + ".template"
	object, ok := c.object(n.spec.Template, path)
	if !ok {
		return
	}
	n.object = object
	var words [2]string
	for i, field := range []string{"apiVersion", "kind"} {
		word, isText := object[field].(string)
		switch {
		case !isText || word == "":
			c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("the object has no %s", field), Expected: fmt.Sprintf("a field %s with text", field)})
			return
		case strings.Contains(word, "${"):
			c.add(diag.Diagnostic{Path: diag.Child(path, field), Message: fmt.Sprintf("%s must be fixed: no ${…} can stand in it", field),
				Hint: "write one resource for each kind, with when to choose between them"})
			return
		}
		words[i] = word
	}
	if strings.HasSuffix(words[1], "List") && object["items"] != nil {
		c.add(diag.Diagnostic{Path: path + ".kind", Message: "a list of objects cannot be a resource", Hint: "write one resource for each object, or a kustomization"})
		return
	}
	kind, known, ok := c.kind(words[0], words[1], path)
	if !ok {
		return
	}
	n.ok = true
	n.Kinds = []program.Kind{kind}
	if known != nil {
		n.schema = known.Schema
	}
}

// compileNode compiles the expressions of a node.
func (c *compiler) compileNode(n *node) {
	env := c.envOf(n)
	if n.spec.When != "" {
		n.When = c.expression(string(n.spec.When), n.path+".when", c.env, expr.Bool)
		c.depend(n, n.When, n.path+".when")
	}
	if n.ForEach != nil {
		n.ForEach.In = c.expression(string(n.spec.ForEach.In), n.path+".forEach.in", c.env, expr.List)
		c.depend(n, n.ForEach.In, n.path+".forEach.in")
		item := expr.Variable{Name: n.ForEach.Var}
		if n.ForEach.In != nil {
			item.Schema = n.ForEach.In.Schema().Items()
		}
		if env != nil {
			env = c.with(env, n.path+".forEach", item)
		}
	}
	switch {
	case n.Kustomization != nil:
		c.kustomization(n, env)
	case n.object != nil:
		c.compileTemplate(n, env)
	}
	if n.spec.Ready != "" {
		n.Ready = c.expression(string(n.spec.Ready), n.path+".ready", c.readyEnv(n), expr.Bool)
		c.read(n.Ready)
	}
	for i, name := range n.spec.DependsOn {
		c.dependsOn(n, string(name), diag.Index(n.path+".dependsOn", i))
	}
}

func (c *compiler) envOf(n *node) *expr.Env {
	if !n.CreateOnce || c.env == nil {
		return c.env
	}
	if c.randomEnv == nil {
		env, err := expr.NewEnv(c.vars, expr.Options{AllowRandom: true})
		if err != nil {
			c.errorf(n.path, "%s", err)
			return nil
		}
		c.randomEnv = env
	}
	return c.randomEnv
}

func (c *compiler) with(env *expr.Env, path string, v expr.Variable) *expr.Env {
	if slices.ContainsFunc(c.vars, func(have expr.Variable) bool { return have.Name == v.Name }) {
		return nil // said already: see names
	}
	extended, err := env.With(v)
	if err != nil {
		c.errorf(path, "%s", err)
		return env
	}
	return extended
}

// readyEnv is the environment of ready: the name of the resource is one object.
func (c *compiler) readyEnv(n *node) *expr.Env {
	if n.Single() || c.env == nil {
		return c.env
	}
	vars := slices.Clone(c.vars)
	for i := range vars {
		if vars[i].Name == n.Name {
			vars[i].List = false
		}
	}
	env, err := expr.NewEnv(vars, expr.Options{})
	if err != nil {
		c.errorf(n.path+".ready", "%s", err)
		return nil
	}
	return env
}

func (c *compiler) compileTemplate(n *node, env *expr.Env) {
	path := n.path + ".template"
	c.metadata(n, path)
	s := n.schema
	if _, have := n.object["status"]; have && n.schema != nil {
		c.add(diag.Diagnostic{Path: path + ".status", Message: "status is written by the controller of the kind", Hint: "remove it"})
		object := make(map[string]any, len(n.object))
		for k, v := range n.object {
			if k != "status" {
				object[k] = v
			}
		}
		n.object = object
	}
	n.Template = c.template(n.object, s, path, env, n.Adoption != v1alpha1.AdoptionNever)
	for _, use := range n.Template.Uses {
		c.depend(n, use.Expr, path+"."+use.Path)
	}
	c.labels(part(n.Template, "metadata", "labels"), path+".metadata.labels")
	c.annotations(part(n.Template, "metadata", "annotations"), path+".metadata.annotations")
	if n.ForEach != nil && n.ForEach.In != nil && env != nil {
		c.nameUsesItem(n, path)
	}
}

// part returns the part at a path, as a static one if it lies in one.
func part(t *program.Template, names ...string) *program.Part {
	p, value, isStatic := t.Lookup(names...)
	if p == nil && isStatic {
		return static(value)
	}
	return p
}

// nameUsesItem checks that the items of a forEach make objects of different names.
func (c *compiler) nameUsesItem(n *node, path string) {
	for _, use := range n.Template.Uses {
		if (use.Path == "metadata.name" || use.Path == "metadata.namespace") && slices.Contains(use.Expr.Variables(), n.ForEach.Var) {
			return
		}
	}
	if _, have := lookup(n.object, "metadata", "name"); !have {
		return
	}
	c.add(diag.Diagnostic{Path: path + ".metadata.name", Message: fmt.Sprintf("every item of forEach makes an object of the same name: it does not use %s", n.ForEach.Var),
		Hint: fmt.Sprintf("put it into the name: ${self.metadata.name}-${%s}", n.ForEach.Var)})
}

func lookup(object map[string]any, names ...string) (any, bool) {
	var value any = object
	for _, name := range names {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = m[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// sameObject finds resources that stand for the same object.
func (c *compiler) sameObject() {
	type object struct{ kind, namespace, name string }
	first := map[object]*node{}
	for _, n := range c.nodes {
		if n.ForEach != nil || n.Template == nil || len(n.Kinds) != 1 {
			continue
		}
		name, _ := lookup(n.object, "metadata", "name")
		namespace, _ := lookup(n.object, "metadata", "namespace")
		text, _ := name.(string)
		if text == "" {
			continue
		}
		space, _ := namespace.(string)
		if space == "${self.metadata.namespace}" {
			space = ""
		}
		id := object{kind: n.Kinds[0].GroupKind().String(), namespace: space, name: text}
		before, twice := first[id]
		switch {
		case !twice:
			first[id] = n
		case before.When != nil && n.When != nil: // one or the other
		default:
			c.add(diag.Diagnostic{Path: n.path + ".template.metadata.name", Message: fmt.Sprintf("the resource %q stands for the same %s", before.Name, n.Kinds[0].Kind), Found: text,
				Hint: "give one another name, or both a when of which one only is true"})
		}
	}
}
