package compile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// expression compiles a bare expression; nil after a fault.
func (c *compiler) expression(src, path string, env *expr.Env, want expr.Want) *expr.Expr {
	if env == nil {
		return nil
	}
	if strings.HasPrefix(strings.TrimSpace(src), "${") {
		c.add(diag.Diagnostic{Path: path, Message: "this field is an expression already", Hint: "leave out ${ and }"})
		return nil
	}
	x, problems := env.Compile(src, want)
	for _, p := range problems {
		d := problemDiagnostic(p)
		d.Path, d.Offset = path, p.Offset
		c.add(d)
	}
	if len(problems) > 0 {
		return nil
	}
	return x
}

// extend adds variables to those of all later expressions.
func (c *compiler) extend(path string, vars ...expr.Variable) {
	vars = slices.DeleteFunc(vars, func(v expr.Variable) bool { return !isName(v.Name) || slices.Contains(reserved, v.Name) })
	if c.env == nil || len(vars) == 0 {
		return
	}
	env, err := c.env.With(vars...)
	if err != nil {
		c.errorf(path, "%s", err)
		return
	}
	c.env = env
	c.vars = append(c.vars, vars...)
}

// externals compiles the objects that are read. Their references may use self.
func (c *compiler) externals() {
	var vars []expr.Variable
	for i := range c.spec.External {
		e := &c.spec.External[i]
		path := diag.Index("spec.external", i)
		kind, known, ok := c.kind(e.APIVersion, e.Kind, path)
		variable := expr.Variable{Name: string(e.Name), List: e.Selector != nil, Optional: e.Optional != nil && *e.Optional && e.Ref != nil, Pending: true}
		if known != nil {
			variable.Schema = known.Schema
		}
		if !slices.ContainsFunc(vars, func(v expr.Variable) bool { return v.Name == variable.Name }) {
			vars = append(vars, variable)
		}
		before := len(c.list)
		external := program.External{Name: string(e.Name), Kind: kind, Optional: e.Optional != nil && *e.Optional, List: e.Selector != nil}
		c.reference(e, &external, path)
		c.mentionsLater(before, "a reference may use self only")
		if ok {
			c.namespaceOfExternal(&external, path)
			c.program.Externals = append(c.program.Externals, external)
		}
	}
	c.extend("spec.external", vars...)
}

func (c *compiler) reference(e *v1alpha1.External, out *program.External, path string) {
	namespace := ""
	switch {
	case e.Ref != nil:
		path += ".ref"
		namespace = e.Ref.Namespace
		out.ObjectName = c.text(e.Ref.Name, path+".name", c.env)
	case e.Selector != nil:
		path += ".selector"
		namespace = e.Selector.Namespace
		labels := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(e.Selector.MatchLabels)) {
			labels[name] = e.Selector.MatchLabels[name]
		}
		out.Labels = c.template(labels, schema.MapOf(schema.Scalar(schema.String, "")), path+".matchLabels", c.env, false)
		c.labels(out.Labels.Root, path+".matchLabels")
	default:
		c.errorf(path, "exactly one of ref (one object) and selector (a list of objects) must be set")
	}
	if namespace != "" {
		out.Namespace = c.text(namespace, path+".namespace", c.env)
	}
}

func (c *compiler) namespaceOfExternal(e *program.External, path string) {
	at := path + ".ref.namespace"
	if e.List {
		at = path + ".selector.namespace"
	}
	switch {
	case e.Kind.Pending:
	case !e.Kind.Namespaced && e.Namespace != nil:
		c.add(diag.Diagnostic{Path: at, Message: fmt.Sprintf("%s stands in no namespace", e.Kind.Kind), Hint: "remove the line"})
	case e.Kind.Namespaced && e.Namespace == nil && !e.List && !c.program.Instance.Namespaced && !c.program.Instance.Pending:
		c.add(diag.Diagnostic{Path: path + ".ref", Message: fmt.Sprintf("%s needs a namespace, and instances have none that it could be taken from", e.Kind.Kind), Hint: "add namespace"})
	}
}

// variables compiles the named expressions, each with those before it.
func (c *compiler) variables() {
	c.variableReads = map[string][]string{}
	for i, v := range c.spec.Variables {
		path := diag.Index("spec.variables", i)
		before := len(c.list)
		x := c.expression(string(v.Value), path+".value", c.env, expr.Any)
		c.mentionsLater(before, "a variable may use self, external objects and the variables before it")
		variable := expr.Variable{Name: string(v.Name)}
		if x != nil {
			variable.Schema, variable.Optional = x.Schema(), x.MayOmit()
			c.program.Variables = append(c.program.Variables, program.Variable{Name: string(v.Name), Expr: x})
			c.variableReads[string(v.Name)] = x.Variables()
		}
		if !slices.ContainsFunc(c.vars, func(have expr.Variable) bool { return have.Name == variable.Name }) {
			c.extend(path, variable)
		}
	}
}

var identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// mentionsLater gives faults since before that are about names of the definition, but not visible here, a hint that says so.
func (c *compiler) mentionsLater(before int, rule string) {
	for i := before; i < len(c.list); i++ {
		d := &c.list[i]
		for _, word := range identifier.FindAllString(d.Message, -1) {
			if what := c.whatIs(word); what != "" && !slices.ContainsFunc(c.vars, func(v expr.Variable) bool { return v.Name == word }) {
				d.Hint = fmt.Sprintf("%s is %s: %s", word, what, rule)
				break
			}
		}
	}
}

func (c *compiler) whatIs(name string) string {
	for _, v := range c.spec.Variables {
		if string(v.Name) == name {
			return "a variable"
		}
	}
	for _, e := range c.spec.External {
		if string(e.Name) == name {
			return "an external object"
		}
	}
	for _, r := range c.spec.Resources {
		if string(r.Name) == name {
			return "a resource"
		}
	}
	return ""
}

// read marks what an expression reads as used, through variables too, and returns the externals among it.
func (c *compiler) read(x *expr.Expr) []string {
	if x == nil {
		return nil
	}
	var externals []string
	seen := map[string]bool{}
	var visit func(names []string)
	visit = func(names []string) {
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			c.used[name] = true
			if reads, isVariable := c.variableReads[name]; isVariable {
				visit(reads)
			}
			if slices.ContainsFunc(c.spec.External, func(e v1alpha1.External) bool { return string(e.Name) == name }) {
				externals = append(externals, name)
			}
		}
	}
	visit(x.Variables())
	slices.Sort(externals)
	return externals
}

// unused warns of what nothing reads.
func (c *compiler) unused() {
	if c.list.HasErrors() {
		return // the expression that reads it may be the one with the fault
	}
	for i, v := range c.spec.Variables {
		if !c.used[string(v.Name)] {
			c.add(diag.Diagnostic{Severity: diag.Warning, Path: diag.Index("spec.variables", i) + ".name", Message: fmt.Sprintf("nothing uses the variable %q", v.Name), Hint: "remove it"})
		}
	}
	for i, e := range c.spec.External {
		if !c.used[string(e.Name)] {
			c.add(diag.Diagnostic{Severity: diag.Warning, Path: diag.Index("spec.external", i) + ".name", Message: fmt.Sprintf("nothing reads the external object %q", e.Name), Hint: "remove it: it would be watched for nothing"})
		}
	}
}

// expressionRead compiles an expression of the status, which may use everything.
func (c *compiler) expressionRead(src, path string) *expr.Expr {
	x := c.expression(src, path, c.env, expr.Bool)
	c.read(x)
	return x
}
