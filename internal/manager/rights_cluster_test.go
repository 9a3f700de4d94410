package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// refusals notes what the API server forbids.
type refusals struct {
	mu   sync.Mutex
	seen []string
}

// wrap returns a copy of cfg whose refused requests are noted.
func (r *refusals) wrap(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper { return &refusing{refusals: r, next: next} })
	return out
}

type refusing struct {
	refusals *refusals
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		t.refusals.mu.Lock()
		defer t.refusals.mu.Unlock()
		t.refusals.seen = append(t.refusals.seen, fmt.Sprintf("%s %s as %q", req.Method, req.URL.Path, req.Header.Get("Impersonate-User")))
	}
	return resp, err
}

// TestOwnRightsSuffice runs a manager as a ServiceAccount with what config/rbac gives, and no more.
func TestOwnRightsSuffice(t *testing.T) {
	p := newPlace(t)
	p.account("acting", `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`)
	own := testkit.ServiceAccount(t, p.cfg, p.namespace, "libretto")
	for _, file := range []string{"role.yaml", "impersonator_role.yaml"} {
		text, err := os.ReadFile("../../config/rbac/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range testkit.Objects(t, string(text)) {
			p.grant(o)
		}
	}
	var r refusals
	o := p.options()
	o.Config = r.wrap(own)
	o.LeaderElection, o.LeaderElectionNamespace = true, p.namespace
	p.run(o)
	name := testkit.Unique("web")
	p.admin.Apply(t, "", p.definition(name, "acting"))
	testkit.Eventually(t, patience, "the ConfigMap of an instance is there", func() error {
		_, err := p.admin.TryApply(t.Context(), p.namespace, testkit.Objects(t, fmt.Sprintf(`{apiVersion: %s/v1, kind: Web, metadata: {name: one}, spec: {text: hello}}`, p.group))[0])
		if err == nil {
			_, err = p.admin.Get(t.Context(), "v1", "ConfigMap", p.namespace, "one")
		}
		return err
	})
	if err := p.admin.Delete(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "the definition is gone", func() error {
		u, err := p.admin.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%v, error %w", u.Object["status"], err)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.seen)
	if got := slices.Compact(r.seen); len(got) > 0 {
		t.Errorf("the API server refused: %q", got)
	}
}

// grant gives a role of config/rbac to the ServiceAccount "libretto" of the test.
func (p *place) grant(role *unstructured.Unstructured) {
	p.t.Helper()
	name := p.namespace + "-" + role.GetName()
	binding := "ClusterRoleBinding"
	switch role.GetKind() {
	case "ClusterRole":
	case "Role":
		role.SetNamespace(p.namespace)
		binding = "RoleBinding"
	default:
		return
	}
	role.SetName(name)
	if _, err := p.admin.TryApply(p.t.Context(), "", role); err != nil {
		p.t.Fatal(err)
	}
	p.admin.Apply(p.t, p.namespace, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: %s
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %[2]s}
subjects: [{kind: ServiceAccount, namespace: %[4]s, name: libretto}]`, binding, name, role.GetKind(), p.namespace))
	p.t.Cleanup(func() {
		for _, kind := range []string{binding, role.GetKind()} {
			_ = p.admin.Delete(context.Background(), "rbac.authorization.k8s.io/v1", kind, p.namespace, name)
		}
	})
}
