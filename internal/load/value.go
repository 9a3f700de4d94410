package load

import (
	"bytes"

	"github.com/libretto-dev/libretto/internal/diag"
)

// Value is a YAML document within a text, as a JSON value.
type Value struct {
	Value     any
	positions *Positions
	starts    []int
}

// Values reads the YAML documents of a text that stands within a definition, such as a file of a kustomize base. The faults
// have no path; their Offset is the place in the text.
func Values(text string) ([]*Value, diag.List) {
	lines := bytes.Split([]byte(text), []byte("\n"))
	starts := make([]int, len(lines))
	for i := 1; i < len(lines); i++ {
		starts[i] = starts[i-1] + len(lines[i-1]) + 1
	}
	var values []*Value
	var list diag.List
	for _, c := range split([]byte(text)) {
		p, faults := parse("", c, lines)
		for _, d := range faults {
			d.Offset = offsetOf(starts, d.Line, d.Column)
			d.Line, d.Column, d.Path = 0, 0, ""
			list.Add(d)
		}
		if p != nil {
			values = append(values, &Value{Value: p.value, positions: p.positions, starts: starts})
		}
	}
	return values, list
}

// Offset is the place in the text of byte offset within the field at path.
func (v *Value) Offset(path string, offset int) int {
	at := v.positions.Of(path, offset)
	return offsetOf(v.starts, at.Line, at.Column)
}

func offsetOf(starts []int, line, column int) int {
	if line < 1 || line > len(starts) {
		return 0
	}
	return starts[line-1] + max(column-1, 0)
}
