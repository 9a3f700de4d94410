package identity_test

import (
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/testkit"
	"github.com/libretto-dev/libretto/internal/watch"
)

const testTimeout = 20 * time.Second

var configMaps = runtimeschema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// grant gives a ServiceAccount of the namespace a Role in it.
func grant(t *testing.T, cs kubernetes.Interface, namespace, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"}, Rules: rules}
	role, err := cs.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}}
	if _, err := cs.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Both sorts of right to impersonate work with the same client: the plain one, and the constrained one.
func TestImpersonation(t *testing.T) {
	cfg := testkit.Config(t)
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list := func(base *rest.Config, namespace string) error {
		factory, err := identity.NewFactory(base)
		if err != nil {
			return err
		}
		client, err := factory.For(&v1alpha1.ServiceAccountReference{Namespace: namespace, Name: "app"})
		if err != nil {
			return err
		}
		_, err = client.Dynamic.Resource(configMaps).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	named := func(r rbacv1.PolicyRule) rbacv1.PolicyRule {
		r.ResourceNames = []string{"app"}
		return r
	}
	cases := map[string]struct {
		libretto      []rbacv1.PolicyRule
		app           []rbacv1.PolicyRule
		forbidden     bool
		impersonation bool
	}{
		"no right to impersonate": {forbidden: true, impersonation: true},
		"plain":                   {libretto: []rbacv1.PolicyRule{named(rule("", "serviceaccounts", "impersonate"))}, app: []rbacv1.PolicyRule{rule("", "configmaps", "list")}},
		"plain, without the ServiceAccount's own right": {libretto: []rbacv1.PolicyRule{named(rule("", "serviceaccounts", "impersonate"))}, forbidden: true},
		"constrained": {libretto: []rbacv1.PolicyRule{named(rule("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount")),
			rule("", "configmaps", "impersonate-on:serviceaccount:list")}, app: []rbacv1.PolicyRule{rule("", "configmaps", "list")}},
		"constrained to other verbs": {libretto: []rbacv1.PolicyRule{named(rule("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount")),
			rule("", "configmaps", "impersonate-on:serviceaccount:get")}, app: []rbacv1.PolicyRule{rule("", "configmaps", "list")}, forbidden: true, impersonation: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := testkit.Namespace(t, cfg)
			base := testkit.ServiceAccount(t, cfg, namespace, "libretto")
			testkit.ServiceAccount(t, cfg, namespace, "app")
			grant(t, cs, namespace, "libretto", tc.libretto...)
			grant(t, cs, namespace, "app", tc.app...)
			if !tc.forbidden {
				testkit.Eventually(t, testTimeout, "it is allowed", func() error { return list(base, namespace) })
				return
			}
			// Roles take a moment to be known; what is forbidden stays so.
			testkit.Eventually(t, testTimeout, "it is forbidden for the right reason", func() error {
				err := list(base, namespace)
				if !apierrors.IsForbidden(err) || watch.IsImpersonationDenied(err) != tc.impersonation {
					return fmt.Errorf("error %w", err)
				}
				return nil
			})
		})
	}
}

// The mapper is shared, finds kinds, and tells which there are not.
func TestMapper(t *testing.T) {
	factory, err := identity.NewFactory(testkit.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	client, err := factory.For(nil)
	if err != nil {
		t.Fatal(err)
	}
	if client.User != "" {
		t.Errorf("user %q, want none", client.User)
	}
	m, err := client.Mapper.RESTMapping(runtimeschema.GroupKind{Group: "apps", Kind: "Deployment"}, "v1")
	if err != nil || m.Resource.Resource != "deployments" {
		t.Errorf("mapping %v, %v", m, err)
	}
	if _, err := client.Mapper.RESTMapping(runtimeschema.GroupKind{Group: "nowhere.example.com", Kind: "Thing"}, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not there: %T %v", err, err)
	}
}
