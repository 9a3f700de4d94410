package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetimes of certificates.
const (
	// lifetime of a certificate and of its authority.
	lifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end it is made anew.
	renewBefore = 90 * 24 * time.Hour
	// backdate is how far clocks may differ.
	backdate = time.Hour
)

// pair is a serving certificate with its key, and the authority that signed it, in PEM. The key of the authority is thrown
// away: there is nothing else to sign.
type pair struct{ ca, cert, key []byte }

// newPair makes an authority and a certificate for the hosts, names or addresses.
func newPair(hosts []string, now time.Time) (*pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	ca := template("Libretto webhook CA", now)
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate authority: %w", err)
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, fmt.Errorf("cannot read the certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	cert := template("Libretto webhook", now)
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot print a key: %w", err)
	}
	return &pair{ca: block("CERTIFICATE", caDER), cert: block("CERTIFICATE", der), key: block("PRIVATE KEY", keyDER)}, nil
}

func template(name string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// check returns the certificate if it is good for all hosts for a while yet.
func (p *pair) check(hosts []string, now time.Time) (*tls.Certificate, error) {
	out, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.ca) {
		return nil, errors.New("cannot read the certificate authority")
	}
	for _, h := range hosts {
		if _, err := out.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: h, CurrentTime: now.Add(renewBefore)}); err != nil {
			return nil, fmt.Errorf("the certificate is not good for %s: %w", h, err)
		}
	}
	return &out, nil
}
