// Package diag holds what Libretto tells an author about a document: diagnostics with the place, what was expected, what
// was found and what to do. It knows nothing of definitions; lists are sorted and print the same for the same input.
package diag

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a diagnostic stops a definition from being used.
type Severity string

// Severities.
const (
	// Error: the definition cannot be used.
	Error Severity = "error"
	// Warning: the definition can be used, and something in it is probably not meant.
	Warning Severity = "warning"
)

// Diagnostic is one fault of a document.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// File is the name of the file, as it was given; empty when the document did not come from a file.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; 0 is unknown. Column counts bytes.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path is the path of the field, such as spec.resources[0].template.spec.replicas.
	Path string `json:"path,omitempty"`
	// Offset is the position in bytes within the string at Path that the diagnostic is about; 0 is the string as a whole.
	Offset int `json:"-"`
	// Message says what is wrong, as part of a sentence.
	Message string `json:"message"`
	// Expected and Found say what should have been there and what was there.
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
}

// String prints the diagnostic for people, in one to three lines without a newline at the end.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, max(d.Column, 1))
		}
		b.WriteString(": ")
	} else if d.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", d.Line, max(d.Column, 1))
	}
	if d.Severity == Warning {
		b.WriteString("warning: ")
	}
	if d.Path != "" {
		b.WriteString(d.Path)
		b.WriteString(": ")
	}
	b.WriteString(indentRest(d.Message))
	switch {
	case d.Expected != "" && d.Found != "":
		fmt.Fprintf(&b, "\n  expected %s, found %s", indentRest(d.Expected), indentRest(d.Found))
	case d.Expected != "":
		fmt.Fprintf(&b, "\n  expected %s", indentRest(d.Expected))
	case d.Found != "":
		fmt.Fprintf(&b, "\n  found %s", indentRest(d.Found))
	}
	if d.Hint != "" {
		fmt.Fprintf(&b, "\n  hint: %s", indentRest(d.Hint))
	}
	return b.String()
}

func indentRest(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

// List is a list of diagnostics.
type List []Diagnostic

// Errorf adds an error.
func (l *List) Errorf(path, format string, args ...any) {
	l.Add(Diagnostic{Severity: Error, Path: path, Message: fmt.Sprintf(format, args...)})
}

// Add adds diagnostics; one without a severity is an error.
func (l *List) Add(ds ...Diagnostic) {
	for _, d := range ds {
		if d.Severity == "" {
			d.Severity = Error
		}
		*l = append(*l, d)
	}
}

// HasErrors tells whether one of the diagnostics is an error.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Error })
}

// Errors returns the errors, Warnings the rest.
func (l List) Errors() List { return l.only(Error) }

// Warnings returns what is not an error.
func (l List) Warnings() List { return l.only(Warning) }

func (l List) only(s Severity) List {
	var out List
	for _, d := range l {
		if d.Severity == s {
			out = append(out, d)
		}
	}
	return out
}

// Sort sorts by file, line, column, path and message and removes what is there twice. It returns the list, which may share
// the memory of the receiver.
func (l List) Sort() List {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			comparePaths(a.Path, b.Path), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(l)
}

// String prints the list for people, one diagnostic after the other, each ended by a newline.
func (l List) String() string {
	var b strings.Builder
	for _, d := range l {
		b.WriteString(d.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// JSON prints the list as an indented JSON array that ends with a newline; an empty list is [].
func (l List) JSON() []byte {
	if l == nil {
		l = List{}
	}
	out, err := json.MarshalIndent(l, "", "  ")
	if err != nil { // strings and numbers alone: cannot happen
		return []byte("[]\n")
	}
	return append(out, '\n')
}

// Err returns nil when no diagnostic is an error, else an error whose text is that of the errors and whose type is *Err.
func (l List) Err() error {
	errs := l.Errors()
	if len(errs) == 0 {
		return nil
	}
	return &Err{List: errs}
}

// Err is a list of diagnostics as an error.
type Err struct{ List List }

func (e *Err) Error() string { return strings.TrimRight(e.List.String(), "\n") }

// Summary prints the list in at most n bytes, for a condition's message: whole diagnostics in one line each, then how many
// there are more.
func (l List) Summary(n int) string {
	var b strings.Builder
	for i, d := range l {
		d.File, d.Line, d.Column = "", 0, 0
		line := strings.ReplaceAll(d.String(), "\n ", ";")
		rest := fmt.Sprintf("… and %d more", len(l)-i)
		if b.Len()+len(line)+1+len(rest)+1 > n {
			if b.Len() == 0 {
				return truncate(line, n)
			}
			b.WriteString("\n" + rest)
			return b.String()
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	return b.String()
}

func truncate(s string, n int) string {
	const dots = "…"
	if len(s) <= n {
		return s
	}
	n = max(n-len(dots), 0)
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + dots
}
