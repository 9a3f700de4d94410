package instance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// handled are the phases of an account, and what the service must have been told, once each, when a phase is done.
func (s *service) phases() []phase {
	return []phase{
		{"create", func(w *world, name string) { w.bundle(name, "{}") },
			func(w *world, name string) error { return s.handled(w, name, "register", "POST "+name+" hello") }},
		{"update", func(w *world, name string) { w.bundle(name, "{message: other}") },
			func(w *world, name string) error {
				return s.handled(w, name, "change", "POST "+name+" hello", "PUT "+name+" other was hello")
			}},
		{"delete", func(w *world, name string) { w.delete(name) }, func(w *world, name string) error {
			if _, err := w.get("GROUP/v1", "Bundle", name); err == nil {
				return fmt.Errorf("the instance is there; runs %v", w.runs(name))
			}
			return s.told(name, "POST "+name+" hello", "PUT "+name+" other was hello", "DELETE "+name)
		}},
	}
}

func (s *service) told(name string, want ...string) error {
	if got := s.of(name); !slices.Equal(got, want) {
		return fmt.Errorf("calls %q, want %q", got, want)
	}
	return nil
}

// handled tells whether the newest run of an operation has succeeded, the instance is ready, and the service was told all of it.
func (s *service) handled(w *world, name, operation string, want ...string) error {
	obj, err := w.get("GROUP/v1", "Bundle", name)
	if err != nil {
		return err
	}
	if c := conditionOf(obj.Object, "Ready"); c["status"] != "True" || fmt.Sprint(c["observedGeneration"]) != strconv.FormatInt(obj.GetGeneration(), 10) {
		return fmt.Errorf("generation %d, status %v; runs %v", obj.GetGeneration(), obj.Object["status"], w.runs(name))
	}
	if runs := w.runs(name); !slices.Contains(runs, operation+"=Succeeded") {
		return fmt.Errorf("runs %v", runs)
	}
	return s.told(name, want...)
}

// once fails the test if the service was told anything about an instance twice: a repeat.
func (s *service) once(t *testing.T, name string) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range s.of(name) {
		if seen[c] {
			t.Errorf("%q was done twice", c)
		}
		seen[c] = true
	}
}

// TestOperationsCrashAtEachCall ends the engine at each request to the API server that a create, update and delete handler
// need, before it is sent and after it has taken effect, and starts another one: every handler has its effect exactly once.
func TestOperationsCrashAtEachCall(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newService(t)
	w := newWorld(t, s.in(account))
	points := 0
	for _, mode := range []testkit.Verdict{testkit.Refuse, testkit.Lose} {
		for n := 1; ; n++ {
			name, reached := fmt.Sprintf("c%d-%d", mode, n), false
			for _, p := range s.phases() {
				if w.crashAt(t, p, name, n, mode) {
					reached = true
					points++
				}
			}
			s.once(t, name)
			if !reached {
				break
			}
		}
	}
	t.Logf("%d points killed, no repeat, no loss", points)
	if points < 40 {
		t.Errorf("only %d points: the fault does not reach the requests", points)
	}
}

// TestOperationsKilled kills a real process by SIGKILL at each write to the API server, and within each call of the service,
// before it has its effect and after it, before it is answered.
func TestOperationsKilled(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newService(t)
	w := newWorld(t, s.in(account))
	w.engine.StopAll()
	file := filepath.Join(t.TempDir(), "definition.yaml")
	if err := os.WriteFile(file, []byte(w.text(s.in(account))), 0o600); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for n := 1; ; n++ {
		name, reached := fmt.Sprintf("k%d", n), false
		for _, p := range s.phases() {
			if w.killAt(t, file, p, name, n, nil) {
				killed, reached = killed+1, true
			}
		}
		s.once(t, name)
		if !reached {
			break
		}
	}
	t.Logf("%d processes killed at writes", killed)
	within := 0
	for _, before := range []bool{true, false} {
		name := fmt.Sprintf("s%t", before)
		for _, p := range s.phases() {
			if w.killAt(t, file, p, name, 0, func(kill func()) { s.killOnce(before, name, kill) }) {
				within++
			}
		}
		s.once(t, name)
	}
	t.Logf("%d processes killed within a call of the service", within)
	if killed < 20 || within != 6 {
		t.Errorf("%d processes were killed at writes, %d within calls", killed, within)
	}
}

// killOnce arms the service to kill at the next call about an instance.
func (s *service) killOnce(before bool, name string, kill func()) {
	var once sync.Once
	at := func(_, about string) bool {
		cut := false
		if about == name {
			once.Do(func() { cut = true; kill() })
		}
		return cut
	}
	s.before, s.after = nil, nil
	if before {
		s.before = at
	} else {
		s.after = at
	}
}

// killAt runs a phase with a process that is killed at its nth write (0: as arm decides), and then with another one.
func (w *world) killAt(t *testing.T, file string, p phase, name string, n int, arm func(kill func())) bool {
	t.Helper()
	victim := w.process(t, file, n)
	died := make(chan error, 1)
	go func() { died <- victim.Wait() }()
	if arm != nil {
		arm(func() {
			_ = victim.Process.Kill()
			time.Sleep(50 * time.Millisecond)
		})
	}
	p.begin(w, name)
	hit := false
	deadline := time.Now().Add(30 * time.Second)
	for !hit && p.done(w, name) != nil && time.Now().Before(deadline) {
		select {
		case <-died:
			hit = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	if !hit {
		end(victim, died)
	}
	survivor := w.process(t, file, 0)
	ended := make(chan error, 1)
	go func() { ended <- survivor.Wait() }()
	testkit.Eventually(t, 30*time.Second, fmt.Sprintf("%s of %s, killed at %d, is done", p.name, name, n), func() error { return p.done(w, name) })
	end(survivor, ended)
	return hit
}

func end(process *exec.Cmd, ended <-chan error) {
	_ = process.Process.Kill()
	<-ended
}
