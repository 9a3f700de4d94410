package compile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// TestBroken reads and compiles each broken definition; what is said about it, with line and hint, stands beside it.
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d broken definitions, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			docs, _, list := load.Parse(filepath.Base(file), data)
			for _, d := range docs {
				_, faults := compile.Compile(d.Definition, compile.Options{})
				list = append(list, d.Locate(faults)...)
			}
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".want", []byte(list.Sort().String()))
		})
	}
}

// TestGood compiles each good definition: no error, and the Program as it stands beside it.
func TestGood(t *testing.T) {
	files, err := filepath.Glob("testdata/*/definition.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			docs, _, list := load.Load(file)
			if len(docs) != 1 || list.HasErrors() {
				t.Fatalf("%d definitions\n%s", len(docs), list)
			}
			p, list := compile.Compile(docs[0].Definition, compile.Options{})
			if list.HasErrors() {
				t.Fatalf("\n%s", docs[0].Locate(list))
			}
			crd, err := yaml.Marshal(p.CRD)
			if err != nil {
				t.Fatal(err)
			}
			if p.CRD != nil {
				golden.Check(t, filepath.Join(dir, "want.crd.yaml"), crd)
			}
			if p.OperationKind != nil {
				crd, err := yaml.Marshal(p.OperationKind.CRD)
				if err != nil {
					t.Fatal(err)
				}
				golden.Check(t, filepath.Join(dir, "want.operations.yaml"), crd)
			}
			golden.Check(t, filepath.Join(dir, "want.program"), []byte(dump(p, docs[0].Locate(list))))

			again, _ := compile.Compile(docs[0].Definition, compile.Options{})
			if diff := cmp.Diff(dump(p, nil), dump(again, nil)); diff != "" {
				t.Errorf("the second time, something else (-first +second):\n%s", diff)
			}
		})
	}
}

// dump writes what matters of a Program.
func dump(p *program.Program, warnings diag.List) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\ninstance %s %s namespaced=%t status=%t finalizer=%t\n", p.Name, p.Hash, p.Instance.GroupVersionKind, p.Instance.Resource, p.Instance.Namespaced, p.WriteStatus, p.HoldFinalizer)
	for _, v := range p.Variables {
		fmt.Fprintf(&b, "variable %s: %s\n", v.Name, v.Expr.Type())
	}
	for _, x := range p.Externals {
		fmt.Fprintf(&b, "external %s: %s list=%t optional=%t\n", x.Name, x.Kind.GroupVersionKind, x.List, x.Optional)
	}
	for _, n := range p.Nodes {
		fmt.Fprintf(&b, "%d wave %d %s: %v reads=%v after=%v externals=%v\n", n.Index, n.Wave, n.Name, kinds(n.Kinds), names(n.Reads), names(n.After), n.ReadsExternals)
		var uses []program.Use
		if n.Template != nil {
			uses = n.Template.Uses
		} else {
			uses = n.Kustomization.Uses
		}
		for _, u := range uses {
			fmt.Fprintf(&b, "    %s: %s (%s)\n", u.Path, u.Expr.Source(), u.Expr.Type())
		}
	}
	if p.StatusFields != nil {
		for _, u := range p.StatusFields.Uses {
			fmt.Fprintf(&b, "status %s: %s (%s)\n", u.Path, u.Expr.Source(), u.Expr.Type())
		}
	}
	for _, c := range p.Conditions {
		fmt.Fprintf(&b, "condition %s: %s\n", c.Type, c.Status.Source())
	}
	for _, o := range p.Operations {
		dumpOperation(&b, o)
	}
	if len(p.Operations) > 0 {
		fmt.Fprintf(&b, "kinds of steps %v\nreads %v\nneeds finalizer %t\n", kinds(p.StepKinds()), p.Refs(), p.NeedsFinalizer())
	}
	fmt.Fprintf(&b, "pending %v\n%s", p.PendingKinds, warnings)
	return b.String()
}

func dumpOperation(b *strings.Builder, o *program.Operation) {
	fmt.Fprintf(b, "operation %s %s params=%t timeout=%s %s %s exclusive=%t priority=%d retain=%+v stale=%s\n", o.Name, o.Hash, o.HasParams, o.Timeout,
		o.OnFailure, o.Concurrency, o.Exclusive, o.Priority, o.Retain, o.Stale)
	for _, t := range o.Triggers {
		fmt.Fprintf(b, "    trigger %s fields=%v old=%v missed=%s startingDeadline=%s idle=%s initialDelay=%s jitter=%s for=%s cooldown=%s", t.Type, t.Fields, t.OldFields,
			t.Missed, t.StartingDeadline, t.Idle, t.InitialDelay, t.Jitter, t.For, t.Cooldown)
		if t.Watch != nil {
			fmt.Fprintf(b, " watch=%s list=%t fields=%v", t.Watch.Variable(), t.Watch.List, t.Watch.Fields)
		}
		b.WriteString("\n")
	}
	var dumpStep func(what string, s *program.Step)
	dumpStep = func(what string, s *program.Step) {
		fmt.Fprintf(b, "    %s %s: %s parallel=%d timeout=%s retries=%d backoff=%s..%s %s unknown=%s", what, s.Name, s.Action.Name(), s.Parallel, s.Timeout, s.Retries,
			s.BackoffInitial, s.BackoffMax, s.OnFailure, s.OnUnknown)
		if h := s.Action.HTTP; h != nil {
			fmt.Fprintf(b, " %s", h.Method)
		}
		b.WriteString("\n")
		for _, u := range s.Undo {
			dumpStep("    undo", u)
		}
	}
	for _, s := range o.Steps {
		dumpStep("step", s)
	}
	for _, s := range o.OnRemove {
		dumpStep("remove", s)
	}
	program.EachExpr(o, func(x *expr.Expr) { fmt.Fprintf(b, "    %s (%s)\n", x.Source(), x.Type()) })
}

func kinds(ks []program.Kind) (out []string) {
	for _, k := range ks {
		out = append(out, k.GroupVersionKind.String())
	}
	return out
}

func names(ns []*program.Node) (out []string) {
	for _, n := range ns {
		out = append(out, n.Name)
	}
	return out
}

func TestHashIsThatOfTheMeaning(t *testing.T) {
	const one = `{"apiVersion":"libretto.dev/v1alpha1","kind":"OperatorDefinition","metadata":{"name":"a"},"spec":{"target":{"apiVersion":"v1","kind":"Namespace"},
"resources":[{"name":"q","template":{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"namespace":"x","name":"y"}}}]}}`
	const other = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: a}
spec:
  resources:   # a comment
  - template:
      metadata: {name: "y", namespace: 'x'}
      apiVersion: v1
      kind: ResourceQuota
    name: q
    adoption: Never
  target: {kind: Namespace, apiVersion: v1}
`
	hash := func(text string) string {
		docs, _, list := load.Parse("x", []byte(text))
		if len(docs) != 1 {
			t.Fatal(list)
		}
		p, list := compile.Compile(docs[0].Definition, compile.Options{})
		if p == nil {
			t.Fatal(list)
		}
		return p.Hash
	}
	if a, b := hash(one), hash(other); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := hash(one), hash(strings.ReplaceAll(one, `"y"`, `"z"`)); a == b {
		t.Error("another name, the same hash")
	}
}

func TestListIsJSON(t *testing.T) {
	_, list := compile.Compile(&v1alpha1.OperatorDefinition{}, compile.Options{})
	var back []map[string]any
	if err := json.Unmarshal(list.JSON(), &back); err != nil || len(back) == 0 {
		t.Errorf("%v: %s", err, list.JSON())
	}
}
