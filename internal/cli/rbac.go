package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/rbac"
)

func newRBAC() *cobra.Command {
	var src source
	var output, account string
	var apply bool
	cmd := &cobra.Command{
		Use:   "rbac DEFINITION",
		Short: "Print, or apply, the least rights that a definition needs",
		Long: `Print the ServiceAccount that a definition names, the least Role or ClusterRole that it needs, and the bindings.
Each rule has a comment that says what needs it. With spec.namespaces.names the rights are limited to those namespaces.

` + exitCodes,
		Example: `  libretto rbac definition.yaml
  libretto rbac definition.yaml --apply
  libretto rbac definition.yaml | kubectl apply -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			d, err := src.one(cmd, args[0])
			if err != nil {
				return err
			}
			p := rbac.For(d.Program)
			if account != "" {
				if p.ServiceAccount, err = parseAccount(account); err != nil {
					return err
				}
			}
			if p.ServiceAccount.Name == "" {
				return usagef("%s names no serviceAccount: set spec.serviceAccount, or give --service-account NAMESPACE/NAME", d.Definition.Name)
			}
			if apply {
				return applyRights(cmd, &src.cluster, p)
			}
			return printRights(cmd, output, p)
		}),
	}
	outputFlag(cmd, &output, formatYAML, formatJSON)
	cmd.Flags().BoolVar(&apply, "apply", false, "apply to the cluster instead of printing; the namespace of the ServiceAccount is made when it is missing")
	cmd.Flags().StringVar(&account, "service-account", "", "`NAMESPACE/NAME` to use instead of spec.serviceAccount")
	src.flags(cmd, true)
	src.nameFlag(cmd)
	return cmd
}

func parseAccount(s string) (v1alpha1.ServiceAccountReference, error) {
	namespace, name, found := strings.Cut(s, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return v1alpha1.ServiceAccountReference{}, usagef("--service-account %q is not NAMESPACE/NAME", s)
	}
	return v1alpha1.ServiceAccountReference{Namespace: namespace, Name: name}, nil
}

func printRights(cmd *cobra.Command, output string, p *rbac.Permissions) error {
	if output == formatJSON {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": p.Objects()}
		return printValue(cmd.OutOrStdout(), output, list)
	}
	data, err := p.YAML()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

// applyRights applies the objects with the rights of the user; the API server lets nobody grant more than he holds.
func applyRights(cmd *cobra.Command, c *cluster, p *rbac.Permissions) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	ctx := cmd.Context()
	if err := ensureNamespace(ctx, client, p.ServiceAccount.Namespace); err != nil {
		return err
	}
	for _, o := range p.Objects() {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("cannot convert %T: %w", o, err)
		}
		u := &unstructured.Unstructured{Object: content}
		gvr := rightsResource(o)
		// A FieldManager of its own: what the command applied before and does not apply now goes away.
		_, err = client.Resource(gvr).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "libretto-cli", Force: true})
		if err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		name := u.GetName()
		if u.GetNamespace() != "" {
			name = u.GetNamespace() + "/" + name
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s applied\n", u.GetKind(), name)
	}
	return nil
}

func rightsResource(o runtime.Object) runtimeschema.GroupVersionResource {
	switch o.(type) {
	case *rbacv1.ClusterRole:
		return rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	case *rbacv1.ClusterRoleBinding:
		return rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	case *rbacv1.Role:
		return rbacv1.SchemeGroupVersion.WithResource("roles")
	case *rbacv1.RoleBinding:
		return rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	}
	return corev1.SchemeGroupVersion.WithResource("serviceaccounts")
}

func ensureNamespace(ctx context.Context, client dynamic.Interface, name string) error {
	namespaces := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = namespaces.Create(ctx, ns, metav1.CreateOptions{FieldManager: "libretto-cli"})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) { // forbidden: what follows tells
		return fmt.Errorf("cannot make namespace %s: %w", name, err)
	}
	return nil
}
