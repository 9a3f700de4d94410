package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/manager"
)

// connectTimeout is how long the API server may take to answer the first request.
const connectTimeout = 10 * time.Second

type runOptions struct {
	source
	namespaces  []string
	impersonate bool
	once        bool
	timeout     time.Duration
	logs        logFlags
	verbose     bool
}

func newRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run FILE|DIR…",
		Short: "Be the operator, from here: definitions from files, the cluster of the kubeconfig",
		Long: `Run definitions from files against the cluster of the current kubeconfig. Nothing has to be installed in the cluster:
the CustomResourceDefinitions of the declared kinds are created or updated, and the engine runs in this process.

It acts as the user of the kubeconfig; with --impersonate as the ServiceAccount that the definition names, so that you
see what its rights allow. Files are watched: a definition that changed is compiled and takes over; one with errors is
reported, and the last good one stays at work. Ctrl-C ends it in order, a second Ctrl-C at once; instances and their
resources stay, and go on when it runs again.

` + exitCodes,
		Example: `  libretto run definition.yaml
  libretto run operators/ --namespace team-a --namespace team-b
  libretto run definition.yaml --impersonate
  libretto run definition.yaml --once --timeout 5m     # in CI: ends when all instances are ready, or one has failed`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE:              action(o.run),
	}
	o.flags(cmd, false)
	o.cluster.flags(cmd)
	cmd.Flags().StringSliceVarP(&o.namespaces, "namespace", "n", nil, "serve instances in this `NAMESPACE` alone; may be repeated (default: what the definitions say)")
	cmd.Flags().BoolVar(&o.impersonate, "impersonate", false, "act as the ServiceAccount that the definition names")
	cmd.Flags().BoolVar(&o.once, "once", false, "end when every instance is ready (exit code 0) or one has failed (1)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "with --once: how long to wait")
	cmd.Flags().BoolVar(&o.verbose, "logs", false, "print the logs for developers, too")
	o.logs.flags(cmd, "text")
	return cmd
}

func (o *runOptions) run(cmd *cobra.Command, paths []string) error {
	if cmd.Flags().Changed("timeout") && !o.once {
		return usagef("--timeout goes with --once")
	}
	log := discardLogs()
	if o.verbose {
		var err error
		if log, err = o.logs.logger(cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	console := newConsole(cmd.OutOrStdout(), cmd.ErrOrStderr())
	defer console.close()
	if err := o.connect(cmd.Context(), cfg, console); err != nil {
		return err
	}
	o.live = true // kinds that no file declares are those of the cluster
	set, err := o.compileAll(cmd, paths)
	if err != nil {
		return err
	}
	if err := refuseServed(cmd.Context(), cfg, set.definitions); err != nil {
		return err
	}
	opts := manager.DefaultOptions()
	opts.Config, opts.Logger = cfg, log
	opts.ActAsSelf = !o.impersonate
	opts.MetricsAddress, opts.HealthAddress, opts.Webhook, opts.LeaderElection = "0", "0", manager.WebhookOff, false
	opts.HTTPDeny = nil // it acts from the machine of the user, who may reach what it reaches
	opts.Observer, opts.Report = console.event, console.report
	s := &session{runOptions: o, cmd: cmd, paths: paths, options: opts, console: console}
	return s.serve(cmd.Context(), set)
}

// connect asks the API server for its version and says where it is.
func (o *runOptions) connect(ctx context.Context, cfg *rest.Config, console *console) error {
	probe := rest.CopyConfig(cfg)
	probe.Timeout = connectTimeout
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	info, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("cannot reach the cluster at %s: %w; check --context and that the cluster is up", cfg.Host, err)
	}
	name := ""
	if raw, err := o.cluster.loader().RawConfig(); err == nil {
		name = raw.CurrentContext
		if o.cluster.context != "" {
			name = o.cluster.context
		}
	}
	if name != "" {
		name = " (context " + name + ")"
	}
	console.line("cluster %s%s, Kubernetes %s", cfg.Host, name, info.GitVersion)
	return nil
}

// runSet is what is at work: definitions that compile.
type runSet struct {
	definitions []*v1alpha1.OperatorDefinition
	// print identifies the definitions: equal sets have equal prints.
	print string
	found *compilation
}

// compileAll compiles what is in the files and prints what is wrong; all or nothing.
func (o *runOptions) compileAll(cmd *cobra.Command, paths []string) (*runSet, error) {
	c, err := o.load(cmd.Context(), paths)
	if err != nil {
		return nil, err
	}
	report := c.report()
	if len(report.Diagnostics) > 0 {
		fmt.Fprint(cmd.ErrOrStderr(), report.Diagnostics.String())
	}
	if report.Diagnostics.HasErrors() {
		fmt.Fprintln(cmd.ErrOrStderr(), report.summary())
		return nil, invalid()
	}
	if len(c.Definitions) == 0 {
		return nil, fmt.Errorf("%s: no OperatorDefinition (apiVersion libretto.dev/v1alpha1) found", strings.Join(paths, ", "))
	}
	set := &runSet{found: c}
	for _, d := range c.Definitions {
		def := d.Definition.DeepCopy()
		if len(o.namespaces) > 0 {
			def.Spec.Namespaces = &v1alpha1.NamespaceScope{Names: o.namespaces}
		}
		if o.impersonate && def.Spec.ServiceAccount == nil {
			return nil, fmt.Errorf("--impersonate: definition %s names no serviceAccount", def.Name)
		}
		set.definitions = append(set.definitions, def)
		set.print += def.Name + "=" + d.Program.Hash + ";"
	}
	return set, nil
}

// refuseServed makes sure that no manager serves the same kinds: two engines would fight.
func refuseServed(ctx context.Context, cfg *rest.Config, definitions []*v1alpha1.OperatorDefinition) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	list, err := client.Resource(v1alpha1.GroupVersion.WithResource("operatordefinitions")).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsForbidden(err):
		return nil // Libretto is not installed, or is none of our business
	case err != nil:
		return fmt.Errorf("cannot look for OperatorDefinitions in the cluster: %w", err)
	}
	for i := range list.Items {
		for _, d := range definitions {
			if reason := clash(&list.Items[i], d); reason != "" {
				return fmt.Errorf("the cluster has OperatorDefinition %s, %s: delete it (kubectl delete opdef %s), or use another cluster",
					list.Items[i].GetName(), reason, list.Items[i].GetName())
			}
		}
	}
	return nil
}

