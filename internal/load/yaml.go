package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/libretto-dev/libretto/internal/diag"
)

const (
	// maxFile is the size of a file in bytes. An object in a cluster cannot be larger than about 1.5 MiB.
	maxFile = 4 << 20
	// maxNodes is the number of values in a document.
	maxNodes = 200_000
	// maxAliased is the number of values that aliases stand for: it ends documents that expand without end.
	maxAliased = 20_000
	// maxFaults is how many faults of one document are told.
	maxFaults = 100
	// maxDepth is how deep values may be nested.
	maxDepth = 100
)

// chunk is one YAML document of a file.
type chunk struct {
	text []byte
	// line is the number of the first line in the file, from 0.
	line int
}

// split cuts a file at the lines that start a document, so that a syntax error in one does not hide the others.
func split(data []byte) []chunk {
	var chunks []chunk
	current := chunk{}
	line := 0
	for rest := data; len(rest) > 0; line++ {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		text := rest[:end]
		rest = rest[end:]
		if startsDocument(text) && len(bytes.TrimSpace(current.text)) > 0 && !onlyDirectives(current.text) {
			chunks = append(chunks, current)
			current = chunk{line: line}
		}
		current.text = append(current.text, text...)
	}
	return append(chunks, current)
}

func startsDocument(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

func onlyDirectives(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// parsed is a document as a JSON value with the places of its fields.
type parsed struct {
	value     any
	positions *Positions
	line      int
}

// parse reads one document. A nil result without errors is an empty document.
func parse(file string, c chunk, lines [][]byte) (*parsed, diag.List) {
	var root yaml.Node
	if err := yaml.Unmarshal(c.text, &root); err != nil {
		return nil, diag.List{syntaxError(file, c, err)}
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		return nil, nil
	}
	r := &reader{file: file, offset: c.line, positions: &Positions{at: map[string]place{}, lines: lines}}
	value := r.value(root.Content[0], "", 0)
	if value == nil && len(r.list) == 0 {
		return nil, nil
	}
	return &parsed{value: value, positions: r.positions, line: root.Content[0].Line + c.line}, r.list
}

var lineOfError = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func syntaxError(file string, c chunk, err error) diag.Diagnostic {
	text := err.Error()
	var typed *yaml.TypeError
	if errors.As(err, &typed) && len(typed.Errors) > 0 {
		text = typed.Errors[0]
	}
	m := lineOfError.FindStringSubmatch(text)
	line := 1
	if n, err := strconv.Atoi(m[1]); err == nil {
		line = n
	}
	message := text[len(m[0]):]
	line = firstBadLine(c.text, line, text)
	d := diag.Diagnostic{
		Severity: diag.Error, File: file, Line: line + c.line, Column: 1,
		Message: "not valid YAML: " + message,
	}
	switch {
	case strings.Contains(message, "cannot start any token") && bytes.Contains(c.text, []byte("\t")):
		d.Hint = "YAML is indented with spaces, not with tabs"
	case strings.Contains(message, "mapping values are not allowed"):
		d.Hint = `look at this line and the one before: text that contains ": " must be in quotes, and fields of one object begin in one column`
	case strings.Contains(message, "did not find expected"):
		d.Hint = "look at the indentation of this line and the one before, and at brackets and quotes that are not closed"
	}
	return d
}

// firstBadLine finds the line that a syntax error is about: the parser often names the line where the enclosing object
// begins. It is the first line up to which the text has the same error.
func firstBadLine(text []byte, from int, message string) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if from < 1 || from > len(lines) {
		return from
	}
	n := sort.Search(len(lines)-from, func(i int) bool {
		var root yaml.Node
		err := yaml.Unmarshal(bytes.Join(lines[:from+i], nil), &root)
		return err != nil && err.Error() == message
	})
	return from + n
}

// reader turns nodes into JSON values, as the API server's tools do: YAML 1.1, keys are text.
type reader struct {
	file      string
	offset    int
	nodes     int
	aliased   int
	positions *Positions
	list      diag.List
	aliases   []*yaml.Node
}

func (r *reader) add(n *yaml.Node, d diag.Diagnostic) {
	if len(r.list) < maxFaults {
		d.File, d.Line, d.Column = r.file, n.Line+r.offset, n.Column
		r.list.Add(d)
	}
}

func (r *reader) value(n *yaml.Node, path string, depth int) any {
	r.nodes++
	if len(r.aliases) > 0 {
		r.aliased++
	}
	if r.nodes > maxNodes || r.aliased > maxAliased || depth > maxDepth {
		if r.nodes <= maxNodes+1 {
			r.add(n, diag.Diagnostic{Path: path, Message: "the document is too large or too deep",
				Expected: fmt.Sprintf("at most %d values, %d of these by aliases, nested at most %d deep", maxNodes, maxAliased, maxDepth)})
			r.nodes = maxNodes + 1
		}
		return nil
	}
	if _, seen := r.positions.at[path]; !seen || n.Kind != yaml.AliasNode {
		r.positions.set(path, n, r.offset)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.alias(n, path, depth)
	case yaml.MappingNode:
		return r.object(n, path, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, r.value(item, diag.Index(path, i), depth+1))
		}
		return list
	case yaml.ScalarNode:
		return r.scalar(n, path)
	case yaml.DocumentNode:
	}
	return nil
}

