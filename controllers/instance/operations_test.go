package instance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// account is a kind whose logic is elsewhere: a service is told of each instance. SERVICE is replaced.
const account = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: bundles.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Bundle}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                message: {type: string, default: hello}
                other: {type: string, default: ""}
                broken: {type: boolean, default: false}
            status:
              type: object
              properties:
                account: {type: string}
  resources:
  - name: config
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-config"}
      data: {message: "${self.spec.message}"}
  operations:
  - name: register
    triggers: [{event: Create}]
    steps:
    - name: call
      http:
        url: "SERVICE/accounts"
        method: POST
        body: {name: "${self.metadata.name}", message: "${self.spec.message}"}
      onUnknown: Verify
      verify: {http: {url: "SERVICE/accounts/${self.metadata.name}"}}
      backoff: {initial: 100ms}
    - name: remember
      set: {account: "${self.metadata.name}-account"}
    - name: tell
      event: {reason: Registered, message: "registered ${self.metadata.name}"}
  - name: change
    triggers: [{event: Update, fields: [spec.message]}]
    steps:
    - name: call
      http:
        url: "SERVICE/accounts/${self.metadata.name}"
        method: PUT
        body: {message: "${self.spec.message}", old: "${old.?spec.message.orValue('none')}"}
      onUnknown: Verify
      verify: {http: {url: "SERVICE/accounts/${self.metadata.name}?message=${self.spec.message}"}}
      backoff: {initial: 100ms}
  - name: unregister
    triggers: [{event: Delete}]
    steps:
    - name: call
      http:
        url: "SERVICE/accounts/${self.metadata.name}"
        method: DELETE
        success: [200, 204, 404]
      onUnknown: Verify
      verify: {http: {url: "SERVICE/accounts/${self.metadata.name}?gone=yes"}}
      backoff: {initial: 100ms}
