package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// result is what a command did.
type result struct {
	out, err string
	code     int
}

// libretto runs a command line in the working directory of the test.
func libretto(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := Execute(t.Context(), args, strings.NewReader(stdin), &out, &errOut)
	return result{out: out.String(), err: errOut.String(), code: code}
}

// String prints a result as golden files hold it.
func (r result) String() string {
	return fmt.Sprintf("--- exit code %d\n--- standard output\n%s--- standard error\n%s", r.code, r.out, r.err)
}

// TestCommands runs commands on the files in testdata and compares all that they print, and their exit code.
func TestCommands(t *testing.T) {
	cases := []struct {
		name string
		args string
		code int
	}{
		{"validate", "validate webapp/definition.yaml", ExitOK},
		{"validate-json", "validate webapp/definition.yaml broken/definition.yaml -o json", ExitInvalid},
		{"validate-broken", "validate broken/definition.yaml", ExitInvalid},
		{"validate-some", "validate webapp broken pair", ExitInvalid},
		{"validate-pair", "validate pair/all.yaml", ExitOK},
		{"validate-twice", "validate webapp/definition.yaml webapp/../webapp/definition.yaml twice.yaml", ExitInvalid},
		{"validate-none", "validate webapp/other.yaml", ExitFailure},
		{"validate-missing", "validate nowhere.yaml", ExitFailure},
		{"validate-no-file", "validate", ExitUsage},
		{"render", "render webapp/definition.yaml webapp/instance.yaml", ExitOK},
		{"render-plain", "render webapp/definition.yaml webapp/hidden.yaml --plain", ExitOK},
		{"render-json", "render webapp/definition.yaml webapp/hidden.yaml -o json", ExitOK},
		{"render-observed", "render webapp/definition.yaml webapp/instance.yaml --external webapp/license.yaml --observed webapp/observed.yaml -o name", ExitOK},
		{"render-names", "render webapp/definition.yaml webapp/instance.yaml -o name -n team-b", ExitOK},
		{"render-invalid", "render webapp/definition.yaml webapp/invalid.yaml", ExitInvalid},
		{"render-rule", "render webapp/definition.yaml webapp/rule.yaml", ExitInvalid},
		{"render-other", "render webapp/definition.yaml webapp/other.yaml", ExitFailure},
		{"render-broken", "render broken/definition.yaml webapp/instance.yaml", ExitInvalid},
		{"render-which", "render pair/all.yaml webapp/instance.yaml", ExitUsage},
		{"render-misnamed", "render pair/all.yaml webapp/instance.yaml --definition outer.example.com", ExitFailure},
		{"rbac", "rbac webapp/definition.yaml", ExitOK},
		{"rbac-json", "rbac webapp/definition.yaml -o json", ExitOK},
		{"rbac-account", "rbac pair/all.yaml --definition inners.example.com --service-account a/b", ExitOK},
		{"rbac-no-account", "rbac pair/all.yaml --definition inners.example.com", ExitUsage},
		{"rbac-bad-account", "rbac webapp/definition.yaml --service-account b", ExitUsage},
		{"graph", "graph webapp/definition.yaml", ExitOK},
		{"graph-mermaid", "graph webapp/definition.yaml -o mermaid", ExitOK},
		{"graph-dot", "graph webapp/definition.yaml -o dot", ExitOK},
		{"graph-svg", "graph webapp/definition.yaml -o svg", ExitOK},
		{"graph-png", "graph webapp/definition.yaml -o png", ExitUsage},
		{"schema", "schema", ExitOK},
		{"init-usage", "init", ExitUsage},
		{"init-field", "init Shop --field replicas", ExitUsage},
		{"init-kind", "init shop", ExitFailure},
		{"init-flatten", "init Shop --flatten", ExitUsage},
		{"run-timeout", "run webapp/definition.yaml --timeout 1s", ExitUsage},
		{"run-no-cluster", "run webapp/definition.yaml --kubeconfig nowhere", ExitFailure},
		{"test", "test tests/passes.yaml -q", ExitOK},
		{"test-fails", "test tests", ExitFailure},
		{"test-json", "test tests -o json --run refused|fails", ExitFailure},
		{"test-run", "test tests --run ingress", ExitFailure},
		{"test-regex", "test tests --run (", ExitUsage},
		{"test-none", "test webapp", ExitFailure},
		{"test-invalid", "test tests/broken.yml.txt", ExitInvalid},
		{"test-lost", "test tests/lost.yml.txt", ExitFailure},
		{"operation-no-cluster", "operation list --kubeconfig nowhere", ExitFailure},
		{"operation-timeout", "operation start shop/a backup --timeout 1s", ExitUsage},
		{"operation-instance", "operation start shop backup", ExitUsage},
		{"operation-output", "operation list -o table", ExitUsage},
		{"unknown", "valdiate x", ExitUsage},
		{"unknown-flag", "validate x --frce", ExitUsage},
		{"help", "--help", ExitOK},
		{"help-validate", "validate --help", ExitOK},
		{"help-render", "render --help", ExitOK},
		{"help-run", "run --help", ExitOK},
		{"help-init", "init --help", ExitOK},
		{"help-rbac", "rbac --help", ExitOK},
		{"help-test", "test --help", ExitOK},
		{"help-operation", "operation --help", ExitOK},
		{"help-start", "operation start --help", ExitOK},
		{"help-graph", "graph --help", ExitOK},
		{"complete", "__complete val", ExitOK},
		{"complete-files", "__complete validate ", ExitOK},
		{"complete-output", "__complete graph x -o ", ExitOK},
	}
	wants, err := filepath.Abs("testdata/want")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("testdata")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(c.args)
			if strings.HasSuffix(c.args, " ") {
				args = append(args, "")
			}
			got := libretto(t, "", args...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d\n%s", got.code, c.code, got)
			}
			golden.Check(t, filepath.Join(wants, c.name+".txt"), []byte("$ libretto "+c.args+"\n"+got.String()))
			if again := libretto(t, "", args...); again != got {
				t.Errorf("the same command printed something else the second time:\n%s", again)
			}
		})
	}
}

