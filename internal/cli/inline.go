package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/load"
)

func newInline() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inline FILE|DIR…",
		Short: "Print definitions as they go to a cluster, with the files of their kustomize bases in them",
		Long: `Print definitions as a cluster can take them: where a kustomization names a directory beside the definition (path), its
files are put into the definition (files). Definitions without such a path are printed as they are, with defaults.

` + exitCodes,
		Example: `  libretto inline definition.yaml | kubectl apply --server-side -f -`,
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: yamlFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			docs, _, problems := load.Load(args...)
			if err := problems.Err(); err != nil {
				return &codeError{code: ExitInvalid, err: err}
			}
			for _, doc := range docs {
				data, err := yaml.Marshal(doc.Definition)
				if err != nil {
					return fmt.Errorf("cannot print %s: %w", doc.Definition.Name, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", data)
			}
			return nil
		}),
	}
	return cmd
}