`

// service counts what it is told. It can fail, hang, or call something before it answers.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
	known map[string]string
	// before is called before a request has its effect, after when it has had it; true: the connection is cut.
	before, after func(method, name string) bool
	// status is what is answered instead, without effect; 0: what is right.
	status func(method, name string) int
}

func newService(t testing.TB) *service {
	s := &service{known: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var body struct{ Name, Message, Old string }
	_ = json.Unmarshal(data, &body)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/accounts"), "/")
	if name == "" {
		name = body.Name
	}
	if r.Method == http.MethodGet {
		s.mu.Lock()
		message, known := s.known[name]
		s.mu.Unlock()
		want, gone := r.URL.Query().Get("message"), r.URL.Query().Has("gone")
		if known == gone || want != "" && message != want {
			w.WriteHeader(http.StatusNotFound)
		}
		return
	}
	if s.before != nil && s.before(r.Method, name) {
		panic(http.ErrAbortHandler)
	}
	if s.status != nil {
		if code := s.status(r.Method, name); code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	s.mu.Lock()
	call := r.Method + " " + name
	if body.Message != "" {
		call += " " + body.Message
	}
	if body.Old != "" {
		call += " was " + body.Old
	}
	s.calls = append(s.calls, call)
	if r.Method == http.MethodDelete {
		delete(s.known, name)
	} else {
		s.known[name] = body.Message
	}
	s.mu.Unlock()
	if s.after != nil && s.after(r.Method, name) {
		panic(http.ErrAbortHandler)
	}
}

// of returns the calls about an instance, in order.
func (s *service) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.calls {
		if fields := strings.Fields(c); fields[1] == name {
			out = append(out, c)
		}
	}
	return out
}

func (s *service) in(text string) string { return strings.ReplaceAll(text, "SERVICE", s.URL) }

// runs returns the operation objects of the namespace as OPERATION=STATE, sorted.
func (w *world) runs(name string) []string {
	w.t.Helper()
	var out []string
	for _, o := range w.runObjects(name) {
		operation, _, _ := unstructured.NestedString(o.Object, "spec", "operation")
		state, _, _ := unstructured.NestedString(o.Object, "status", "state")
		out = append(out, operation+"="+state)
	}
	slices.Sort(out)
	return out
}

func (w *world) runObjects(name string) []unstructured.Unstructured {
	w.t.Helper()
	list, err := w.kube.List(w.t.Context(), w.text("GROUP/v1"), "BundleOperation", w.namespace, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(o unstructured.Unstructured) bool {
		target, _, _ := unstructured.NestedString(o.Object, "spec", "target")
		return target != name
	})
}

func (w *world) eventuallyRuns(name string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	testkit.Eventually(w.t, 20*time.Second, "the runs are as wanted", func() error {
		if got := w.runs(name); !slices.Equal(got, want) {
			text := ""
			for _, o := range w.runObjects(name) {
				data, _ := json.Marshal(o.Object["status"])
				text += "\n" + o.GetName() + ": " + string(data)
			}
			return fmt.Errorf("runs %v, want %v%s", got, want, text)
		}
		return nil
	})
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.kube.Delete(w.t.Context(), w.text("GROUP/v1"), "Bundle", w.namespace, name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventuallyGone(name string) {
	w.t.Helper()
	testkit.Eventually(w.t, 20*time.Second, name+" is gone", func() error {
		if o, err := w.get("GROUP/v1", "Bundle", name); err == nil {
			return fmt.Errorf("it is there: finalizers %v, status %v", o.GetFinalizers(), o.Object["status"])
		}
		return nil
	})
}

func expectCalls(t *testing.T, s *service, name string, want ...string) {
	t.Helper()
	if got := s.of(name); !slices.Equal(got, want) {
		t.Errorf("calls about %s: %q, want %q", name, got, want)
	}
}

// TestLifeOfAnAccount: create, update and delete handlers run once for each cause, with what they are told.
func TestLifeOfAnAccount(t *testing.T) {
	s := newService(t)
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	w.eventuallyRuns("a", "register=Succeeded")
	expectCalls(t, s, "a", "POST a hello")
	obj, err := w.get("GROUP/v1", "Bundle", "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "status", "account"); got != "a-account" {
		t.Errorf("status.account is %q", got)
	}
	// A field that is not watched changes nothing, nor does a restart.
	w.bundle("a", "{other: x}")
	w.ready("a")
	w.engine.StopAll()
	w.startEngine()
	w.ready("a")
	w.settle()
	expectCalls(t, s, "a", "POST a hello")
	w.bundle("a", "{message: two}")
	w.eventuallyRuns("a", "register=Succeeded", "change=Succeeded")
	w.ready("a")
	expectCalls(t, s, "a", "POST a hello", "PUT a two was hello")
	w.recorder.ExpectSilence(t, time.Second)
	w.delete("a")
	w.eventuallyGone("a")
	expectCalls(t, s, "a", "POST a hello", "PUT a two was hello", "DELETE a")
}

// TestRequestsOfAHandler: a create handler costs what it must.
func TestRequestsOfAHandler(t *testing.T) {
	w := newWorld(t, greeting)
	w.bundle("warm", "{}")
	w.ready("warm")
	w.settle()
	w.recorder.Reset()
	w.bundle("a", "{}")
	w.ready("a")
	w.settle()
	w.recorder.ExpectWrites(t, map[string]int{
		"create bundleoperations." + w.group:            1, // the run
		"patch bundleoperations." + w.group + "/status": 2, // the attempt, the end
		"create events":                        1, // the step
		"patch bundles." + w.group + "/status": 2, // the run has begun, the run has ended
	})
}

// greeting has one handler with one quick step.
const greeting = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: bundles.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Bundle}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
  operations:
  - name: greet
    triggers: [{event: Create}]
    steps:
    - event: {reason: Hello, message: "called with ${json(self.spec)}"}
`