func TestStandardInput(t *testing.T) {
	data, err := os.ReadFile("testdata/webapp/definition.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	file := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Stdin, err = os.Open(file); err != nil {
		t.Fatal(err)
	}
	if got := libretto(t, "", "validate", "-"); got.code != ExitOK || !strings.Contains(got.out, "1 definition valid") {
		t.Error(got)
	}
}

// TestInit: what init writes is valid and renders, and nothing is overwritten.
func TestInit(t *testing.T) {
	cases := map[string]string{
		"bare":     "",
		"typical":  "--field replicas:integer=1 --field host:string --field image:string=nginx:1.29-alpine --field port:integer=8080",
		"optional": "--field replicas:integer --field host:string=a.example.com --field image:string --field port:integer --field debug:boolean --field ratio:number --field tags:list --field env:map",
		"required": "--field title:string,required --field size:string=small,enum=small|large --field count:integer,required,min=1,max=9 --field tags:list=a,b --field env:map=A=1 --field on:boolean=true --field ratio:number=0.5",
		"cluster":  "--cluster-scoped --field replicas:integer=3 --field host:string",
	}
	wants, err := filepath.Abs("testdata/want")
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			args := append([]string{"init", "Shop", "--group", "example.com"}, strings.Fields(flags)...)
			if got := libretto(t, "", args...); got.code != ExitOK {
				t.Fatal(got)
			}
			if got := libretto(t, "", "validate", "shop/definition.yaml"); got.code != ExitOK || got.err != "" {
				t.Error(got)
			}
			got := libretto(t, "", "render", "shop/definition.yaml", "shop/instance.yaml", "--plain")
			if got.code != ExitOK {
				t.Error(got)
			}
			golden.Check(t, filepath.Join(wants, "init-"+name+".txt"), []byte(got.String()))
			if got := libretto(t, "", args...); got.code != ExitFailure || !strings.Contains(got.err, "exists already") {
				t.Errorf("the second time: %s", got)
			}
		})
	}
}

// TestInitFrom: what init --from writes is valid, and renders to the objects that it was made of.
func TestInitFrom(t *testing.T) {
	source, err := filepath.Abs("../scaffold/testdata")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, dir, flags string
		objects          int
	}{
		{"base", "base", "", 4},
		{"base-flattened", "base", "--flatten", 4},
		{"overlay", "overlay/overlays/prod", "", 3},
		{"overlay-flattened", "overlay/overlays/prod", "--flatten", 3},
		{"manifests", "manifests", "", 8},
		{"loose", "loose", "", 3},
		{"cluster-scoped", "loose", "--cluster-scoped", 3},
		{"with a field", "manifests", "--field title:string,required", 8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			work := t.TempDir()
			if err := os.CopyFS(filepath.Join(work, "in"), os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(work)
			args := append([]string{"init", "Shop", "--group", "example.com", "--from", filepath.Join("in", c.dir)}, strings.Fields(c.flags)...)
			got := libretto(t, "", args...)
			if got.code != ExitOK || !strings.Contains(got.out, fmt.Sprintf("renders to the same %d objects", c.objects)) || strings.Contains(got.out, "differs") {
				t.Fatal(got)
			}
			if got := libretto(t, "", "validate", "shop/definition.yaml", "--crds", "shop"); got.code != ExitOK {
				t.Error(got)
			}
		})
	}
}

// TestJUnit: the report of a test that fails holds the failure.
func TestJUnit(t *testing.T) {
	t.Chdir("testdata")
	report := filepath.Join(t.TempDir(), "report.xml")
	if got := libretto(t, "", "test", "tests", "--junit", report); got.code != ExitFailure {
		t.Error(got)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<testsuites tests="3" failures="1"`, `<testsuite name="tests/fails.yaml" tests="1" failures="1"`, "spec.replicas: want 3, got 2"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in\n%s", want, data)
		}
	}
}

// TestErrorsGoToTheStandardError: nothing about a failure is on the standard output of a command that prints for programs.
func TestErrorsGoToTheStandardError(t *testing.T) {
	t.Chdir("testdata")
	for _, args := range [][]string{
		{"render", "broken/definition.yaml", "webapp/instance.yaml"},
		{"rbac", "broken/definition.yaml"},
		{"graph", "broken/definition.yaml", "-o", "svg"},
	} {
		got := libretto(t, "", args...)
		if got.out != "" || got.err == "" || got.code != ExitInvalid {
			t.Errorf("%v: %s", args, got)
		}
	}
}

// TestGoldenFilesAreUsed: no golden file is left behind by a case that is gone.
func TestGoldenFilesAreUsed(t *testing.T) {
	source, err := os.ReadFile("cli_test.go")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("testdata/want", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimSuffix(d.Name(), ".txt"), "init-")
		if err == nil && !d.IsDir() && !bytes.Contains(source, []byte(`"`+name+`"`)) && !bytes.Contains(source, []byte(`"init-`+name+`"`)) {
			t.Errorf("no test uses %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
