package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/proc"
)

// The node has a network namespace of its own, joined to the machine's by a virtual cable. So kube-proxy and the CNI
// plugins write firewall rules, bridges and sysctls where only this cluster sees them, several clusters run side by side
// although each kube-proxy believes it owns all rules, and everything is gone with the namespace.
//
// Cluster number N has the network 10.(208+N).0.0/16, routed through the cable, so that the machine, and with it the API
// server, reaches pods, Services and NodePorts directly:
//
//	10.X.0.0/20      pods
//	10.X.128.0/18    Services
//	10.X.255.0/30    the cable: .1 is the machine's end, .2 the node's
//
// The name of the machine's end, dcN, is what reserves the number: the kernel makes it for only one.
const (
	networkFirst = 208
	networkCount = 32
)

func (c *Cluster) net(suffix string) string {
	return fmt.Sprintf("10.%d.%s", networkFirst+c.state.Network, suffix)
}

func (c *Cluster) clusterCIDR() string { return c.net("0.0/16") }
func (c *Cluster) podCIDR() string     { return c.net("0.0/20") }
func (c *Cluster) hostIP() string      { return c.net("255.1") }
func (c *Cluster) nodeIP() string      { return c.net("255.2") }

func (c *Cluster) cable() string { return "dc" + strconv.Itoa(c.state.Network) }

// serviceCIDR is also that of a cluster without a node, where Services get addresses that lead nowhere.
func (c *Cluster) serviceCIDR() string {
	if !c.state.Node {
		return "10.96.0.0/16"
	}
	return c.net("128.0/18")
}

// firstAddress is the address that the Service "kubernetes" gets.
func firstAddress(cidr string) (string, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", err
	}
	return prefix.Masked().Addr().Next().String(), nil
}

// connect lays the cable between the machine and the node's namespace.
func (c *Cluster) connect(ctx context.Context, init proc.ID) error {
	if c.state.Network >= 0 {
		// A restarted cluster needs the number it had, for it is in the data. The kernel takes a namespace down after
		// the last process in it has ended, so the old cable may be there a moment longer.
		err := c.poll(ctx, "the network "+c.clusterCIDR(), func() error { return c.addCable(init) })
		if err != nil {
			return fmt.Errorf("another cluster may have taken the network meanwhile (ip -d link show %s); end it, or remove this one with: devcluster down --dir %s: %w", c.cable(), c.Dir, err)
		}
	} else if err := c.pickNetwork(init); err != nil {
		return err
	}
	c.state.Host = c.hostIP()
	if err := c.save(); err != nil {
		return err
	}
	host := [][]string{
		{"link", "set", c.cable(), "alias", "devcluster " + c.state.ID},
		{"addr", "add", c.hostIP() + "/30", "dev", c.cable()},
		{"link", "set", c.cable(), "up"},
		{"route", "add", c.clusterCIDR(), "via", c.nodeIP(), "dev", c.cable()},
	}
	node := [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", c.nodeIP() + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", c.hostIP()},
	}
	for _, args := range host[:3] {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	for _, args := range node {
		if out, err := proc.RunIn(init.PID, "ip", args...); err != nil {
			return fmt.Errorf("ip %s, on the node: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := exec.Command("ip", host[3]...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(host[3], " "), err, out)
	}
	return nil
}

// pickNetwork takes the first number whose addresses the machine does not use and whose cable nobody else has made.
func (c *Cluster) pickNetwork(init proc.ID) error {
	used, err := usedPrefixes()
	if err != nil {
		return err
	}
	var last error
	for n := range networkCount {
		c.state.Network = n
		if overlaps(netip.MustParsePrefix(c.clusterCIDR()), used) {
			continue
		}
		if last = c.addCable(init); last == nil {
			return nil
		}
		if !errors.Is(last, errCableExists) {
			break
		}
	}
	c.state.Network = -1
	return errors.Join(fmt.Errorf("none of the networks 10.%d.0.0/16 to 10.%d.0.0/16 is free", networkFirst, networkFirst+networkCount-1), last)
}

var errCableExists = errors.New("the cable exists")

func (c *Cluster) addCable(init proc.ID) error {
	out, err := exec.Command("ip", "link", "add", c.cable(), "type", "veth", "peer", "name", "eth0",
		"netns", strconv.Itoa(init.PID)).CombinedOutput()
	if err == nil {
		return nil
	}
	if strings.Contains(string(out), "File exists") {
		return fmt.Errorf("%w: %s", errCableExists, c.cable())
	}
	return fmt.Errorf("ip link add %s: %w: %s", c.cable(), err, out)
}

// usedPrefixes lists the networks that the machine has addresses in or routes to.
func usedPrefixes() ([]netip.Prefix, error) {
	var used []netip.Prefix
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			used = append(used, p.Masked())
		}
	}
	out, err := exec.Command("ip", "-4", "route", "show", "table", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("ip route show: %w", err)
	}
	return append(used, routePrefixes(string(out))...), nil
}

// routePrefixes takes the destinations out of what `ip route show` prints; the default route is none.
func routePrefixes(routes string) []netip.Prefix {
	var found []netip.Prefix
	for line := range strings.Lines(routes) {
		for _, word := range strings.Fields(line)[:min(2, len(strings.Fields(line)))] {
			if p, err := netip.ParsePrefix(word); err == nil && p.Bits() > 0 {
				found = append(found, p.Masked())
			} else if a, err := netip.ParseAddr(word); err == nil {
				found = append(found, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return found
}

func overlaps(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if p.Overlaps(u) {
			return true
		}
	}
	return false
}

// disconnect removes the cable if it is still there and this cluster's. It goes by itself with the namespace, but a
// little later than the last process.
func (c *Cluster) disconnect() error {
	if c.state.Network < 0 {
		return nil
	}
	out, err := exec.Command("ip", "-d", "link", "show", c.cable()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "devcluster "+c.state.ID) {
		return nil
	}
	// The kernel may remove it between the two commands, which is as good.
	_ = exec.Command("ip", "link", "del", c.cable()).Run()
	for range 100 {
		if exec.Command("ip", "link", "show", c.cable()).Run() != nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the network device %s cannot be removed", c.cable())
}
