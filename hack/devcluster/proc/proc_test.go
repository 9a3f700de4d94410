package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// sleeper starts a process that this one does not wait for until the test ends, so that it can become a zombie.
func sleeper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestStopEndsAProcessThatIgnoresTheSignal(t *testing.T) {
	cmd := sleeper(t, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
	time.Sleep(100 * time.Millisecond) // until the trap is set
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Fatal("not alive")
	}
	if err := id.Stop(syscall.SIGTERM, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it, so it is a zombie now.
	if id.Alive() {
		t.Error("a zombie counts as alive")
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("a signal to a dead process: %v", err)
	}
}

func TestAnotherProcessWithTheSameNumberIsNotTouched(t *testing.T) {
	cmd := sleeper(t, "sleep", "60")
	real, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, stale := range map[string]ID{
		"earlier start": {PID: real.PID, StartTime: real.StartTime - 1, BootID: real.BootID},
		"earlier boot":  {PID: real.PID, StartTime: real.StartTime, BootID: "another"},
		"nothing":       {},
	} {
		if stale.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := stale.Stop(syscall.SIGKILL, time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !real.Alive() {
		t.Error("the process was ended on behalf of another one")
	}
}

func TestStartRecordsAndDetaches(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(dir, "run", "x")
	r, err := Start(Spec{
		Path: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; sleep 60"}, Dir: "/",
		Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(dir, "x.log"), Record: record,
	})
	if err != nil {
		t.Fatal(err)
	}
	id, err := Load(record)
	if err != nil || id != r.ID {
		t.Fatalf("recorded %v, %v, want %v", id, err, r.ID)
	}
	if sid, err := os.ReadFile(filepath.Join(dir, "x.pid")); err != nil || len(sid) < 2 {
		t.Errorf("pid file: %q, %v", sid, err)
	}
	if pgid, err := syscall.Getpgid(id.PID); err != nil || pgid != id.PID {
		t.Errorf("process group %d, %v, want its own", pgid, err)
	}
	time.Sleep(100 * time.Millisecond)
	if log, _ := os.ReadFile(filepath.Join(dir, "x.log")); string(log) != "out\nerr\n" {
		t.Errorf("log %q", log)
	}
	if err := id.Stop(syscall.SIGKILL, time.Second); err != nil {
		t.Fatal(err)
	}
	<-r.Done
	if err := Forget(record); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(record); err != nil || id != (ID{}) {
		t.Errorf("after Forget: %v, %v", id, err)
	}
}

func TestWaitReturnsWhenTheProcessEnds(t *testing.T) {
	cmd := sleeper(t, "sleep", "0.2")
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := id.Wait(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 50*time.Millisecond || d > 10*time.Second {
		t.Errorf("waited %v", d)
	}
}
