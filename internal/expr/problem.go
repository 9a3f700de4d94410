package expr

import "strings"

// Problem is something wrong with an expression, in words for its author.
type Problem struct {
	// Message says what is wrong.
	Message string
	// Expected and Found say what was wanted and what there is; both may be empty.
	Expected, Found string
	// Hint says what to do; may be empty.
	Hint string
	// Offset is the place in the source that was compiled, in bytes.
	Offset int
}

// Error implements error.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Message)
	if p.Expected != "" || p.Found != "" {
		b.WriteString(" (")
		if p.Expected != "" {
			b.WriteString("expected " + p.Expected)
		}
		if p.Expected != "" && p.Found != "" {
			b.WriteString(", ")
		}
		if p.Found != "" {
			b.WriteString("found " + p.Found)
		}
		b.WriteString(")")
	}
	if p.Hint != "" {
		b.WriteString("; hint: " + p.Hint)
	}
	return b.String()
}
