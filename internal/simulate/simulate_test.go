package simulate_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
	"github.com/libretto-dev/libretto/internal/simulate"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// compiled compiles the definition in a file.
func compiled(t *testing.T, path string) *program.Program {
	t.Helper()
	docs, _, faults := load.Load(path)
	if faults.HasErrors() || len(docs) != 1 {
		t.Fatalf("%s: %d definitions\n%s", path, len(docs), faults)
	}
	p, list := compile.Compile(docs[0].Definition, compile.Options{Catalog: schema.Embedded()})
	if list.HasErrors() {
		t.Fatal(docs[0].Locate(list))
	}
	return p
}

// tests reads the tests in a file.
func tests(t *testing.T, path string) []*simulate.Test {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, list := simulate.Parse(path, data)
	if len(list) > 0 {
		t.Fatal(list)
	}
	return found
}

// TestExamples: the tests of the examples pass.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			p := compiled(t, filepath.Join(filepath.Dir(file), "definition.yaml"))
			for _, test := range tests(t, file) {
				t.Run(test.Name, func(t *testing.T) {
					for _, f := range simulate.Run(t.Context(), test, p).Failures {
						t.Error(f)
					}
				})
			}
		})
	}
}

// TestOutcomes runs tests that pass and tests that fail, and compares all that is said, twice: the same test yields the same result.
func TestOutcomes(t *testing.T) {
	for _, name := range []string{"resources", "operations"} {
		t.Run(name, func(t *testing.T) {
			p := compiled(t, filepath.Join("testdata", name+"-definition.yaml"))
			var out [2]strings.Builder
			var results []*simulate.Result
			for i := range out {
				results = nil
				for _, test := range tests(t, filepath.Join("testdata", name+"-test.yaml")) {
					r := simulate.Run(t.Context(), test, p)
					results = append(results, r)
					verdict := "passed"
					if !r.Passed {
						verdict = "failed"
					}
					if want := !strings.HasPrefix(r.Name, "fails"); r.Passed != want {
						t.Errorf("%s: %s", r.Name, verdict)
					}
					out[i].WriteString(r.Name + ": " + verdict + " " + r.Span + "\n")
					for _, f := range r.Failures {
						out[i].WriteString(f.String() + "\n")
					}
				}
			}
			if out[0].String() != out[1].String() {
				t.Errorf("the second time:\n%s", out[1].String())
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), []byte(out[0].String()))
			data, err := simulate.JUnit(results)
			if err != nil {
				t.Fatal(err)
			}
			var suites struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
			}
			if err := xml.Unmarshal(data, &suites); err != nil || suites.Tests != len(results) || suites.Failures == 0 {
				t.Errorf("%v\n%s", err, data)
			}
		})
	}
}

// TestDocuments: the tests that documents show can be read.
func TestDocuments(t *testing.T) {
	for _, path := range []string{"../../docs/reference/test.md", "../../docs/how-to/test-a-definition.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
			if found, list := simulate.Parse(path, []byte(block[1])); len(found) != 1 || len(list) > 0 {
				t.Errorf("%s: %d tests\n%s", path, len(found), list)
			}
		}
	}
}

// TestParse: what is wrong with a test is said with its place.
func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/broken-test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found, list := simulate.Parse("broken-test.yaml", data)
	if len(found) > 0 {
		t.Errorf("%d tests are taken as valid", len(found))
	}
	golden.Check(t, "testdata/broken.golden", []byte(list.String()))
}
