// Package pki makes the certificates and kubeconfigs of a cluster.
//
// They are made here instead of by openssl or kubeadm so that nothing has to be installed. Elliptic-curve keys are used
// throughout, since making a handful of RSA keys takes longer than starting etcd does.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is long enough for any cluster that is kept, and short enough that a leaked key of a test dies out.
const lifetime = 365 * 24 * time.Hour

// Authority is the certificate authority of one cluster.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Identity says whose certificate is to be made.
type Identity struct {
	// File is the name of the files, without .crt and .key.
	File string
	// CommonName is the user name, or the server's.
	CommonName string
	// Organization holds the groups.
	Organization []string
	// Hosts are the DNS names and addresses under which a server is reached. Without any it is a client's certificate.
	Hosts []string
}

// LoadOrCreate returns the authority whose files are in dir, making it the first time.
func LoadOrCreate(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	certPEM, err := os.ReadFile(a.Cert("ca"))
	if errors.Is(err, os.ErrNotExist) {
		return a, a.create()
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(a.Key("ca"))
	if err != nil {
		return nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s: ca.crt or ca.key is not PEM", dir)
	}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return nil, err
	}
	a.key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	return a, err
}

// Cert is the path of a certificate.
func (a *Authority) Cert(name string) string { return filepath.Join(a.dir, name+".crt") }

// Key is the path of a private key.
func (a *Authority) Key(name string) string { return filepath.Join(a.dir, name+".key") }

// PublicKey is the path of a public key.
func (a *Authority) PublicKey(name string) string { return filepath.Join(a.dir, name+".pub") }

func (a *Authority) create() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(pkix.Name{CommonName: "devcluster-ca"})
	if err != nil {
		return err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	a.key = key
	return a.write("ca", der, key)
}

// Issue makes a certificate, unless there is one for the same hosts: a cluster that is restarted keeps its credentials.
func (a *Authority) Issue(id Identity) error {
	if a.valid(id) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(pkix.Name{CommonName: id.CommonName, Organization: id.Organization})
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range id.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", id.CommonName, err)
	}
	return a.write(id.File, der, key)
}

// IssueSigningKey makes the key pair with which service account tokens are signed and verified.
func (a *Authority) IssueSigningKey(name string) error {
	if _, err := os.Stat(a.PublicKey(name)); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeKey(a.Key(name), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return writePEM(a.PublicKey(name), "PUBLIC KEY", der)
}

// valid reports whether the identity's certificate exists, is of this authority, has a month to go, and covers its hosts.
func (a *Authority) valid(id Identity) bool {
	data, err := os.ReadFile(a.Cert(id.File))
	if err != nil {
		return false
	}
	if _, err := os.Stat(a.Key(id.File)); err != nil {
		return false
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.CheckSignatureFrom(a.cert) != nil || time.Until(cert.NotAfter) < lifetime/12 {
		return false
	}
	for _, host := range id.Hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return cert.Subject.CommonName == id.CommonName
}

func (a *Authority) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := writeKey(a.Key(name), key); err != nil {
		return err
	}
	return writePEM(a.Cert(name), "CERTIFICATE", der)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
	}, nil
}
