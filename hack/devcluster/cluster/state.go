package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/pki"
)

const stateFile = "cluster.json"

// state is what the directory remembers between two commands.
type state struct {
	// ID tells apart what clusters make outside their directories, which is only control groups.
	ID   string `json:"id"`
	Node bool   `json:"node"`
	// Host is the address on which the API server is reached: loopback, or the machine's end of the cable to the node.
	Host  string `json:"host"`
	Ports ports  `json:"ports"`
	// Network numbers the node's network; see network.go.
	Network               int       `json:"network"`
	APIServerArgs         []string  `json:"apiServerArgs,omitempty"`
	ControllerManagerArgs []string  `json:"controllerManagerArgs,omitempty"`
	AuditLog              string    `json:"auditLog,omitempty"`
	Created               time.Time `json:"created"`
}

// loadOrInit loads the state and applies the options to it, or makes a new one.
func (c *Cluster) loadOrInit(opts Options) error {
	err := c.load()
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return err
	}
	if fresh {
		if err := c.init(opts); err != nil {
			return err
		}
	} else if opts.Node && !c.state.Node {
		return fmt.Errorf("the cluster in %s was made without a node and cannot get one; use another directory, or remove it with: devcluster down --dir %s", c.Dir, c.Dir)
	}
	if len(opts.APIServerArgs) > 0 {
		c.state.APIServerArgs = slices.Clone(opts.APIServerArgs)
	}
	if len(opts.ControllerManagerArgs) > 0 {
		c.state.ControllerManagerArgs = slices.Clone(opts.ControllerManagerArgs)
	}
	if opts.AuditLog != "" {
		if c.state.AuditLog, err = filepath.Abs(opts.AuditLog); err != nil {
			return err
		}
	}
	c.ca, err = pki.LoadOrCreate(c.path("pki"))
	return err
}

func (c *Cluster) init(opts Options) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockFile {
			return fmt.Errorf("%s is neither empty nor the directory of a cluster (it holds %s); choose another --dir, since `down` removes the whole directory", c.Dir, e.Name())
		}
	}
	id := make([]byte, 4)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	c.state = state{
		ID: hex.EncodeToString(id), Node: opts.Node, Host: "127.0.0.1", Network: -1, Created: time.Now().UTC().Truncate(time.Second),
	}
	return c.pickPorts()
}

// load reads the state; the error is os.ErrNotExist if the directory is not that of a cluster.
func (c *Cluster) load() error {
	data, err := os.ReadFile(c.path(stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not the directory of a cluster: %w", c.Dir, err)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.state); err != nil {
		return fmt.Errorf("%s: %w", c.path(stateFile), err)
	}
	return nil
}

func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	tmp := c.path(stateFile + ".tmp")
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, c.path(stateFile))
}

const lockFile = ".lock"

// lock keeps two commands from changing the same cluster at once. The lock is the open file's, so that it ends with the
// process that holds it, however that ends.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(c.path(lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", c.Dir, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another devcluster command is working on %s; try again when it has ended", c.Dir)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// linkBinaries fills bin. The components find out by their own names which of them they are to be.
func (c *Cluster) linkBinaries() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	links := map[string]string{}
	for _, name := range []string{"devcluster", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		links[name] = self
	}
	if c.state.Node {
		devnode, err := nodeBinary(self)
		if err != nil {
			return err
		}
		for _, name := range []string{"kube-scheduler", "kubelet", "kube-proxy"} {
			links[name] = devnode
		}
	}
	for name, target := range links {
		link := c.path("bin", name)
		if old, err := os.Readlink(link); err == nil && old == target {
			continue
		}
		tmp := link + ".tmp"
		_ = os.Remove(tmp)
		if err := os.Symlink(target, tmp); err != nil {
			return err
		}
		if err := os.Rename(tmp, link); err != nil {
			return err
		}
	}
	return nil
}
