package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/libretto-dev/libretto/internal/discovery"
	"github.com/libretto-dev/libretto/internal/schema"
)

// cluster is the cluster of the kubeconfig.
type cluster struct{ kubeconfig, context string }

func (c *cluster) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "`FILE` to reach the cluster with (default $KUBECONFIG, ~/.kube/config, or the pod's own)")
	cmd.Flags().StringVar(&c.context, "context", "", "`NAME` of the context in the kubeconfig")
	err := cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		raw, err := c.loader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := make([]string, 0, len(raw.Contexts))
		for name := range raw.Contexts {
			names = append(names, name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // the flag does not exist: a fault of the program that every test would see
		panic(err)
	}
}

func (c *cluster) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
}

// config returns how to reach the cluster.
func (c *cluster) config() (*rest.Config, error) {
	cfg, err := c.loader().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, fmt.Errorf("no cluster to talk to: there is no kubeconfig; set KUBECONFIG or --kubeconfig")
		}
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, 0 // the API server's own priority and fairness decides
	return cfg, nil
}

// catalog returns the kinds that the cluster serves.
func (c *cluster) catalog(ctx context.Context) (schema.Catalog, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	live, err := discovery.NewSource(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kinds of the cluster at %s: %w", cfg.Host, err)
	}
	return live.Catalog(ctx), nil
}
