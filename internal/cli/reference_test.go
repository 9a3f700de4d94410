package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// TestReference keeps docs/reference/cli.md what the commands say of themselves; `make generate` writes it.
func TestReference(t *testing.T) {
	var out strings.Builder
	out.WriteString("<!-- Made by \"make generate\" from the commands' own help. Do not edit. -->\n\n# Command line\n")
	root := newRoot()
	root.InitDefaultHelpCmd()
	describe(&out, root)
	golden.Check(t, "../../docs/reference/cli.md", []byte(out.String()))
}

// describe prints a command and then its sub-commands.
func describe(out *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(out, "\n## %s\n\n%s\n", cmd.CommandPath(), block(text))
	if cmd.Runnable() {
		fmt.Fprintf(out, "\n```\n%s\n```\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n\n```\n%s\n```\n", cmd.Example)
	}
	if flags := strings.TrimRight(cmd.NonInheritedFlags().FlagUsages(), "\n"); flags != "" {
		fmt.Fprintf(out, "\nFlags:\n\n```\n%s\n```\n", flags)
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			describe(out, sub)
		}
	}
}

// block fences paragraphs that are indented or tabular, so that Markdown keeps their lines.
func block(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if strings.Contains(p, "\n  ") || strings.HasPrefix(p, "  ") {
			paragraphs[i] = "```\n" + p + "\n```"
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
