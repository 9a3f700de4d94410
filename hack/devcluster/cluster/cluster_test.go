package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libretto-dev/libretto/hack/devcluster/pki"
)

func newCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	c := &Cluster{Dir: t.TempDir(), out: io.Discard, began: time.Now()}
	if err := c.loadOrInit(opts); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUserArgumentsComeLast(t *testing.T) {
	c := newCluster(t, Options{APIServerArgs: []string{"--feature-gates=A=true"}, ControllerManagerArgs: []string{"--v=4"}})
	if args := c.apiServer().args; args[len(args)-1] != "--feature-gates=A=true" {
		t.Errorf("kube-apiserver: %v", args)
	}
	if args := c.controllerManager().args; args[len(args)-1] != "--v=4" {
		t.Errorf("kube-controller-manager: %v", args)
	}
}

func TestNoFlagIsGivenTwice(t *testing.T) {
	for _, node := range []bool{false, true} {
		c := newCluster(t, Options{Node: node, AuditLog: "audit.log"})
		for _, comp := range slices.Concat(c.phases()...) {
			seen := map[string]bool{}
			for _, arg := range comp.args {
				name, _, _ := strings.Cut(arg, "=")
				if seen[name] {
					t.Errorf("%s: %s twice", comp.name, name)
				}
				seen[name] = true
			}
		}
	}
}

func TestAuditLogOnlyWhenAsked(t *testing.T) {
	has := func(c *Cluster) bool {
		return strings.Contains(strings.Join(c.apiServer().args, " "), "--audit-log-path=")
	}
	if has(newCluster(t, Options{})) {
		t.Error("audit log without being asked for")
	}
	if !has(newCluster(t, Options{AuditLog: "audit.log"})) {
		t.Error("no audit log")
	}
}

func TestPortsAreDistinctAndOutsideTheKernelsRanges(t *testing.T) {
	c := newCluster(t, Options{})
	p := c.state.Ports
	all := []int{p.EtcdClient, p.EtcdPeer, p.APIServer, p.ControllerManager, p.Scheduler}
	for i, n := range all {
		if n < portFirst || n > portLast || slices.Contains(all[:i], n) {
			t.Errorf("ports %v", all)
		}
	}
}

func TestBoundPortIsNotFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := l.Addr().(*net.TCPAddr).Port; portFree(n) {
		t.Errorf("port %d is bound on loopback, and counts as free", n)
	}
}

func TestStateSurvivesAndOptionsChangeIt(t *testing.T) {
	c := newCluster(t, Options{APIServerArgs: []string{"--v=1"}})
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	again := &Cluster{Dir: c.Dir, out: io.Discard}
	if err := again.loadOrInit(Options{}); err != nil {
		t.Fatal(err)
	}
	if again.state.Ports != c.state.Ports || again.state.ID != c.state.ID || again.state.APIServerArgs[0] != "--v=1" {
		t.Errorf("was %+v, is %+v", c.state, again.state)
	}
	if err := again.loadOrInit(Options{APIServerArgs: []string{"--v=2"}}); err != nil {
		t.Fatal(err)
	}
	if again.state.APIServerArgs[0] != "--v=2" {
		t.Errorf("arguments %v", again.state.APIServerArgs)
	}
	if err := again.loadOrInit(Options{Node: true}); err == nil {
		t.Error("a node was added to a cluster without one")
	}
}

func TestForeignDirectoryIsNeitherUsedNorRemoved(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := Up(ctx, Options{Dir: dir, Timeout: time.Second, Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "precious") {
		t.Errorf("up: %v", err)
	}
	if err := Down(ctx, dir, false, io.Discard); err == nil {
		t.Error("down: no error")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestLockIsExclusiveAndReleased(t *testing.T) {
	c := newCluster(t, Options{})
	unlock, err := c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.lock(ctx); err == nil {
		t.Error("locked twice")
	}
	unlock()
	unlock, err = c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestNetworksOfClustersDoNotOverlap(t *testing.T) {
	var all []netip.Prefix
	for n := range networkCount {
		c := &Cluster{state: state{Node: true, Network: n}}
		whole := netip.MustParsePrefix(c.clusterCIDR())
		if overlaps(whole, all) {
			t.Errorf("%v overlaps an earlier one", whole)
		}
		all = append(all, whole)
		pods, services := netip.MustParsePrefix(c.podCIDR()), netip.MustParsePrefix(c.serviceCIDR())
		if pods.Overlaps(services) {
			t.Errorf("pods %v overlap Services %v", pods, services)
		}
		for _, ip := range []string{c.hostIP(), c.nodeIP()} {
			a := netip.MustParseAddr(ip)
			if !whole.Contains(a) || pods.Contains(a) || services.Contains(a) {
				t.Errorf("%v is not where it should be", a)
			}
		}
	}
}

func TestRoutePrefixes(t *testing.T) {
	got := routePrefixes(`default via 172.16.0.1 dev eth0
172.16.0.0/24 dev eth0 proto kernel scope link src 172.16.0.2
10.209.0.0/16 via 10.209.255.2 dev dc1
local 127.0.0.0/8 dev lo table local
broadcast 10.209.255.3 dev dc1 table local
`)
	var text []string
	for _, p := range got {
		text = append(text, p.String())
	}
	if want := "172.16.0.0/24 10.209.0.0/16 127.0.0.0/8 10.209.255.3/32"; strings.Join(text, " ") != want {
		t.Errorf("got %v, want %s", text, want)
	}
}

func TestNodeConfigurationIsValidJSON(t *testing.T) {
	c := newCluster(t, Options{Node: true})
	c.state.Network = 3
	var err error
	if c.ca, err = pki.LoadOrCreate(c.path("pki")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"cni", "containerd"} {
		if err := os.Mkdir(c.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.writeNodeConfig(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"kubelet.json", "cni/10-bridge.conflist"} {
		data, err := os.ReadFile(c.path(file))
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(data) {
			t.Errorf("%s: %s", file, data)
		}
	}
}
