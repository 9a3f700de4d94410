package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/graph"
)

func newGraph() *cobra.Command {
	var src source
	var output string
	cmd := &cobra.Command{
		Use:   "graph DEFINITION",
		Short: "Draw what a definition makes, and in which order",
		Long: `Draw the resources of a definition and what they wait for. Resources of one wave are made at the same time;
deletion goes the other way round.

` + exitCodes,
		Example: `  libretto graph definition.yaml
  libretto graph definition.yaml -o svg > graph.svg
  libretto graph definition.yaml -o mermaid`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			d, err := src.one(cmd, args[0])
			if err != nil {
				return err
			}
			g := graph.For(d.Program)
			text := map[string]func() string{formatText: g.Text, "mermaid": g.Mermaid, "dot": g.DOT, "svg": g.SVG}[output]
			_, err = fmt.Fprint(cmd.OutOrStdout(), text())
			return err
		}),
	}
	outputFlag(cmd, &output, "text", "mermaid", "dot", "svg")
	src.flags(cmd, true)
	src.nameFlag(cmd)
	return cmd
}
