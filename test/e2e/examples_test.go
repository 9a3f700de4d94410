package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/internal/testkit"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

// errNone is for conditions of Eventually that have nothing more to say.
var errNone = errors.New("not yet")

// TestExampleFiles checks what needs no cluster: every example validates, its rbac.yaml is what `libretto rbac` prints,
// and its tests pass.
func TestExampleFiles(t *testing.T) {
	dirs, err := filepath.Glob("../../examples/*/definition.yaml")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, definition := range dirs {
		dir := filepath.Dir(definition)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			libretto(t, "validate", definition)
			var rights strings.Builder
			for _, doc := range testkit.Objects(t, example(t, filepath.Base(dir), "definition.yaml")) {
				rights.WriteString(libretto(t, "rbac", definition, "--definition", doc.GetName()))
			}
			golden.Check(t, filepath.Join(dir, "rbac.yaml"), []byte(rights.String()))
			for _, file := range []string{"README.md", "instance.yaml"} {
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "test.yaml")); err == nil {
				libretto(t, "test", dir)
			}
		})
	}
}

func TestAlice(t *testing.T) {
	t.Parallel()
	c := run(t, "alice")
	c.create(t, example(t, "alice", "instance.yaml"))
	alice := c.waitReady(t, "k106.com/v1alpha1", "Alice", "wonderland")
	if got := conditionStatus(alice, "Serving"); got != "True" {
		t.Errorf("Serving is %q, want True", got)
	}
	c.waitField(t, "k106.com/v1alpha1", "Alice", "wonderland", "http://wonderland."+c.namespace, "status", "url")

	t.Run("a bad object is refused", func(t *testing.T) {
		for name, spec := range map[string]string{"empty": `{myvalue: ""}`, "missing": `{}`} {
			bad := "{apiVersion: k106.com/v1alpha1, kind: Alice, metadata: {name: bad}, spec: " + spec + "}"
			if _, err := c.TryApply(t.Context(), c.namespace, testkit.Objects(t, bad)[0]); !apierrors.IsInvalid(err) {
				t.Errorf("%s: error %v, want the server to find it invalid", name, err)
			}
		}
	})
	t.Run("drift is repaired", func(t *testing.T) {
		c.patch(t, "apps/v1", "Deployment", "wonderland", "mad-hatter", `{"spec":{"template":{"metadata":{"annotations":{"k106.com/page":"tea"}}}}}`)
		testkit.Eventually(t, patience, "an event names who it was", func() error {
			events, err := c.clientset.EventsV1().Events(c.namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range events.Items {
				if e := &events.Items[i]; e.Reason == "DriftRepaired" && strings.Contains(e.Note, "mad-hatter") {
					return nil
				}
			}
			return errNone
		})
		c.waitReady(t, "k106.com/v1alpha1", "Alice", "wonderland")
	})
	t.Run("an update rolls", func(t *testing.T) {
		before, err := c.Get(t.Context(), "apps/v1", "Deployment", c.namespace, "wonderland")
		if err != nil {
			t.Fatal(err)
		}
		c.patch(t, "k106.com/v1alpha1", "Alice", "wonderland", "test", `{"spec":{"myvalue":"Off with her head"}}`)
		c.waitField(t, "v1", "ConfigMap", "wonderland-page", "<h1>Off with her head</h1>\n", "data", "index.html")
		testkit.Eventually(t, patience, "the Deployment has another generation", func() error {
			after, err := c.Get(t.Context(), "apps/v1", "Deployment", c.namespace, "wonderland")
			if err != nil {
				return err
			}
			if after.GetGeneration() == before.GetGeneration() {
				return errNone
			}
			return nil
		})
		c.waitReady(t, "k106.com/v1alpha1", "Alice", "wonderland")
	})
	t.Run("deletion leaves nothing", func(t *testing.T) {
		c.remove(t, "k106.com/v1alpha1", "Alice", "wonderland")
		c.waitGone(t, "k106.com/v1alpha1", "Alice", "wonderland")
		c.waitGone(t, "apps/v1", "Deployment", "wonderland")
		c.waitGone(t, "v1", "Service", "wonderland")
		c.waitGone(t, "v1", "ConfigMap", "wonderland-page")
	})
}

func TestWebApp(t *testing.T) {
	t.Parallel()
	c := run(t, "webapp")
	objects := strings.SplitN(example(t, "webapp", "instance.yaml"), "\n---\n", 2)
	c.create(t, objects[0])

	// The Secret that it names does not exist yet: what needs it waits, the rest is made.
	c.waitField(t, "v1", "ConfigMap", "shop-settings", "welcome", "data", "GREETING")
	c.create(t, objects[1])
	app := c.waitReady(t, "example.com/v1", "WebApp", "shop")
	for _, condition := range []string{"Serving", "WorkersUp"} {
		if got := conditionStatus(app, condition); got != "True" {
			t.Errorf("%s is %q, want True", condition, got)
		}
	}
	c.waitField(t, "example.com/v1", "WebApp", "shop", 2, "status", "replicas")

	t.Run("what is not asked for any more goes, what is asked for comes", func(t *testing.T) {
		c.patch(t, "example.com/v1", "WebApp", "shop", "test", `{"spec":{"host":null,"workers":[],"autoscaling":{"maxReplicas":5}}}`)
		c.waitGone(t, "networking.k8s.io/v1", "Ingress", "shop")
		c.waitGone(t, "apps/v1", "Deployment", "shop-mailer")
		c.waitField(t, "autoscaling/v2", "HorizontalPodAutoscaler", "shop", 5, "spec", "maxReplicas")
		c.waitReady(t, "example.com/v1", "WebApp", "shop")
	})
	t.Run("drift is repaired", func(t *testing.T) {
		c.remove(t, "v1", "Service", "shop")
		c.waitField(t, "v1", "Service", "shop", "map[app.kubernetes.io/component:web app.kubernetes.io/name:shop]", "spec", "selector")
	})
	c.remove(t, "example.com/v1", "WebApp", "shop")
	c.waitGone(t, "apps/v1", "Deployment", "shop")
	if _, err := c.Get(t.Context(), "v1", "Secret", c.namespace, "shop-credentials"); err != nil {
		t.Errorf("the external Secret must stay: %v", err)
	}
}

func TestTeamNamespace(t *testing.T) {
	t.Parallel()
	c := run(t, "team-namespace")
	c.patch(t, "v1", "Namespace", c.namespace, "test", `{"metadata":{"labels":{"example.com/team":"payments"}}}`)
	c.waitField(t, "v1", "ResourceQuota", "team", "4", "spec", "hard", "requests.cpu")
	c.waitField(t, "rbac.authorization.k8s.io/v1", "RoleBinding", "team", "edit", "roleRef", "name")
	c.patch(t, "v1", "Namespace", c.namespace, "test", `{"metadata":{"labels":{"example.com/size":"large"}}}`)
	c.waitField(t, "v1", "ResourceQuota", "team", "16", "spec", "hard", "requests.cpu")

	namespace, err := c.Get(t.Context(), "v1", "Namespace", "", c.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if len(namespace.GetFinalizers()) > 0 {
		t.Errorf("the Namespace has finalizers %v, want none: it is not ours", namespace.GetFinalizers())
	}
	c.patch(t, "v1", "Namespace", c.namespace, "test", `{"metadata":{"labels":{"example.com/team":null}}}`)
	c.waitGone(t, "v1", "ResourceQuota", "team")
	c.waitGone(t, "v1", "LimitRange", "team")
	c.waitGone(t, "networking.k8s.io/v1", "NetworkPolicy", "same-team-only")
	c.waitGone(t, "rbac.authorization.k8s.io/v1", "RoleBinding", "team")
}

func TestFromKustomize(t *testing.T) {
	t.Parallel()
	c := run(t, "from-kustomize")
	c.create(t, example(t, "from-kustomize", "instance.yaml"))
	c.waitReady(t, "example.com/v1alpha1", "Guestbook", "friends")
	c.remove(t, "example.com/v1alpha1", "Guestbook", "friends")
	c.waitGone(t, "example.com/v1alpha1", "Guestbook", "friends")
}

func TestPlatform(t *testing.T) {
	t.Parallel()
	const api = "platform.example.com/v1"
	c := runWithoutPods(t, "platform")
	c.create(t, example(t, "platform", "instance.yaml"))
	// The host is known long before the server runs: dependsOn is what the Website waits for.
	c.waitField(t, api, "Database", "acme-db", "acme-db."+c.namespace, "status", "host")
	testkit.Consistently(t, 2*time.Second, "the Website waits for a Database that is not ready", func() error {
		_, err := c.Get(t.Context(), api, "Website", c.namespace, "acme-web")
		if err == nil {
			return errors.New("the Website is there")
		}
		return client.IgnoreNotFound(err)
	})
	c.standInForKubelet(t)
	c.waitReady(t, api, "Platform", "acme")
	c.waitField(t, "v1", "ConfigMap", "acme-web-settings", "acme-db."+c.namespace, "data", "DATABASE_HOST")

	secret, err := c.Get(t.Context(), "v1", "Secret", c.namespace, "acme-db-password")
	if err != nil {
		t.Fatal(err)
	}
	c.patch(t, api, "Platform", "acme", "test", `{"spec":{"title":"Acme Inc."}}`)
	c.waitField(t, "v1", "ConfigMap", "acme-web-settings", "Acme Inc.", "data", "TITLE")
	again, err := c.Get(t.Context(), "v1", "Secret", c.namespace, "acme-db-password")
	if err != nil {
		t.Fatal(err)
	}
	if secret.GetResourceVersion() != again.GetResourceVersion() {
		t.Error("the password was written again; createOnce must not")
	}

	c.remove(t, api, "Platform", "acme")
	deadline := time.Now().Add(patience)
	for {
		// The Database is looked at first: one that is gone while the Website is there afterwards went too soon.
		_, databaseErr := c.Get(t.Context(), api, "Database", c.namespace, "acme-db")
		_, websiteErr := c.Get(t.Context(), api, "Website", c.namespace, "acme-web")
		if apierrors.IsNotFound(websiteErr) {
			break
		}
		if apierrors.IsNotFound(databaseErr) {
			t.Fatal("the Database went before the Website that uses it")
		}
		if time.Now().After(deadline) {
			t.Fatal("the Website does not go")
		}
	}
	c.waitGone(t, api, "Database", "acme-db")
	c.waitGone(t, api, "Platform", "acme")
}
