package graph

import (
	"fmt"
	"html"
	"strings"
)

const svgStyle = `<style>
text{font-family:ui-sans-serif,system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif}
.bg{fill:#ffffff}.band{fill:#f5f7fa}.title{font-size:17px;font-weight:600;fill:#1a2b3c}.head{font-size:12px;fill:#66788a}
.name{font-size:14px;font-weight:600;fill:#1a2b3c}.kind{font-size:12px;fill:#4a5a6a}.mark{font-size:11px;fill:#8a5a00}
.resource{fill:#ffffff;stroke:#4a7ab5;stroke-width:1.5}.external{fill:#fff8ea;stroke:#b7791f;stroke-width:1.5;stroke-dasharray:5 3}
.instance{fill:#1f3a5f;stroke:#1f3a5f}.oninstance{fill:#ffffff}
.edge{fill:none;stroke:#6b7c93;stroke-width:1.5}.after{stroke:#2f6f4f;stroke-width:2}.owns{stroke:#c3ccd6;stroke-dasharray:2 4}
.tip{fill:#6b7c93}.tipafter{fill:#2f6f4f}.tipowns{fill:#c3ccd6}
</style>
`

// SVG draws the graph as a picture that stands on its own: columns are waves, from left to right.
func (g *Graph) SVG() string {
	l := arrange(g)
	last := len(l.columns) - 1
	width := max(l.x[last]+l.width[last]+margin, float64(len(g.Title))*9.5+2*margin, 480)
	height := headHeight + l.height + 56
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">`+"\n",
		num(width), num(height), num(width), num(height), html.EscapeString("Resources of "+g.Title))
	b.WriteString(svgStyle)
	fmt.Fprintf(&b, `<rect class="bg" width="%s" height="%s"/>`+"\n", num(width), num(height))
	fmt.Fprintf(&b, `<text class="title" x="%d" y="34">%s</text>`+"\n", margin, html.EscapeString(g.Title))
	l.bands(&b, height)
	for _, r := range l.routes {
		l.edge(&b, r)
	}
	for _, column := range l.columns {
		for _, p := range column {
			if p.node != nil {
				l.box(&b, p)
			}
		}
	}
	legend(&b, height, g)
	b.WriteString("</svg>\n")
	return b.String()
}

// bands are the columns' backgrounds and headings.
func (l *layout) bands(b *strings.Builder, height float64) {
	for c := range l.columns {
		head := fmt.Sprintf("wave %d", c-1)
		if c == 0 {
			head = "given"
		}
		const pad = 14
		fmt.Fprintf(b, `<rect class="band" x="%s" y="50" width="%s" height="%s" rx="10"/>`+"\n", num(l.x[c]-pad), num(l.width[c]+2*pad), num(height-50-38))
		fmt.Fprintf(b, `<text class="head" x="%s" y="70" text-anchor="middle">%s</text>`+"\n", num(l.x[c]+l.width[c]/2), head)
	}
}

func (l *layout) box(b *strings.Builder, p *place) {
	n := p.node
	x, w := l.x[p.column], l.width[p.column]
	class, extra := string(n.Class), ""
	round := 8
	if n.Class == ClassInstance {
		extra, round = " oninstance", boxHeight/2
	}
	if n.several() {
		fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%d" rx="%d"/>`+"\n", class, num(x+5), num(p.y+5), num(w), boxHeight, round)
	}
	fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%d" rx="%d"/>`+"\n", class, num(x), num(p.y), num(w), boxHeight, round)
	lines := []struct{ class, text string }{{"name" + extra, n.title()}, {"kind" + extra, n.kindLabel()}, {"mark" + extra, joinMarks(n.Marks)}}
	y := p.y + 22
	if len(n.Marks) == 0 {
		lines, y = lines[:2], p.y+29
	}
	for _, line := range lines {
		fmt.Fprintf(b, `<text class="%s" x="%s" y="%s" text-anchor="middle">%s</text>`+"\n", line.class, num(x+w/2), num(y), html.EscapeString(line.text))
		y += 17
	}
}

func (n *Node) several() bool {
	for _, m := range n.Marks {
		if m == "list" || m == "kustomization" || strings.HasPrefix(m, "for each") {
			return true
		}
	}
	return false
}

// edge draws a curve through the lanes and a tip at its end.
func (l *layout) edge(b *strings.Builder, r route) {
	class, tip := "edge", "tip"
	switch r.edge.Kind {
	case EdgeAfter:
		class, tip = "edge after", "tipafter"
	case EdgeOwns:
		class, tip = "edge owns", "tipowns"
	case EdgeReads:
	}
	from := r.places[0]
	x, y := l.x[from.column]+l.width[from.column], from.middle()
	var d strings.Builder
	fmt.Fprintf(&d, "M%s %s", num(x), num(y))
	for _, p := range r.places[1:] {
		toX, toY := l.x[p.column], l.entry(p, r)
		end := toX
		if p.node != nil {
			end -= 8
		}
		half := (end - x) / 2
		fmt.Fprintf(&d, " C%s %s %s %s %s %s", num(x+half), num(y), num(end-half), num(toY), num(end), num(toY))
		x, y = end, toY
		if p.node == nil {
			x = l.x[p.column] + l.width[p.column]
			fmt.Fprintf(&d, " L%s %s", num(x), num(y))
		}
	}
	fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", class, d.String())
	fmt.Fprintf(b, `<path class="%s" d="M%s %s l-9 -4.5 v9 z"/>`+"\n", tip, num(x+8), num(y))
}

// entry spreads the edges that end at a box over its left side, in the order of where they come from.
func (l *layout) entry(p *place, r route) float64 {
	if p.node == nil || len(p.before) < 2 {
		return p.middle()
	}
	source := r.places[len(r.places)-2]
	rank := 0
	for _, other := range p.before {
		if other.middle() < source.middle() {
			rank++
		}
	}
	step := min(12, (boxHeight-24)/float64(len(p.before)-1))
	return p.middle() + (float64(rank)-float64(len(p.before)-1)/2)*step
}

func legend(b *strings.Builder, height float64, g *Graph) {
	labels := []struct {
		kind       EdgeKind
		class, tip string
		text       string
	}{
		{EdgeReads, "edge", "tip", "waits for a value"},
		{EdgeAfter, "edge after", "tipafter", "waits until ready"},
		{EdgeOwns, "edge owns", "tipowns", "waits for nothing"},
	}
	x, y := float64(margin), height-16
	for _, item := range labels {
		used := false
		for _, e := range g.Edges {
			used = used || e.Kind == item.kind
		}
		if !used {
			continue
		}
		fmt.Fprintf(b, `<path class="%s" d="M%s %s h26"/><path class="%s" d="M%s %s l-9 -4.5 v9 z"/>`+"\n", item.class, num(x), num(y-4), item.tip, num(x+34), num(y-4))
		fmt.Fprintf(b, `<text class="head" x="%s" y="%s">%s</text>`+"\n", num(x+42), num(y), item.text)
		x += 42 + float64(len(item.text))*6.4 + 22
	}
}

func joinMarks(marks []string) string { return strings.Join(marks, " · ") }

// num prints a coordinate with one decimal at most.
func num(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }
