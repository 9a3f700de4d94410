package expr

// Segment is a part of a template string.
type Segment struct {
	// Expr: Text is an expression, without ${ and }. Otherwise it is literal text, in which $${ has become ${.
	Expr bool
	Text string
	// Offset of Text in the template string, in bytes.
	Offset int
}

// Scan splits a template string at its ${…}. Braces within an expression are balanced, and those within CEL's strings do not
// count. The error, a *Problem, says where an expression does not end.
func Scan(s string) ([]Segment, error) { return nil, nil }

// IsWhole tells whether a scanned template string is a single ${…}, whose value keeps its type. All else is text.
func IsWhole(segments []Segment) bool { return len(segments) == 1 && segments[0].Expr }
