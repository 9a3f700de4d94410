package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// node returns the resource of that name.
func (c *compiler) node(name string) *node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// depend notes what an expression of a node reads.
func (c *compiler) depend(n *node, x *expr.Expr, path string) {
	if x == nil {
		return
	}
	for _, external := range c.read(x) {
		if !slices.Contains(n.ReadsExternals, external) {
			n.ReadsExternals = append(n.ReadsExternals, external)
		}
	}
	slices.Sort(n.ReadsExternals)
	for _, name := range x.Variables() {
		other := c.node(name)
		switch {
		case other == nil:
		case other == n:
			c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("the resource %q reads itself", n.Name),
				Hint: "only ready may use the resource's own name; what it shall be cannot depend on what it is"})
		case !slices.Contains(n.Reads, other.Node):
			n.Reads = append(n.Reads, other.Node)
			n.reads[name] = edge{path: path}
		}
	}
}

func (c *compiler) dependsOn(n *node, name, path string) {
	other := c.node(name)
	switch {
	case other == n:
		c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("the resource %q depends on itself", name), Hint: "remove it"})
	case other == nil:
		var names []string
		for _, o := range c.nodes {
			if o != n {
				names = append(names, o.Name)
			}
		}
		d := diag.Diagnostic{Path: path, Message: fmt.Sprintf("there is no resource %q", name), Hint: diag.DidYouMean(name, names)}
		if d.Hint == "" && len(names) > 0 {
			d.Expected = "one of " + diag.OneOf(names, 12)
		}
		if what := c.whatIs(name); what != "" {
			d.Hint = fmt.Sprintf("%s is %s; dependsOn takes resources", name, what)
		}
		c.add(d)
	default:
		n.After = append(n.After, other.Node)
		if _, have := n.reads[name]; !have {
			n.reads[name] = edge{path: path}
		}
	}
}

// order puts the nodes behind what they depend on, or names the cycles.
func (c *compiler) order() {
	if c.cycles() {
		return
	}
	waves := map[string]int{}
	var wave func(n *node) int
	wave = func(n *node) int {
		if w, done := waves[n.Name]; done {
			return w
		}
		w := 0
		for name := range n.reads {
			w = max(w, wave(c.node(name))+1)
		}
		waves[n.Name] = w
		return w
	}
	for _, n := range c.nodes {
		n.Wave = wave(n)
	}
	sorted := slices.Clone(c.nodes)
	slices.SortStableFunc(sorted, func(a, b *node) int { return cmp.Compare(a.Wave, b.Wave) })
	for i, n := range sorted {
		n.Index = i
	}
	byIndex := func(a, b *program.Node) int { return cmp.Compare(a.Index, b.Index) }
	for _, n := range sorted {
		slices.SortFunc(n.Reads, byIndex)
		slices.SortFunc(n.After, byIndex)
		c.program.Nodes = append(c.program.Nodes, n.Node)
	}
}

// cycles reports each cycle once: from its first resource in the document around to itself, by the shortest way.
func (c *compiler) cycles() bool {
	found := false
	reported := map[string]bool{}
	for _, n := range c.nodes {
		if reported[n.Name] {
			continue
		}
		way := c.wayBack(n)
		if way == nil {
			continue
		}
		found = true
		for _, name := range way {
			reported[name] = true
		}
		var why []string
		for i := range way[:len(way)-1] {
			why = append(why, fmt.Sprintf("%s uses %s in %s", way[i], way[i+1], c.node(way[i]).reads[way[i+1]].path))
		}
		c.add(diag.Diagnostic{Path: n.reads[way[1]].path, Message: "the resources wait for each other: " + strings.Join(way, " → ") + "\n" + strings.Join(why, "\n"),
			Hint: "take one of these out; a name that two of them need can be built from self in both"})
	}
	return found
}

// wayBack is the shortest way from a node along its dependencies back to itself.
func (c *compiler) wayBack(start *node) []string {
	from := map[string]string{}
	queue := []string{start.Name}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		for _, n := range c.nodes {
			if _, edge := c.node(name).reads[n.Name]; !edge {
				continue
			}
			if n == start {
				way := []string{start.Name}
				for at := name; at != start.Name; at = from[at] {
					way = append(way, at)
				}
				way = append(way, start.Name)
				slices.Reverse(way)
				return way
			}
			if _, seen := from[n.Name]; !seen {
				from[n.Name] = name
				queue = append(queue, n.Name)
			}
		}
	}
	return nil
}
