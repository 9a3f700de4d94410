package instance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// crashing needs everything that a kill can harm: an order, an object out of the garbage collector's reach, a generated value.
const crashing = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: crashes.GROUP}
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
                legacy: {type: boolean, default: true}
  resources:
  - name: password
    createOnce: true
    template:
      apiVersion: v1
      kind: Secret
      metadata: {name: "${self.metadata.name}-password"}
      stringData: {password: "${random.password(20)}"}
  - name: config
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-config"}
      data: {message: "${self.spec.message}"}
  - name: role
    dependsOn: [config]
    template:
      apiVersion: rbac.authorization.k8s.io/v1
      kind: ClusterRole
      metadata: {name: "${self.metadata.namespace}-${self.metadata.name}", annotations: {message: "${config.data.message}"}}
  - name: legacy
    when: self.spec.legacy
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-old"}
`

// phase is what is interrupted.
type phase struct {
	name string
	// begin starts it on an instance; done tells whether it has ended well.
	begin func(w *world, name string)
	done  func(w *world, name string) error
}

func phases() []phase {
	return []phase{
		{"create", func(w *world, name string) { w.bundle(name, "{}") }, func(w *world, name string) error { return w.whole(name, "hello", true) }},
		{"update", func(w *world, name string) { w.bundle(name, "{message: other, legacy: false}") },
			func(w *world, name string) error { return w.whole(name, "other", false) }},
		{"delete", func(w *world, name string) {
			if err := w.kube.Delete(w.t.Context(), w.text("GROUP/v1"), "Bundle", w.namespace, name); err != nil {
				w.t.Fatal(err)
			}
		}, func(w *world, name string) error { return w.nothing(name) }},
	}
}

// whole tells whether an instance is ready and has exactly what it stands for.
func (w *world) whole(name, message string, old bool) error {
	obj, err := w.get("GROUP/v1", "Bundle", name)
	if err != nil {
		return err
	}
	if c := conditionOf(obj.Object, "Ready"); c["status"] != "True" || fmt.Sprint(c["observedGeneration"]) != strconv.FormatInt(obj.GetGeneration(), 10) {
		return fmt.Errorf("generation %d, status %v", obj.GetGeneration(), obj.Object["status"])
	}
	want := []string{"ConfigMap/" + name + "-config", "Secret/" + name + "-password"}
	if old {
		want = append(want, "ConfigMap/"+name+"-old")
	}
	var got []string
	for _, c := range w.children() {
		if strings.Contains(c, "/"+name+"-") {
			got = append(got, c)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("children %v, want %v", got, want)
	}
	role, err := w.get("rbac.authorization.k8s.io/v1", "ClusterRole", w.namespace+"-"+name)
	if err != nil {
		return err
	}
	if got := role.GetAnnotations()["message"]; got != message {
		return fmt.Errorf("the ClusterRole says %q", got)
	}
	return nil
}

// nothing tells whether an instance and all it stood for have gone.
func (w *world) nothing(name string) error {
	if _, err := w.get("GROUP/v1", "Bundle", name); err == nil {
		return fmt.Errorf("the instance is there")
	}
	for _, c := range w.children() {
		if strings.Contains(c, "/"+name+"-") {
			return fmt.Errorf("%s is there", c)
		}
	}
	if _, err := w.get("rbac.authorization.k8s.io/v1", "ClusterRole", w.namespace+"-"+name); err == nil {
		return fmt.Errorf("the ClusterRole is there")
	}
	return nil
}

func conditionOf(obj map[string]any, conditionType string) map[string]any {
	status, _ := obj["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == conditionType {
			return c
		}
	}
	return nil
}

// uids returns the UIDs of the children of an instance, and the generated password.
func (w *world) identities(name string) map[string]string {
	out := map[string]string{}
	for _, c := range w.children() {
		kind, object, _ := strings.Cut(c, "/")
		if !strings.HasPrefix(object, name+"-") {
			continue
		}
		if o, err := w.get("v1", kind, object); err == nil {
			out[c] = string(o.GetUID())
			if data, ok := o.Object["data"].(map[string]any); ok && kind == "Secret" {
				out[c+" password"] = fmt.Sprint(data["password"])
			}
		}
	}
	return out
}

// sameIdentities fails the test if an object that was there before the crash, and is there now, is another one.
func (w *world) sameIdentities(t *testing.T, name string, before map[string]string) {
	t.Helper()
	for k, v := range w.identities(name) {
		if old, ok := before[k]; ok && old != v {
			t.Errorf("%s was made twice: %s before the crash, %s after", k, old, v)
		}
	}
}

// TestCrashAtEachCall ends the engine at each request of a create, an update and a deletion, before the request is sent and
// after it has taken effect but before its answer is read, and starts another one.
func TestCrashAtEachCall(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t, crashing)
	points := 0
	for _, mode := range []testkit.Verdict{testkit.Refuse, testkit.Lose} {
		for n := 1; ; n++ {
			name := fmt.Sprintf("c%d-%d", mode, n)
			reached := false
			for _, p := range phases() {
				hit := w.crashAt(t, p, name, n, mode)
				reached = reached || hit
				if hit {
					points++
				}
			}
			if !reached {
				break
			}
		}
	}
	t.Logf("%d points killed", points)
	if points < 20 {
		t.Errorf("only %d points: the fault does not reach the requests", points)
	}
}

func (w *world) crashAt(t *testing.T, p phase, name string, n int, mode testkit.Verdict) bool {
	t.Helper()
	w.settle()
	var dead atomic.Bool
	w.recorder.Inject(func(i int, _ testkit.Request) testkit.Verdict {
		switch {
		case i == 0 && !dead.Load(), i != 0 && i < n && !dead.Load():
			return testkit.Pass
		case dead.Swap(true):
			return testkit.Refuse
		}
		return mode
	})
	p.begin(w, name)
	deadline := time.Now().Add(20 * time.Second)
	for !dead.Load() && p.done(w, name) != nil {
		if time.Now().After(deadline) {
			t.Fatalf("%s %s, crash at %d: neither reached nor done: %v", p.name, name, n, p.done(w, name))
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.settle() // requests of a status that follows
	hit := dead.Load()
	w.recorder.Inject(func(int, testkit.Request) testkit.Verdict { return testkit.Refuse })
	w.engine.StopAll()
	before := w.identities(name)
	w.recorder.Inject(nil)
	w.startEngine()
	testkit.Eventually(t, 30*time.Second, fmt.Sprintf("%s of %s, crashed at request %d (%d), is done", p.name, name, n, mode),
		func() error { return p.done(w, name) })
	w.sameIdentities(t, name, before)
	return hit
}

// TestKillAtEachWrite is the same with a real process that is killed by SIGKILL.
func TestKillAtEachWrite(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t, crashing)
	w.engine.StopAll()
	file := filepath.Join(t.TempDir(), "definition.yaml")
	if err := os.WriteFile(file, []byte(w.text(crashing)), 0o600); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for n := 1; ; n++ {
		name, reached := fmt.Sprintf("k%d", n), false
		for _, p := range phases() {
			victim := w.process(t, file, n)
			p.begin(w, name)
			died := make(chan error, 1)
			go func() { died <- victim.Wait() }()
			hit := false
			deadline := time.Now().Add(30 * time.Second)
			for !hit && p.done(w, name) != nil && time.Now().Before(deadline) {
				select {
				case <-died:
					hit = true
				case <-time.After(20 * time.Millisecond):
				}
			}
			before := w.identities(name)
			if !hit {
				_ = victim.Process.Kill()
				<-died
			} else {
				killed, reached = killed+1, true
			}
			survivor := w.process(t, file, 0)
			testkit.Eventually(t, 30*time.Second, fmt.Sprintf("%s of %s, killed at write %d, is done", p.name, name, n),
				func() error { return p.done(w, name) })
			w.sameIdentities(t, name, before)
			_ = survivor.Process.Kill()
			_ = survivor.Wait()
		}
		if !reached {
			break
		}
	}
	t.Logf("%d processes killed", killed)
	if killed < 10 {
		t.Errorf("only %d processes were killed", killed)
	}
}

// process starts this test binary as an engine that kills itself at its nth write; 0: never.
func (w *world) process(t *testing.T, file string, n int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestEngineProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "LIBRETTO_TEST_ENGINE="+file, "LIBRETTO_TEST_KILL_AT="+strconv.Itoa(n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestEngineProcess is the process of TestKillAtEachWrite.
func TestEngineProcess(t *testing.T) {
	file := os.Getenv("LIBRETTO_TEST_ENGINE")
	if file == "" {
		t.Skip("it is started by TestKillAtEachWrite")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.Atoi(os.Getenv("LIBRETTO_TEST_KILL_AT"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cfg: testkit.Config(t), recorder: testkit.NewRecorder(), clock: &steppedClock{}}
	w.addCompiled(string(text))
	var writes atomic.Int64
	w.recorder.Inject(func(_ int, r testkit.Request) testkit.Verdict {
		if at > 0 && r.Write() && writes.Add(1) == int64(at) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		}
		return testkit.Pass
	})
	w.startEngine()
	select {
	case <-time.After(2 * time.Minute):
	case <-t.Context().Done():
	}
}
