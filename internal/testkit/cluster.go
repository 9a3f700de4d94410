package testkit

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment variables that `make test` sets.
const (
	// EnvKubeconfig names the kubeconfig of the cluster under test.
	EnvKubeconfig = "LIBRETTO_TEST_KUBECONFIG"
	// EnvRequire, when set, makes a test that lacks its cluster fail instead of being skipped.
	EnvRequire = "LIBRETTO_TEST_REQUIRE"
)

// Kubeconfig returns the path of the kubeconfig of the cluster under test. Without one the test is skipped, or fails when
// EnvRequire is set.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	path := os.Getenv(EnvKubeconfig)
	switch {
	case path != "":
		return path
	case os.Getenv(EnvRequire) != "":
		t.Fatalf("%s is not set: run `make test`, or start a cluster with hack/devcluster and set it", EnvKubeconfig)
	default:
		t.Skipf("%s is not set: `make test` starts a cluster and runs this test", EnvKubeconfig)
	}
	return ""
}

// Config returns a client configuration of the cluster administrator, without client-side rate limits.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(t))
	if err != nil {
		t.Fatalf("cannot read the kubeconfig: %v", err)
	}
	cfg.QPS, cfg.Burst = -1, -1
	return cfg
}

// Unique returns a name that no other test uses: prefix, a dash and a random suffix.
func Unique(prefix string) string { return prefix + "-" + rand.String(6) }

// Group returns an API group that no other test uses.
func Group(t testing.TB) string {
	t.Helper()
	return rand.String(8) + ".example.com"
}

// Namespace makes a namespace that goes with the test, and returns its name.
func Namespace(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	cs := clientset(t, cfg)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Unique("test")}}
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatalf("cannot create a namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := cs.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Logf("cannot delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// ServiceAccount makes a ServiceAccount, without any right, and returns a client configuration that acts as it.
func ServiceAccount(t testing.TB, cfg *rest.Config, namespace, name string) *rest.Config {
	t.Helper()
	cs := clientset(t, cfg)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if _, err := cs.CoreV1().ServiceAccounts(namespace).Create(t.Context(), sa, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("cannot create ServiceAccount %s/%s: %v", namespace, name, err)
	}
	ttl := int64((2 * time.Hour).Seconds())
	token, err := cs.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &ttl}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot get a token for ServiceAccount %s/%s: %v", namespace, name, err)
	}
	out := rest.AnonymousClientConfig(cfg)
	out.QPS, out.Burst = -1, -1
	out.BearerToken = token.Status.Token
	return out
}

// WriteKubeconfig writes a kubeconfig with the server, the certificate authority and the token or client certificate of
// cfg, for a process that is given one, and returns its path.
func WriteKubeconfig(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	path := fmt.Sprintf("%s/kubeconfig", t.TempDir())
	if err := clientcmd.WriteToFile(kubeconfigOf(cfg), path); err != nil {
		t.Fatalf("cannot write a kubeconfig: %v", err)
	}
	return path
}

func clientset(t testing.TB, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	return cs
}
