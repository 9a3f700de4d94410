package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/simulate"
)

type testOptions struct {
	source
	filter string
	junit  string
	output string
	quiet  bool
}

func newTest() *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test FILE|DIR…",
		Short: "Run tests of definitions, without a cluster",
		Long: `Run tests of definitions: YAML documents of the kind OperatorTest, which say what there is, what happens and what is
expected. In directories, all files .yaml and .yml are looked at.

No cluster is needed and nothing is waited for: objects are kept in memory, the clock is moved by the test, and commands,
requests and Jobs get the answers that the test gives. What is tested is what runs in a cluster: the same compiler, the same
triggers and the same state machine. The format is described in docs/reference/test.md.

` + exitCodes,
		Example: `  libretto test .
  libretto test operators/ --run 'backup|restore' --junit report.xml
  libretto test shop/test.yaml -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE:              action(o.run),
	}
	outputFlag(cmd, &o.output, "text", formatJSON, formatYAML)
	cmd.Flags().StringVar(&o.filter, "run", "", "run tests alone whose name matches the `REGEX`")
	cmd.Flags().StringVar(&o.junit, "junit", "", "write the results as JUnit XML to `FILE`, too")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing about tests that pass")
	o.flags(cmd, false)
	return cmd
}

func (o *testOptions) run(cmd *cobra.Command, paths []string) error {
	filter, err := regexp.Compile(o.filter)
	if err != nil {
		return usagef("--run %q is no regular expression: %v", o.filter, err)
	}
	tests, list, err := readTests(paths)
	if err != nil {
		return err
	}
	fmt.Fprint(cmd.ErrOrStderr(), list.String())
	if list.HasErrors() {
		return invalid()
	}
	if len(tests) == 0 {
		return fmt.Errorf("%s: no %s (apiVersion libretto.dev/v1alpha1) found", strings.Join(paths, ", "), simulate.Kind)
	}
	d := &testDefinitions{source: &o.source, cmd: cmd, known: map[string]*compiled{}}
	results := []*simulate.Result{}
	for _, t := range tests {
		if !filter.MatchString(t.Name) {
			continue
		}
		definition, err := d.of(t)
		if err != nil {
			return err
		}
		start := time.Now()
		r := simulate.Run(cmd.Context(), t, definition.Program)
		r.Elapsed = time.Since(start)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("--run %s matches none of %s", o.filter, count(len(tests), "test"))
	}
	return o.report(cmd, results)
}

// readTests reads the tests in files and directories.
func readTests(paths []string) ([]*simulate.Test, diag.List, error) {
	var tests []*simulate.Test
	var list diag.List
	for _, path := range paths {
		files, err := testFiles(path)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			if file != path && !strings.Contains(string(data), simulate.Kind) {
				continue // of a directory, what holds no test is none of ours
			}
			found, faults := simulate.Parse(file, data)
			tests, list = append(tests, found...), append(list, faults...)
		}
	}
	return tests, list, nil
}

func testFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch ext := filepath.Ext(name); {
		case err != nil:
			return err
		case entry.IsDir() && name != path && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.Type().IsRegular() && (ext == ".yaml" || ext == ".yml"):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// testDefinitions compiles the definitions of tests, each once.
type testDefinitions struct {
	*source
	cmd   *cobra.Command
	known map[string]*compiled
}

func (d *testDefinitions) of(t *simulate.Test) (*compiled, error) {
	path, err := definitionOf(t)
	if err != nil {
		return nil, err
	}
	own := source{crds: append([]string(nil), d.crds...), name: t.DefinitionName}
	for _, crd := range t.CRDs {
		own.crds = append(own.crds, beside(t.File, crd))
	}
	key := strings.Join(append([]string{path, own.name}, own.crds...), "\x00")
	if c := d.known[key]; c != nil {
		return c, nil
	}
	c, err := own.one(d.cmd, path)
	var coded *codeError
	if err != nil && !errors.As(err, &coded) {
		err = fmt.Errorf("%s:%d: %w", t.File, t.Line, err)
	}
	if err == nil {
		d.known[key] = c
	}
	return c, err
}

// definitionOf finds the file of the definition that a test is about.
func definitionOf(t *simulate.Test) (string, error) {
	dir := filepath.Dir(t.File)
	if t.Definition != "" {
		path := beside(t.File, t.Definition)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s:%d: the definition: %w", t.File, t.Line, err)
		}
		return path, nil
	}
	for at := dir; ; at = filepath.Join(at, "..") {
		path := filepath.Join(at, "definition.yaml")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		abs, err := filepath.Abs(at)
		if err != nil || filepath.Dir(abs) == abs {
			return "", fmt.Errorf("%s:%d: there is no definition.yaml beside the test or above; say where it is: definition: FILE", t.File, t.Line)
		}
	}
}

// beside is a path that a file names, relative to itself.
func beside(file, path string) string {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// testReport is the result for programs.
type testReport struct {
	Tests  []*simulate.Result `json:"tests"`
	Passed int                `json:"passed"`
	Failed int                `json:"failed"`
}

func (o *testOptions) report(cmd *cobra.Command, results []*simulate.Result) error {
	report := testReport{Tests: results}
	for _, r := range results {
		if r.Passed {
			report.Passed++
		} else {
			report.Failed++
		}
	}
	if o.junit != "" {
		data, err := simulate.JUnit(results)
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.junit, data, 0o644); err != nil { //nolint:gosec // a report, for others to read
			return fmt.Errorf("cannot write the JUnit report: %w", err)
		}
	}
	if o.output != formatText {
		if err := printValue(cmd.OutOrStdout(), o.output, report); err != nil {
			return err
		}
	} else {
		report.print(cmd.OutOrStdout(), o.quiet)
	}
	if report.Failed > 0 {
		return &codeError{code: ExitFailure}
	}
	return nil
}

// print writes a line for each test, and below those that fail what is wrong.
func (r *testReport) print(out io.Writer, quiet bool) {
	p := newPainter(out)
	width := 0
	for _, t := range r.Tests {
		width = max(width, len([]rune(t.Name)))
	}
	for _, t := range r.Tests {
		if quiet && t.Passed {
			continue
		}
		mark := p.paint(green, "✓")
		text := count(t.Steps, "step")
		if t.Span != "" {
			text += ", " + t.Span
		}
		if !t.Passed {
			mark = p.paint(red, "✗")
		}
		fmt.Fprintf(out, "%s %s%s  %-24s  %s\n", mark, t.Name, strings.Repeat(" ", width-len([]rune(t.Name))), text,
			p.paint(dim, fmt.Sprintf("%s:%d", t.File, t.Line)))
		for _, f := range t.Failures {
			fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(f.String(), "\n", "\n    "))
		}
	}
	switch {
	case r.Failed == 0:
		fmt.Fprintf(out, "%s passed\n", count(r.Passed, "test"))
	default:
		fmt.Fprintf(out, "%s, %d failed\n", count(len(r.Tests), "test"), r.Failed)
	}
}
