package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type listOptions struct {
	operationOptions
	all       bool
	operation string
	output    string
}

func newOperationList() *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "list [KIND[/NAME]]",
		Aliases: []string{"ls"},
		Short:   "List runs, the newest first",
		Long: `List runs of operations, the newest first: of all kinds, of a kind, or of one instance.

` + exitCodes,
		Example: `  libretto operation list
  libretto operation list board/team --operation backup
  libretto operation list board -A -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeKinds,
		RunE:              action(o.run),
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "list the runs in all namespaces")
	cmd.Flags().StringVar(&o.operation, "operation", "", "list runs of the operation `NAME` alone")
	outputFlag(cmd, &o.output, "text", "name", formatJSON, formatYAML)
	o.flags(cmd)
	return cmd
}

func (o *listOptions) run(cmd *cobra.Command, args []string) error {
	c, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	kinds, target, err := c.selected(args)
	if err != nil {
		return err
	}
	if o.operation != "" && len(kinds) == 1 {
		if err := kinds[0].has(o.operation); err != nil {
			return err
		}
	}
	if o.all {
		c.namespace = ""
	}
	runs, err := c.list(cmd.Context(), kinds, func(r *operationRun) bool {
		return (target == "" || r.spec.Target == target) && (o.operation == "" || r.spec.Operation == o.operation)
	})
	if err != nil {
		return err
	}
	if len(runs) == 0 && target != "" && !o.all {
		if _, err := c.target(cmd.Context(), kinds[0], target); err != nil {
			return err
		}
	}
	return o.print(cmd, runs, len(kinds) > 1)
}

// selected returns the kinds whose runs are asked for, and the instance; empty: all.
func (c *operationClient) selected(args []string) (kinds []*operationKind, target string, err error) {
	if len(args) == 0 {
		for i := range c.kinds {
			kinds = append(kinds, &c.kinds[i])
		}
		return kinds, "", nil
	}
	name, instance, ok := splitArgument(args[0])
	if !ok && strings.Contains(args[0], "/") {
		return nil, "", usagef("%q is neither KIND nor KIND/NAME", args[0])
	}
	k, isRun, err := c.kind(name)
	switch {
	case err != nil:
		return nil, "", err
	case isRun && instance != "":
		return nil, "", usagef("%s is a run: libretto operation describe %s", args[0], args[0])
	}
	return []*operationKind{k}, instance, nil
}

// list reads the runs that pass, the newest first.
func (c *operationClient) list(ctx context.Context, kinds []*operationKind, among func(*operationRun) bool) ([]*operationRun, error) {
	var out []*operationRun
	for _, k := range kinds {
		options := metav1.ListOptions{Limit: 500}
		for {
			list, err := c.resource(k.Runs).List(ctx, options)
			if apierrors.IsForbidden(err) && len(kinds) > 1 {
				break // of the others there may be some that the user may see
			}
			if err != nil {
				return nil, fmt.Errorf("cannot list %s: %w", k.Runs.GVR.Resource, err)
			}
			for i := range list.Items {
				r, err := newOperationRun(k, &list.Items[i])
				if err != nil {
					return nil, err
				}
				if among(r) {
					out = append(out, r)
				}
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b *operationRun) int {
		return cmp.Or(b.object.GetCreationTimestamp().Compare(a.object.GetCreationTimestamp().Time),
			cmp.Compare(a.object.GetNamespace(), b.object.GetNamespace()), cmp.Compare(a.name(), b.name()))
	})
	return out, nil
}

func (o *listOptions) print(cmd *cobra.Command, runs []*operationRun, kinds bool) error {
	out := cmd.OutOrStdout()
	switch o.output {
	case formatJSON, formatYAML:
		items := []any{}
		for _, r := range runs {
			items = append(items, r.object.Object)
		}
		return printValue(out, o.output, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	case "name":
		for _, r := range runs {
			if err := printRun(out, o.output, r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(runs) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no runs")
		return nil
	}
	return printRuns(out, runs, time.Now(), o.all, kinds)
}

// printRuns prints a table.
func printRuns(out io.Writer, runs []*operationRun, now time.Time, namespaces, kinds bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	head := []string{"NAME", "TARGET", "OPERATION", "STATE", "STEP", "TRIGGER", "DURATION", "AGE"}
	if namespaces {
		head = append([]string{"NAMESPACE"}, head...)
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, r := range runs {
		name, target := r.name(), r.spec.Target
		if kinds {
			name, target = r.kind.Runs.ref(name), r.kind.Instances.ref(target)
		}
		row := []string{name, target, r.spec.Operation, r.stateText(), dash(r.status.Step), triggerWord(r),
			dash(r.duration(now)), shortDuration(now.Sub(r.object.GetCreationTimestamp().Time))}
		if namespaces {
			row = append([]string{dash(r.object.GetNamespace())}, row...)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func triggerWord(r *operationRun) string {
	if r.spec.Trigger == nil {
		return "Manual"
	}
	return string(r.spec.Trigger.Type)
}

// duration is how long the run took, or takes.
func (r *operationRun) duration(now time.Time) string {
	s := &r.status
	switch {
	case s.StartTime == nil:
		return ""
	case s.CompletionTime != nil:
		return shortDuration(s.CompletionTime.Sub(s.StartTime.Time))
	case s.State.Ended():
		return s.Duration
	}
	return shortDuration(now.Sub(s.StartTime.Time))
}
