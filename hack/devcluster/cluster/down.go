package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

// Down ends the cluster of a directory and removes the directory, or with keep only ends it: Up then continues with the
// same data. It touches nothing that the cluster did not make.
func Down(ctx context.Context, dir string, keep bool, out io.Writer) error {
	c, err := Open(dir)
	if err != nil {
		return err
	}
	c.out = out
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return err // the cluster was removed while we waited
	}
	if err := c.stopAll(keep); err != nil {
		return err
	}
	c.step("all processes have ended")
	if keep {
		return nil
	}
	if err := c.unmountAll(); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("remove %s: %w", c.Dir, err)
	}
	c.step("%s is removed", c.Dir)
	return nil
}

// stopAll ends every process of the cluster. Gently means that servers may finish what they are doing; without it they
// are killed, which is faster, and safe when their data is to be removed.
//
// Everything on the node lives in the process namespace of node-init, so killing that one process ends kubelet,
// containerd and every container, and with the last of them their mounts, network devices and firewall rules.
func (c *Cluster) stopAll(gently bool) error {
	sig, grace := syscall.SIGKILL, 10*time.Second
	if gently {
		sig = syscall.SIGTERM
	}
	order := [][]string{
		{watcher},
		{kubelet, kubeProxy, controllerManager, scheduler},
		{containerd, apiServer},
		{nodeInit, etcd},
	}
	if !gently {
		order = [][]string{append(append(append(order[0], order[3]...), order[2]...), order[1]...)}
	}
	for _, names := range order {
		if err := c.stopTogether(names, sig, grace); err != nil {
			return err
		}
	}
	return c.cleanNode()
}

func (c *Cluster) stopControlPlane() error {
	return c.stopTogether([]string{apiServer, controllerManager, scheduler, etcd}, syscall.SIGKILL, 10*time.Second)
}

func (c *Cluster) stopTogether(names []string, sig syscall.Signal, grace time.Duration) error {
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { errs[i] = c.stop(name, sig, grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stop ends one process, if it runs and is not the one that is running this.
func (c *Cluster) stop(name string, sig syscall.Signal, grace time.Duration) error {
	id, err := proc.Load(c.record(name))
	if err != nil {
		return err
	}
	if id.PID == os.Getpid() {
		return nil
	}
	if id.PID != 0 {
		if err := id.Stop(sig, grace); err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
	}
	return proc.Forget(c.record(name))
}

// unmountAll unmounts what is mounted under the directory. The node's mounts go with its mount namespace, so there
// should be none; but removing a directory through a forgotten mount would remove what is on the other side.
func (c *Cluster) unmountAll() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var points []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4])
			if strings.HasPrefix(point, c.Dir+string(filepath.Separator)) {
				points = append(points, point)
			}
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(points))) // inner ones first
	for _, point := range points {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}
