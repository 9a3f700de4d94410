package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

const pollInterval = 50 * time.Millisecond

// waitReady waits until a component serves. A component that ends meanwhile is an error at once, told by the last lines
// of its log.
func (c *Cluster) waitReady(ctx context.Context, comp component, running *proc.Running) error {
	var ended chan struct{}
	if running != nil {
		ended = running.Done
	}
	var last error
	for {
		if last = c.healthy(ctx, comp); last == nil {
			if running != nil {
				c.step("%s: ready", comp.name)
			}
			return nil
		}
		select {
		case <-ended:
			return c.explainEnd(comp.name, running.Err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready in time: %w\n%s", comp.name, last, c.tail(comp.name))
		case <-time.After(pollInterval):
		}
	}
}

func (c *Cluster) explainEnd(name string, err error) error {
	tail := c.tail(name)
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s: %w", name, errPortTaken)
	}
	return fmt.Errorf("%s ended while it was starting: %v; the end of its log:\n%s", name, err, tail)
}

// healthy asks a component once whether it serves.
func (c *Cluster) healthy(ctx context.Context, comp component) error {
	if comp.socket != "" {
		_, err := os.Stat(comp.socket)
		return err
	}
	if comp.health == "" {
		return nil
	}
	client, err := c.httpClient(comp.selfSigned)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return get(ctx, client, comp.health, nil)
}

// httpClient is the administrator's, and trusts the cluster's authority only, or with anyServer whoever answers.
func (c *Cluster) httpClient(anyServer bool) (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(c.ca.Cert("admin"), c.ca.Key("admin"))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.ca.Cert("ca"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), InsecureSkipVerify: anyServer}
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", c.ca.Cert("ca"))
	}
	if !anyServer {
		config.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config}, // no proxy from the environment
	}, nil
}

// api reads an object from the API server.
func (c *Cluster) api(ctx context.Context, path string, into any) error {
	client, err := c.httpClient(false)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return get(ctx, client, c.Server()+path, into)
}

func get(ctx context.Context, client *http.Client, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, bytes.TrimSpace(body))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// waitDefaultServiceAccount waits for what the controller manager makes in a new namespace, since without it no pod can
// be made there.
func (c *Cluster) waitDefaultServiceAccount(ctx context.Context) error {
	return c.poll(ctx, "the service account of namespace default", func() error {
		return c.api(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}

// poll calls a function until it succeeds or the time is up.
func (c *Cluster) poll(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %s: time is up", what), err)
		case <-time.After(pollInterval):
		}
	}
}

// tail is the end of a component's log.
func (c *Cluster) tail(name string) string {
	const most = 4000
	data, err := os.ReadFile(c.Log(name))
	if err != nil {
		return err.Error()
	}
	if len(data) > most {
		data = data[len(data)-most:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return string(data)
}
