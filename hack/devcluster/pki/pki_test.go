package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := LoadOrCreate(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leaf(t *testing.T, a *Authority, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Cert(name), a.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestIssuedCertificateIsTrustedForItsHostsOnly(t *testing.T) {
	a := newAuthority(t)
	if err := a.Issue(Identity{File: "server", CommonName: "server", Hosts: []string{"localhost", "10.1.2.3"}}); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for host, want := range map[string]bool{"localhost": true, "10.1.2.3": true, "10.1.2.4": false, "example.org": false} {
		_, err := leaf(t, a, "server").Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		if (err == nil) != want {
			t.Errorf("verification for %s: %v, want success: %t", host, err, want)
		}
	}
}

func TestClientCertificateIsNoServerCertificate(t *testing.T) {
	a := newAuthority(t)
	if err := a.Issue(Identity{File: "admin", CommonName: "admin", Organization: []string{"system:masters"}}); err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, a, "admin")
	if got := cert.Subject.Organization; len(got) != 1 || got[0] != "system:masters" {
		t.Errorf("organization %v", got)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for usage, want := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
		if (err == nil) != want {
			t.Errorf("usage %v: %v, want success: %t", usage, err, want)
		}
	}
}

func TestRestartKeepsCredentialsUnlessHostsChange(t *testing.T) {
	dir := t.TempDir()
	issue := func(hosts ...string) []byte {
		a, err := LoadOrCreate(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Issue(Identity{File: "server", CommonName: "server", Hosts: hosts}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(a.Cert("server"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := issue("localhost")
	if !bytes.Equal(first, issue("localhost")) {
		t.Error("the same request made another certificate")
	}
	if bytes.Equal(first, issue("localhost", "10.0.0.1")) {
		t.Error("a host was added and the certificate stayed")
	}
}

func TestPrivateKeysAreReadableByTheOwnerOnly(t *testing.T) {
	a := newAuthority(t)
	if err := a.IssueSigningKey("sa"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca", "sa"} {
		info, err := os.Stat(a.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", name, info.Mode())
		}
	}
}

func TestKubeconfigCarriesItsCredentials(t *testing.T) {
	a := newAuthority(t)
	if err := a.Issue(Identity{File: "admin", CommonName: "admin"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := a.WriteKubeconfig(path, "https://127.0.0.1:1234", "admin"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got kubeconfig
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Clusters[0].Cluster.Server != "https://127.0.0.1:1234" || got.CurrentContext != got.Contexts[0].Name {
		t.Errorf("kubeconfig: %s", data)
	}
	if _, err := tls.X509KeyPair(got.Users[0].User.Cert, got.Users[0].User.Key); err != nil {
		t.Error(err)
	}
}
