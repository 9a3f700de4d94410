package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocuments validates the definitions that documents show: whole ones as they are, parts of operations within a
// definition that has what they use.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	readmes, err := filepath.Glob("../../examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(append(files, readmes...), "../../README.md")
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "tutorial/operations.md") }) // TestTutorial
	validated := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range yamlBlocks(string(text)) {
			definition := complete(block)
			if definition == "" {
				continue
			}
			validated++
			path := filepath.Join(t.TempDir(), "definition.yaml")
			if err := os.WriteFile(path, []byte(definition), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Run(filepath.Base(file), func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("block %d of %s, completed:\n%s", i+1, file, definition)
					}
				}()
				libretto(t, "validate", path)
			})
		}
	}
	if validated < 8 {
		t.Errorf("%d definitions found in the documents, want some more", validated)
	}
}

// TestTutorial puts together what the tutorial on operations has its reader write, and validates it at each step.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("../../docs/tutorial/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlocks(string(text))
	if len(blocks) != 5 {
		t.Fatalf("the tutorial has %d blocks of YAML, want 5: this test has to follow it", len(blocks))
	}
	definition := blocks[0]
	path := filepath.Join(t.TempDir(), "definition.yaml")
	check := func(step string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(definition), 0o600); err != nil {
			t.Fatal(err)
		}
		libretto(t, "validate", path)
		t.Log("valid:", step)
	}
	insert := func(where, what string) {
		t.Helper()
		if !strings.Contains(definition, where) {
			t.Fatalf("the tutorial has nothing like %q", where)
		}
		definition = strings.Replace(definition, where, what, 1)
	}
	check("the kind")
	definition += blocks[1]
	check("an operation")
	insert("    description: Copies the board.\n", "    description: Copies the board.\n"+blocks[2])
	check("on a schedule")
	insert("  operations:\n", blocks[3]+"  operations:\n")
	definition += blocks[4]
	check("restore")
}

var fence = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

func yamlBlocks(text string) []string {
	var blocks []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// base is the definition in which parts are validated.
const base = `apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: notes.example.com}
spec:
  crd:
    group: example.com
    names: {kind: Notes, plural: notes}
    versions:
    - {name: v1, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  serviceAccount: {namespace: default, name: notes}
`

// earlier are steps that parts refer to.
const earlier = `    - name: dump
      job: {template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}}
    - name: request
      http: {url: "https://api.example.com"}
`

// complete makes a definition of a block: the block itself, or base with a part of an operation in it. Other YAML yields none.
func complete(block string) string {
	first, _, _ := strings.Cut(block, "\n")
	steps := earlier
	if strings.Contains(block, "name: request") {
		steps, _, _ = strings.Cut(earlier, "    - name: request\n")
	}
	switch {
	case strings.Contains(block, "\nkind: OperatorTest\n"): // internal/simulate reads these
		return ""
	case strings.HasPrefix(block, "apiVersion: libretto.dev/"):
		return block
	case strings.HasPrefix(first, "  operations:"):
		return base + block
	case strings.HasPrefix(first, "  - name:") && strings.Contains(block, "    steps:"):
		return base + "  operations:\n" + block
	case strings.HasPrefix(first, "    - name:"):
		return base + "  operations:\n  - name: shown\n    steps:\n" + steps + block
	case strings.HasPrefix(first, "    retain:"):
		return base + "  operations:\n  - name: shown\n" + block + "    steps:\n" + earlier
	case strings.HasPrefix(first, "      http:"):
		return base + "  operations:\n  - name: shown\n    steps:\n    - name: shown\n" + block
	}
	return ""
}
