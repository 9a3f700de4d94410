package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

// nodeInit is the first process of the node: it makes the node's namespaces into a machine, then only holds them.
const nodeInit = "node-init"

// NodeInitCommand is the command of the devcluster program that calls NodeInit.
const NodeInitCommand = "node-init"

// privateDirs are the places outside the cluster's directory where kubelet, containerd and the CNI plugins write, some of
// which cannot be configured. On the node each is a directory of the cluster.
var privateDirs = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/containerd", "/var/lib/kube-proxy",
}

// startNodeInit starts the node's first process, unless it runs, and connects it.
func (c *Cluster) startNodeInit(ctx context.Context) error {
	id, err := proc.Load(c.record(nodeInit))
	if err != nil {
		return err
	}
	if id.Alive() {
		return nil
	}
	if err := c.makeCgroups(); err != nil {
		return err
	}
	// As after a reboot: what containerd knows about running containers is no longer true.
	if err := os.RemoveAll(c.path("containerd", "state")); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	running, err := proc.Start(proc.Spec{
		Path: c.path("bin", "devcluster"), Args: []string{NodeInitCommand, "--dir", c.Dir},
		Env: c.componentEnv(), Dir: "/", Log: c.Log(nodeInit), Record: c.record(nodeInit), Unshare: true, Extra: w,
	})
	w.Close()
	if err != nil {
		return fmt.Errorf("the node needs mount, network and process namespaces of its own, which only root may make: %w", err)
	}
	// It closes the pipe either way, and writes to it only if all went well.
	said, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if string(said) != "ready" {
		return fmt.Errorf("%s failed:\n%s", nodeInit, c.tail(nodeInit))
	}
	c.step("%s: started, process %d", nodeInit, running.ID.PID)
	if err := c.connect(ctx, running.ID); err != nil {
		return err
	}
	c.step("network: %s through %s", c.clusterCIDR(), c.cable())
	return nil
}

// NodeInit is what node-init does. It does not return unless something fails.
func NodeInit(dir string) error {
	if os.Getpid() != 1 {
		return errors.New("node-init is started by `devcluster up --node`, not by hand")
	}
	if err := mountPrivate(dir); err != nil {
		return err
	}
	for name, required := range map[string]bool{
		"net/ipv4/ip_forward":                 true,
		"net/ipv4/conf/all/route_localnet":    true,
		"net/bridge/bridge-nf-call-iptables":  false,
		"net/bridge/bridge-nf-call-ip6tables": false,
	} {
		err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0o644)
		switch {
		case err == nil:
		case required:
			return err
		default:
			fmt.Fprintf(os.Stderr, "%v: a pod may not reach a Service backed by another pod; on the machine run: modprobe br_netfilter\n", err)
		}
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	ready := os.NewFile(3, "ready")
	if _, err := ready.WriteString("ready"); err != nil {
		return err
	}
	ready.Close()
	reap(signals)
	return nil
}

// reap collects the processes that lost their parents, which is the duty of a first process, until it is told to end;
// with it the kernel ends all others.
func reap(signals <-chan os.Signal) {
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || (err != nil && !errors.Is(err, syscall.EINTR)) {
				break
			}
		}
	}
}

func mountPrivate(dir string) error {
	// Mounts of the machine still arrive here, mounts made here do not leave.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, target := range privateDirs {
		source := filepath.Join(dir, "node", strings.ReplaceAll(strings.TrimPrefix(target, "/"), "/", "-"))
		for _, d := range []string{source, target} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	// Volumes are mounted under the kubelet's directory and must reach the containers' own mount namespaces.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared on the node: %w", err)
	}
	return nil
}

// The control groups of the pods are kept under one group of this cluster: a kubelet removes the pods' groups it does not
// know, and two of them with one parent would end each other's pods.
func (c *Cluster) cgroup() string { return "devcluster-" + c.state.ID }

// cgroupRoots lists the mounted hierarchies: one with version 2, one for each controller with version 1.
func cgroupRoots() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		if e.IsDir() { // not the links that stand for joint controllers
			roots = append(roots, filepath.Join(root, e.Name()))
		}
	}
	return roots, nil
}

func (c *Cluster) makeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, c.cgroup())
		if err := os.Mkdir(group, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		// A new cpuset of version 1 is empty and cannot hold a process until it is filled.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if data, err := os.ReadFile(filepath.Join(root, file)); err == nil && filepath.Base(root) == "cpuset" {
				if err := os.WriteFile(filepath.Join(group, file), data, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Cluster) removeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		if err := removeCgroup(filepath.Join(root, c.cgroup())); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a group and those in it, which rmdir allows once no process is in them. A process that has just
// been killed counts for a moment longer.
func removeCgroup(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 100 {
		err = syscall.Rmdir(group)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("remove control group %s: %w", group, err)
}

// cleanNode removes what the node left outside the directory.
func (c *Cluster) cleanNode() error {
	if !c.state.Node {
		return nil
	}
	return errors.Join(c.disconnect(), c.removeCgroups())
}
