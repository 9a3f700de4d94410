package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/libretto-dev/libretto/hack/devcluster/cluster"
	"github.com/libretto-dev/libretto/hack/devcluster/image"
)

// exitCode is an error that is only an exit code: what is to be said has been said.
type exitCode int

func (e exitCode) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// dirVariable names the cluster for commands that are not given one; `run` sets it.
const dirVariable = "DEVCLUSTER_DIR"

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "A real Kubernetes on this machine, for tests, demos and measurements",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		upCommand(), runCommand(), downCommand(), statusCommand(), logsCommand(), kubectlCommand(),
		stopCommand(), startCommand(), restartCommand(), restartAPIServerCommand(),
		loadImageCommand(), makeImageCommand(), nodeInitCommand(), watchOwnerCommand(),
	)
	return root
}

// upFlags are the flags of the two commands that bring a cluster up.
func upFlags(cmd *cobra.Command, opts *cluster.Options) {
	f := cmd.Flags()
	f.StringVar(&opts.Dir, "dir", "", "directory of the cluster, absent or empty or that of an earlier up (default: a new one in the system's temporary directory)")
	f.BoolVar(&opts.Node, "node", false, "add a node that runs pods (needs root, and the packages of install-node-deps.sh)")
	f.DurationVar(&opts.Timeout, "timeout", 2*time.Minute, "give up after this time")
	f.StringArrayVar(&opts.APIServerArgs, "apiserver-arg", nil, "argument added to kube-apiserver, as --apiserver-arg=--feature-gates=X=true (repeatable)")
	f.StringArrayVar(&opts.ControllerManagerArgs, "controller-manager-arg", nil, "argument added to kube-controller-manager (repeatable)")
	f.StringVar(&opts.AuditLog, "audit-log", "", "file to which the API server writes one line for each request")
}

func newDir() (string, error) { return os.MkdirTemp("", "devcluster-") }

// dropUnused removes a directory that newDir made, if Up failed before there was a cluster, with logs, in it.
func dropUnused(dir string) {
	if _, err := cluster.Open(dir); errors.Is(err, os.ErrNotExist) {
		_ = os.RemoveAll(dir)
	}
}

func upCommand() *cobra.Command {
	var opts cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a cluster up in the background; what runs already is left alone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made := opts.Dir == ""
			if made {
				var err error
				if opts.Dir, err = newDir(); err != nil {
					return err
				}
			}
			opts.Out = os.Stderr
			c, err := cluster.Up(cmd.Context(), opts)
			if err != nil {
				if made {
					dropUnused(opts.Dir)
				}
				return err
			}
			fmt.Printf("export KUBECONFIG=%s\nexport %s=%s\n", c.Kubeconfig(), dirVariable, c.Dir)
			return nil
		},
	}
	upFlags(cmd, &opts)
	cmd.Flags().IntVar(&opts.Owner, "wait-parent", 0, "end and remove the cluster when the process with this number ends")
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a cluster's processes and remove its directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := needDir(dir)
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				fmt.Fprintf(os.Stderr, "%s does not exist; nothing to do\n", dir)
				return nil
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			return cluster.Down(ctx, dir, keep, os.Stderr)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the directory; `up` continues with the same data")
	return cmd
}

func statusCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a cluster; the exit code is 1 if anything does not work",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(dir)
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "json":
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				err = e.Encode(status)
			case "":
				err = printStatus(status)
			default:
				return fmt.Errorf("unknown output %q; the only one is json", output)
			}
			if err == nil && !status.Healthy {
				return exitCode(1)
			}
			return err
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	return cmd
}

func printStatus(s cluster.Status) error {
	fmt.Printf("directory   %s\nserver      %s\nkubeconfig  %s\n\n", s.Dir, s.Server, s.Kubeconfig)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tPROCESS\tSTATE")
	for _, comp := range s.Components {
		state := "healthy"
		if !comp.Healthy {
			state = comp.Problem
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", comp.Name, comp.PID, state)
	}
	return w.Flush()
}

// component builds the commands that take the name of one component.
func componentCommand(use, short string, run func(context.Context, *cluster.Cluster, string) error) *cobra.Command {
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   use + " COMPONENT",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(dir)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return run(ctx, c, args[0])
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "give up after this time")
	return cmd
}