func (r *reader) alias(n *yaml.Node, path string, depth int) any {
	for _, a := range r.aliases {
		if a == n.Alias {
			r.add(n, diag.Diagnostic{Path: path, Message: fmt.Sprintf("*%s stands within what it stands for", n.Value)})
			return nil
		}
	}
	r.aliases = append(r.aliases, n.Alias)
	defer func() { r.aliases = r.aliases[:len(r.aliases)-1] }()
	return r.value(n.Alias, path, depth+1)
}

func (r *reader) object(n *yaml.Node, path string, depth int) any {
	object := make(map[string]any, len(n.Content)/2)
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			continue
		}
		name, ok := r.key(key, path)
		if !ok {
			continue
		}
		child := diag.Child(path, name)
		if before, twice := first[name]; twice {
			r.add(key, diag.Diagnostic{Path: child, Message: fmt.Sprintf("the key %q is there twice, first in line %d", name, before.Line+r.offset),
				Hint: "remove one, or put the two together"})
			continue
		}
		first[name] = key
		object[name] = r.value(value, child, depth+1)
		r.positions.setKey(child, key, r.offset)
	}
	r.merge(n, object, path, depth)
	return object
}

// merge adds what <<: brings to an object, for the keys that it does not have.
func (r *reader) merge(n *yaml.Node, object map[string]any, path string, depth int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() != "!!merge" {
			continue
		}
		sources := []*yaml.Node{n.Content[i+1]}
		if sources[0].Kind == yaml.SequenceNode {
			sources = sources[0].Content
		}
		for _, source := range sources {
			kept := r.positions
			r.positions = &Positions{at: map[string]place{}}
			from, ok := r.value(source, path, depth+1).(map[string]any)
			merged := r.positions
			r.positions = kept
			if !ok {
				r.add(source, diag.Diagnostic{Path: path, Message: "<<: takes an object, or a list of objects"})
				continue
			}
			for name, value := range from {
				if _, have := object[name]; !have {
					object[name] = value
				}
			}
			for p, at := range merged.at {
				if _, have := kept.at[p]; !have {
					kept.at[p] = at
				}
			}
		}
	}
}

func (r *reader) key(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		r.add(n, diag.Diagnostic{Path: path, Message: "a key must be text"})
		return "", false
	}
	switch n.ShortTag() {
	case "!!null":
		r.add(n, diag.Diagnostic{Path: path, Message: "a key must be text", Found: "nothing"})
		return "", false
	case "!!bool":
		return strings.ToLower(n.Value), true
	case "!!int":
		if v, ok := integer(n); ok {
			return fmt.Sprint(v), true
		}
	}
	if b, ok := oldBool(n); ok {
		name := strconv.FormatBool(b)
		r.add(n, diag.Diagnostic{Severity: diag.Warning, Path: diag.Child(path, n.Value),
			Message: fmt.Sprintf("Kubernetes reads the key %s without quotes as %s", n.Value, name), Hint: fmt.Sprintf("write %q", n.Value)})
		return name, true
	}
	return n.Value, true
}

func (r *reader) scalar(n *yaml.Node, path string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if v, ok := integer(n); ok {
			return v
		}
		return r.float(n, path)
	case "!!float":
		return r.float(n, path)
	case "!!binary":
		var text string
		if err := n.Decode(&text); err != nil {
			r.add(n, diag.Diagnostic{Path: path, Message: "not valid base64"})
		}
		return text
	case "!!str", "!!timestamp":
		if b, ok := oldBool(n); ok {
			r.add(n, diag.Diagnostic{Severity: diag.Warning, Path: path,
				Message: fmt.Sprintf("Kubernetes reads %s without quotes as the boolean %t", n.Value, b),
				Hint:    fmt.Sprintf("write %t if that is meant, else %q", b, n.Value)})
			return b
		}
		return n.Value
	}
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		// An expression that begins with a negation: taken as what was meant, so that nothing else is found missing.
		meant := strings.TrimSpace(n.Tag + " " + n.Value)
		r.add(n, diag.Diagnostic{Path: path, Message: "YAML takes an unquoted ! for a tag", Hint: fmt.Sprintf("quote the whole: %q", meant)})
		return meant
	}
	r.add(n, diag.Diagnostic{Path: path, Message: fmt.Sprintf("the YAML tag %s is not known", n.Tag), Hint: "remove the tag"})
	return nil
}

func (r *reader) float(n *yaml.Node, path string) any {
	var f float64
	if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.add(n, diag.Diagnostic{Path: path, Message: fmt.Sprintf("%s is not a number that JSON knows", n.Value)})
		return nil
	}
	return f
}

func integer(n *yaml.Node) (int64, bool) {
	var v int64
	err := n.Decode(&v)
	return v, err == nil
}

// oldBool tells whether a scalar is one of the booleans of YAML 1.1 that YAML 1.2 takes for text. kubectl and the API server
// read YAML 1.1.
func oldBool(n *yaml.Node) (value, ok bool) {
	if n.Style != 0 || n.Tag != "!!str" {
		return false, false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}
