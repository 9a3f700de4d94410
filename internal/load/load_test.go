package load_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/load"
)

const good = `apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: a}
spec:
  target: {apiVersion: v1, kind: Namespace}
  resources:
  - name: config
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "x-${self.metadata.name}"
        labels: {app.kubernetes.io/name: z}
      data:
        script: |
          one
            ${two} three
        folded: >
          a
          b ${c}
`

func TestParse(t *testing.T) {
	docs, extras, list := load.Parse("a.yaml", []byte("# only a comment\n---\n"+good+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n"))
	if len(docs) != 1 || len(extras) != 1 || len(list) != 0 {
		t.Fatalf("%d definitions, %d others\n%s", len(docs), len(extras), list)
	}
	d := docs[0].Definition
	if d.Name != "a" || d.Spec.WhenInstancesExist != "Block" || *d.Spec.RevisionHistoryLimit != 10 || d.Spec.Resources[0].Adoption != "Never" {
		t.Errorf("defaults are not set: %+v", d.Spec)
	}
	if extras[0].Object.GetKind() != "ConfigMap" || extras[0].Line != 24 {
		t.Errorf("extra in line %d: %v", extras[0].Line, extras[0].Object)
	}
}

func TestPositions(t *testing.T) {
	docs, _, list := load.Parse("a.yaml", []byte(good))
	if len(docs) != 1 {
		t.Fatal(list)
	}
	const template = "spec.resources[0].template"
	for _, tc := range []struct {
		path         string
		offset       int
		line, column int
	}{
		{"spec.target", 0, 5, 3},
		{"spec.target.kind", 0, 5, 34},
		{"spec.target.selector", 0, 5, 3},
		{"spec.resources[0]", 0, 7, 5},
		{template + ".metadata.name", 0, 12, 15},
		{template + ".metadata.name", 4, 12, 20},
		{template + `.metadata.labels["app.kubernetes.io/name"]`, 0, 13, 42},
		{template + ".metadata.labels[app.kubernetes.io/name]", 0, 13, 42},
		{template + ".data.script", 8, 17, 15},
		{template + ".data.folded", 5, 18, 17},
		{"nowhere", 0, 1, 1},
		{"", 0, 1, 1},
	} {
		at := docs[0].Positions.Of(tc.path, tc.offset)
		if at.Line != tc.line || at.Column != tc.column {
			t.Errorf("%s, %d: line %d, column %d, want %d, %d", tc.path, tc.offset, at.Line, at.Column, tc.line, tc.column)
		}
	}
}

func TestValuesAreThoseOfTheAPIServer(t *testing.T) {
	for _, text := range []string{
		good,
		"a: &x {b: 1, c: [true, ~, null, 1.5, 1e3, 0x10, 0o14, 010, -3]}\nd: *x\ne: {<<: *x, b: 2}\n",
		"a: [yes, No, on, off, y, n, 'yes', True]\noff: 1\nyes: 2\n1: x\n",
		"a: 2020-01-02\nb: 2020-01-02T03:04:05Z\nc: 12:30\nd: 1_000\ne: !!str 5\n",
		"a: >-\n  x\n  y\nb: |+\n  z\n\n",
		"{\"a\": [1, {\"b\": \"c\"}]}",
		"a: 9223372036854775807\nb: 18446744073709551615\n",
	} {
		values, list := load.Values(text)
		if len(values) != 1 || list.HasErrors() {
			t.Errorf("%q: %s", text, list)
			continue
		}
		want, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(values[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		var w, g any
		_ = json.Unmarshal(want, &w)
		_ = json.Unmarshal(got, &g)
		if diff := cmp.Diff(w, g); diff != "" {
			t.Errorf("%q (-kubectl +load):\n%s", text, diff)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a/definition.yaml", strings.Split(good, "    template:")[0]+"    kustomization: {path: base}\n")
	write("a/base/kustomization.yaml", "resources: [x.yaml]\n")
	x := write("a/base/x.yaml", "apiVersion: v1\nkind: ConfigMap\n")
	write("a/notes.txt", "not read")
	write("b/other.yml", "apiVersion: v1\nkind: ConfigMap\n")

	docs, extras, list := load.Load(dir)
	if len(docs) != 1 || len(extras) != 1 || len(list) != 0 {
		t.Fatalf("%d definitions, %d others\n%s", len(docs), len(extras), list)
	}
	k := docs[0].Definition.Spec.Resources[0].Kustomization
	if k.Path != "" || len(k.Files) != 2 {
		t.Errorf("not inlined: %+v", k)
	}
	located := docs[0].Locate(diag.List{{Path: `spec.resources[0].kustomization.files["x.yaml"]`, Offset: 16, Message: "here"}})
	if located[0].File != x || located[0].Line != 2 || located[0].Column != 2 {
		t.Errorf("%+v", located[0])
	}

	if _, _, list := load.Load(filepath.Join(dir, "missing.yaml")); !list.HasErrors() {
		t.Error("a missing file is no error")
	}
	if _, _, list := load.Load(filepath.Join(dir, "a/base")); list.HasErrors() {
		t.Error(list)
	}
	if _, _, list := load.Load(dir, filepath.Join(dir, "a")); !strings.Contains(list.String(), "another definition") {
		t.Errorf("the same name twice: %s", list)
	}
}

// TestRules checks one document per rule of the API server: each is refused offline, in its words.
func TestRules(t *testing.T) {
	const head = "apiVersion: libretto.dev/v1alpha1\nkind: OperatorDefinition\nmetadata: {name: a}\nspec:\n"
	const target = "  target: {apiVersion: v1, kind: Namespace}\n"
	for _, tc := range []struct{ name, text, want string }{
		{"neither", "  resources: []\n", "exactly one of spec.crd"},
		{"status without manage", target + "  status: {fields: {a: b}}\n", "spec.status needs target.manage"},
		{"two storage versions", "  crd: {group: a.b, names: {kind: A}, versions: [{name: v1, storage: true}, {name: v2, storage: true}]}\n", "exactly one of several versions"},
		{"reserved group", "  crd: {group: a.k8s.io, names: {kind: A}, versions: [{name: v1}]}\n", "group must be a domain"},
		{"no versions", "  crd: {group: a.b, names: {kind: A}, versions: []}\n", "should have at least 1 items"},
		{"names and selector", target + "  namespaces: {names: [a], selector: {}}\n", "exactly one of namespaces.names"},
		{"reserved name", target + "  variables: [{name: self, value: '1'}]\n", "choose another"},
		{"twice the same name", target + "  variables: [{name: a, value: '1'}, {name: a, value: '2'}]\n", "twice"},
		{"ref and selector", target + "  external: [{name: a, apiVersion: v1, kind: Secret}]\n", "exactly one of ref"},
		{"createOnce and updatePolicy", target + "  resources: [{name: a, template: {}, createOnce: true, updatePolicy: Fail}]\n", "updatePolicy has no effect"},
		{"path and files", target + "  resources: [{name: a, kustomization: {}}]\n", "exactly one of path"},
		{"reserved condition", "  crd: {group: a.b, names: {kind: A}, versions: [{name: v1}]}\n  status: {conditions: [{type: Ready, status: 'true'}]}\n", "written by Libretto"},
		{"too many", target + "  revisionHistoryLimit: 1000\n", "less than or equal to 100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, list := load.Parse("a.yaml", []byte(head+tc.text))
			if !strings.Contains(list.String(), tc.want) || list[0].Line == 0 {
				t.Errorf("want %q, got\n%s", tc.want, list)
			}
		})
	}
}

func TestDocumentsThatExpand(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		bomb += strings.ReplaceAll("aN: &aN [*aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM]\n", "N", string(rune('0'+i)))
		bomb = strings.ReplaceAll(bomb, "aM", "a"+string(rune('0'+i-1)))
	}
	for _, text := range []string{bomb, "a: &x [*x]\n", strings.Repeat("[", 5000), strings.Repeat("a: {", 500), good + strings.Repeat("  x: 1\n", 5000)} {
		_, _, list := load.Parse("a.yaml", []byte(text))
		if !list.HasErrors() || len(list) > 200 {
			t.Errorf("%d diagnostics", len(list))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]"))
	f.Add([]byte("%YAML 1.1\n--- # x\n? [a]\n: b\n<<: {c: d}\n...\n---\n\t"))
	broken, _ := filepath.Glob("../compile/testdata/broken/*.yaml")
	for _, file := range broken {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, _, list := load.Parse("a.yaml", data)
		_ = list.String()
		for _, d := range list {
			if d.Line < 1 || d.Message == "" {
				t.Errorf("a diagnostic without place or message: %+v", d)
			}
		}
		for _, d := range docs {
			d.Locate(diag.List{{Path: "spec.resources[3].template", Offset: 7}})
		}
	})
}
