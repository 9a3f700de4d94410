package expr

import (
	"strings"
)

// Segment is a part of a template string.
type Segment struct {
	// Expr: Text is an expression, without ${ and }. Otherwise it is literal text, in which $${ has become ${.
	Expr bool
	Text string
	// Offset of Text in the template string, in bytes.
	Offset int
}

// Scan splits a template string at its ${…}. Braces within an expression are balanced, and those within CEL's strings and
// comments do not count. $${ is a literal ${. The error, a *Problem, says where an expression does not end.
func Scan(s string) ([]Segment, error) {
	if !strings.Contains(s, "${") {
		if s == "" {
			return nil, nil
		}
		return []Segment{{Text: s}}, nil
	}
	var segments []Segment
	var text strings.Builder
	start := 0 // of the text that is being collected
	flush := func() {
		if text.Len() > 0 {
			segments = append(segments, Segment{Text: text.String(), Offset: start})
			text.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			text.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			flush()
			end, err := expressionEnd(s, i+2)
			if err != nil {
				err.Offset = max(err.Offset, i)
				return nil, err
			}
			segments = append(segments, Segment{Expr: true, Text: s[i+2 : end], Offset: i + 2})
			i = end + 1
			start = i
		default:
			text.WriteByte(s[i])
			i++
		}
	}
	flush()
	return segments, nil
}

// IsWhole tells whether a scanned template string is a single ${…}, whose value keeps its type. All else is text.
func IsWhole(segments []Segment) bool { return len(segments) == 1 && segments[0].Expr }

// expressionEnd returns the place of the } that ends an expression which begins at from.
func expressionEnd(s string, from int) (int, *Problem) {
	depth := 0
	for i := from; i < len(s); {
		switch c := s[i]; {
		case c == '{':
			depth++
			i++
		case c == '}':
			if depth == 0 {
				return i, nil
			}
			depth--
			i++
		case c == '"' || c == '\'':
			end := stringEnd(s, i, isRaw(s, from, i))
			if end < 0 {
				return 0, &Problem{Message: "a string does not end", Hint: "close it with " + s[i:i+1], Offset: i}
			}
			i = end
		case c == '`':
			end := strings.IndexByte(s[i+1:], '`')
			if end < 0 {
				return 0, &Problem{Message: "a quoted name does not end", Hint: "close it with `", Offset: i}
			}
			i += end + 2
		case strings.HasPrefix(s[i:], "//"):
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				end = len(s) - i
			}
			i += end
		default:
			i++
		}
	}
	return 0, &Problem{Message: "the expression does not end", Hint: "close ${ with }; write $${ for a literal ${", Offset: from - 2}
}

// isRaw tells whether the quote at i begins a raw string, in which a backslash is a backslash: r"…", br"…", rb"…".
func isRaw(s string, from, i int) bool {
	start := i
	for start > from && isWord(s[start-1]) {
		start--
	}
	switch strings.ToLower(s[start:i]) {
	case "r", "rb", "br":
		return true
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// stringEnd returns the place behind the string whose opening quote is at i, or -1 if it does not end. A string in three
// quotes may hold line breaks and single quotes.
func stringEnd(s string, i int, raw bool) int {
	quote := s[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\\' && !raw:
			i += 2
		case len(quote) == 1 && (s[i] == '\n' || s[i] == '\r'):
			return -1
		default:
			i++
		}
	}
	return -1
}
