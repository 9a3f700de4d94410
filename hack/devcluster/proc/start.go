package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Spec says what to start and where its output goes.
type Spec struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	Log  string
	// Record is the path for Save.
	Record string
	// Namespaces is the number of a process whose mount, network and process namespaces the new one enters; 0 means
	// that it stays in those of the caller.
	Namespaces int
	// Unshare makes the new process the first one of mount, network and process namespaces of its own.
	Unshare bool
	// Extra is handed to the process as file descriptor 3.
	Extra *os.File
}

// Running is a started process. Done is closed when it has ended, after which Err tells how.
type Running struct {
	ID   ID
	Done chan struct{}
	Err  error
}

// Start starts a process in a session of its own, so that it outlives the caller and gets none of the terminal's
// signals, and records it.
func Start(spec Spec) (*Running, error) {
	logFile, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Args[0] = spec.Path
	cmd.Env = spec.Env
	cmd.Dir = spec.Dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if spec.Unshare {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID
	}
	if spec.Extra != nil {
		cmd.ExtraFiles = []*os.File{spec.Extra}
	}
	if err := startIn(cmd, spec.Namespaces); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err == nil && spec.Record != "" {
		err = id.Save(spec.Record)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("record process %s: %w", spec.Path, err)
	}
	r := &Running{ID: id, Done: make(chan struct{})}
	go func() {
		r.Err = cmd.Wait()
		close(r.Done)
	}()
	return r, nil
}

// RunIn runs a command to its end in the namespaces of another process and returns its output.
func RunIn(namespaces int, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	out, err := os.CreateTemp("", "devcluster-run-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		out.Close()
		os.Remove(out.Name())
	}()
	cmd.Stdout, cmd.Stderr = out, out
	err = startIn(cmd, namespaces)
	if err == nil {
		err = cmd.Wait()
	}
	data, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		return nil, readErr
	}
	return data, err
}

// startIn starts cmd, in the namespaces of a process if one is given.
//
// Namespaces belong to a thread, and a child takes those of the thread that forks it. So a thread is locked, moved into
// the namespaces, made to fork, and never given back: when its goroutine ends, the runtime destroys it.
func startIn(cmd *exec.Cmd, pid int) error {
	if pid == 0 {
		return cmd.Start()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return fmt.Errorf("open process %d: %w", pid, err)
			}
			defer unix.Close(fd)
			// A thread may change its mount namespace only when it shares its working directory with no other.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWPID); err != nil {
				return fmt.Errorf("enter the namespaces of process %d: %w", pid, err)
			}
			return cmd.Start()
		}()
	}()
	return <-result
}