// TestQuickEditsCollapse: edits while a handler runs make one run with the newest values and the old ones that were handled.
func TestQuickEditsCollapse(t *testing.T) {
	s := newService(t)
	release := make(chan struct{})
	var once sync.Once
	s.before = func(method, _ string) bool {
		if method == http.MethodPut {
			once.Do(func() { <-release })
		}
		return false
	}
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	w.bundle("a", "{message: one}")
	w.eventuallyRuns("a", "register=Succeeded", "change=Running")
	for _, m := range []string{"two", "three", "four"} {
		w.bundle("a", "{message: "+m+"}")
	}
	w.settle()
	close(release)
	w.eventuallyRuns("a", "register=Succeeded", "change=Succeeded", "change=Succeeded")
	w.ready("a")
	calls := s.of("a")
	if last := calls[len(calls)-1]; len(calls) != 3 || !strings.HasPrefix(last, "PUT a four was ") {
		t.Errorf("calls %q", calls)
	}
}

// TestFailuresAreRetriedAndTold: an error that may pass is tried again; one that does not ends the run, says so, and can be retried.
func TestFailuresAreRetriedAndTold(t *testing.T) {
	s := newService(t)
	var mu sync.Mutex
	tries := 0
	answer := http.StatusServiceUnavailable
	s.status = func(method, _ string) int {
		mu.Lock()
		defer mu.Unlock()
		if tries++; method == http.MethodPost && (tries <= 2 || answer == http.StatusConflict) {
			return answer
		}
		return 0
	}
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	expectCalls(t, s, "a", "POST a hello")
	if tries < 3 {
		t.Errorf("%d tries, want 3", tries)
	}
	mu.Lock()
	answer = http.StatusConflict
	mu.Unlock()
	w.bundle("b", "{}")
	message := w.condition("GROUP/v1", "Bundle", "b", "Stalled", "True")
	for _, part := range []string{"register", "call", "409", "libretto operation retry"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not say %q: %s", part, message)
		}
	}
	mu.Lock()
	answer = 0
	mu.Unlock()
	run := w.runObjects("b")[0]
	w.kube.Apply(t, w.namespace, w.text(fmt.Sprintf("apiVersion: GROUP/v1\nkind: BundleOperation\nmetadata: {name: %s}\nspec: {target: b, operation: register, retry: {id: again}}\n", run.GetName())))
	w.ready("b")
	expectCalls(t, s, "b", "POST b hello")
}

// TestDeletionInATerminatingNamespace: the handler runs although no operation object can be made.
func TestDeletionInATerminatingNamespace(t *testing.T) {
	s := newService(t)
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	if err := w.kube.Delete(t.Context(), "v1", "Namespace", "", w.namespace); err != nil {
		t.Fatal(err)
	}
	w.eventuallyGone("a")
	expectCalls(t, s, "a", "POST a hello", "DELETE a")
}

// TestFailedDeletionHoldsAndLetsGo: a Delete run that fails holds its instance, says how to go on, and lets go by annotation.
func TestFailedDeletionHoldsAndLetsGo(t *testing.T) {
	s := newService(t)
	s.status = func(method, _ string) int {
		if method == http.MethodDelete {
			return http.StatusForbidden
		}
		return 0
	}
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	w.delete("a")
	message := w.condition("GROUP/v1", "Bundle", "a", "Stalled", "True")
	if !strings.Contains(message, "403") || !strings.Contains(message, "libretto.dev/force-delete") {
		t.Errorf("the condition says: %s", message)
	}
	if _, err := w.get("v1", "ConfigMap", "a-config"); err != nil {
		t.Errorf("a child is gone before the Delete run has ended well: %v", err)
	}
	w.apply("apiVersion: GROUP/v1\nkind: Bundle\nmetadata: {name: a, annotations: {libretto.dev/force-delete: 'true'}}\n")
	w.eventuallyGone("a")
}

// TestForeignRunIsCancelledByDeletion: what is under way is stopped when the instance is deleted.
func TestRunsAreCancelledByDeletion(t *testing.T) {
	s := newService(t)
	cut := make(chan struct{})
	s.before = func(method, _ string) bool {
		if method == http.MethodPut {
			<-cut
		}
		return false
	}
	w := newWorld(t, s.in(account))
	defer close(cut)
	w.bundle("a", "{}")
	w.ready("a")
	w.bundle("a", "{message: slow}")
	w.eventuallyRuns("a", "register=Succeeded", "change=Running")
	w.delete("a")
	w.eventuallyGone("a")
	if w.actions(engine.ActionCancelled) != 1 {
		t.Errorf("%d runs were cancelled, want 1", w.actions(engine.ActionCancelled))
	}
}

