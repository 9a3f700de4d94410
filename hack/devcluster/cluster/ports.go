package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
)

type ports struct {
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// Ports are picked below the range from which the kernel gives out ports for outgoing connections (32768 and up), and
// below that of NodePorts (30000 and up): one that is asked of the kernel could be the source of somebody's connection
// by the time the server binds it.
const (
	portFirst = 12000
	portLast  = 29999
)

// pickPorts picks ports that are free now. Nothing holds them until the servers bind them, so startAll picks again if
// that fails. They are kept in the state: a restarted server is found where it was.
func (c *Cluster) pickPorts() error {
	p := &c.state.Ports
	taken := map[int]bool{}
	for _, port := range []*int{&p.EtcdClient, &p.EtcdPeer, &p.APIServer, &p.ControllerManager, &p.Scheduler} {
		n, err := freePort(taken)
		if err != nil {
			return err
		}
		*port = n
	}
	return nil
}

func freePort(taken map[int]bool) (int, error) {
	for range 1000 {
		n := portFirst + rand.IntN(portLast-portFirst+1)
		if taken[n] {
			continue
		}
		if !portFree(n) {
			continue
		}
		taken[n] = true
		return n, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", portFirst, portLast)
}

// portFree tries all addresses, since the API server of a cluster with a node binds another one than loopback.
func portFree(n int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", n))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
