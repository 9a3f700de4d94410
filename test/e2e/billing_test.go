package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// billing is a service that registers accounts, as somebody else may have written it: it takes its time, it fails, and it
// knows nothing of Kubernetes. It counts what is asked of it.
type billing struct {
	*httptest.Server
	mu sync.Mutex
	// accounts by the reference of the one who asked.
	accounts map[string]*account
	// faults are the statuses with which the next requests are answered, by method; nothing is done then.
	faults map[string][]int
	// hold, when set, keeps the answers to POST back, after the account has been made, until it is closed; held is told.
	hold, held chan struct{}
	// polls is how often a new account is not ready yet.
	polls int
	// requests counts what arrived, as METHOD REFERENCE.
	requests map[string]int
	// made counts the accounts that were made, ever.
	made int
	// keys are the idempotency keys of the POSTs, by reference.
	keys map[string]map[string]bool
}

// account is what the service knows of one.
type account struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Plan  string `json:"plan"`
	// Was holds the plans that it was told to change from.
	Was     []string `json:"-"`
	pending int
}

func startBilling(t *testing.T) *billing {
	t.Helper()
	b := &billing{accounts: map[string]*account{}, faults: map[string][]int{}, requests: map[string]int{}, keys: map[string]map[string]bool{}, polls: 2}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts", b.register)
	mux.HandleFunc("GET /accounts/{id}", b.get)
	mux.HandleFunc("PUT /accounts/{id}/plan", b.changePlan)
	mux.HandleFunc("DELETE /accounts", b.remove)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

// fault answers a request with the next injected status, if there is one.
func (b *billing) fault(w http.ResponseWriter, method string) bool {
	faults := b.faults[method]
	if len(faults) == 0 {
		return false
	}
	b.faults[method] = faults[1:]
	if faults[0] == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(faults[0])
	return true
}

func (b *billing) register(w http.ResponseWriter, r *http.Request) {
	var body struct{ Reference, Email, Plan string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.requests["POST "+body.Reference]++
	if b.keys[body.Reference] == nil {
		b.keys[body.Reference] = map[string]bool{}
	}
	b.keys[body.Reference][r.Header.Get("Idempotency-Key")] = true
	if b.fault(w, "POST") {
		b.mu.Unlock()
		return
	}
	a := b.accounts[body.Reference]
	if a == nil {
		for _, other := range b.accounts {
			if other.Email == body.Email {
				b.mu.Unlock()
				w.WriteHeader(http.StatusConflict)
				return
			}
		}
		b.made++
		a = &account{ID: fmt.Sprintf("acct-%d", b.made), Email: body.Email, Plan: body.Plan, pending: b.polls}
		b.accounts[body.Reference] = a
	}
	hold, held := b.hold, b.held
	b.mu.Unlock()
	if hold != nil {
		select {
		case held <- struct{}{}:
		default:
		}
		<-hold
	}
	w.Header().Set("Location", "/accounts/"+a.ID)
	w.WriteHeader(http.StatusAccepted)
}

// find returns the account with an ID.
func (b *billing) find(id string) *account {
	for _, a := range b.accounts {
		if a.ID == id {
			return a
		}
	}
	return nil
}

func (b *billing) get(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.find(r.PathValue("id"))
	switch {
	case a == nil:
		w.WriteHeader(http.StatusNotFound)
	case a.pending > 0:
		a.pending--
		w.WriteHeader(http.StatusAccepted)
	default:
		answer(w, a)
	}
}

func (b *billing) changePlan(w http.ResponseWriter, r *http.Request) {
	var body struct{ Plan, Was string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault(w, "PUT") {
		return
	}
	a := b.find(r.PathValue("id"))
	if a == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	a.Plan, a.Was = body.Plan, append(a.Was, body.Was)
	answer(w, a)
}

func (b *billing) remove(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reference := r.URL.Query().Get("reference")
	b.requests["DELETE "+reference]++
	if b.fault(w, "DELETE") {
		return
	}
	if b.accounts[reference] == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	delete(b.accounts, reference)
	w.WriteHeader(http.StatusNoContent)
}

func answer(w http.ResponseWriter, a *account) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // the client is gone
}

// with calls f while no request is worked on.
func (b *billing) with(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// account returns a copy of what the service knows under a reference; nil: nothing.
func (b *billing) account(reference string) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[reference]
	if a == nil {
		return nil
	}
	c := *a
	return &c
}

// count returns how many requests of a method arrived for a reference, and with how many idempotency keys.
func (b *billing) count(method, reference string) (requests, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[method+" "+reference], len(b.keys[reference])
}

// String implements fmt.Stringer.
func (b *billing) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for reference, a := range maps.All(b.accounts) {
		fmt.Fprintf(&s, "%s: %+v\n", reference, *a)
	}
	return s.String()
}
