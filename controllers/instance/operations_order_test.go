package instance_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// archive is a kind with an operation on demand whose runs leave something elsewhere. SERVICE is replaced.
const archive = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: bundles.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Bundle}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {message: {type: string}}}}}}
  operations:
  - name: archive
    steps:
    - name: call
      http: {url: "SERVICE/accounts", method: POST, body: {name: "${run.name}"}}
    onRemove:
    - http: {url: "SERVICE/accounts/${run.name}", method: DELETE}
`

func (w *world) archive(name, target string) {
	w.apply(fmt.Sprintf("apiVersion: GROUP/v1\nkind: BundleOperation\nmetadata: {name: %s}\nspec: {target: %s, operation: archive}\n", name, target))
}

func (w *world) deleteRun(name string) {
	w.t.Helper()
	if err := w.kube.Delete(w.t.Context(), w.text("GROUP/v1"), "BundleOperation", w.namespace, name); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

func (w *world) eventuallyNoRun(name string) {
	w.t.Helper()
	testkit.Eventually(w.t, 30*time.Second, "operation object "+name+" is gone", func() error {
		if o, err := w.get("GROUP/v1", "BundleOperation", name); err == nil {
			return fmt.Errorf("it is there: finalizers %v, status %v", o.GetFinalizers(), o.Object["status"])
		}
		return nil
	})
}

// TestWhatARunHasMadeGoesWithItsRecord: what a run has made is removed with its record, but stays when its instance is gone, though
// there may be another one of that name.
func TestWhatARunHasMadeGoesWithItsRecord(t *testing.T) {
	s := newService(t)
	w := newWorld(t, s.in(archive))
	w.bundle("a", "{}")
	w.ready("a")
	w.archive("one", "a")
	w.archive("two", "a")
	w.eventuallyRuns("a", "archive=Succeeded", "archive=Succeeded")
	w.clock.Step(time.Minute) // beyond the pause
	w.deleteRun("one")
	w.eventuallyNoRun("one")
	expectCalls(t, s, "one", "POST one", "DELETE one")

	w.delete("a")
	w.bundle("a", "{}")
	w.ready("a")
	w.deleteRun("two")
	w.eventuallyNoRun("two")
	expectCalls(t, s, "two", "POST two")
}

// TestRunsOfOneOperationDoNotOverlap: of runs that are made at once, one begins at a time.
func TestRunsOfOneOperationDoNotOverlap(t *testing.T) {
	s := newService(t)
	var now, most atomic.Int32
	s.before = func(string, string) bool {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		return false
	}
	w := newWorld(t, s.in(archive))
	w.bundle("a", "{}")
	w.ready("a")
	const n = 20
	want := make([]string, n)
	var wait sync.WaitGroup
	for i := range n {
		want[i] = "archive=Succeeded"
		wait.Go(func() { w.archive(fmt.Sprintf("run-%d", n-i), "a") })
	}
	wait.Wait()
	testkit.Eventually(t, 30*time.Second, "all have run", func() error {
		if runs := w.runs("a"); slices.ContainsFunc(runs, func(r string) bool { return !strings.HasSuffix(r, "=Succeeded") }) {
			return fmt.Errorf("%v", runs)
		}
		return nil
	})
	if most.Load() != 1 {
		t.Errorf("%d runs were at work together", most.Load())
	}
}

// TestDeleteRunIsNotRepeated: the work of a Delete run is done once, though its record is deleted before the instance has gone.
func TestDeleteRunIsNotRepeated(t *testing.T) {
	s := newService(t)
	w := newWorld(t, s.in(account))
	w.bundle("a", "{}")
	w.ready("a")
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-config, finalizers: [example.com/hold]}\n")
	w.delete("a")
	w.eventuallyRuns("a", "register=Succeeded", "unregister=Succeeded")
	for _, o := range w.runObjects("a") {
		w.deleteRun(o.GetName())
	}
	time.Sleep(2 * time.Second)
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-config, finalizers: []}\n")
	w.eventuallyGone("a")
	expectCalls(t, s, "a", "POST a hello", "DELETE a")
	testkit.Eventually(t, 30*time.Second, "the records are gone", func() error {
		if runs := w.runs("a"); len(runs) > 0 {
			return fmt.Errorf("%v", runs)
		}
		return nil
	})
}
