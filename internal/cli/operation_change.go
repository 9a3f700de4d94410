package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

func newOperationCancel() *cobra.Command {
	var o operationOptions
	cmd := &cobra.Command{
		Use:   "cancel RUN…",
		Short: "End a run",
		Long: `End runs. What is under way is stopped and Jobs are deleted; steps that have been done stay done, unless one of them has
onFailure: Undo. It cannot be taken back, and a run that was cancelled cannot be retried.

` + exitCodes,
		Example: `  libretto operation cancel boardoperation/restore-monday`,
		Args:    cobra.MinimumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return o.each(cmd, args, func(c *operationClient, run *operationRun) (string, map[string]any, error) {
				switch {
				case run.status.State.Ended():
					return "", nil, fmt.Errorf("%s has ended already: %s", run.kind.Runs.ref(run.name()), run.status.State)
				case run.spec.Cancel:
					return "is being cancelled already", nil, nil
				}
				return "is being cancelled", map[string]any{"cancel": true}, nil
			})
		}),
	}
	o.flags(cmd)
	return cmd
}

func newOperationPause(pause bool) *cobra.Command {
	var o operationOptions
	use, short, done := "resume RUN…", "Let a run that was paused go on", "goes on"
	long := "Let runs go on that were paused."
	if pause {
		use, short, done = "pause RUN…", "Keep a run from beginning another step or attempt", "is paused"
		long = "Keep runs from beginning another step or attempt. What is under way goes on, and so do deadlines."
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long + "\n\n" + exitCodes,
		Args:  cobra.MinimumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return o.each(cmd, args, func(_ *operationClient, run *operationRun) (string, map[string]any, error) {
				switch {
				case run.status.State.Ended():
					return "", nil, fmt.Errorf("%s has ended already: %s", run.kind.Runs.ref(run.name()), run.status.State)
				case run.spec.Paused == pause:
					return done + " already", nil, nil
				}
				return done, map[string]any{"paused": pause}, nil
			})
		}),
	}
	o.flags(cmd)
	return cmd
}

// each changes the spec of runs as plan says, and prints what became of each.
func (o *operationOptions) each(cmd *cobra.Command, args []string, plan func(*operationClient, *operationRun) (string, map[string]any, error)) error {
	c, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	for _, arg := range args {
		run, err := c.run(cmd.Context(), arg)
		if err != nil {
			return err
		}
		done, spec, err := plan(c, run)
		if err != nil {
			return err
		}
		if spec != nil {
			if _, err := c.patch(cmd, run, spec); err != nil {
				return err
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", run.kind.Runs.ref(run.name()), done)
	}
	return nil
}

func (c *operationClient) patch(cmd *cobra.Command, run *operationRun, spec map[string]any) (*operationRun, error) {
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the change: %w", err)
	}
	changed, err := c.resource(run.kind.Runs).Patch(cmd.Context(), run.name(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: cliManager})
	if err != nil {
		return nil, fmt.Errorf("cannot change %s: %w", run.kind.Runs.ref(run.name()), err)
	}
	return newOperationRun(run.kind, changed)
}

type retryOptions struct {
	operationOptions
	from    string
	force   bool
	wait    bool
	timeout time.Duration
}

func newOperationRetry() *cobra.Command {
	var o retryOptions
	cmd := &cobra.Command{
		Use:   "retry RUN",
		Short: "Begin a run again that did not succeed",
		Long: `Begin a run again that has Failed, is Unknown or was Cancelled by something else than a user: at the first step that did
not succeed, or at --from. The steps before it keep their output. A --from that leaves out a step whose effect is not there
is refused.

When a run is Unknown, nobody knows whether the step at which it ended had its effect: look first. If it had, retry from the
step after it, unless later steps read its output; if not, from the step itself.

` + exitCodes,
		Example: `  libretto operation retry boardoperation/restore-monday
  libretto operation retry restore-monday --from write --wait`,
		Args: cobra.ExactArgs(1),
		RunE: action(o.run),
	}
	cmd.Flags().StringVar(&o.from, "from", "", "`STEP` to begin with (default: the first one that did not succeed)")
	cmd.Flags().BoolVar(&o.force, "force", false, "with --from: begin with a step that is not known here, or after one that did not succeed")
	waitFlags(cmd, &o.wait, &o.timeout)
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if o.force && o.from == "" {
			return usagef("--force goes with --from")
		}
		return check(cmd, args)
	}
	o.flags(cmd)
	return cmd
}

func (o *retryOptions) run(cmd *cobra.Command, args []string) error {
	c, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	run, err := c.run(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	ref := run.kind.Runs.ref(run.name())
	if err := run.mayBeRetried(); err != nil {
		return err
	}
	if o.from != "" {
		names, known := c.stepsOf(cmd.Context(), run)
		if err := run.mayBeginWith(o.from, names, known, o.force); err != nil {
			return err
		}
	}
	retry := map[string]any{"id": time.Now().UTC().Format("20060102T150405.000Z")}
	if o.from != "" {
		retry["from"] = o.from
	} else {
		retry["from"] = nil // of an earlier retry
	}
	changed, err := c.patch(cmd, run, map[string]any{"retry": retry})
	if err != nil {
		return err
	}
	if !o.wait {
		fmt.Fprintf(cmd.OutOrStdout(), "%s begins again\n", ref)
		return nil
	}
	_, err = c.wait(cmd.Context(), cmd.OutOrStdout(), changed, waitFor{timeout: o.timeout, retry: fmt.Sprint(retry["id"])})
	return err
}

// mayBeRetried refuses what Libretto would not begin again.
func (r *operationRun) mayBeRetried() error {
	ref := r.kind.Runs.ref(r.name())
	switch state := r.status.State; {
	case !state.Ended():
		return fmt.Errorf("%s has not ended: it is %s; only a run that has ended can be retried", ref, r.stateText())
	case state == v1alpha1.RunSucceeded:
		return fmt.Errorf("%s has succeeded: to do it again, start another run: libretto operation start %s %s",
			ref, r.kind.Instances.ref(r.spec.Target), r.spec.Operation)
	case r.spec.Cancel:
		return fmt.Errorf("%s was cancelled, which cannot be taken back: start another run: libretto operation start %s %s",
			ref, r.kind.Instances.ref(r.spec.Target), r.spec.Operation)
	}
	return nil
}

func stateOrPending(s v1alpha1.RunState) v1alpha1.RunState {
	if s == "" {
		return v1alpha1.RunPending
	}
	return s
}
