package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/version"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  libretto version\n  libretto version -o json",
		Args:    cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			v := version.Get()
			if output != formatText {
				return printValue(cmd.OutOrStdout(), output, v)
			}
			text := "libretto " + v.Version
			if v.Commit != "" {
				text += fmt.Sprintf(" (commit %.12s)", v.Commit)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, %s, %s\n", text, v.Go, v.Platform)
			return err
		}),
	}
	outputFlag(cmd, &output, "text", formatJSON, formatYAML)
	return cmd
}
