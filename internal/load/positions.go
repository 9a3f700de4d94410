package load

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/libretto-dev/libretto/internal/diag"
)

// Positions are the places of the fields of a document.
type Positions struct {
	at    map[string]place
	lines [][]byte
	// files are the places of texts that came from files of their own: by the path of the field.
	files map[string]fileText
}

type place struct {
	keyLine, keyColumn int
	line, column       int
	scalar             bool
	style              yaml.Style
	value              string
}

type fileText struct {
	name string
	text string
}

// Position is a place in a file. Lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}

func (p *Positions) set(path string, n *yaml.Node, offset int) {
	at := place{line: n.Line + offset, column: n.Column}
	if n.Kind == yaml.ScalarNode {
		at.scalar, at.style, at.value = true, n.Style, n.Value
	}
	p.at[path] = at
}

func (p *Positions) setKey(path string, key *yaml.Node, offset int) {
	at := p.at[path]
	at.keyLine, at.keyColumn = key.Line+offset, key.Column
	p.at[path] = at
}

// find returns the place of a field, or of the nearest field that holds it, and whether it is the field itself.
func (p *Positions) find(path string) (at place, exact bool) {
	steps := diag.Split(path)
	for n := len(steps); n >= 0; n-- {
		prefix := diag.Join(steps[:n])
		if at, ok := p.at[prefix]; ok {
			return at, n == len(steps)
		}
	}
	return place{line: 1, column: 1}, false
}

// Of returns the place of byte offset within the field at path. A field that is not there has the place of what would hold
// it.
func (p *Positions) Of(path string, offset int) Position {
	at, exact := p.find(path)
	if f, ok := p.files[diag.Normalize(path)]; ok {
		line, column := within(f.text, offset)
		return Position{File: f.name, Line: line, Column: column}
	}
	switch {
	case !exact && at.keyLine > 0, !at.scalar && at.keyLine > 0:
		return Position{Line: at.keyLine, Column: at.keyColumn}
	case !exact || offset <= 0 || !at.scalar:
		return Position{Line: at.line, Column: at.column}
	}
	return p.inScalar(at, offset)
}

// inScalar finds the place of a byte of a string. For folded text it is the place of the string.
func (p *Positions) inScalar(at place, offset int) Position {
	offset = min(offset, len(at.value))
	start := Position{Line: at.line, Column: at.column}
	if at.style&yaml.LiteralStyle != 0 {
		lines, column := within(at.value, offset)
		line := at.line + lines
		if line > len(p.lines) {
			return start
		}
		return Position{Line: line, Column: column + p.indent(at.line)}
	}
	if at.style&yaml.FoldedStyle != 0 || at.line < 1 || at.line > len(p.lines) {
		return start
	}
	column := at.column
	if at.style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		column++
	}
	line := p.lines[at.line-1]
	if column-1 > len(line) || !bytes.HasPrefix(line[column-1:], []byte(at.value[:offset])) {
		return start
	}
	return Position{Line: at.line, Column: column + offset}
}

// indent returns the indentation of the block of text that begins behind line.
func (p *Positions) indent(line int) int {
	for _, text := range p.lines[min(line, len(p.lines)):] {
		if trimmed := bytes.TrimLeft(text, " "); len(bytes.TrimSpace(trimmed)) > 0 {
			return len(text) - len(trimmed)
		}
	}
	return 0
}

// within returns line and column of a byte of a text.
func within(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = strings.Count(before, "\n") + 1
	return line, len(before) - strings.LastIndexByte(before, '\n')
}

// Locate adds file, line and column to diagnostics that have a path and no line, and sorts.
func (d *Document) Locate(l diag.List) diag.List {
	out := make(diag.List, len(l))
	copy(out, l)
	for i := range out {
		if out[i].Line > 0 {
			continue
		}
		at := d.Positions.Of(out[i].Path, out[i].Offset)
		out[i].File, out[i].Line, out[i].Column = d.File, at.Line, at.Column
		if at.File != "" {
			out[i].File = at.File
		}
	}
	return out.Sort()
}
