package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScan(t *testing.T) {
	for in, want := range map[string][]Segment{
		"":                     nil,
		"plain $x {y}":         {{Text: "plain $x {y}"}},
		"${a}":                 {{Expr: true, Text: "a", Offset: 2}},
		"x-${a}-y":             {{Text: "x-"}, {Expr: true, Text: "a", Offset: 4}, {Text: "-y", Offset: 6}},
		"${a}${b}":             {{Expr: true, Text: "a", Offset: 2}, {Expr: true, Text: "b", Offset: 6}},
		"$${a}":                {{Text: "${a}"}},
		"$$${a}":               {{Text: "$${a}"}},
		"$${a} ${b}":           {{Text: "${a} "}, {Expr: true, Text: "b", Offset: 8}},
		`${ {"a": {"b": 1}} }`: {{Expr: true, Text: ` {"a": {"b": 1}} `, Offset: 2}},
		`${"}"}`:               {{Expr: true, Text: `"}"`, Offset: 2}},
		`${'\'}'}`:             {{Expr: true, Text: `'\'}'`, Offset: 2}},
		`${r'\'}`:              {{Expr: true, Text: `r'\'`, Offset: 2}},
		`${bR"\"}`:             {{Expr: true, Text: `bR"\"`, Offset: 2}},
		`${"""a"}"""}`:         {{Expr: true, Text: `"""a"}"""`, Offset: 2}},
		"${'''\n}'''}":         {{Expr: true, Text: "'''\n}'''", Offset: 2}},
		"${a.`}`}":             {{Expr: true, Text: "a.`}`", Offset: 2}},
		"${a // }\n}":          {{Expr: true, Text: "a // }\n", Offset: 2}},
		"ä${a}":                {{Text: "ä"}, {Expr: true, Text: "a", Offset: 4}},
	} {
		got, err := Scan(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
	for in, offset := range map[string]int{"a ${b": 2, "${'a}": 2, "${a.`b}": 4, "${a {}": 0, "$": -1} {
		_, err := Scan(in)
		var p *Problem
		if offset >= 0 && (!errors.As(err, &p) || p.Offset != offset) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{"", "${a}", "$${a}", `x${"}"}y`, "${r'\\'}", "${'''", "${{}}", "$", "${a//}\n}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		segments, err := Scan(s)
		if err != nil {
			var p *Problem
			if !errors.As(err, &p) || p.Offset < 0 || p.Offset > len(s) {
				t.Fatalf("%v", err)
			}
			return
		}
		var back strings.Builder // what was scanned can be written again
		for _, segment := range segments {
			if segment.Expr {
				if s[segment.Offset:segment.Offset+len(segment.Text)] != segment.Text {
					t.Fatalf("wrong offset %d", segment.Offset)
				}
				back.WriteString("${" + segment.Text + "}")
			} else {
				back.WriteString(strings.ReplaceAll(segment.Text, "${", "$${"))
			}
		}
		if back.String() != s {
			t.Fatalf("%q became %q", s, back.String())
		}
	})
}

func FuzzCompile(f *testing.F) {
	env := testEnv(f, Options{})
	for _, seed := range []string{"self.spec.replicas", "svc.spec.ports[0].port", "self.spec.hosts.map(h, h + 'x')", "{'a': 1}", "cel.bind(a, self, a)", "pods.exists(p, has(p.status))", "1 +", "'", "self.?x"} {
		f.Add(seed)
	}
	vars := testVars(f)
	f.Fuzz(func(t *testing.T, src string) {
		x, ps := env.Compile(src, Any)
		if (x == nil) == (len(ps) == 0) {
			t.Fatal("neither an expression nor a problem, or both")
		}
		for _, p := range ps {
			if p.Message == "" || p.Offset < 0 || p.Offset > len(src) {
				t.Fatalf("%#v", p)
			}
		}
		if x != nil {
			_, _ = x.Eval(vars, NewBudget(0, nil))
		}
	})
}
