package graph

import "sort"

// The layout puts each wave into a column. An edge over several columns runs through an empty place in each column between,
// so that it never crosses a box. Within columns, the order follows the middle of the neighbours, a few times forth and back.

// Sizes in SVG user units (pixels).
const (
	boxHeight  = 64
	boxGap     = 20
	laneHeight = 14
	columnGap  = 84
	margin     = 24
	headHeight = 84
	charWidth  = 7.6
	minWidth   = 132
)

// place is a box, or the lane of a long edge (node is nil).
type place struct {
	node *Node
	// column and the position in it.
	column int
	y      float64
	// before and after are the neighbours in the columns at the left and right.
	before, after []*place
}

func (p *place) height() float64 {
	if p.node == nil {
		return laneHeight
	}
	return boxHeight
}

func (p *place) middle() float64 { return p.y + p.height()/2 }

// route is an edge as the places it runs through.
type route struct {
	edge   Edge
	places []*place
}

type layout struct {
	columns [][]*place
	routes  []route
	// x and width of each column.
	x, width []float64
	height   float64
}

func arrange(g *Graph) *layout {
	l := &layout{columns: make([][]*place, g.Waves+1)}
	byID := map[string]*place{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		p := &place{node: n, column: n.Column}
		byID[n.ID] = p
		l.columns[n.Column] = append(l.columns[n.Column], p)
	}
	for _, e := range g.Edges {
		l.route(e, byID[e.From], byID[e.To])
	}
	for range 4 {
		for c := 1; c < len(l.columns); c++ {
			l.order(c, func(p *place) []*place { return p.before })
		}
		for c := len(l.columns) - 2; c >= 0; c-- {
			l.order(c, func(p *place) []*place { return p.after })
		}
	}
	l.measure()
	return l
}

func (l *layout) route(e Edge, from, to *place) {
	if from == nil || to == nil {
		return
	}
	r := route{edge: e, places: []*place{from}}
	last := from
	for c := from.column + 1; c < to.column; c++ {
		lane := &place{column: c}
		l.columns[c] = append(l.columns[c], lane)
		link(last, lane)
		r.places = append(r.places, lane)
		last = lane
	}
	link(last, to)
	r.places = append(r.places, to)
	l.routes = append(l.routes, r)
}

func link(a, b *place) {
	a.after = append(a.after, b)
	b.before = append(b.before, a)
}

// order sorts a column by the middle of the neighbours at one side; who has none keeps his place. The instance stays on top.
func (l *layout) order(c int, neighbours func(*place) []*place) {
	position := map[*place]int{}
	for _, column := range l.columns {
		for i, p := range column {
			position[p] = i
		}
	}
	key := func(p *place) float64 {
		if p.node != nil && p.node.Class == ClassInstance {
			return -1
		}
		list := neighbours(p)
		if len(list) == 0 {
			return float64(position[p])
		}
		sum := 0
		for _, n := range list {
			sum += position[n]
		}
		return float64(sum) / float64(len(list))
	}
	column := l.columns[c]
	keys := map[*place]float64{}
	for _, p := range column {
		keys[p] = key(p)
	}
	sort.SliceStable(column, func(i, j int) bool { return keys[column[i]] < keys[column[j]] })
}

// measure gives columns their widths and places their heights; columns are centred on the tallest one.
func (l *layout) measure() {
	x := float64(margin)
	heights := make([]float64, len(l.columns))
	for c, column := range l.columns {
		width := float64(minWidth)
		for i, p := range column {
			if p.node != nil {
				width = max(width, textWidth(p.node))
			}
			if i > 0 {
				heights[c] += boxGap
			}
			heights[c] += p.height()
		}
		l.x = append(l.x, x)
		l.width = append(l.width, width)
		x += width + columnGap
		l.height = max(l.height, heights[c])
	}
	for c, column := range l.columns {
		y := headHeight + (l.height-heights[c])/2
		for _, p := range column {
			p.y = y
			y += p.height() + boxGap
		}
	}
}

func textWidth(n *Node) float64 {
	longest := len(n.title())*11/10 + 1
	longest = max(longest, len(n.kindLabel()))
	longest = max(longest, len(joinMarks(n.Marks)))
	return float64(longest)*charWidth + 32
}
