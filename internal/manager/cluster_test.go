package manager_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/config/crd"
	"github.com/libretto-dev/libretto/internal/manager"
	"github.com/libretto-dev/libretto/internal/testkit"
)

const patience = 30 * time.Second

// place is a namespace and an API group of a test's own, and the client of the cluster's administrator.
type place struct {
	t                *testing.T
	cfg              *rest.Config
	admin            *testkit.Client
	cluster          kubernetes.Interface
	namespace, group string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	cfg := testkit.Config(t)
	cluster, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, cfg: cfg, admin: testkit.NewClient(t, cfg), cluster: cluster, namespace: testkit.Namespace(t, cfg), group: testkit.Group(t)}
	p.admin.Apply(t, "", string(crd.OperatorDefinitions)+"\n---\n"+string(crd.OperatorRevisions))
	testkit.Eventually(t, patience, "the API server serves definitions", func() error {
		_, err := p.admin.List(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", "")
		return err
	})
	return p
}

// options are those of a manager that works on this test's definitions alone.
func (p *place) options() manager.Options {
	o := manager.DefaultOptions()
	o.Config = rest.CopyConfig(p.cfg)
	o.DefinitionSelector = "test=" + p.namespace
	o.MetricsAddress, o.HealthAddress, o.Webhook = "0", "0", manager.WebhookOff
	return o
}

// run runs a manager until the returned function is called or the test ends.
func (p *place) run(o manager.Options) (stop func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("the manager: %v", err)
		}
	})
	p.t.Cleanup(stop)
	return stop
}

// definition is a document that makes a ConfigMap of an instance.
func (p *place) definition(name, account string) string {
	return fmt.Sprintf(`
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {labels: {test: %[2]s}, name: %[1]s}
spec:
  whenInstancesExist: Delete
  serviceAccount: {namespace: %[2]s, name: %[4]s}
  crd:
    group: %[3]s
    names: {kind: Web}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [text], properties: {text: {type: string}}}}}}
  resources:
  - name: config
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}"}, data: {text: "${self.spec.text}"}}
`, name, p.namespace, p.group, account)
}

