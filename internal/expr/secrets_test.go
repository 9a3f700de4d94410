package expr

import (
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/internal/schema"
)

// Errors are shown in conditions and events; values may be those of Secrets.
func TestErrorsHoldNoValues(t *testing.T) {
	texts := schema.MapOf(schema.Scalar(schema.String, ""))
	env, err := NewEnv([]Variable{{Name: "self", Schema: texts}, {Name: "tls", Pending: true}, {Name: "password", Schema: schema.Scalar(schema.String, "")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{
		"self": map[string]any{"a": "b"}, "password": "hunter2", "tls": map[string]any{"p": "hunter2", "q": "(hunter2", "b": "`(hunter2`"},
	}
	for _, src := range []string{
		"int(tls.p)", "double(tls.p)", "bool(tls.p)", "timestamp(tls.p)", "duration(tls.p)", "quantity(tls.p)", "ip(tls.p)", "cidr(tls.p)",
		"url(tls.q)", "url(tls.p)", "semver(tls.p)", "tls.p.matches(tls.q)", "tls.p.matches(tls.b)", "tls.p.find(tls.q)", "'%d'.format([tls.p])",
		"self[password]", "{'a': 1}[password]",
	} {
		x, problems := env.Compile(src, Any)
		if len(problems) > 0 {
			t.Errorf("%s does not compile: %v", src, problems[0])
			continue
		}
		if _, err := x.Eval(vars, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one without the value", src, err)
		}
	}
}
