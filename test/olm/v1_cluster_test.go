package olm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// renderedByV1 installs what OLM v1 makes of the bundle, by its own code. It leaves the certificate to cert-manager, for which the
// test stands in.
func renderedByV1(t *testing.T, m *lifecycleManager) {
	text, err := command(t.Context(), nil, os.Getenv("OLMV1_RENDER_BIN"), filepath.Join(m.dir, "0.1.0", "bundle"), namespace)
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, "{apiVersion: v1, kind: Namespace, metadata: {name: libretto-system, labels: {pod-security.kubernetes.io/enforce: restricted}}}")
	var objects []unstructured.Unstructured
	secret := ""
	var certificate, key []byte
	for _, doc := range strings.Split(text, "\n---\n") {
		u := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "Issuer":
		case "Certificate":
			secret, _, _ = unstructured.NestedString(u.Object, "spec", "secretName")
			names, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "dnsNames")
			certificate, key = selfSigned(t, names)
		default:
			objects = append(objects, u)
		}
	}
	if secret == "" {
		t.Fatal("there is no Certificate for the webhook")
	}
	apply(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata": map[string]any{"namespace": namespace, "name": secret},
		"data":     map[string]any{"tls.crt": base64.StdEncoding.EncodeToString(certificate), "tls.key": base64.StdEncoding.EncodeToString(key)},
	})
	for _, u := range objects {
		if u.GetKind() == "ValidatingWebhookConfiguration" {
			u.SetNamespace("")
			webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
			for _, w := range webhooks {
				w.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = base64.StdEncoding.EncodeToString(certificate)
			}
			if err := unstructured.SetNestedSlice(u.Object, webhooks, "webhooks"); err != nil {
				t.Fatal(err)
			}
		}
		apply(t, u.Object)
	}
	kubectl(t, "rollout", "status", "-n", namespace, "deployment/libretto-controller-manager", "--timeout=120s")
	if env := kubectl(t, "get", "deployment", "-n", namespace, "libretto-controller-manager", "-o", "yaml"); strings.Contains(env, "OPERATOR_CONDITION_NAME") {
		t.Error("OLM v1 has OperatorConditions: the test has to be thought over")
	}
	m.log(t, "what OLM v1 makes of the bundle is ready, without an OperatorCondition")
	admission(t)
	serveGreetings(t)
	m.log(t, "three Greetings are ready")
	m.log(t, "libretto uninstall: %s", strings.ReplaceAll(libretto(t, "uninstall", "--yes", "--instances", "Delete"), "\n", "; "))
}

func selfSigned(t *testing.T, names []string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
