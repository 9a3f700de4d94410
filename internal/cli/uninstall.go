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

var (
	definitionResource = schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "operatordefinitions"}
	crdResource        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

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
keeps them so from then on; with --instances Delete those of declared kinds go first, each in the order of its resources.

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
	if o.instances != "Keep" && o.instances != "Delete" {
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
		if o.instances == "Delete" {
			err = o.deleteInstances(ctx, client, &list.Items[i])
		} else {
			err = keepInstances(ctx, definitions, list.Items[i].GetName())
		}
		if err != nil {
			return err
		}
		if err := definitions.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete OperatorDefinition %s: %w", list.Items[i].GetName(), err)
		}
	}
	if err := o.wait(ctx, out, definitions); err != nil {
		return err
	}
	fmt.Fprintln(out, "all definitions are gone; Libretto itself can be removed now")
	return nil
}

// keepInstances makes the deletion of a definition leave its instances.
func keepInstances(ctx context.Context, definitions dynamic.ResourceInterface, name string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"whenInstancesExist": v1alpha1.DefinitionDeletionOrphan}})
	if err != nil {
		return fmt.Errorf("cannot write a patch: %w", err)
	}
	if _, err := definitions.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot patch OperatorDefinition %s: %w", name, err)
	}
	return nil
}

// deleteInstances deletes the instances of a definition, with the rights of the user: its ServiceAccount need not have that right.
// Libretto deletes what they stand for, in order. Objects of an existing kind are not a definition's own and are kept.
func (o *uninstallOptions) deleteInstances(ctx context.Context, client dynamic.Interface, definition *unstructured.Unstructured) error {
	if _, declared, _ := unstructured.NestedMap(definition.Object, "spec", "crd"); !declared {
		return keepInstances(ctx, client.Resource(definitionResource), definition.GetName())
	}
	crd, err := client.Resource(crdResource).Get(ctx, definition.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the kind was never declared
	}
	if err != nil {
		return fmt.Errorf("cannot get CustomResourceDefinition %s: %w", definition.GetName(), err)
	}
	kind := schema.GroupVersionResource{}
	kind.Group, _, _ = unstructured.NestedString(crd.Object, "spec", "group")
	kind.Resource, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			kind.Version, _ = v["name"].(string)
		}
	}
	instances, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", kind.GroupResource(), err)
	}
	for i := range instances.Items {
		instance := &instances.Items[i]
		err := client.Resource(kind).Namespace(instance.GetNamespace()).Delete(ctx, instance.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete %s %s: %w", kind.GroupResource(), instanceName(instance.GetNamespace(), instance.GetName()), err)
		}
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
