package testkit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Request is one request to the API server.
type Request struct {
	// Verb is get, list, watch, create, update, patch, apply, delete or deletecollection; for a path that is not of a
	// resource (discovery, OpenAPI, health) the HTTP method in lower case.
	Verb string
	// Resource is the plural, with group and subresource: deployments.apps, alices.k106.com/status; or the path.
	Resource string
	// Namespace and Name of the object, as far as the URL has them.
	Namespace, Name string
	// User is whom the request impersonates; empty: nobody.
	User string
}

// String is the verb and the resource: the key of Counts.
func (r Request) String() string { return r.Verb + " " + r.Resource }

// Write tells whether the request may change something. Reviews (SubjectAccessReview and the like) change nothing.
func (r Request) Write() bool {
	switch r.Verb {
	case "create", "update", "patch", "apply", "delete", "deletecollection":
		return !strings.Contains(r.Resource, "reviews.")
	default:
		return false
	}
}

// Fault decides what happens to a request. n counts requests from 1, watches apart; a watch has n = 0.
type Fault func(n int, r Request) Verdict

// Verdict is what happens to a request.
type Verdict int

// Verdicts.
const (
	// Pass lets the request through.
	Pass Verdict = iota
	// Refuse fails the request without sending it.
	Refuse
	// Lose sends the request and loses the answer: the sender cannot know whether it took effect.
	Lose
)

// ErrInjected is the error of a request that a Fault refused or lost.
var ErrInjected = errors.New("injected fault")

// Recorder records the requests that pass through the client configurations it wraps. It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	requests []Request
	watches  []Request
	fault    Fault
	resolver request.RequestInfoFactory
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder {
	return &Recorder{resolver: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}}
}

// Wrap returns a copy of cfg whose requests are recorded.
func (r *Recorder) Wrap(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recording{recorder: r, next: next} })
	return out
}

// Inject sets what happens to requests from now on; nil: all pass. Counting starts again at 1.
func (r *Recorder) Inject(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.requests, r.watches = f, nil, nil
}

// Reset forgets what was recorded.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.watches = nil, nil
}

// Requests returns what was recorded since the last Reset, in order, without watches.
func (r *Recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Watches returns the watches that were started since the last Reset.
func (r *Recorder) Watches() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.watches)
}

// Writes returns the recorded requests that may have changed something.
func (r *Recorder) Writes() []Request {
	return slices.DeleteFunc(r.Requests(), func(q Request) bool { return !q.Write() })
}

// Counts counts requests by "verb resource".
func Counts(requests []Request) map[string]int {
	out := map[string]int{}
	for _, q := range requests {
		out[q.String()]++
	}
	return out
}

// ExpectWrites fails the test unless the writes since the last Reset are exactly these, by "verb resource".
func (r *Recorder) ExpectWrites(t testing.TB, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, Counts(r.Writes())); diff != "" {
		t.Errorf("writes differ from the budget (-want +got):\n%s", diff)
	}
}

// ExpectSilence fails the test if there is any request but watches for the time.
func (r *Recorder) ExpectSilence(t testing.TB, d time.Duration) {
	t.Helper()
	r.Reset()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
	if got := r.Requests(); len(got) > 0 {
		t.Errorf("%d requests in %s, want none: %v", len(got), d, Counts(got))
	}
}

// record notes a request and returns what is to happen to it.
func (r *Recorder) record(q Request) Verdict {
	r.mu.Lock()
	n, fault := 0, r.fault
	if q.Verb == "watch" {
		r.watches = append(r.watches, q)
	} else {
		r.requests = append(r.requests, q)
		n = len(r.requests)
	}
	r.mu.Unlock()
	if fault == nil {
		return Pass
	}
	return fault(n, q)
}

// describe tells what the HTTP request asks of the API server.
func (r *Recorder) describe(req *http.Request) Request {
	out := Request{Verb: strings.ToLower(req.Method), Resource: req.URL.Path, User: req.Header.Get("Impersonate-User")}
	info, err := r.resolver.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest {
		return out
	}
	out.Verb, out.Resource, out.Namespace, out.Name = info.Verb, info.Resource, info.Namespace, info.Name
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
		out.Verb = "apply"
	}
	if info.APIGroup != "" {
		out.Resource += "." + info.APIGroup
	}
	if info.Subresource != "" {
		out.Resource += "/" + info.Subresource
	}
	return out
}

type recording struct {
	recorder *Recorder
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	q := t.recorder.describe(req)
	switch t.recorder.record(q) {
	case Refuse:
		return nil, fmt.Errorf("%s: %w", q, ErrInjected)
	case Lose:
		resp, err := t.next.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close() // the answer is lost on purpose
		}
		return nil, fmt.Errorf("%s: answer lost: %w", q, ErrInjected)
	default:
		return t.next.RoundTrip(req)
	}
}
