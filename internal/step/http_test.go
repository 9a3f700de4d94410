package step_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

const token = "t0ken-of-the-test"

// caller makes requests for an instance, with Secrets that are there.
type caller struct {
	t        *testing.T
	options  step.Options
	executor *step.Executor
	eval     *evaluator
	n        int
}

func newCaller(t *testing.T, secrets map[string]map[string]string) *caller {
	t.Helper()
	var objects []runtime.Object
	for name, values := range secrets {
		data := map[string]any{}
		for k, v := range values {
			data[k] = base64.StdEncoding.EncodeToString([]byte(v))
		}
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"namespace": "ns", "name": name}, "data": data}})
	}
	c := &caller{t: t, options: step.Options{Client: &identity.Client{Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme(), objects...)}},
		eval: &evaluator{bools: map[*expr.Expr]func(map[string]any) (bool, error){}, texts: map[*program.Template]func(map[string]any) (string, error){}}}
	c.executor = step.New(c.options)
	return c
}

func (c *caller) request(a program.HTTPAction) step.Request {
	if a.Method == "" {
		a.Method = http.MethodGet
	}
	c.n++
	instance := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "ns", "name": "it", "uid": "u"}}}
	return step.Request{Program: &program.Program{}, Instance: instance, Run: &operation.Run{UID: "run"}, Eval: c.eval, Start: operation.Start{
		Step: &program.Step{Name: "http"}, Action: &program.Action{HTTP: &a}, Key: "key",
		Attempt:  v1alpha1.Attempt{ID: fmt.Sprint(c.n), StartTime: metav1.NowMicro()},
		Deadline: time.Now().Add(time.Minute),
	}}
}

func (c *caller) do(a program.HTTPAction) operation.Result {
	return c.executor.Do(c.t.Context(), c.request(a))
}

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func TestHTTP(t *testing.T) {
	c := newCaller(t, map[string]map[string]string{"auth": {"token": token, "username": "me", "password": "passw0rd"}})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen", strings.Join([]string{r.Method, r.Header.Get("Idempotency-Key"), r.Header.Get("X-It"), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)}, "|"))
		_, _ = io.WriteString(w, `{"n": 1}`)
	})
	bearer := &program.SecretKey{Secret: static("auth"), Key: "token"}
	for name, tc := range map[string]struct {
		action program.HTTPAction
		want   string
	}{
		"plain":  {program.HTTPAction{}, "GET|key||||"},
		"object": {program.HTTPAction{Method: "POST", Body: static(map[string]any{"a": int64(1)}), Headers: static(map[string]any{"x-it": "x"})}, `POST|key|x||application/json|{"a":1}`},
		"text":   {program.HTTPAction{Method: "PUT", Body: static("text"), Bearer: bearer}, "PUT|key||Bearer " + token + "|text/plain; charset=utf-8|text"},
		"basic":  {program.HTTPAction{Basic: static("auth")}, "GET|key||Basic " + base64.StdEncoding.EncodeToString([]byte("me:passw0rd")) + "||"},
	} {
		tc.action.URL = static(s.URL + "/x?y=z")
		r := c.do(tc.action)
		expect(t, r, operation.Succeeded)
		result := r.Result.(map[string]any)
		if got := result["headers"].(map[string]any)["x-seen"]; got != tc.want {
			t.Errorf("%s: seen %q, want %q", name, got, tc.want)
		}
		if diff := cmp.Diff(map[string]any{"n": int64(1)}, r.Output); diff != "" || result["status"] != int64(200) {
			t.Errorf("%s: %v %s", name, result, diff)
		}
	}
	for name, a := range map[string]program.HTTPAction{
		"no Secret": {URL: static(s.URL), Basic: static("none")}, "no key": {URL: static(s.URL), Bearer: &program.SecretKey{Secret: static("auth"), Key: "x"}},
	} {
		if r := c.do(a); r.Outcome != operation.Failed {
			t.Errorf("%s: %d %s", name, r.Outcome, r.Message)
		}
	}
	for _, u := range []string{"ftp://x", "/x", "http://me:pw@x/", "http://", "%"} {
		if r := c.do(program.HTTPAction{URL: static(u)}); r.Outcome != operation.FailedForGood || strings.Contains(r.Message, "pw") {
			t.Errorf("%s: %d %s", u, r.Outcome, r.Message)
		}
	}
}

