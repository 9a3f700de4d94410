// Package cluster starts, watches and ends a Kubernetes cluster on this machine.
//
// A cluster is one directory: its certificates, its data, its logs, and a record of every process that belongs to it.
// All operations work from what the directory says, so that they can be given by different processes one after another,
// also after one of them has been killed.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/pki"
	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

// Options say what Up brings up.
type Options struct {
	// Dir is the cluster's directory. It must be empty, absent, or that of an earlier Up.
	Dir string
	// Node adds a node on which pods run.
	Node bool
	// APIServerArgs and ControllerManagerArgs are added to the ends of those command lines.
	APIServerArgs, ControllerManagerArgs []string
	// AuditLog is a file to which the API server writes one line for each request, or "".
	AuditLog string
	// Owner is the number of a process with which the cluster ends, or 0.
	Owner int
	// Timeout bounds the whole of Up.
	Timeout time.Duration
	// Out gets a line for each step.
	Out io.Writer
}

// Cluster is one cluster, running or not.
type Cluster struct {
	Dir   string
	state state
	ca    *pki.Authority
	out   io.Writer
	began time.Time
}

// errPortTaken tells that a port which was free when it was picked has been taken by someone else since.
var errPortTaken = errors.New("a port was taken meanwhile")

// Up brings the cluster of a directory up: it starts what does not run, and leaves alone what does.
func Up(ctx context.Context, opts Options) (*Cluster, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	c := &Cluster{Dir: dir, out: opts.Out, began: time.Now()}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.prepare(opts); err != nil {
		return nil, err
	}
	// First of all, so that nothing is left behind when the owner is killed while the cluster comes up.
	if err := c.watch(opts.Owner); err != nil {
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		// What runs is ended, for nobody would look after it; the logs stay, for they tell why.
		if stopErr := c.stopAll(false); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
		return nil, fmt.Errorf("%w\nlogs: %s\nremove what is left with: devcluster down --dir %s", err, c.path("log"), dir)
	}
	return c, nil
}

// Open returns the cluster of a directory, which an earlier Up made.
func Open(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, out: io.Discard, began: time.Now()}
	if err := c.load(); err != nil {
		return nil, err
	}
	if c.ca, err = pki.LoadOrCreate(c.path("pki")); err != nil {
		return nil, err
	}
	return c, nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// Bin is the directory with the components and kubectl.
func (c *Cluster) Bin() string { return c.path("bin") }

// Server is the URL of the API server.
func (c *Cluster) Server() string {
	return fmt.Sprintf("https://%s:%d", c.state.Host, c.state.Ports.APIServer)
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c *Cluster) step(format string, args ...any) {
	fmt.Fprintf(c.out, "%5.1fs  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// prepare makes or loads everything that the processes need on disk.
func (c *Cluster) prepare(opts Options) error {
	if err := c.loadOrInit(opts); err != nil {
		return err
	}
	for _, d := range []string{"log", "run", "bin", "pki", "kubeconfigs"} {
		if err := os.MkdirAll(c.path(d), 0o755); err != nil {
			return err
		}
	}
	if c.state.Node {
		if err := c.prepareNode(); err != nil {
			return err
		}
	}
	if err := c.linkBinaries(); err != nil {
		return err
	}
	return c.save()
}

// startAll starts the components, with other ports if one of them turns out to be taken.
func (c *Cluster) startAll(ctx context.Context) error {
	const attempts = 4
	for i := 1; ; i++ {
		err := c.startOnce(ctx)
		if err == nil || i == attempts || !errors.Is(err, errPortTaken) {
			return err
		}
		c.step("%v; trying others", err)
		if err := c.stopControlPlane(); err != nil {
			return err
		}
		if err := c.pickPorts(); err != nil {
			return err
		}
	}
}

func (c *Cluster) startOnce(ctx context.Context) error {
	if c.state.Node {
		if err := c.startNodeInit(ctx); err != nil {
			return err
		}
	}
	if err := c.writeCredentials(); err != nil {
		return err
	}
	if c.state.Node {
		if err := c.writeNodeConfig(); err != nil {
			return err
		}
	}
	if err := c.save(); err != nil {
		return err
	}
	for _, phase := range c.phases() {
		if err := c.startPhase(ctx, phase); err != nil {
			return err
		}
	}
	if err := c.waitDefaultServiceAccount(ctx); err != nil {
		return err
	}
	if c.state.Node {
		if err := c.waitNodeReady(ctx); err != nil {
			return err
		}
	}
	c.step("ready: %s", c.Server())
	return nil
}

// startPhase starts components at the same time and waits for all of them.
func (c *Cluster) startPhase(ctx context.Context, phase []component) error {
	running := make([]*proc.Running, len(phase))
	for i, comp := range phase {
		r, err := c.start(comp)
		if err != nil {
			return err
		}
		running[i] = r
	}
	for i, comp := range phase {
		if err := c.waitReady(ctx, comp, running[i]); err != nil {
			return err
		}
		if comp.after != nil {
			if err := comp.after(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// start starts a component, unless it runs already with the command line that it should have. The result is nil if it
// was running.
func (c *Cluster) start(comp component) (*proc.Running, error) {
	id, err := proc.Load(c.record(comp.name))
	if err != nil {
		return nil, err
	}
	argv := append([]string{comp.path}, comp.args...)
	if id.Alive() {
		if sameCommandLine(id.PID, argv) {
			return nil, nil
		}
		c.step("%s: other arguments than before, restarting it", comp.name)
		if err := id.Stop(syscall.SIGTERM, 5*time.Second); err != nil {
			return nil, err
		}
	}
	namespaces := 0
	if comp.inNode {
		init, err := proc.Load(c.record(nodeInit))
		if err != nil {
			return nil, err
		}
		if !init.Alive() {
			return nil, fmt.Errorf("start %s: the node is not running; start it with: devcluster up --dir %s --node", comp.name, c.Dir)
		}
		namespaces = init.PID
	}
	r, err := proc.Start(proc.Spec{
		Path: comp.path, Args: comp.args, Env: c.componentEnv(), Dir: c.Dir,
		Log: c.Log(comp.name), Record: c.record(comp.name), Namespaces: namespaces,
	})
	if err != nil {
		return nil, err
	}
	c.step("%s: started, process %d", comp.name, r.ID.PID)
	return r, nil
}

// Log is the path of a component's log.
func (c *Cluster) Log(name string) string { return c.path("log", name+".log") }

func (c *Cluster) record(name string) string { return c.path("run", name) }

// componentEnv is a small environment, so that settings meant for the caller (a proxy, CI, KUBECONFIG) do not reach the
// components and make one cluster behave unlike another.
func (c *Cluster) componentEnv() []string {
	env := []string{"PATH=" + c.Bin() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Dir}
	for _, name := range []string{"TMPDIR", "GOMAXPROCS", "GOMEMLIMIT", "GODEBUG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func sameCommandLine(pid int, argv []string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && string(data) == strings.Join(argv, "\x00")+"\x00"
}

// ReportTo makes the operations of an opened cluster print their steps.
func (c *Cluster) ReportTo(out io.Writer) { c.out = out }
