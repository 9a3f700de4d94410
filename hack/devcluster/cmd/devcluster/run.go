package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/libretto-dev/libretto/hack/devcluster/cluster"
)

func runCommand() *cobra.Command {
	var opts cluster.Options
	var keep, quiet bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Bring a cluster up, run a command with it, and take it down whatever happens",
		Long: "Brings a cluster up, runs a command with KUBECONFIG, DEVCLUSTER_DIR and DEVCLUSTER_BIN (this program) set and\n" +
			"kubectl on its PATH, and removes the cluster afterwards. The exit code is the command's.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := exec.LookPath(args[0]); err != nil {
				return err
			}
			if opts.Dir == "" {
				var err error
				if opts.Dir, err = newDir(); err != nil {
					return err
				}
				defer dropUnused(opts.Dir)
			} else if _, err := cluster.Open(opts.Dir); err == nil && !keep {
				return fmt.Errorf("%s holds a cluster, which `run` would remove afterwards; use it with KUBECONFIG=%s, or give --keep, or another --dir", opts.Dir, filepath.Join(opts.Dir, "kubeconfig"))
			}
			opts.Out = os.Stderr
			if quiet {
				opts.Out = io.Discard
			}
			opts.Owner = os.Getpid()
			return runWithCluster(cmd.Context(), opts, keep, args)
		},
	}
	upFlags(cmd, &opts)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the directory")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors and what the command prints")
	return cmd
}

func runWithCluster(ctx context.Context, opts cluster.Options, keep bool, args []string) (err error) {
	// Signals are taken from before the first process is started, so that none of them ends this program and leaves a
	// cluster behind. Should it be killed all the same, the watcher that Up starts takes the cluster down.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	defer func() {
		downCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if downErr := cluster.Down(downCtx, opts.Dir, keep, opts.Out); downErr != nil && !errors.Is(downErr, os.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "devcluster: take the cluster down:", downErr)
			if err == nil {
				err = exitCode(1)
			}
		}
	}()

	type result struct {
		c   *cluster.Cluster
		err error
	}
	up := make(chan result, 1)
	go func() {
		c, err := cluster.Up(ctx, opts)
		up <- result{c, err}
	}()
	var r result
	select {
	case r = <-up:
	case s := <-signals:
		cancel()
		<-up
		return exitCode(128 + int(s.(syscall.Signal)))
	}
	if r.err != nil {
		keep = true // for the logs that the error names
		return r.err
	}
	return runChild(r.c, args, signals)
}

// runChild runs the command, passes signals on to it, and gives its exit code.
func runChild(c *cluster.Cluster, args []string, signals <-chan os.Signal) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(args[0], args[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig(), dirVariable+"="+c.Dir, "DEVCLUSTER_BIN="+self, "PATH="+c.Bin()+":"+os.Getenv("PATH"))
	// The command must not go on without its cluster when this program is killed. The signal is sent when the thread
	// that started it ends, hence the lock.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := child.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	// What is typed at a terminal goes to the whole group, so the command has it already.
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	var kill <-chan time.Time
	for {
		select {
		case err := <-done:
			return childExit(err)
		case s := <-signals:
			if !terminal || (s != syscall.SIGINT && s != syscall.SIGQUIT) {
				_ = child.Process.Signal(s)
			}
			if kill == nil {
				kill = time.After(30 * time.Second)
			}
		case <-kill:
			_ = child.Process.Kill()
		}
	}
}

func childExit(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitCode(128 + int(status.Signal()))
	}
	return exitCode(exit.ExitCode())
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [--dir DIR] [--] ARGUMENT...",
		Short:              "Run the kubectl of the cluster's own version, as its administrator",
		DisableFlagParsing: true, // all flags but one are kubectl's
		RunE: func(_ *cobra.Command, args []string) error {
			dir, args := takeDir(args)
			// Without a directory, a KUBECONFIG that `run` or the user has set is as good.
			if dir != "" || os.Getenv("KUBECONFIG") == "" {
				c, err := open(dir)
				if err != nil {
					return err
				}
				if err := os.Setenv("KUBECONFIG", c.Kubeconfig()); err != nil {
					return err
				}
			}
			os.Args = append([]string{"kubectl"}, args...)
			runKubectl()
			return nil
		},
	}
}

// takeDir takes a leading --dir and a leading -- off the arguments.
func takeDir(args []string) (dir string, rest []string) {
	if len(args) > 1 && args[0] == "--dir" {
		dir, args = args[1], args[2:]
	} else if len(args) > 0 && strings.HasPrefix(args[0], "--dir=") {
		dir, args = strings.TrimPrefix(args[0], "--dir="), args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return dir, args
}

func logsCommand() *cobra.Command {
	var dir string
	var lines int
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [COMPONENT]",
		Short: "Print a component's log, or which logs there are",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(dir)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listLogs(c.Dir)
			}
			return printLog(cmd.Context(), c.Log(args[0]), lines, follow)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().IntVarP(&lines, "lines", "n", 0, "print only this many lines from the end")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what is added")
	return cmd
}

func listLogs(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		fmt.Printf("%-26s %9d bytes  %s\n", strings.TrimSuffix(filepath.Base(f), ".log"), info.Size(), f)
	}
	return nil
}

func printLog(ctx context.Context, path string, lines int, follow bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no such log; `devcluster logs` without a name lists them: %w", err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := skipToLast(f, lines); err != nil {
		return err
	}
	for {
		if _, err := io.Copy(os.Stdout, f); err != nil {
			return err
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// skipToLast moves to the beginning of the last n lines; 0 means all of them.
func skipToLast(f *os.File, n int) error {
	if n <= 0 {
		return nil
	}
	var starts []int64
	var at int64
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if len(line) > 0 {
			starts = append(starts, at)
			at += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if len(starts) == 0 {
		return nil
	}
	_, err := f.Seek(starts[max(0, len(starts)-n)], io.SeekStart)
	return err
}
