package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
)

type describeOptions struct {
	operationOptions
	output string
}

func newOperationDescribe() *cobra.Command {
	var o describeOptions
	cmd := &cobra.Command{
		Use:     "describe RUN|KIND/NAME",
		Aliases: []string{"show"},
		Short:   "Show a run with its steps, or the runs of an instance",
		Long: `Show a run: what began it, its parameters, each step with its attempts, what they said, how long they took and what they
yielded. Of an instance, show its runs and the newest one that did not succeed, or else the newest.

` + exitCodes,
		Example: `  libretto operation describe boardoperation/restore-monday
  libretto operation describe board/team
  libretto operation describe restore-monday -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.completeKinds,
		RunE:              action(o.run),
	}
	outputFlag(cmd, &o.output, "text", formatJSON, formatYAML)
	o.flags(cmd)
	return cmd
}

func (o *describeOptions) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	c, err := o.connect(ctx)
	if err != nil {
		return err
	}
	if kindName, name, ok := splitArgument(args[0]); ok {
		k, isRun, err := c.kind(kindName)
		if err != nil {
			return err
		}
		if !isRun {
			return o.instance(ctx, cmd, c, k, name)
		}
	}
	run, err := c.run(ctx, args[0])
	if err != nil {
		return err
	}
	if o.output != formatText {
		return printRun(cmd.OutOrStdout(), o.output, run)
	}
	return c.describe(ctx, cmd.OutOrStdout(), run, time.Now())
}

// instance shows an instance's runs.
func (o *describeOptions) instance(ctx context.Context, cmd *cobra.Command, c *operationClient, k *operationKind, name string) error {
	instance, err := c.target(ctx, k, name)
	if err != nil {
		return err
	}
	runs, err := c.list(ctx, []*operationKind{k}, func(r *operationRun) bool { return r.spec.Target == name })
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.output != formatText {
		items := []any{}
		for _, r := range runs {
			items = append(items, r.object.Object)
		}
		return printValue(out, o.output, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	now := time.Now()
	going := false
	if instance != nil {
		going = instance.GetDeletionTimestamp() != nil
		fmt.Fprintf(out, "%s %s%s\n", k.Instances.Kind, instanceName(instance.GetNamespace(), name), readiness(instance, now))
	}
	fmt.Fprintf(out, "Operations: %s\n", strings.Join(k.operations(), ", "))
	if going {
		if err := describeDeletion(out, instance, now); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		if !going {
			fmt.Fprintf(out, "\nNo runs yet. Start one: libretto operation start %s OPERATION\n", k.Instances.ref(name))
		}
		return nil
	}
	fmt.Fprintln(out)
	if err := printRuns(out, runs, now, false, false); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return c.describe(ctx, out, worthALook(runs), now)
}

// describeDeletion prints the runs that an instance keeps itself, for its namespace is being deleted and takes no objects.
func describeDeletion(out io.Writer, instance *unstructured.Unstructured, now time.Time) error {
	var content struct {
		Status struct {
			Deletion []v1alpha1.DeletionRun `json:"deletion"`
		} `json:"status"`
	}
	data, err := instance.MarshalJSON()
	if err == nil {
		err = utiljson.Unmarshal(data, &content)
	}
	if err != nil {
		return fmt.Errorf("cannot read status.deletion of %s: %w", instance.GetName(), err)
	}
	if len(content.Status.Deletion) == 0 {
		return nil
	}
	fmt.Fprintln(out, "Deletion, without operation objects as the namespace is being deleted:")
	paint := newPainter(out)
	for i := range content.Status.Deletion {
		s := &content.Status.Deletion[i].Status
		fmt.Fprintf(out, "  %s  %s%s%s\n", content.Status.Deletion[i].Operation, stateOrPending(s.State), atStep(&operationRun{status: *s}),
			messageOf(strings.ReplaceAll(s.Message, "\n", "\n    ")))
		describeSteps(out, paint, s.Steps, now, "    ")
	}
	return nil
}

// readiness is what the condition Ready of an instance says.
func readiness(o *unstructured.Unstructured, now time.Time) string {
	ready, going := "ready", ""
	if at := o.GetDeletionTimestamp(); at != nil {
		ready, going = "", "being deleted for "+shortDuration(now.Sub(at.Time))
	}
	text := strings.Join(slices.DeleteFunc([]string{going, condition(o, ready)}, func(s string) bool { return s == "" }), ", ")
	if text == "" {
		return ""
	}
	return ": " + text
}

// condition is what the condition Ready of an instance says: ready, if it is True.
func condition(o *unstructured.Unstructured, ready string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		c, ok := item.(map[string]any)
		if !ok || c["type"] != v1alpha1.ConditionReady {
			continue
		}
		if c["status"] == string(metav1.ConditionTrue) {
			return ready
		}
		return fmt.Sprintf("not ready, %v: %v", c["reason"], c["message"])
	}
	return ""
}

// worthALook is the newest run of each operation that did not succeed, the first of those, or the newest run.
func worthALook(runs []*operationRun) *operationRun {
	seen := map[string]bool{}
	for _, r := range runs {
		if seen[r.spec.Operation] {
			continue
		}
		seen[r.spec.Operation] = true
		if r.status.State == v1alpha1.RunFailed || r.status.State == v1alpha1.RunUnknown {
			return r
		}
	}
	return runs[0]
}

// describe prints all that is known of a run.
func (c *operationClient) describe(ctx context.Context, out io.Writer, run *operationRun, now time.Time) error {
	if err := describeHead(out, run, now); err != nil {
		return err
	}
	s := &run.status
	paint := newPainter(out)
	if params := run.params(); len(params) > 0 {
		fmt.Fprintln(out, "Parameters:")
		printFields(out, "  ", params)
	}
	if len(s.Steps) > 0 {
		fmt.Fprintln(out, "Steps:")
		describeSteps(out, paint, s.Steps, now, "  ")
	}
	if len(s.Output) > 0 {
		fmt.Fprintln(out, "Output:")
		printFields(out, "  ", s.Output)
	}
	if len(s.Removal) > 0 {
		fmt.Fprintln(out, "Removal:")
		describeSteps(out, paint, s.Removal, now, "  ")
	}
	if next := c.next(ctx, run); next != "" {
		fmt.Fprintf(out, "Next: %s\n", next)
	}
	return nil
}

// describeHead prints what a run is and how it stands.
func describeHead(out io.Writer, run *operationRun, now time.Time) error {
	s := &run.status
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("Run", "%s", run.kind.Runs.ref(run.name()))
	if ns := run.object.GetNamespace(); ns != "" {
		line("Namespace", "%s", ns)
	}
	line("Target", "%s", run.kind.Instances.ref(run.spec.Target))
	line("Operation", "%s", run.spec.Operation)
	line("Trigger", "%s", triggerText(run.spec.Trigger))
	state := run.stateText()
	if s.Reason != "" && s.Reason != string(s.State) && s.Reason != operation.ReasonPaused {
		state += " (" + s.Reason + ")"
	}
	line("State", "%s%s", state, atStep(run))
	if s.Message != "" {
		line("Message", "%s", strings.ReplaceAll(s.Message, "\n", "\n\t"))
	}
	if text := run.silence(now); text != "" {
		line("Note", "%s", text)
	}
	if s.StartTime != nil {
		text := s.StartTime.UTC().Format(time.RFC3339)
		if d := run.duration(now); d != "" && s.State.Ended() {
			text += ", took " + d
		} else if d != "" {
			text += ", " + d + " ago"
		}
		if s.Tries > 1 {
			text += fmt.Sprintf(", try %d", s.Tries)
		}
		line("Started", "%s", text)
	} else {
		line("Created", "%s, %s ago", run.object.GetCreationTimestamp().UTC().Format(time.RFC3339), shortDuration(now.Sub(run.object.GetCreationTimestamp().Time)))
	}
	if s.Revision != "" {
		line("Revision", "%s", s.Revision)
	}
	return w.Flush()
}

// triggerText says what began a run.
func triggerText(t *v1alpha1.RunTrigger) string {
	if t == nil {
		return "Manual"
	}
	text := string(t.Type)
	switch t.Type {
	case v1alpha1.TriggerTypeSchedule, v1alpha1.TriggerTypeEvery:
		if t.Time != nil {
			text += ", for " + t.Time.UTC().Format(time.RFC3339)
		}
	case v1alpha1.TriggerTypeUpdate:
		if len(t.Fields) > 0 {
			text += " of " + strings.Join(t.Fields, ", ")
		}
	case v1alpha1.TriggerTypeWatch:
		if t.Object != nil {
			text += fmt.Sprintf(" of %s %s", t.Object.Kind, instanceName(t.Object.Namespace, t.Object.Name))
		}
	case v1alpha1.TriggerTypeRun:
		text = "a step of " + t.Parent
	case v1alpha1.TriggerTypeManual, v1alpha1.TriggerTypeCreate, v1alpha1.TriggerTypeDelete, v1alpha1.TriggerTypeResume, v1alpha1.TriggerTypeCondition:
	}
	return text
}

func describeSteps(out io.Writer, paint painter, steps []v1alpha1.StepStatus, now time.Time, indent string) {
	longest := 0
	for i := range steps {
		longest = max(longest, len(steps[i].Name))
	}
	for i := range steps {
		s := &steps[i]
		state := shownState(s)
		mark, colour := stepMark(state)
		fmt.Fprintf(out, "%s%s %-*s  %-9s", indent, paint.paint(colour, mark), longest, s.Name, state)
		if d := stepDuration(s, now); d != "" {
			fmt.Fprintf(out, "  %s", d)
		}
		if s.Message != "" {
			fmt.Fprintf(out, "  %s", strings.ReplaceAll(s.Message, "\n", "\n"+indent+"    "))
		}
		fmt.Fprintln(out)
		inner := indent + "    "
		if len(s.Attempts) > 1 || len(s.Attempts) == 1 && s.Attempts[0].Message != "" && s.Attempts[0].Message != s.Message {
			describeAttempts(out, s.Attempts, now, inner)
		}
		describeItems(out, paint, s.Items, now, inner)
		describeOutput(out, s.Output, inner)
		if len(s.Undo) > 0 {
			fmt.Fprintf(out, "%sundo:\n", inner)
			describeSteps(out, paint, s.Undo, now, inner+"  ")
		}
	}
}

func describeItems(out io.Writer, paint painter, items []v1alpha1.ItemStatus, now time.Time, indent string) {
	for n := range items {
		item := &items[n]
		fmt.Fprintf(out, "%sitem %d  %s  %s", indent, n, short(item.Value), item.State)
		if item.Message != "" {
			fmt.Fprintf(out, "  %s", item.Message)
		}
		fmt.Fprintln(out)
		if len(item.Attempts) > 1 {
			describeAttempts(out, item.Attempts, now, indent+"  ")
		}
		if len(item.Undo) > 0 {
			fmt.Fprintf(out, "%s  undo:\n", indent)
			describeSteps(out, paint, item.Undo, now, indent+"    ")
		}
	}
}

func describeOutput(out io.Writer, v *v1alpha1.JSONValue, indent string) {
	if v == nil || v.Value == nil {
		return
	}
	fields, isObject := v.Value.(map[string]any)
	switch {
	case !isObject:
		fmt.Fprintf(out, "%soutput: %s\n", indent, short(v))
	case len(fields) > 0:
		fmt.Fprintf(out, "%soutput:\n", indent)
		printFields(out, indent+"  ", fields)
	}
}

func describeAttempts(out io.Writer, attempts []v1alpha1.Attempt, now time.Time, indent string) {
	for i := range attempts {
		a := &attempts[i]
		what := "attempt"
		if a.Verify {
			what = "verify"
		}
		fmt.Fprintf(out, "%s%s %d  %s  %s", indent, what, a.Number, a.StartTime.UTC().Format("15:04:05Z"), a.State)
		if a.EndTime != nil {
			fmt.Fprintf(out, " after %s", shortDuration(a.EndTime.Sub(a.StartTime.Time)))
		}
		if a.Message != "" {
			fmt.Fprintf(out, ": %s", strings.ReplaceAll(a.Message, "\n", "\n"+indent+"  "))
		}
		if a.RetryTime != nil && a.RetryTime.After(now) {
			fmt.Fprintf(out, "; the next one in %s", shortDuration(a.RetryTime.Sub(now)))
		}
		fmt.Fprintln(out)
	}
}

// printFields prints an object, a field a line.
func printFields(out io.Writer, indent string, fields map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(out, "%s%s: %s\n", indent, name, short(&v1alpha1.JSONValue{Value: fields[name]}))
	}
}

// short prints a value in one line: text as it is, all else as JSON.
func short(v *v1alpha1.JSONValue) string {
	if v == nil {
		return ""
	}
	if text, isText := v.Value.(string); isText && !strings.Contains(text, "\n") {
		return text
	}
	data, err := json.Marshal(v.Value)
	if err != nil {
		return fmt.Sprint(v.Value)
	}
	return string(data)
}
