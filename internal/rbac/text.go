package rbac

import (
	"encoding/json"
	"strings"

	"github.com/libretto-dev/libretto/internal/program"
)

// text prints a template that yields text as the author wrote it, with ${…}; nil is empty.
func text(t *program.Template) string {
	if t == nil {
		return ""
	}
	return partText(t.Root)
}

// field prints the text at a path of a template; one that is not there is empty.
func field(t *program.Template, path ...string) string {
	if t == nil {
		return ""
	}
	part, value, static := t.Lookup(path...)
	if static {
		s, _ := value.(string)
		return s
	}
	if part == nil {
		return ""
	}
	return partText(part)
}

func partText(p *program.Part) string {
	switch p.Kind {
	case program.PartStatic:
		s, _ := p.Static.(string)
		return s
	case program.PartExpr:
		return "${" + p.Expr.Source() + "}"
	case program.PartText:
		var out strings.Builder
		for _, s := range p.Segments {
			if s.Expr == nil {
				out.WriteString(s.Text)
			} else {
				out.WriteString("${" + s.Expr.Source() + "}")
			}
		}
		return out.String()
	case program.PartObject, program.PartList, program.PartDocument:
	}
	return ""
}

// printed is the value at a path of a template, as JSON; what holds expressions is printed as one.
func printed(t *program.Template, path ...string) json.RawMessage {
	part, value, static := t.Lookup(path...)
	switch {
	case !static && part != nil:
		return json.RawMessage(`"${…}"`)
	case !static || value == nil:
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}