// TestThousandHandlers creates a thousand instances with a create handler at once: each is handled exactly once, and all is silent
// afterwards.
func TestThousandHandlers(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand instances")
	}
	const n = 1000
	w := newWorld(t, greeting)
	w.bundle("warm", "{}")
	w.ready("warm")
	w.settle()
	w.recorder.Reset()
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := worker; i < n; i += 20 {
				w.bundle(fmt.Sprintf("b%d", i), "{}")
			}
		})
	}
	wg.Wait()
	made := time.Since(began)
	testkit.Eventually(t, 3*time.Minute, "all are ready", func() error {
		if st, _ := w.engine.State(w.specs[0].Definition); st.Ready != n+1 {
			return fmt.Errorf("%d of %d are ready", st.Ready, n+1)
		}
		return nil
	})
	took := time.Since(began)
	w.settle()
	writes := w.recorder.Writes()
	t.Logf("%d instances created in %s, all handled and ready after %s; %d writes, %.2f for each: %v", n, made.Round(time.Millisecond),
		took.Round(time.Millisecond), len(writes), float64(len(writes))/n, testkit.Counts(writes))
	handled := map[string]int{}
	events, err := w.kube.List(t.Context(), "v1", "Event", w.namespace, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		if events[i].Object["reason"] == "Hello" {
			name, _, _ := unstructured.NestedString(events[i].Object, "involvedObject", "name")
			handled[name]++
		}
	}
	if len(handled) != n+1 {
		t.Errorf("%d instances were handled, want %d", len(handled), n+1)
	}
	for name, times := range handled {
		if times != 1 {
			t.Errorf("%s was handled %d times", name, times)
		}
	}
	w.recorder.ExpectSilence(t, 3*time.Second)
}

// TestThousandTimers: a thousand instances with a timer of ten seconds; every firing runs once, in time.
func TestThousandTimers(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand instances")
	}
	const n = 1000
	w := newWorld(t, greeting+`
  - name: tick
    triggers: [{every: 10s, jitter: 10s}]
    retain: {last: 1}
    steps:
    - log: "tick ${self.metadata.name}"
`)
	var mu sync.Mutex
	ticks := map[string]int{}
	w.onEvent = func(ev engine.Event) {
		if ev.Action == engine.ActionLog {
			mu.Lock()
			ticks[ev.Run]++
			mu.Unlock()
		}
	}
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := worker; i < n; i += 20 {
				w.bundle(fmt.Sprintf("b%d", i), "{}")
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, 3*time.Minute, "all are handled", func() error {
		if st, _ := w.engine.State(w.specs[0].Definition); st.Ready != n {
			return fmt.Errorf("%d of %d are ready", st.Ready, n)
		}
		return nil
	})
	mu.Lock()
	clear(ticks)
	mu.Unlock()
	w.recorder.Reset()
	const span = 30 * time.Second
	time.Sleep(span)
	writes := w.recorder.Writes()
	mu.Lock()
	defer mu.Unlock()
	repeated := 0
	for _, times := range ticks {
		if times > 1 {
			repeated++
		}
	}
	t.Logf("%d ticks of %d instances in %s, %.2f writes a tick: %v", len(ticks), n, span, float64(len(writes))/float64(max(len(ticks), 1)), testkit.Counts(writes))
	if repeated > 0 {
		t.Errorf("%d runs ticked more than once", repeated)
	}
	// The interval is 10 s from the end of a run, and up to 10 s of jitter: two runs of three fit into the time.
	if len(ticks) < n*3/2 {
		t.Errorf("%d ticks, want at least %d", len(ticks), n*3/2)
	}
}
