package step

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libretto-dev/libretto/internal/operation"
)

// Timeouts of connections.
const (
	dialTimeout = 15 * time.Second
	maxRedirect = 10
)

// deniedError: the address is in a network that http steps may not reach.
type deniedError struct{ address string }

// Error implements error.
func (d *deniedError) Error() string {
	return fmt.Sprintf("address %s is in a network that http steps may not reach", d.address)
}

// lostError: the request was sent, and there is no answer, or no whole one.
type lostError struct{ cause error }

// Error implements error.
func (l *lostError) Error() string { return l.cause.Error() }

// Unwrap returns the cause.
func (l *lostError) Unwrap() error { return l.cause }

// answer is what a server said.
type answer struct {
	url    *url.URL
	status int
	header http.Header
	body   output
}

// send makes a request and reads the answer. A lostError says that it was sent.
func (x *exchange) send(request *http.Request) (*answer, error) {
	// The transport is for this request alone: net/http would repeat a request on a connection that it kept, by itself.
	transport := &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTimeout, TLSClientConfig: x.credentials.tls(),
		MaxResponseHeaderBytes: MaxRead,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, Control: x.e.allow}).DialContext,
	}
	if len(x.e.options.DenyHTTP) == 0 {
		transport.Proxy = http.ProxyFromEnvironment // a proxy would reach what we may not
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: follow}
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	resp, err := client.Do(request)
	if err != nil {
		if sent.Load() {
			err = &lostError{cause: withoutURL(err)}
		}
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is read only
	out := &answer{url: resp.Request.URL, status: resp.StatusCode, header: resp.Header}
	if _, err := io.Copy(&out.body, io.LimitReader(resp.Body, MaxRead+1)); err != nil {
		return nil, &lostError{cause: fmt.Errorf("%d %s, and the rest of the answer is lost: %w", resp.StatusCode, http.StatusText(resp.StatusCode), err)}
	}
	return out, nil
}

// follow follows redirects of a request that only reads, on the same server.
func follow(next *http.Request, before []*http.Request) error {
	first := before[0]
	if first.Method != http.MethodGet && first.Method != http.MethodHead || !sameOrigin(next.URL, first.URL) {
		return http.ErrUseLastResponse
	}
	if len(before) >= maxRedirect {
		return errors.New("too many redirects")
	}
	return nil
}

// allow refuses addresses of denied networks, as they have been resolved.
func (e *Executor) allow(_, address string, _ syscall.RawConn) error {
	if len(e.options.DenyHTTP) == 0 {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &deniedError{address: address}
	}
	for _, ip := range forms(at.Addr()) {
		for _, denied := range e.options.DenyHTTP {
			if denied.Contains(ip) {
				return &deniedError{address: at.Addr().String()}
			}
		}
	}
	return nil
}

// nat64 is the network of IPv6 addresses that stand for IPv4 addresses (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// forms are an address and the IPv4 address that it stands for. The address of no host is that of this one.
func forms(ip netip.Addr) []netip.Addr {
	ip = ip.Unmap().WithZone("")
	out := []netip.Addr{ip}
	if nat64.Contains(ip) {
		b := ip.As16()
		out = append(out, netip.AddrFrom4([4]byte(b[12:])))
	}
	if ip.IsUnspecified() {
		out = append(out, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	return out
}

func (c *credentials) tls() *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots, ServerName: c.serverName}
	if c.certificate != nil {
		out.Certificates = []tls.Certificate{*c.certificate}
	}
	return out
}

func (a *answer) text() string { return a.body.text() }

// value reads the body as JSON; false: it is none.
func (a *answer) value() (any, bool) {
	body := bytes.TrimSpace(a.body.data)
	if a.body.more || len(body) == 0 {
		return nil, false
	}
	kind := a.header.Get("Content-Type")
	if !strings.Contains(kind, "json") && body[0] != '{' && body[0] != '[' {
		return nil, false
	}
	value, err := parseJSON(body)
	return value, err == nil
}

// result is what the expressions of an output see.
func (a *answer) result() map[string]any {
	headers := make(map[string]any, len(a.header))
	for name, values := range a.header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	out := map[string]any{"status": int64(a.status), "headers": headers, "body": a.text()}
	if value, ok := a.value(); ok {
		out["json"] = value
	}
	return out
}

func (a *answer) succeeded() operation.Result {
	result := a.result()
	out := operation.Result{Outcome: operation.Succeeded, Result: result, Output: result["body"]}
	if value, ok := result["json"]; ok {
		out.Output = value
	}
	return out
}

// retryAfter is how long the server asks to wait; 0: it does not.
func (a *answer) retryAfter(now time.Time) time.Duration {
	text := strings.TrimSpace(a.header.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