func stopCommand() *cobra.Command {
	var sig string
	cmd := componentCommand("stop", "End one component, and leave the others running", func(ctx context.Context, c *cluster.Cluster, name string) error {
		s, err := signalNamed(sig)
		if err != nil {
			return err
		}
		return c.StopComponent(ctx, name, s)
	})
	cmd.Flags().StringVar(&sig, "signal", "TERM", "signal to send; after 30s it is KILL")
	return cmd
}

func startCommand() *cobra.Command {
	return componentCommand("start", "Start one component, unless it runs, and wait until it serves",
		func(ctx context.Context, c *cluster.Cluster, name string) error { return c.StartComponent(ctx, name) })
}

func restartCommand() *cobra.Command {
	var sig string
	var pause time.Duration
	cmd := componentCommand("restart", "End one component, start it again, and wait until it serves", func(ctx context.Context, c *cluster.Cluster, name string) error {
		s, err := signalNamed(sig)
		if err != nil {
			return err
		}
		return c.RestartComponent(ctx, name, s, pause)
	})
	restartFlags(cmd, &sig, &pause)
	return cmd
}

func restartAPIServerCommand() *cobra.Command {
	cmd := restartCommand()
	inner := cmd.RunE
	cmd.Use, cmd.Short, cmd.Args = "restart-apiserver", "Kill the API server, start it again, and wait until it serves", cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return inner(cmd, []string{"kube-apiserver"}) }
	return cmd
}

func restartFlags(cmd *cobra.Command, sig *string, pause *time.Duration) {
	cmd.Flags().StringVar(sig, "signal", "KILL", "signal to send; after 30s it is KILL")
	cmd.Flags().DurationVar(pause, "pause", 0, "time between the end and the start")
}

func signalNamed(name string) (syscall.Signal, error) {
	if s := unix.SignalNum("SIG" + name); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("unknown signal %q; name it like TERM or KILL", name)
}

func loadImageCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "load-image ARCHIVE...",
		Short: "Give image archives to the node, so that pods can use them without a registry",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(dir)
			if err != nil {
				return err
			}
			return c.LoadImages(cmd.Context(), args...)
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func makeImageCommand() *cobra.Command {
	var spec image.Spec
	var out string
	cmd := &cobra.Command{
		Use:   "make-image --name NAME:TAG --root DIR --out ARCHIVE",
		Short: "Make an image archive of a directory",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return image.WriteFile(out, spec) },
	}
	f := cmd.Flags()
	f.StringVar(&spec.Name, "name", "", "name of the image with its tag, as localhost/tool:1")
	f.StringVar(&spec.Root, "root", "", "directory that becomes the image's root")
	f.StringVar(&out, "out", "", "archive to write")
	f.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "program that the container runs, then its fixed arguments (repeatable)")
	f.StringArrayVar(&spec.Cmd, "cmd", nil, "default arguments (repeatable)")
	f.StringArrayVar(&spec.Env, "env", nil, "environment variable, as NAME=VALUE (repeatable)")
	f.StringVar(&spec.User, "user", "", "user that the container runs as, as 65532 or 65532:65532")
	f.StringVar(&spec.WorkingDir, "workdir", "", "working directory of the container")
	f.StringVar(&spec.Architecture, "arch", "", "architecture of the programs inside (default: this machine's)")
	for _, name := range []string{"name", "root", "out"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is three lines up
		}
	}
	return cmd
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory of the cluster (default: $"+dirVariable+")")
}

func needDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(dirVariable)
	}
	if dir == "" {
		return "", fmt.Errorf("which cluster? give its directory with --dir, or in %s", dirVariable)
	}
	return filepath.Abs(dir)
}

func open(dir string) (*cluster.Cluster, error) {
	dir, err := needDir(dir)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Open(dir)
	if err != nil {
		return nil, err
	}
	c.ReportTo(os.Stderr)
	return c, nil
}

func nodeInitCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: cluster.NodeInitCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cluster.NodeInit(dir) },
	}
	dirFlag(cmd, &dir)
	return cmd
}

func watchOwnerCommand() *cobra.Command {
	var dir string
	var pid int
	var startTime uint64
	cmd := &cobra.Command{
		Use: cluster.WatchCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cluster.WatchOwner(dir, pid, startTime) },
	}
	dirFlag(cmd, &dir)
	cmd.Flags().IntVar(&pid, "pid", 0, "process to wait for")
	cmd.Flags().Uint64Var(&startTime, "start-time", 0, "its start time")
	return cmd
}
