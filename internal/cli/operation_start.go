package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/diag"
)

// cliManager is the field manager of what the command line writes.
const cliManager = "libretto-cli"

type startOptions struct {
	operationOptions
	params       []string
	file, name   string
	wait         bool
	timeout      time.Duration
	outputFormat string
}

func newOperationStart() *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start KIND/NAME OPERATION",
		Short: "Start an operation of an instance",
		Long: `Start an operation of an instance: make an operation object. Parameters are read as the schema of the operation says:
whole numbers, true or false, objects as JSON. A parameter that is a list may be repeated; a.b=c sets a field of an object.

The name of the run is printed. With --wait its steps are shown, and the exit code is 0 only if it succeeds. An interrupt
ends the waiting and not the run.

` + exitCodes,
		Example: `  libretto operation start board/team backup
  libretto operation start board/team restore -p copy=monday --wait --timeout 10m
  libretto operation start board/team restore --params-file restore.yaml --name restore-monday
  libretto operation start board/team backup -o name | xargs libretto operation describe`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: o.completeStart,
		RunE:              action(o.run),
	}
	cmd.Flags().StringArrayVarP(&o.params, "param", "p", nil, "parameter, as `KEY=VALUE`; may be repeated")
	cmd.Flags().StringVar(&o.file, "params-file", "", "YAML or JSON `FILE` with parameters, - for the standard input")
	cmd.Flags().StringVar(&o.name, "name", "", "`NAME` of the run (default: made of the instance's and the operation's)")
	waitFlags(cmd, &o.wait, &o.timeout)
	outputFlag(cmd, &o.outputFormat, "text", "name", formatJSON, formatYAML)
	o.flags(cmd)
	return cmd
}

func waitFlags(cmd *cobra.Command, wait *bool, timeout *time.Duration) {
	cmd.Flags().BoolVarP(wait, "wait", "w", false, "wait for the end of the run, and show its steps")
	cmd.Flags().DurationVar(timeout, "timeout", 0, "with --wait: how long to wait (default: until the run has ended)")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *timeout != 0 && !*wait {
			return usagef("--timeout goes with --wait")
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

func (o *startOptions) run(cmd *cobra.Command, args []string) error {
	kindName, target, ok := splitArgument(args[0])
	if !ok {
		return usagef("%q is no instance: give KIND/NAME", args[0])
	}
	ctx := cmd.Context()
	c, err := o.connect(ctx)
	if err != nil {
		return err
	}
	k, isRun, err := c.kind(kindName)
	if err != nil {
		return err
	}
	if isRun {
		return usagef("%s is a run; name an instance, as %s", args[0], k.Instances.ref("NAME"))
	}
	operation := args[1]
	if err := k.has(operation); err != nil {
		return err
	}
	params, err := readParams(k, operation, o.file, o.params, cmd.InOrStdin())
	if err != nil {
		return err
	}
	instance, err := c.target(ctx, k, target)
	if err != nil {
		return err
	}
	if instance != nil && instance.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is being deleted: no operation can be started any more; see: libretto operation describe %s",
			k.Instances.ref(target), k.Instances.ref(target))
	}
	object := newRunObject(k, target, operation, o.name, params)
	made, err := c.resource(k.Runs).Create(ctx, object, metav1.CreateOptions{FieldManager: cliManager})
	if err != nil {
		return fmt.Errorf("cannot start %s of %s: %w", operation, k.Instances.ref(target), refused(err))
	}
	run, err := newOperationRun(k, made)
	if err != nil {
		return err
	}
	return o.report(cmd, c, run)
}

// report prints the run, and waits for its end if that is wanted.
func (o *startOptions) report(cmd *cobra.Command, c *operationClient, run *operationRun) error {
	if !o.wait {
		return printRun(cmd.OutOrStdout(), o.outputFormat, run)
	}
	out := cmd.OutOrStdout()
	if o.outputFormat != formatText {
		out = cmd.ErrOrStderr() // the object alone is on the standard output
	}
	last, err := c.wait(cmd.Context(), out, run, waitFor{timeout: o.timeout})
	if last != nil && o.outputFormat != formatText {
		if err := printRun(cmd.OutOrStdout(), o.outputFormat, last); err != nil {
			return err
		}
	}
	return err
}

// printRun prints a run: its name, or the object as it is.
func printRun(out io.Writer, format string, run *operationRun) error {
	switch format {
	case formatJSON, formatYAML:
		return printValue(out, format, run.object.Object)
	}
	_, err := fmt.Fprintln(out, run.kind.Runs.ref(run.name()))
	return err
}

// has refuses an operation that there is not.
func (k *operationKind) has(operation string) error {
	names := k.operations()
	for _, n := range names {
		if n == operation {
			return nil
		}
	}
	hint := diag.DidYouMean(operation, names)
	if hint == "" {
		hint = "there is " + diag.OneOf(names, 20)
	}
	return fmt.Errorf("%s has no operation %q; %s", k.Instances.Kind, operation, hint)
}

// target reads an instance, and refuses one that there is not. It is nil for a user who may not read it: the run will tell.
func (c *operationClient) target(ctx context.Context, k *operationKind, name string) (*unstructured.Unstructured, error) {
	o, err := c.resource(k.Instances).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return o, nil
	case !apierrors.IsNotFound(err):
		return nil, nil
	}
	hint := ""
	if list, err := c.resource(k.Instances).List(ctx, metav1.ListOptions{Limit: 500}); err == nil {
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		if hint = diag.DidYouMean(name, names); hint != "" {
			hint = "; " + hint
		}
	}
	return nil, fmt.Errorf("there is no %s %s%s%s", k.Instances.Kind, name, c.where(k.Instances), hint)
}

func newRunObject(k *operationKind, target, operation, name string, params map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"target": target, "operation": operation}
	if _, has := k.Spec.Properties[operation]; has { // with nothing in it too: only then defaults are filled in
		if params == nil {
			params = map[string]any{}
		}
		spec[operation] = params
	}
	metadata := map[string]any{"name": name}
	if name == "" {
		metadata = map[string]any{"generateName": target + "-" + strings.ToLower(operation) + "-"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.Runs.GVR.GroupVersion().String(), "kind": k.Runs.Kind, "metadata": metadata, "spec": spec,
	}}
}

// refused takes the name of the object out of what the API server says: it has none yet.
func refused(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w; an object runs once: choose another --name, or retry that run", err)
	}
	return err
}

func (o *startOptions) completeStart(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return o.completeKinds(cmd, args, word)
	}
	kindName, _, ok := splitArgument(args[0])
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := o.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	k, _, err := c.kind(kindName)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return k.operations(), cobra.ShellCompDirectiveNoFileComp
}
