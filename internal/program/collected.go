package program

import (
	"bytes"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// NeedsFinalizer tells whether instances are held, when they are deleted, until their objects have gone: where an object is
// out of the garbage collector's reach, where dependsOn asks for an order, where an operation of event: Delete has to run, and
// where target.manage asks for it.
func (p *Program) NeedsFinalizer() bool {
	if !p.HoldFinalizer {
		return false
	}
	if p.CRD == nil || p.HasDelete() {
		return true
	}
	for _, n := range p.Nodes {
		if n.DeletionPolicy != v1alpha1.DeletionPolicyRetain && (len(n.After) > 0 || !n.Collected(p.Instance)) {
			return true
		}
	}
	return false
}

// Collected tells whether the garbage collector removes the objects of the node with their instance, because each of them can
// have an owner reference to it: the instance is cluster-scoped, or both are in one namespace. Where that cannot be told
// before the objects are computed, the answer is no.
func (n *Node) Collected(instance Kind) bool {
	if !instance.Namespaced && !instance.Pending {
		return true
	}
	for _, k := range n.Kinds {
		if k.Pending || !k.Namespaced {
			return false
		}
	}
	if n.Template != nil {
		return besideInstance(n.Template, "metadata", "namespace")
	}
	for _, f := range n.Kustomization.Files {
		if bytes.Contains(f.Static, []byte("namespace:")) {
			return false
		}
		for _, d := range f.Documents {
			if !besideInstance(d, "metadata", "namespace") || !besideInstance(d, "namespace") {
				return false
			}
		}
	}
	return true
}

// besideInstance tells whether a template names no namespace, or that of the instance.
func besideInstance(t *Template, path ...string) bool {
	part, value, static := t.Lookup(path...)
	if static {
		return value == nil || value == ""
	}
	if part == nil {
		return true
	}
	return part.Kind == PartExpr && strings.TrimSpace(part.Expr.Source()) == "self.metadata.namespace"
}
