package instance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/controllers/instance"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/testkit"
)

type panicking struct{}

func (panicking) Reconcile(context.Context, engine.Request) (reconcile.Result, error) {
	panic("poison")
}

// named returns the bundle definition with another kind, and with a change.
func named(kind string, change ...string) string {
	return strings.NewReplacer(append([]string{"bundles.GROUP", strings.ToLower(kind) + "s.GROUP", "kind: Bundle", "kind: " + kind}, change...)...).Replace(bundle)
}

// TestPoisonedDefinitionsHarmNoOther puts definitions beside a healthy one that panic, that may do nothing, and that loop as
// long as they are allowed to, with 30 instances each, and lets the healthy one work.
func TestPoisonedDefinitionsHarmNoOther(t *testing.T) {
	w := newWorld(t, bundle)
	alone := w.latencies("alone", 20)
	w.engine.StopAll()
	w.declare(named("Panic"))
	w.declare(named("Poor") + "  serviceAccount: {namespace: NAMESPACE, name: poor}\n")
	w.declare(named("Loop", `"${self.spec.message}"`,
		`"${string(lists.range(self.spec.port).map(i, lists.range(self.spec.port).map(j, i * j).filter(k, k % 7 == 3).size()).filter(n, n > 0).size())}"`))
	w.newReconciler = func(r *engine.Run) reconcile.TypedReconciler[engine.Request] {
		if strings.HasPrefix(r.Spec().Definition, "panics.") {
			return panicking{}
		}
		return instance.New(r, runner.NewDoer(r, nil))
	}
	w.startEngine()
	for _, kind := range []string{"Panic", "Poor", "Loop"} {
		for i := range 30 {
			w.apply(fmt.Sprintf("apiVersion: GROUP/v1\nkind: %s\nmetadata: {name: %s-%d}\nspec: {port: 9000}\n", kind, strings.ToLower(kind), i))
		}
	}
	beside := w.latencies("beside", 20)
	t.Logf("create to ready: alone p50 %s, max %s; beside poison p50 %s, max %s", alone[10], alone[19], beside[10], beside[19])

	testkit.Eventually(t, 30*time.Second, "the panicking definition is quarantined", func() error {
		st, _ := w.engine.State(w.specs[1].Definition)
		if st.Quarantined == "" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	message := w.condition("GROUP/v1", "Loop", "loop-0", "Stalled", "True")
	if !strings.Contains(message, "cost") {
		t.Errorf("the looping instance does not say that it costs too much: %s", message)
	}
	// A new revision lifts the quarantine.
	spec := w.specs[1]
	spec.Program = w.compileText(named("Panic", "default: hello", "default: hullo"))
	w.newReconciler = func(r *engine.Run) reconcile.TypedReconciler[engine.Request] {
		return instance.New(r, runner.NewDoer(r, nil))
	}
	w.ensure(spec)
	testkit.Eventually(t, 5*time.Second, "the quarantine is lifted", func() error {
		if st, _ := w.engine.State(spec.Definition); st.Quarantined != "" {
			return fmt.Errorf("%s", st.Quarantined)
		}
		return nil
	})
}

// latencies makes instances one after the other and returns how long each took to be ready, sorted.
func (w *world) latencies(prefix string, n int) []time.Duration {
	w.t.Helper()
	var all []time.Duration
	for i := range n {
		start := time.Now()
		w.bundle(fmt.Sprintf("%s-%d", prefix, i), "{}")
		w.ready(fmt.Sprintf("%s-%d", prefix, i))
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}
