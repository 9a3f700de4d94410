package testkit

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// send performs one request through a client of cfg.
func send(t *testing.T, cfg *rest.Config, method, path, contentType string) error {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, cfg.Host+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

func TestRecorder(t *testing.T) {
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer server.Close()
	recorder := NewRecorder()
	cfg := recorder.Wrap(&rest.Config{Host: server.URL})
	const json, apply = "application/json", "application/apply-patch+yaml"

	for _, r := range []struct{ method, path, contentType string }{
		{"GET", "/api/v1/namespaces/a/configmaps/x", json},
		{"GET", "/api/v1/configmaps?watch=true", json},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/x", apply},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/x/status", json},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", json},
		{"GET", "/openapi/v3", json},
	} {
		if err := send(t, cfg, r.method, r.path, r.contentType); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{
		"get configmaps":                                   1,
		"apply deployments.apps":                           1,
		"patch deployments.apps/status":                    1,
		"create subjectaccessreviews.authorization.k8s.io": 1,
		"get /openapi/v3":                                  1,
	}
	if diff := cmp.Diff(want, Counts(recorder.Requests())); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	recorder.ExpectWrites(t, map[string]int{"apply deployments.apps": 1, "patch deployments.apps/status": 1})
	if got := len(recorder.Watches()); got != 1 {
		t.Errorf("%d watches, want 1", got)
	}

	before := served
	recorder.Inject(func(n int, _ Request) Verdict { return []Verdict{Pass, Pass, Refuse, Lose}[n] })
	for i, wantErr := range []bool{false, true, true} {
		err := send(t, cfg, "GET", "/api/v1/nodes", json)
		if errors.Is(err, ErrInjected) != wantErr {
			t.Errorf("request %d: error %v, want an injected one: %v", i+1, err, wantErr)
		}
	}
	if got := served - before; got != 2 {
		t.Errorf("the server saw %d of 3 requests, want 2: a refused one is not sent, a lost one is", got)
	}
}
