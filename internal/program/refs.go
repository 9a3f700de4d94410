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
}
