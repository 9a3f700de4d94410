package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

const watcher = "watcher"

// watch starts a process that ends the cluster when the owner has ended, whatever ended it. It has a session of its own:
// what kills the owner with its group or terminal does not kill the watcher.
func (c *Cluster) watch(owner int) error {
	if owner == 0 {
		return nil
	}
	id, err := proc.Identify(owner)
	if err != nil {
		return fmt.Errorf("the process %d, with which the cluster is to end, does not run: %w", owner, err)
	}
	if err := c.stop(watcher, 9, time.Second); err != nil {
		return err
	}
	_, err = proc.Start(proc.Spec{
		Path: c.path("bin", "devcluster"),
		Args: []string{WatchCommand, "--dir", c.Dir, "--pid", strconv.Itoa(id.PID), "--start-time", strconv.FormatUint(id.StartTime, 10)},
		Env:  c.componentEnv(), Dir: "/", Log: c.Log(watcher), Record: c.record(watcher),
	})
	return err
}

// WatchCommand is the command of the devcluster program that calls WatchOwner.
const WatchCommand = "watch-owner"

// WatchOwner waits for the end of a process and then removes the cluster.
func WatchOwner(dir string, pid int, startTime uint64) error {
	id, err := proc.Identify(pid)
	if err == nil && id.StartTime == startTime {
		if err := id.Wait(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	return Down(ctx, dir, false, io.Discard)
}
