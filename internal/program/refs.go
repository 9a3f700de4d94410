package program

import (
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/internal/expr"
)

// Refs returns what all expressions of the Program read, sorted, each once. Whoever keeps objects for the Program keeps these
// fields of them.
func (p *Program) Refs() []expr.Ref {
	var refs []expr.Ref
	p.eachExpr(func(x *expr.Expr) { refs = append(refs, x.Refs()...) })
	for _, o := range p.Operations {
		for _, t := range o.Triggers {
			if t.Watch != nil {
				refs = append(refs, t.Watch.refs()...)
			}
		}
	}
	slices.SortFunc(refs, compareRefs)
	return slices.CompactFunc(refs, func(a, b expr.Ref) bool { return compareRefs(a, b) == 0 })
}

func compareRefs(a, b expr.Ref) int {
	if c := strings.Compare(a.Variable, b.Variable); c != 0 {
		return c
	}
	return slices.Compare(a.Path, b.Path)
}

func (p *Program) eachExpr(f func(*expr.Expr)) {
	one := func(x *expr.Expr) {
		if x != nil {
			f(x)
		}
	}
	uses := func(list []Use) {
		for _, u := range list {
			one(u.Expr)
		}
	}
	template := func(t *Template) {
		if t != nil {
			uses(t.Uses)
		}
	}
	one(p.Match)
	for _, v := range p.Variables {
		one(v.Expr)
	}
	for _, x := range p.Externals {
		template(x.ObjectName)
		template(x.Namespace)
		template(x.Labels)
	}
	for _, n := range p.Nodes {
		one(n.When)
		one(n.Ready)
		if n.ForEach != nil {
			one(n.ForEach.In)
		}
		template(n.Template)
		if n.Kustomization != nil {
			uses(n.Kustomization.Uses)
			template(n.Kustomization.Overlay)
		}
	}
	template(p.StatusFields)
	for _, c := range p.Conditions {
		one(c.Status)
		template(c.Reason)
		template(c.Message)
	}
	for _, o := range p.Operations {
		EachExpr(o, f)
	}
}

// refs are the paths that a watch compares: the whole object without any.
func (w *WatchTrigger) refs() []expr.Ref {
	if len(w.Fields) == 0 {
		return []expr.Ref{{Variable: w.Variable()}}
	}
	refs := make([]expr.Ref, len(w.Fields))
	for i, path := range w.Fields {
		if w.List {
			path = append([]string{"*"}, path...)
		}
		refs[i] = expr.Ref{Variable: w.Variable(), Path: path}
	}
	return refs
}

// EachExpr visits all expressions of an operation.
func EachExpr(o *Operation, f func(*expr.Expr)) {
	v := &exprVisitor{f: f}
	for _, t := range o.Triggers {
		v.exprs(t.When, t.Condition, t.Until)
		v.templates(t.Params, t.Schedule, t.TimeZone, t.Every)
	}
	v.templates(o.Output)
	for _, list := range [][]*Step{o.Steps, o.OnRemove} {
		for _, s := range list {
			v.step(s)
		}
	}
}

type exprVisitor struct{ f func(*expr.Expr) }

func (v *exprVisitor) exprs(list ...*expr.Expr) {
	for _, x := range list {
		if x != nil {
			v.f(x)
		}
	}
}

func (v *exprVisitor) templates(list ...*Template) {
	for _, t := range list {
		if t == nil {
			continue
		}
		for _, u := range t.Uses {
			v.exprs(u.Expr)
		}
	}
}

func (v *exprVisitor) step(s *Step) {
	v.exprs(s.When)
	if s.ForEach != nil {
		v.exprs(s.ForEach.In)
	}
	v.templates(s.Output)
	if s.Verify != nil {
		v.exprs(s.Verify.Condition)
		v.exec(s.Verify.Exec)
		v.http(s.Verify.HTTP)
	}
	v.action(&s.Action)
	for _, u := range s.Undo {
		v.step(u)
	}
}

func (v *exprVisitor) action(a *Action) {
	switch {
	case a.Apply != nil:
		v.templates(a.Apply.Template)
	case a.Patch != nil:
		v.object(&a.Patch.Object)
		v.templates(a.Patch.Merge, a.Patch.JSON)
	case a.Delete != nil:
		v.object(&a.Delete.Object)
	case a.Wait != nil:
		v.exprs(a.Wait.Until)
		if a.Wait.Object != nil {
			v.object(a.Wait.Object)
		}
	case a.Job != nil:
		v.templates(a.Job.Template)
	case a.Event != nil:
		v.templates(a.Event.Reason, a.Event.Message)
	case a.Run != nil:
		v.templates(a.Run.Params)
	}
	v.templates(a.Log, a.Set)
	v.exec(a.Exec)
	v.http(a.HTTP)
}

func (v *exprVisitor) object(r *ObjectReference) { v.templates(r.Name, r.Namespace) }

func (v *exprVisitor) exec(a *ExecAction) {
	if a != nil {
		v.templates(a.Pod, a.Selector, a.Command, a.Stdin)
	}
}

func (v *exprVisitor) http(a *HTTPAction) {
	if a == nil {
		return
	}
	v.templates(a.URL, a.Headers, a.Body, a.Basic, a.ClientCertificate)
	for _, k := range []*SecretKey{a.Bearer, a.CA} {
		if k != nil {
			v.templates(k.Secret)
		}
	}
	if a.Poll != nil {
		v.templates(a.Poll.URL)
		v.exprs(a.Poll.Until, a.Poll.Failed)
	}
}
