package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

// The functions here break a running cluster on purpose and mend it again, for tests of how a client bears that.

// StopComponent ends one component and leaves the others running.
func (c *Cluster) StopComponent(ctx context.Context, name string, sig syscall.Signal) error {
	if _, err := c.component(name); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return c.stop(name, sig, 30*time.Second)
}

// StartComponent starts one component, unless it runs, and waits until it serves.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return c.startComponent(ctx, name)
}

// RestartComponent ends a component, waits for pause, starts it on the same port with the same data, and waits until it
// serves.
func (c *Cluster) RestartComponent(ctx context.Context, name string, sig syscall.Signal, pause time.Duration) error {
	if _, err := c.component(name); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.stop(name, sig, 30*time.Second); err != nil {
		return err
	}
	time.Sleep(pause)
	return c.startComponent(ctx, name)
}

func (c *Cluster) startComponent(ctx context.Context, name string) error {
	comp, err := c.component(name)
	if err != nil {
		return err
	}
	// The kernel may hold the port of a process that was killed for a moment longer, above all on a busy machine.
	for range 40 {
		if err = c.startPhase(ctx, []component{comp}); !errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// ComponentStatus is the state of one component.
type ComponentStatus struct {
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`
	Running bool   `json:"running"`
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	Log     string `json:"log"`
}

// Status is the state of a cluster.
type Status struct {
	Dir        string            `json:"dir"`
	Kubeconfig string            `json:"kubeconfig"`
	Server     string            `json:"server"`
	Node       bool              `json:"node"`
	Healthy    bool              `json:"healthy"`
	Components []ComponentStatus `json:"components"`
}

// Status asks every component for its state.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	status := Status{Dir: c.Dir, Kubeconfig: c.Kubeconfig(), Server: c.Server(), Node: c.state.Node, Healthy: true}
	for _, phase := range c.phases() {
		for _, comp := range phase {
			id, err := proc.Load(c.record(comp.name))
			if err != nil {
				return status, err
			}
			one := ComponentStatus{Name: comp.name, PID: id.PID, Running: id.Alive(), Log: c.Log(comp.name)}
			if !one.Running {
				one.Problem = "not running"
				if id.PID != 0 {
					one.Problem = fmt.Sprintf("process %d has ended; see its log", id.PID)
				}
			} else if err := c.healthy(ctx, comp); err != nil {
				one.Problem = err.Error()
			}
			one.Healthy = one.Problem == ""
			status.Healthy = status.Healthy && one.Healthy
			status.Components = append(status.Components, one)
		}
	}
	return status, nil
}
