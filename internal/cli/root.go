package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/libretto-dev/libretto/internal/version"
)

// Exit codes of all commands.
const (
	// ExitOK: done.
	ExitOK = 0
	// ExitFailure: it could not be done; the message says why.
	ExitFailure = 1
	// ExitUsage: the command line is not right.
	ExitUsage = 2
	// ExitInvalid: a definition, or an instance, is not valid.
	ExitInvalid = 3
	// ExitInterrupted: a second interrupt ended the command at once.
	ExitInterrupted = 130
)

const exitCodes = `Exit codes:
  0    done
  1    it could not be done: the message says why
  2    the command line is not right
  3    a definition or an instance is not valid
  130  ended at once by a second interrupt`

// codeError is an error with an exit code. A nil err has been reported already.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// invalid ends a command whose diagnostics have been printed.
func invalid() error { return &codeError{code: ExitInvalid} }

// usagef is an error about the command line.
func usagef(format string, args ...any) error {
	return &codeError{code: ExitUsage, err: fmt.Errorf(format, args...)}
}

// Main runs the program and returns its exit code. The first interrupt ends a command in order, the second at once.
func Main() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(ExitInterrupted)
	}()
	return Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Execute runs a command line and returns its exit code.
func Execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot() //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var coded *codeError
	if !errors.As(err, &coded) { // of cobra's own making: flags, arguments, unknown commands
		coded = &codeError{code: ExitUsage, err: err}
	}
	if coded.err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), strings.TrimSpace(err.Error()))
	}
	if coded.code == ExitUsage {
		fmt.Fprintf(errOut, "see: %s --help\n", cmd.CommandPath())
	}
	return coded.code
}

// action is a command's work. Errors without a code of their own end it with ExitFailure.
func action(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(cmd, args)
		var coded *codeError
		if err == nil || errors.As(err, &coded) {
			return err
		}
		return &codeError{code: ExitFailure, err: err}
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "libretto",
		Short: "Kubernetes operators written as one YAML document",
		Long: `Libretto runs Kubernetes operators that are written as one YAML document, an OperatorDefinition:
a kind, the resources that an object of the kind stands for, what happens when, and what its status says.

  libretto init WebApp --group example.com --field replicas:integer=1   start one
  libretto validate definition.yaml                                     check it, without a cluster
  libretto render definition.yaml instance.yaml                         see what it makes
  libretto test .                                                       test what it does, without a cluster
  libretto run definition.yaml                                          be the operator, from here
  libretto operation start webapp/shop backup --wait                    run an operation of an instance

` + exitCodes,
		Version:           version.Get().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetVersionTemplate("libretto {{.Version}}\n")
	root.AddGroup(&cobra.Group{ID: "write", Title: "Write a definition:"}, &cobra.Group{ID: "run", Title: "Run it:"}, &cobra.Group{ID: "more", Title: "More:"})
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("write", newInit(), newValidate(), newRender(), newTest(), newGraph(), newSchema(), newInline())
	add("run", newRun(), newOperation(), newRBAC(), newManager(), newUninstall())
	add("more", newVersion())
	return root
}

// yamlFiles completes names of YAML files and directories.
func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// oneOf completes a flag with fixed words.
func oneOf(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // the flag does not exist: a fault of the program that every test would see
		panic(err)
	}
}
