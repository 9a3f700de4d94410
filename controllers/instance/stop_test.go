package instance_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// TestStopLeavesNothing starts and stops the work for a definition again and again.
func TestStopLeavesNothing(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	cycle := func() {
		w.engine.Stop(w.specs[0].Definition)
		w.ensure(w.specs[0])
		testkit.Eventually(t, 10*time.Second, "the instance is worked on", func() error {
			if st, _ := w.engine.State(w.specs[0].Definition); st.Ready != 1 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	cycle()
	w.engine.Stop(w.specs[0].Definition)
	before := runtime.NumGoroutine()
	for range 10 {
		w.ensure(w.specs[0])
		cycle()
		w.engine.Stop(w.specs[0].Definition)
	}
	testkit.Eventually(t, 10*time.Second, "the goroutines have ended", func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}
