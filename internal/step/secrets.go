package step

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/program"
)

// shortSecret is a length below which a value cannot be masked without masking much else.
const shortSecret = 4

// credentials are what a request takes from Secrets.
type credentials struct {
	bearer         string
	user, password string
	basic          bool
	roots          *x509.CertPool
	certificate    *tls.Certificate
	serverName     string
	// secret are values that may be in no message.
	secret []string
}

func (c *credentials) authorize(r *http.Request) {
	switch {
	case c.bearer != "":
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	case c.basic:
		r.SetBasicAuth(c.user, c.password)
	}
}

// readSecrets reads the Secrets that the request needs, as they are now.
func (x *exchange) readSecrets(ctx context.Context) error {
	a, c := x.action, &x.credentials
	c.serverName = a.ServerName
	if a.Bearer != nil {
		data, err := x.secretKey(ctx, a.Bearer)
		if err != nil {
			return err
		}
		c.bearer = strings.TrimSpace(string(data))
		c.secret = append(c.secret, c.bearer)
	}
	if a.Basic != nil {
		name, data, err := x.secret(ctx, a.Basic)
		if err != nil {
			return err
		}
		user, hasUser := data["username"]
		password, hasPassword := data["password"]
		if !hasUser || !hasPassword {
			return temporary("Secret %s has no key username, or none password", name)
		}
		c.basic, c.user, c.password = true, string(user), string(password)
		c.secret = append(c.secret, c.password, base64.StdEncoding.EncodeToString([]byte(c.user+":"+c.password)))
	}
	if a.CA != nil {
		data, err := x.secretKey(ctx, a.CA)
		if err != nil {
			return err
		}
		c.roots = x509.NewCertPool()
		if !c.roots.AppendCertsFromPEM(data) {
			return temporary("key %s of the Secret of tls.ca holds no certificate in PEM", a.CA.Key)
		}
	}
	if a.ClientCertificate == nil {
		return nil
	}
	name, data, err := x.secret(ctx, a.ClientCertificate)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return temporary("Secret %s holds no certificate with its key: it needs tls.crt and tls.key in PEM", name)
	}
	c.certificate = &pair
	return nil
}

func (x *exchange) secretKey(ctx context.Context, k *program.SecretKey) ([]byte, error) {
	name, data, err := x.secret(ctx, k.Secret)
	if err != nil {
		return nil, err
	}
	value, ok := data[k.Key]
	if !ok || len(value) == 0 {
		return nil, temporary("Secret %s has no key %s", name, k.Key)
	}
	return value, nil
}

// secret reads a Secret in the namespace of the instance. Its values are in no error.
func (x *exchange) secret(ctx context.Context, t *program.Template) (string, map[string][]byte, error) {
	name, err := x.req.Eval.Text(t, x.req.Start.Vars)
	if err != nil {
		return "", nil, err
	}
	if name == "" {
		return "", nil, permanent("the name of the Secret is empty")
	}
	namespace, err := x.e.namespace(x.req, "", "Secret "+name)
	if err != nil {
		return name, nil, err
	}
	live, err := x.e.get(ctx, apply.Target{Kind: secretKind, Namespace: namespace, Name: name})
	if err != nil {
		return name, nil, beforehand(err)
	}
	if live == nil {
		return name, nil, temporary("Secret %s is not there", name)
	}
	values, _ := live.Object["data"].(map[string]any)
	out := make(map[string][]byte, len(values))
	for k, v := range values {
		text, _ := v.(string)
		if out[k], err = base64.StdEncoding.DecodeString(text); err != nil {
			return name, nil, permanent("key %s of Secret %s is not base64", k, name)
		}
	}
	return name, out, nil
}

// masked takes the values of Secrets out of a message.
func (x *exchange) masked(message string) string {
	for _, s := range x.credentials.secret {
		if len(s) >= shortSecret {
			message = strings.ReplaceAll(message, s, "***")
		}
	}
	return message
}

// citable is a text with the values of Secrets masked; nothing, when one is too short for that. It is done before a text is cut:
// a piece of a value would not be found.
func (x *exchange) citable(text string) string {
	for _, s := range x.credentials.secret {
		if s != "" && len(s) < shortSecret && strings.Contains(text, s) {
			return ""
		}
	}
	return x.masked(text)
}