func clash(served *unstructured.Unstructured, d *v1alpha1.OperatorDefinition) string {
	if served.GetName() == d.Name {
		return "which has the same name"
	}
	group, _, _ := unstructured.NestedString(served.Object, "spec", "crd", "group")
	kind, _, _ := unstructured.NestedString(served.Object, "spec", "crd", "names", "kind")
	if d.Spec.CRD != nil && group == d.Spec.CRD.Group && kind == d.Spec.CRD.Names.Kind {
		return "which serves the kind " + kind + "." + group
	}
	return ""
}

// session runs definitions and takes over changes of their files.
type session struct {
	*runOptions
	cmd     *cobra.Command
	paths   []string
	options manager.Options
	console *console
}

func (s *session) serve(ctx context.Context, set *runSet) error {
	changes, err := watchFiles(ctx, s.paths)
	if err != nil {
		s.console.line("files are not watched: %v", err)
	}
	var finished <-chan outcome
	if s.once {
		var names []string
		for _, d := range set.definitions {
			names = append(names, d.Name)
		}
		finished = s.console.settle(ctx, s.timeout, names)
	}
	for {
		next, err := s.serveOne(ctx, set, changes, finished)
		if next == nil || err != nil {
			return err
		}
		set = next
	}
}

// serveOne runs one set until a changed one that compiles takes over, or until the end: then the next set is nil.
func (s *session) serveOne(ctx context.Context, set *runSet, changes <-chan struct{}, finished <-chan outcome) (*runSet, error) {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	for _, d := range set.found.Definitions {
		s.console.line("%s: %s, acts as %s", d.Definition.Name, count(len(d.Definition.Spec.Resources), "resource"), s.actor(d.Definition))
	}
	opts := s.options
	opts.Definitions, opts.Catalog = set.definitions, set.found.Catalog
	done := make(chan error, 1)
	broken := false
	go func() { done <- manager.Run(runCtx, opts) }()
	for {
		select {
		case err := <-done:
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			if err == nil && ctx.Err() != nil {
				s.console.line("ended; instances and their resources stay as they are")
			}
			return nil, err
		case result := <-finished:
			stop()
			return nil, errors.Join(result.err(), <-done)
		case <-changes:
			next, err := s.compileAll(s.cmd, s.paths) //nolint:contextcheck // the context is the command's
			switch {
			case err != nil:
				if text := err.Error(); text != "" {
					s.console.line("%s", text)
				}
				s.console.line("the last good version stays at work")
				broken = true
			case next.print != set.print:
				s.console.line("files changed: taking over")
				stop()
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					return nil, err
				}
				return next, nil
			case broken:
				s.console.line("the files are right again, and say the same as before")
				broken = false
			}
		}
	}
}

// actor says as whom a definition acts.
func (s *session) actor(d *v1alpha1.OperatorDefinition) string {
	if s.impersonate && d.Spec.ServiceAccount != nil {
		return "ServiceAccount " + d.Spec.ServiceAccount.Namespace + "/" + d.Spec.ServiceAccount.Name
	}
	return "the user of the kubeconfig"
}