func TestHTTPStatus(t *testing.T) {
	c := newCaller(t, map[string]map[string]string{"auth": {"token": token}})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscan(r.URL.Path[1:], &status)
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Repeat("x", 150)+" "+r.Header.Get("Authorization")+strings.Repeat("y", 4000))
	})
	for path, want := range map[string]struct {
		outcome operation.Outcome
		success []int32
		after   time.Duration
	}{
		"/200": {outcome: operation.Succeeded}, "/299": {outcome: operation.Succeeded}, "/404": {outcome: operation.FailedForGood},
		"/409": {outcome: operation.Succeeded, success: []int32{409}}, "/201": {outcome: operation.FailedForGood, success: []int32{409}},
		"/408": {outcome: operation.Failed}, "/425": {outcome: operation.Failed}, "/500": {outcome: operation.Failed},
		"/429?after=7":   {outcome: operation.Failed, after: 7 * time.Second},
		"/503?after=bad": {outcome: operation.Failed},
		"/503?after=" + strings.ReplaceAll(time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat), " ", "%20"): {outcome: operation.Failed, after: 90 * time.Second},
		"/302": {outcome: operation.FailedForGood},
	} {
		r := c.do(program.HTTPAction{URL: static(s.URL + path), Success: want.success, Bearer: &program.SecretKey{Secret: static("auth"), Key: "token"}})
		if r.Outcome != want.outcome || (r.RetryAfter-want.after).Abs() > 3*time.Second {
			t.Errorf("%s: outcome %d after %s: %s", path, r.Outcome, r.RetryAfter, r.Message)
		}
		if strings.Contains(r.Message, token[:4]) || strings.Contains(r.Message, "after=") || len(r.Message) > 400 {
			t.Errorf("%s: message %q", path, r.Message)
		}
		if r.Outcome != operation.Succeeded && r.Result.(map[string]any)["status"] == nil {
			t.Errorf("%s: no status for verify", path)
		}
	}
}

// What is lost on the way is unknown, unless the method may be repeated or nothing was sent.
func TestHTTPLost(t *testing.T) {
	c := newCaller(t, nil)
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-release
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "x")
		case "/drop":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	defer close(release)
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, tc := range []struct {
		method, url string
		want        operation.Outcome
	}{
		{"POST", s.URL + "/hang", operation.Unknown}, {"GET", s.URL + "/hang", operation.Failed}, {"PUT", s.URL + "/hang", operation.Unknown},
		{"POST", s.URL + "/cut", operation.Unknown}, {"PATCH", s.URL + "/drop", operation.Unknown}, {"DELETE", s.URL + "/drop", operation.Unknown},
		{"POST", closed.URL, operation.Failed}, {"POST", "http://no.such.host.invalid/", operation.Failed},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := c.executor.Do(ctx, c.request(program.HTTPAction{Method: tc.method, URL: static(tc.url)}))
		cancel()
		if r.Outcome != tc.want {
			t.Errorf("%s %s: outcome %d: %s", tc.method, tc.url, r.Outcome, r.Message)
		}
	}
	// The engine was killed meanwhile.
	for method, want := range map[string]operation.Outcome{"POST": operation.Unknown, "PATCH": operation.Unknown, "GET": operation.Succeeded, "PUT": operation.Succeeded} {
		req := c.request(program.HTTPAction{Method: method, URL: static(s.URL)})
		req.Start.Resume = true
		expect(t, c.executor.Do(t.Context(), req), want)
		req.Start.Attempt.Verify = true
		expect(t, c.executor.Do(t.Context(), req), operation.Succeeded)
	}
}

func TestHTTPRedirect(t *testing.T) {
	c := newCaller(t, nil)
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") })
	var posts atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/there":
			if r.Method != http.MethodGet {
				posts.Add(1)
			}
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusFound)
		default:
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		}
	})
	for _, tc := range []struct {
		method, path string
		want         operation.Outcome
	}{
		{"GET", "/", operation.Succeeded}, {"GET", "/other", operation.FailedForGood}, {"POST", "/", operation.FailedForGood},
		{"PUT", "/", operation.FailedForGood}, {"GET", "/loop", operation.Failed},
	} {
		if r := c.do(program.HTTPAction{Method: tc.method, URL: static(s.URL + tc.path)}); r.Outcome != tc.want {
			t.Errorf("%s %s: outcome %d: %s", tc.method, tc.path, r.Outcome, r.Message)
		}
	}
	if posts.Load() != 0 {
		t.Error("a request with a body was sent on")
	}
}

// A denied network is not reached, whatever the name says, and no proxy reaches it for us.
func TestHTTPDeny(t *testing.T) {
	c := newCaller(t, nil)
	reached := false
	s := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	c.options.DenyHTTP = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	c.executor = step.New(c.options)
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	t.Setenv("HTTP_PROXY", s.URL)
	for _, host := range []string{"127.0.0.1", "localhost", "127.1.2.3", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "[64:ff9b::7f00:1]"} {
		r := c.do(program.HTTPAction{Method: "POST", URL: static("http://" + host + port)})
		if r.Outcome != operation.FailedForGood || !strings.Contains(r.Message, "may not reach") {
			t.Errorf("%s: outcome %d: %s", host, r.Outcome, r.Message)
		}
	}
	if reached {
		t.Error("the server was reached")
	}
}

func TestHTTPTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	s.Config.ErrorLog = nil
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	c := newCaller(t, map[string]map[string]string{"ca": {"ca.crt": ca, "bad": "x"}})
	trust := func(key string) *program.SecretKey { return &program.SecretKey{Secret: static("ca"), Key: key} }
	for name, tc := range map[string]struct {
		action program.HTTPAction
		want   operation.Outcome
	}{
		"trusted":       {program.HTTPAction{CA: trust("ca.crt")}, operation.Succeeded},
		"not trusted":   {program.HTTPAction{Method: "POST"}, operation.Failed}, // nothing was sent
		"another name":  {program.HTTPAction{CA: trust("ca.crt"), ServerName: "example.com"}, operation.Succeeded},
		"wrong name":    {program.HTTPAction{CA: trust("ca.crt"), ServerName: "example.org"}, operation.Failed},
		"no PEM":        {program.HTTPAction{CA: trust("bad")}, operation.Failed},
		"no client key": {program.HTTPAction{CA: trust("ca.crt"), ClientCertificate: static("ca")}, operation.Failed},
	} {
		tc.action.URL = static(s.URL)
		if r := c.do(tc.action); r.Outcome != tc.want {
			t.Errorf("%s: outcome %d: %s", name, r.Outcome, r.Message)
		}
	}
}

// Work that a request has only begun is asked about until it is done, and the request is made once.
func TestHTTPPoll(t *testing.T) {
	c := newCaller(t, map[string]map[string]string{"auth": {"token": token}})
	var posts, polls atomic.Int32
	down := atomic.Bool{}
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the credentials went to another server")
		}
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			posts.Add(1)
			location := "/jobs/1"
			if r.URL.Path == "/elsewhere" {
				location = other.URL
			}
			if r.URL.Path != "/nowhere" {
				w.Header().Set("Location", location)
			}
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusAccepted)
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case polls.Add(1) < 3:
			w.WriteHeader(http.StatusAccepted)
		default:
			_, _ = io.WriteString(w, `{"state": "done", "auth": "`+r.Header.Get("Authorization")+`"}`)
		}
	})
	post := func(path string, p program.HTTPPoll) program.HTTPAction {
		return program.HTTPAction{Method: "POST", URL: static(s.URL + path), Poll: &p, Bearer: &program.SecretKey{Secret: static("auth"), Key: "token"}}
	}
	req := c.request(post("/", program.HTTPPoll{Every: 10 * time.Millisecond}))
	r := c.executor.Do(t.Context(), req)
	if expect(t, r, operation.Waiting); r.Ref != s.URL+"/jobs/1" || r.Again != 2*time.Second {
		t.Errorf("%+v", r)
	}
	req = again(req, r)
	down.Store(true)
	expect(t, c.executor.Do(t.Context(), req), operation.Waiting)
	down.Store(false)
	c.executor = step.New(c.options) // another process
	for range 2 {
		if r = c.executor.Do(t.Context(), req); r.Outcome != operation.Waiting || r.Again != 10*time.Millisecond {
			t.Fatalf("%+v", r)
		}
	}
	r = c.executor.Do(t.Context(), req)
	expect(t, r, operation.Succeeded)
	if out := r.Output.(map[string]any); out["auth"] != "Bearer "+token || posts.Load() != 1 {
		t.Errorf("output %v, %d requests", out, posts.Load())
	}
	if r := c.do(post("/elsewhere", program.HTTPPoll{})); r.Outcome != operation.FailedForGood {
		t.Errorf("another server: %d %s", r.Outcome, r.Message)
	}
	if r := c.do(post("/nowhere", program.HTTPPoll{})); r.Outcome != operation.FailedForGood {
		t.Errorf("no Location: %d %s", r.Outcome, r.Message)
	}
	req = c.request(post("/", program.HTTPPoll{URL: static(other.URL)}))
	r = c.executor.Do(t.Context(), req)
	expect(t, c.executor.Do(t.Context(), again(req, r)), operation.Succeeded)

	until, failed := &expr.Expr{}, &expr.Expr{}
	c.eval.bools[until] = func(vars map[string]any) (bool, error) {
		body, ok := vars["result"].(map[string]any)["json"].(map[string]any)
		if !ok {
			return false, &expr.EvalError{Message: "no such key: json"}
		}
		return body["state"] == "never", nil
	}
	c.eval.bools[failed] = func(vars map[string]any) (bool, error) {
		return strings.Contains(vars["result"].(map[string]any)["body"].(string), "done"), nil
	}
	req = c.request(post("/", program.HTTPPoll{Until: until}))
	r = c.executor.Do(t.Context(), req)
	expect(t, c.executor.Do(t.Context(), again(req, r)), operation.Waiting)
	req.Start.Action.HTTP.Poll.Failed = failed
	expect(t, c.executor.Do(t.Context(), again(req, r)), operation.FailedForGood)
}
