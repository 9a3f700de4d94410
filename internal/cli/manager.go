package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/libretto-dev/libretto/internal/manager"
)

func newManager() *cobra.Command {
	opts := manager.DefaultOptions()
	var c cluster
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run in a cluster: serve the OperatorDefinitions of the API",
		Long: `Run the engine for the OperatorDefinitions in the cluster, with leader election, metrics, health probes and the
admission webhook. This is what the container image does.

` + exitCodes,
		Example: `  libretto manager --leader-elect
  libretto manager --kubeconfig ~/.kube/config --webhook off --metrics-bind-address 0`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Config, err = c.config(); err != nil {
				return err
			}
			if opts.Logger, err = logs.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			return manager.Run(cmd.Context(), opts)
		}),
	}
	opts.AddFlags(cmd.Flags())
	c.flags(cmd)
	logs.flags(cmd, "json")
	oneOf(cmd, "webhook", string(manager.WebhookAuto), string(manager.WebhookSelfSigned), string(manager.WebhookOff))
	return cmd
}

// logFlags say what is logged for developers.
type logFlags struct {
	format string
	level  int
}

func (l *logFlags) flags(cmd *cobra.Command, format string) {
	cmd.Flags().StringVar(&l.format, "log-format", format, "format of logs: json or text")
	cmd.Flags().IntVarP(&l.level, "v", "v", 0, "how much is logged: 0 what changed, 1 decisions, 4 each object")
	oneOf(cmd, "log-format", "json", "text")
}

// logger returns a logger that writes to w, and makes it that of the libraries.
func (l *logFlags) logger(w io.Writer) (logr.Logger, error) {
	if l.format != "json" && l.format != "text" {
		return logr.Discard(), usagef("--log-format %q: json or text", l.format)
	}
	if l.level < 0 || l.level > 10 {
		return logr.Discard(), usagef("--v %d: 0 to 10", l.level)
	}
	options := &slog.HandlerOptions{Level: slog.Level(-l.level)}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if l.format == "text" {
		handler = slog.NewTextHandler(w, options)
	}
	log := logr.FromSlogHandler(handler)
	useLogger(log)
	return log, nil
}

// useLogger gives the libraries their logger, so that nothing is written elsewhere.
func useLogger(log logr.Logger) {
	ctrl.SetLogger(log)
	klog.SetLogger(log)
}

// discardLogs silences the libraries: what concerns people is printed as text.
func discardLogs() logr.Logger {
	log := logr.Discard()
	useLogger(log)
	return log
}

// instanceName prints NAMESPACE/NAME or NAME.
func instanceName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}
