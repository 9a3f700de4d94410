package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

var definitionResource = schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "operatordefinitions"}

// uninstallOptions are those of `libretto uninstall`.
type uninstallOptions struct {
	cluster   cluster
	instances string
	save      string
	selector  string
	timeout   time.Duration
	yes       bool
}

func newUninstall() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Let go of all that Libretto holds in a cluster, before it is removed",
		Long: `Delete all definitions of a cluster in order, while Libretto is still at work there, so that nothing keeps a finalizer
that nobody would take off any more. By default instances, their resources and their kinds stay as they are, and nobody
keeps them so from then on; with --instances Delete they go first, each in the order of its resources.

Without --yes it says what it would do. Afterwards remove Libretto itself, in the way in which it was installed.

` + exitCodes,
		Example: `  libretto uninstall
  libretto uninstall --yes --save definitions.yaml
  libretto uninstall --yes --instances Delete`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.instances, "instances", "Keep", "what happens to instances: Keep or Delete")
	f.StringVar(&o.save, "save", "", "write the definitions to `FILE` before they go, to create them again later")
	f.StringVar(&o.selector, "definition-selector", "", "the definitions with these labels alone, as `libretto manager` was told")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait until the definitions are gone")
	f.BoolVar(&o.yes, "yes", false, "do it")
	o.cluster.flags(cmd)
	oneOf(cmd, "instances", "Keep", "Delete")
	return cmd
}

func (o *uninstallOptions) run(ctx context.Context, out io.Writer) error {
	policy, known := map[string]v1alpha1.DefinitionDeletion{"Keep": v1alpha1.DefinitionDeletionOrphan, "Delete": v1alpha1.DefinitionDeletionDelete}[o.instances]
	if !known {
		return usagef("--instances %q: Keep or Delete", o.instances)
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	definitions := client.Resource(definitionResource)
	list, err := definitions.List(ctx, metav1.ListOptions{LabelSelector: o.selector})
	if apierrors.IsNotFound(err) {
		fmt.Fprintln(out, "the cluster has no OperatorDefinitions: there is nothing to let go of")
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list OperatorDefinitions: %w", err)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(out, "there are no definitions: Libretto itself can be removed now")
		return nil
	}
	for i := range list.Items {
		d := &list.Items[i]
		total, _, _ := unstructured.NestedInt64(d.Object, "status", "instances", "total")
		fmt.Fprintf(out, "%s: %s, which %s\n", d.GetName(), count(int(total), "instance"), map[string]string{"Keep": "stay", "Delete": "go first"}[o.instances])
	}
	if !o.yes {
		fmt.Fprintln(out, "nothing was changed: --yes does it")
		return nil
	}
	if o.save != "" {
		if err := saveDefinitions(o.save, list.Items); err != nil {
			return err
		}
	}
	for i := range list.Items {
		if err := remove(ctx, definitions, list.Items[i].GetName(), policy); err != nil {
			return err
		}
	}
	if err := o.wait(ctx, out, definitions); err != nil {
		return err
	}
	fmt.Fprintln(out, "all definitions are gone; Libretto itself can be removed now")
	return nil
}

// remove deletes a definition, with what it says about instances set to the policy.
func remove(ctx context.Context, definitions dynamic.ResourceInterface, name string, policy v1alpha1.DefinitionDeletion) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"whenInstancesExist": policy}})
	if err != nil {
		return fmt.Errorf("cannot write a patch: %w", err)
	}
	if _, err := definitions.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot patch OperatorDefinition %s: %w", name, err)
	}
	if err := definitions.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete OperatorDefinition %s: %w", name, err)
	}
	return nil
}

// wait waits until there are no definitions, and says which ones are left and why.
func (o *uninstallOptions) wait(ctx context.Context, out io.Writer, definitions dynamic.ResourceInterface) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	var left []string
	for {
		list, err := definitions.List(ctx, metav1.ListOptions{LabelSelector: o.selector})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot list OperatorDefinitions: %w", err)
		}
		if err == nil {
			now := stand(list.Items)
			if len(now) == 0 {
				return nil
			}
			if !slices.Equal(now, left) {
				fmt.Fprintf(out, "waiting for %s\n", strings.Join(now, "\n            "))
				left = now
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not gone within %s: %s; is Libretto at work in the cluster? It takes off its own finalizers", o.timeout, strings.Join(left, ", "))
		case <-ticker.C:
		}
	}
}

// stand says how definitions stand that are being deleted.
func stand(definitions []unstructured.Unstructured) []string {
	all := make([]string, len(definitions))
	for i := range definitions {
		all[i] = definitions[i].GetName()
		conditions, _, _ := unstructured.NestedSlice(definitions[i].Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == v1alpha1.ConditionReady && c["status"] != string(metav1.ConditionTrue) {
				all[i] += fmt.Sprintf(" (%v)", c["message"])
			}
		}
	}
	return all
}

// saveDefinitions writes definitions without what the API server and Libretto have added.
func saveDefinitions(file string, definitions []unstructured.Unstructured) error {
	var text strings.Builder
	for i := range definitions {
		d := unstructured.Unstructured{Object: map[string]any{"spec": definitions[i].Object["spec"]}}
		d.SetAPIVersion(definitions[i].GetAPIVersion())
		d.SetKind(definitions[i].GetKind())
		d.SetName(definitions[i].GetName())
		d.SetLabels(definitions[i].GetLabels())
		d.SetAnnotations(definitions[i].GetAnnotations())
		data, err := yaml.Marshal(d.Object)
		if err != nil {
			return fmt.Errorf("cannot write definition %s: %w", d.GetName(), err)
		}
		text.WriteString("---\n")
		text.Write(data)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("cannot save the definitions: %w", err)
	}
	return nil
}
