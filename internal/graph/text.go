package graph

import (
	"fmt"
	"strings"
)

// Text draws the graph for a terminal: waves from top to bottom, and below each resource what it waits for.
func (g *Graph) Text() string {
	var b strings.Builder
	self := g.Nodes[0]
	fmt.Fprintf(&b, "%s  %s%s\n", self.kindLabel(), g.Title, printMarks(self.Marks))
	externals := g.column(0)[1:]
	groups := g.Waves
	if len(externals) > 0 {
		groups++
	}
	branch := func(last bool) (string, string) {
		if last {
			return "└─ ", "   "
		}
		return "├─ ", "│  "
	}
	if len(externals) > 0 {
		groups--
		head, indent := branch(groups == 0)
		b.WriteString(head + "reads, does not own\n")
		g.list(&b, indent, externals)
	}
	for wave := range g.Waves {
		head, indent := branch(wave == g.Waves-1)
		fmt.Fprintf(&b, "%swave %d\n", head, wave)
		g.list(&b, indent, g.column(wave+1))
	}
	if g.Waves == 0 {
		b.WriteString("   no resources\n")
	}
	g.operations(&b)
	return b.String()
}

// operations lists the operations: when they run, and what they do.
func (g *Graph) operations(b *strings.Builder) {
	if len(g.Operations) == 0 {
		return
	}
	width := 0
	for i := range g.Operations {
		width = max(width, len(g.Operations[i].Name))
	}
	b.WriteString("operations\n")
	for i := range g.Operations {
		o := &g.Operations[i]
		head := "├─ "
		if i == len(g.Operations)-1 {
			head = "└─ "
		}
		when := "on demand"
		if len(o.Triggers) > 0 {
			when = "on " + strings.Join(o.Triggers, ", ")
		}
		fmt.Fprintf(b, "%s%-*s  %s: %s\n", head, width, o.Name, when, strings.Join(o.Steps, " → "))
	}
}

func (g *Graph) list(b *strings.Builder, indent string, nodes []Node) {
	width := 0
	for i := range nodes {
		width = max(width, len(nodes[i].ID))
	}
	for i := range nodes {
		n := &nodes[i]
		head := "├─ "
		if i == len(nodes)-1 {
			head = "└─ "
		}
		line := fmt.Sprintf("%s%s%-*s  %s%s", indent, head, width, n.ID, n.kindLabel(), printMarks(n.Marks))
		if waits := g.waits(n.ID); waits != "" {
			line += "  " + waits
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// waits says what a node waits for: ← reads config, tls; after db.
func (g *Graph) waits(id string) string {
	var reads, after []string
	for _, e := range g.incoming(id) {
		if e.Kind == EdgeAfter {
			after = append(after, e.From)
		} else {
			reads = append(reads, e.From)
		}
	}
	var parts []string
	if len(reads) > 0 {
		parts = append(parts, "reads "+strings.Join(reads, ", "))
	}
	if len(after) > 0 {
		parts = append(parts, "when ready: "+strings.Join(after, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return "← " + strings.Join(parts, "; ")
}

func (g *Graph) column(c int) []Node {
	var out []Node
	for i := range g.Nodes {
		if g.Nodes[i].Column == c {
			out = append(out, g.Nodes[i])
		}
	}
	return out
}

func printMarks(marks []string) string {
	if len(marks) == 0 {
		return ""
	}
	return " (" + strings.Join(marks, ", ") + ")"
}

// Mermaid prints the graph as a Mermaid flowchart.
func (g *Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i := range g.Nodes {
		n := &g.Nodes[i]
		label := n.title() + "<br/>" + n.kindLabel() + "<br/>" + strings.Join(n.Marks, ", ")
		label = strings.ReplaceAll(strings.TrimSuffix(label, "<br/>"), `"`, "#quot;")
		left, right := `["`, `"]`
		switch n.Class {
		case ClassInstance:
			left, right = `(["`, `"])`
		case ClassExternal:
			left, right = `[/"`, `"/]`
		case ClassResource:
		}
		fmt.Fprintf(&b, "  %s%s%s%s:::%s\n", mermaidID(n.ID), left, label, right, n.Class)
	}
	for _, e := range g.Edges {
		arrow := "-->"
		switch e.Kind {
		case EdgeAfter:
			arrow = "-->|ready|"
		case EdgeOwns:
			arrow = "-.->"
		case EdgeReads:
		}
		fmt.Fprintf(&b, "  %s %s %s\n", mermaidID(e.From), arrow, mermaidID(e.To))
	}
	b.WriteString("  classDef instance fill:#1f3a5f,stroke:#1f3a5f,color:#ffffff\n")
	b.WriteString("  classDef external fill:#fff7e6,stroke:#b7791f,color:#3d2c0b\n")
	b.WriteString("  classDef resource fill:#eef4fb,stroke:#4a7ab5,color:#1a2b3c\n")
	return b.String()
}

// mermaidID keeps names such as end, which Mermaid takes as a word of its own, apart.
func mermaidID(id string) string { return "n_" + id }

// title is the heading of a node in pictures.
func (n *Node) title() string {
	if n.Class == ClassInstance {
		return "instance"
	}
	return n.ID
}

// DOT prints the graph for Graphviz.
func (g *Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n", g.Title)
	b.WriteString("  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fillcolor=\"#eef4fb\", color=\"#4a7ab5\"];\n")
	b.WriteString("  edge [color=\"#6b7c93\", fontname=\"Helvetica\", fontsize=10];\n")
	for i := range g.Nodes {
		n := &g.Nodes[i]
		label := n.title() + `\n` + n.kindLabel()
		if len(n.Marks) > 0 {
			label += `\n` + strings.Join(n.Marks, ", ")
		}
		style := ""
		switch n.Class {
		case ClassInstance:
			style = `, fillcolor="#1f3a5f", color="#1f3a5f", fontcolor=white`
		case ClassExternal:
			style = `, fillcolor="#fff7e6", color="#b7791f", style="filled,dashed"`
		case ClassResource:
		}
		fmt.Fprintf(&b, "  %q [label=\"%s\"%s];\n", n.ID, strings.ReplaceAll(label, `"`, `\"`), style)
	}
	for c := 0; c <= g.Waves; c++ {
		b.WriteString("  { rank=same;")
		for _, n := range g.column(c) {
			fmt.Fprintf(&b, " %q;", n.ID)
		}
		b.WriteString(" }\n")
	}
	for _, e := range g.Edges {
		attr := ""
		switch e.Kind {
		case EdgeAfter:
			attr = ` [label="ready", style=bold]`
		case EdgeOwns:
			attr = ` [style=dotted, arrowhead=none]`
		case EdgeReads:
		}
		fmt.Fprintf(&b, "  %q -> %q%s;\n", e.From, e.To, attr)
	}
	b.WriteString("}\n")
	return b.String()
}