// account makes a ServiceAccount that may do all that the rules say, cluster-wide.
func (p *place) account(name, rules string) *rest.Config {
	p.t.Helper()
	cfg := testkit.ServiceAccount(p.t, p.cfg, p.namespace, name)
	role := p.namespace + "-" + name
	p.admin.Apply(p.t, "", fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: %[4]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, namespace: %[2]s, name: %[3]s}]`, role, p.namespace, name, rules))
	p.t.Cleanup(func() {
		for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
			_ = p.admin.Delete(context.Background(), "rbac.authorization.k8s.io/v1", kind, "", role)
		}
	})
	return cfg
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func TestWebhookAdmitsDefinitions(t *testing.T) {
	p := newPlace(t)
	o := p.options()
	o.Webhook, o.WebhookHost, o.WebhookPort = manager.WebhookSelfSigned, "127.0.0.1", freePort(t)
	o.WebhookURL = manager.DefaultWebhookURL(o.WebhookHost, o.WebhookPort)
	o.WebhookConfiguration = p.namespace
	stop := p.run(o)
	configurations := p.cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	testkit.Eventually(t, patience, "the configuration is there", func() error {
		_, err := configurations.Get(t.Context(), p.namespace, metav1.GetOptions{})
		return err
	})
	p.account("acting", `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`)
	const editor = `{apiGroups: [libretto.dev], resources: [operatordefinitions], verbs: ["*"]}`
	author := testkit.NewClient(t, p.account("author", `[`+editor+`]`))
	name := testkit.Unique("web")
	try := func(c *testkit.Client, doc string) error {
		_, err := c.TryApply(t.Context(), "", testkit.Objects(t, doc)[0])
		return err
	}
	testkit.Eventually(t, patience, "the webhook refuses an author without the right", func() error {
		err := try(author, p.definition(name, "acting"))
		if err == nil || !strings.Contains(err.Error(), "you may not act as ServiceAccount "+p.namespace+"/acting") {
			return fmt.Errorf("the answer: %w", err)
		}
		return nil
	})
	p.account("author", `[`+editor+`, {apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate], resourceNames: [acting]}]`)
	broken := strings.NewReplacer("self.spec.text", "self.spec.txet", "kind: ConfigMap", "kind: ConfigMapp").Replace(p.definition(name, "acting"))
	err := try(author, broken)
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) || len(status.Status().Details.Causes) < 2 {
		t.Fatalf("a broken one: %v", err)
	}
	for _, c := range status.Status().Details.Causes {
		if !strings.HasPrefix(c.Field, "spec.resources[0].template") {
			t.Errorf("cause %+v", c)
		}
	}
	testkit.Eventually(t, patience, "the author with the right is let through", func() error { return try(author, p.definition(name, "acting")) })
	if err := try(author, broken); !apierrors.IsInvalid(err) {
		t.Errorf("an update that breaks it: %v", err)
	}
	// While it is being deleted, it need not compile, but nobody gives it an identity that he may not use.
	hold := testkit.Objects(t, p.definition(name, "acting"))[0]
	hold.SetFinalizers([]string{"example.com/hold"})
	if _, err := p.admin.TryApply(t.Context(), "", hold); err != nil {
		t.Fatal(err)
	}
	if err := p.admin.Delete(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name); err != nil {
		t.Fatal(err)
	}
	definitions, err := author.Resource("libretto.dev/v1alpha1", "OperatorDefinition", "")
	if err != nil {
		t.Fatal(err)
	}
	change := func(patch string) error {
		_, err := definitions.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := change(`{"spec":{"serviceAccount":{"name":"other"}}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "you may not act as ServiceAccount") {
		t.Errorf("another ServiceAccount during the deletion: %v", err)
	}
	if err := change(`{"spec":{"variables":[{"name":"x","value":"nobody.knows"}]}}`); err != nil {
		t.Errorf("what does not compile, during the deletion: %v", err)
	}
	if err := change(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("the finalizer: %v", err)
	}
	testkit.Eventually(t, patience, "it is gone", func() error {
		if _, err := p.admin.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	stop()
	if _, err := configurations.Get(t.Context(), p.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the configuration of a manager that has ended: %v", err)
	}
}

func TestSelfSignedCertificateIsShared(t *testing.T) {
	p := newPlace(t)
	path, none := "/validate", admissionregistrationv1.SideEffectClassNone
	configurations := p.cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	// One that no object ever matches: nobody listens.
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "definitions.libretto.dev", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: p.namespace, Name: "hook", Path: &path}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = configurations.Delete(context.Background(), p.namespace, metav1.DeleteOptions{}) })
	bundle := func() []byte {
		var out []byte
		testkit.Eventually(t, patience, "the authority is in the configuration", func() error {
			conf, err := configurations.Get(t.Context(), p.namespace, metav1.GetOptions{})
			if err == nil && len(conf.Webhooks[0].ClientConfig.CABundle) == 0 {
				err = fmt.Errorf("it is empty")
			}
			if err == nil {
				out = conf.Webhooks[0].ClientConfig.CABundle
			}
			return err
		})
		return out
	}
	o := p.options()
	o.Webhook, o.WebhookHost, o.WebhookPort = manager.WebhookSelfSigned, "127.0.0.1", freePort(t)
	o.WebhookConfiguration, o.WebhookService, o.WebhookNamespace = p.namespace, "hook", p.namespace
	stop := p.run(o)
	first := bundle()
	stop()
	o.WebhookPort = freePort(t)
	p.run(o)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(first)
	testkit.Eventually(t, patience, "a second replica serves with the same authority", func() error {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", o.WebhookPort), &tls.Config{RootCAs: roots, ServerName: "hook." + p.namespace + ".svc", MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

func TestInstanceBecomesItsResources(t *testing.T) {
	p := newPlace(t)
	p.account("acting", `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`)
	first, second := p.options(), p.options()
	for _, o := range []*manager.Options{&first, &second} {
		o.LeaderElection, o.LeaderElectionNamespace, o.LeaderElectionID = true, p.namespace, "lease"
	}
	stop := p.run(first)
	name := testkit.Unique("web")
	p.admin.Apply(t, "", p.definition(name, "acting"))
	t.Cleanup(func() {
		_ = p.admin.Delete(context.Background(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name)
	})
	instance := func(n string) {
		t.Helper()
		testkit.Eventually(t, patience, "the kind is served", func() error {
			_, err := p.admin.TryApply(t.Context(), p.namespace, testkit.Objects(t, fmt.Sprintf(`{apiVersion: %s/v1, kind: Web, metadata: {name: %s}, spec: {text: hello}}`, p.group, n))[0])
			return err
		})
		testkit.Eventually(t, patience, "the ConfigMap is there", func() error {
			_, err := p.admin.Get(t.Context(), "v1", "ConfigMap", p.namespace, n)
			return err
		})
	}
	instance("one")
	p.run(second)
	stop()
	// The Lease was given up, so that the standby need not wait for its end.
	start := time.Now()
	instance("two")
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("the standby took over after %s", took)
	}
	lease, err := p.cluster.CoordinationV1().Leases(p.namespace).Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("nobody holds the Lease: %v", err)
	}
	if err := p.admin.Delete(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "definition and instances are gone", func() error {
		u, err := p.admin.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%v, error %w", u.Object["status"], err)
	})
}

func TestDefinitionsFromFiles(t *testing.T) {
	p := newPlace(t)
	def := &v1alpha1.OperatorDefinition{}
	decode(t, p.definition(testkit.Unique("web"), "nobody"), def)
	o := p.options()
	var mu sync.Mutex
	var told []string
	o.Definitions, o.ActAsSelf = []*v1alpha1.OperatorDefinition{def}, true
	o.Report = func(_, message string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, message)
	}
	stop := p.run(o)
	t.Cleanup(func() {
		_ = p.admin.Delete(context.Background(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "webs."+p.group)
	})
	testkit.Eventually(t, patience, "it is served", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(told) == 0 || told[len(told)-1] != "serving Web.v1."+p.group {
			return fmt.Errorf("%q", told)
		}
		return nil
	})
	p.admin.Apply(t, p.namespace, fmt.Sprintf(`{apiVersion: %s/v1, kind: Web, metadata: {name: one}, spec: {text: hello}}`, p.group))
	testkit.Eventually(t, patience, "the ConfigMap is there", func() error {
		_, err := p.admin.Get(t.Context(), "v1", "ConfigMap", p.namespace, "one")
		return err
	})
	stop()
	c, err := p.admin.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "webs."+p.group)
	if err != nil || c.GetAnnotations()[v1alpha1.AnnotationManagedKinds] != "ConfigMap.v1." {
		t.Errorf("the CRD's annotations: %v, %v", c.GetAnnotations(), err)
	}
}
