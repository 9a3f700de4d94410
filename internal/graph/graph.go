package graph

import (
	"fmt"
	"sort"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Graph is a definition as nodes and edges.
type Graph struct {
	// Title is the name of the definition.
	Title string
	// Nodes in the order of creation: the instance, the externals, then the resources by wave.
	Nodes []Node
	// Edges point from what is there first to what needs it, sorted.
	Edges []Edge
	// Waves is the number of waves of resources.
	Waves int
	// Operations, in order of the document. Only Text shows them: they are no part of the order of creation.
	Operations []Operation
}

// Operation is an operation.
type Operation struct {
	Name string
	// Triggers say when it runs by itself, in words.
	Triggers []string
	// Steps are the names of its steps.
	Steps []string
}

// Class says what a node stands for.
type Class string

// Classes of nodes.
const (
	ClassInstance Class = "instance"
	ClassExternal Class = "external"
	ClassResource Class = "resource"
)

// Node is an instance, an external object or a resource.
type Node struct {
	// ID is unique within the graph: the name of the resource or external, or self.
	ID    string
	Class Class
	// Kinds are the kinds of the objects.
	Kinds []string
	// Column is the position in the order of creation: 0 for the instance and externals, wave + 1 for resources.
	Column int
	// Marks say what is special, such as "when" or "for each".
	Marks []string
}

// EdgeKind says why a node waits for another.
type EdgeKind string

// Kinds of edges.
const (
	// EdgeReads: an expression reads a value of the other.
	EdgeReads EdgeKind = "reads"
	// EdgeAfter: dependsOn; waits until the other is ready.
	EdgeAfter EdgeKind = "after"
	// EdgeOwns joins the instance with resources that wait for nothing, so that the picture hangs together.
	EdgeOwns EdgeKind = "owns"
)

// Edge leads from what comes first to what needs it.
type Edge struct {
	From, To string
	Kind     EdgeKind
}

// For makes the graph of a Program.
func For(p *program.Program) *Graph {
	g := &Graph{Title: p.Name}
	self := Node{ID: "self", Class: ClassInstance, Kinds: []string{p.Instance.Kind}}
	if p.CRD == nil {
		self.Marks = append(self.Marks, "existing kind")
	}
	g.Nodes = append(g.Nodes, self)
	for i := range p.Externals {
		x := &p.Externals[i]
		n := Node{ID: x.Name, Class: ClassExternal, Kinds: []string{x.Kind.Kind}}
		if x.List {
			n.Marks = append(n.Marks, "list")
		}
		if x.Optional {
			n.Marks = append(n.Marks, "optional")
		}
		g.Nodes = append(g.Nodes, n)
	}
	nodes := append([]*program.Node(nil), p.Nodes...)
	sort.SliceStable(nodes, func(i, j int) bool { return nodes[i].Wave < nodes[j].Wave })
	for _, n := range nodes {
		g.resource(n)
	}
	sort.SliceStable(g.Edges, func(i, j int) bool {
		a, b := g.Edges[i], g.Edges[j]
		return a.To < b.To || a.To == b.To && (a.From < b.From || a.From == b.From && a.Kind < b.Kind)
	})
	for _, o := range p.Operations {
		g.Operations = append(g.Operations, operation(o))
	}
	return g
}

func operation(o *program.Operation) Operation {
	out := Operation{Name: o.Name}
	for _, t := range o.Triggers {
		words := strings.ToLower(string(t.Type))
		if t.Watch != nil {
			words += " " + t.Watch.Variable()
		}
		out.Triggers = append(out.Triggers, words)
	}
	for _, s := range o.Steps {
		out.Steps = append(out.Steps, s.Name)
	}
	return out
}

func (g *Graph) resource(n *program.Node) {
	node := Node{ID: n.Name, Class: ClassResource, Column: n.Wave + 1, Marks: marks(n)}
	for _, k := range n.Kinds {
		node.Kinds = append(node.Kinds, k.Kind)
	}
	g.Nodes = append(g.Nodes, node)
	g.Waves = max(g.Waves, n.Wave+1)
	seen := map[string]bool{}
	for _, other := range n.After {
		seen[other.Name] = true
		g.Edges = append(g.Edges, Edge{From: other.Name, To: n.Name, Kind: EdgeAfter})
	}
	for _, other := range n.Reads {
		if !seen[other.Name] {
			seen[other.Name] = true
			g.Edges = append(g.Edges, Edge{From: other.Name, To: n.Name, Kind: EdgeReads})
		}
	}
	for _, x := range n.ReadsExternals {
		g.Edges = append(g.Edges, Edge{From: x, To: n.Name, Kind: EdgeReads})
	}
	if len(seen) == 0 && len(n.ReadsExternals) == 0 {
		g.Edges = append(g.Edges, Edge{From: "self", To: n.Name, Kind: EdgeOwns})
	}
}

func marks(n *program.Node) []string {
	var out []string
	if n.When != nil {
		out = append(out, "when")
	}
	if n.ForEach != nil {
		out = append(out, "for each "+n.ForEach.Var)
	}
	if n.Kustomization != nil {
		out = append(out, "kustomization")
	}
	if n.CreateOnce {
		out = append(out, "once")
	}
	if n.DeletionPolicy == v1alpha1.DeletionPolicyRetain {
		out = append(out, "retained")
	}
	return out
}

// kindLabel prints the kinds of a node in at most one line: Deployment, or ConfigMap, Deployment, Service +2.
func (n *Node) kindLabel() string {
	const most = 2
	kinds := []string{}
	for _, k := range n.Kinds {
		if len(kinds) == 0 || kinds[len(kinds)-1] != k {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) > most+1 {
		return strings.Join(kinds[:most], ", ") + fmt.Sprintf(" +%d", len(kinds)-most)
	}
	return strings.Join(kinds, ", ")
}

// incoming returns the edges to a node, but not those of ownership.
func (g *Graph) incoming(id string) []Edge {
	var out []Edge
	for _, e := range g.Edges {
		if e.To == id && e.Kind != EdgeOwns {
			out = append(out, e)
		}
	}
	return out
}
