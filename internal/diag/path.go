package diag

import (
	"cmp"
	"strconv"
	"strings"
)

// Child returns the path of the field name below path. A name that is not a plain word is quoted, as in
// metadata.labels["app.kubernetes.io/name"].
func Child(path, name string) string {
	if !plainWord(name) {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index returns the path of item i of the list at path.
func Index(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

// Parent returns the path of what holds path; "" for a path of one part.
func Parent(path string) string {
	steps := Split(path)
	if len(steps) <= 1 {
		return ""
	}
	return Join(steps[:len(steps)-1])
}

// Step is a part of a path: a name, or an index when Name is empty and IsIndex is set.
type Step struct {
	Name    string
	Index   int
	IsIndex bool
}

// Split takes a path apart. It understands what Child and Index make and the paths of Kubernetes' own validation, which
// write a map's key as [key].
func Split(path string) []Step {
	var steps []Step
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			var s Step
			s, path = splitBracket(path)
			steps = append(steps, s)
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps = append(steps, Step{Name: path[:end]})
			path = path[end:]
		}
	}
	return steps
}

func splitBracket(path string) (Step, string) {
	if quoted, err := strconv.QuotedPrefix(path[1:]); err == nil {
		name, _ := strconv.Unquote(quoted)
		return Step{Name: name}, strings.TrimPrefix(path[1+len(quoted):], "]")
	}
	end := strings.IndexByte(path, ']')
	if end < 0 {
		return Step{Name: path[1:]}, ""
	}
	if i, err := strconv.Atoi(path[1:end]); err == nil && i >= 0 {
		return Step{Index: i, IsIndex: true}, path[end+1:]
	}
	return Step{Name: path[1:end]}, path[end+1:]
}

// Join puts steps together, as Child and Index do.
func Join(steps []Step) string {
	path := ""
	for _, s := range steps {
		if s.IsIndex {
			path = Index(path, s.Index)
		} else {
			path = Child(path, s.Name)
		}
	}
	return path
}

// Normalize returns the path in the spelling of Child and Index.
func Normalize(path string) string { return Join(Split(path)) }

func plainWord(s string) bool {
	if s == "" {
		return false
	}
	for i, r := range []byte(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', r == '$':
		case i > 0 && (r >= '0' && r <= '9' || r == '-'):
		default:
			return false
		}
	}
	return true
}

func comparePaths(a, b string) int {
	if a == b {
		return 0
	}
	as, bs := Split(a), Split(b)
	for i := range min(len(as), len(bs)) {
		if c := cmp.Or(cmp.Compare(as[i].Name, bs[i].Name), cmp.Compare(as[i].Index, bs[i].Index)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}
