// Package proc starts background processes and ends exactly those.
//
// A process number alone does not identify a process: once the process has died the kernel gives its number to another
// one. Ending "the pid in the file" can therefore end a stranger. So every process is recorded with its start time and
// the boot it was started in, and is signalled only while all three still agree.
package proc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ID identifies one process for as long as the machine's storage lives.
type ID struct {
	PID int `json:"pid"`
	// StartTime is the 22nd field of /proc/PID/stat: clock ticks between boot and the start of the process.
	StartTime uint64 `json:"startTime"`
	// BootID tells two boots apart, for the start time counts from the boot.
	BootID string `json:"bootID"`
}

// Identify returns the identity of a process that is running now.
func Identify(pid int) (ID, error) {
	start, _, err := stat(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, StartTime: start, BootID: bootID()}, nil
}

// Alive reports whether the identified process still runs. A zombie counts as dead: it holds no port and no file.
func (id ID) Alive() bool {
	if id.PID <= 0 || id.BootID != bootID() {
		return false
	}
	start, state, err := stat(id.PID)
	return err == nil && start == id.StartTime && state != "Z" && state != "X"
}

// Signal sends a signal to the process if it is still the one identified; to a dead one it does nothing.
//
// The process is pinned by a pidfd before it is verified, so the number cannot pass to another process in between.
func (id ID) Signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// Stop sends sig, waits up to grace for the process to end, then kills it.
func (id ID) Stop(sig syscall.Signal, grace time.Duration) error {
	if err := id.Signal(sig); err != nil {
		return err
	}
	if id.waitDead(grace) {
		return nil
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !id.waitDead(10 * time.Second) {
		return fmt.Errorf("process %d survived SIGKILL for 10s", id.PID)
	}
	return nil
}

// Wait blocks until the process has ended, without being its parent.
func (id ID) Wait() error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.Alive() {
		return nil
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (id ID) waitDead(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); id.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// Save records the identity as PATH.json, and the bare number as PATH.pid for people and scripts.
func (id ID) Save(path string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if err := writeAtomic(path+".json", append(data, '\n')); err != nil {
		return err
	}
	return writeAtomic(pidFile(path), []byte(strconv.Itoa(id.PID)+"\n"))
}

// Load reads what Save wrote. The zero ID, which is never alive, means that nothing is recorded.
func Load(path string) (ID, error) {
	data, err := os.ReadFile(path + ".json")
	if errors.Is(err, os.ErrNotExist) {
		return ID{}, nil
	}
	if err != nil {
		return ID{}, err
	}
	var id ID
	if err := json.Unmarshal(data, &id); err != nil {
		return ID{}, fmt.Errorf("%s.json: %w", path, err)
	}
	return id, nil
}

// Forget removes what Save wrote.
func Forget(path string) error {
	return errors.Join(removeIfThere(path+".json"), removeIfThere(pidFile(path)))
}

// pidFile puts D/run/NAME's number at D/NAME.pid, where one looks for it.
func pidFile(path string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path)+".pid")
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func writeAtomic(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// stat reads a process's start time and state. The command name, which may hold spaces and parentheses, is skipped by
// looking for the last parenthesis.
func stat(pid int) (start uint64, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return 0, "", fmt.Errorf("/proc/%d/stat: not understood", pid)
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("/proc/%d/stat: %d fields after the name, want 20 or more", pid, len(fields))
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
