package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/libretto-dev/libretto/hack/devcluster/pki"
)

// component is one process of the cluster.
type component struct {
	name string
	path string
	args []string
	// inNode components run in the namespaces of the node.
	inNode bool
	// health is a URL that answers 200 once the component serves; without one it is ready when its socket is there.
	health, socket string
	// selfSigned says that the health is read over a connection that nobody can verify: controller manager and scheduler
	// make a certificate for themselves at each start.
	selfSigned bool
	// after runs once the component is ready.
	after func(context.Context) error
}

// Names of the components.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubelet           = "kubelet"
	kubeProxy         = "kube-proxy"
	containerd        = "containerd"
)

// phases lists the components in the order in which they are started; those of one phase start together.
func (c *Cluster) phases() [][]component {
	if !c.state.Node {
		return [][]component{{c.etcd()}, {c.apiServer()}, {c.controllerManager()}}
	}
	return [][]component{
		{c.etcd(), c.containerd()},
		{c.apiServer()},
		{c.controllerManager(), c.scheduler(), c.kubelet(), c.kubeProxy()},
	}
}

// component returns the component of that name.
func (c *Cluster) component(name string) (component, error) {
	var names []string
	for _, phase := range c.phases() {
		for _, comp := range phase {
			if comp.name == name {
				return comp, nil
			}
			names = append(names, comp.name)
		}
	}
	return component{}, fmt.Errorf("this cluster has no component %q; it has %v", name, names)
}

func (c *Cluster) etcd() component {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.state.Ports.EtcdClient)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.state.Ports.EtcdPeer)
	return component{
		name: etcd,
		path: c.path("bin", etcd),
		args: []string{
			"--name=devcluster",
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=devcluster=" + peer,
			// Waiting for the disk makes every write several times slower, and only guards against the machine going
			// down: a killed etcd loses nothing without it.
			"--unsafe-no-fsync",
			// It is the only member, so its election cannot be disturbed; with the defaults it waits a second for others.
			"--heartbeat-interval=20",
			"--election-timeout=200",
			"--quota-backend-bytes=8589934592",
			"--log-level=warn",
		},
		health: client + "/health",
	}
}

func (c *Cluster) apiServer() component {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.state.Ports.EtcdClient),
		"--bind-address=" + c.state.Host,
		"--advertise-address=" + c.state.Host,
		fmt.Sprintf("--secure-port=%d", c.state.Ports.APIServer),
		"--service-cluster-ip-range=" + c.serviceCIDR(),
		"--client-ca-file=" + c.ca.Cert("ca"),
		"--tls-cert-file=" + c.ca.Cert("apiserver"),
		"--tls-private-key-file=" + c.ca.Key("apiserver"),
		"--service-account-key-file=" + c.ca.PublicKey("service-accounts"),
		"--service-account-signing-key-file=" + c.ca.Key("service-accounts"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--enable-admission-plugins=NodeRestriction",
		"--requestheader-client-ca-file=" + c.ca.Cert("ca"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.ca.Cert("front-proxy"),
		"--proxy-client-key-file=" + c.ca.Key("front-proxy"),
		// Services are resolved to their endpoints by the API server itself, which has no kube-proxy to rely on.
		"--enable-aggregator-routing=true",
	}
	if c.state.Node {
		args = append(args,
			"--kubelet-client-certificate="+c.ca.Cert("apiserver-kubelet"),
			"--kubelet-client-key="+c.ca.Key("apiserver-kubelet"),
			"--kubelet-certificate-authority="+c.ca.Cert("ca"),
			// By default the node's name is tried first, which no DNS knows; exec and logs would fail.
			"--kubelet-preferred-address-types=InternalIP")
	} else {
		// The endpoints of the Service "kubernetes" may not be loopback addresses, and nobody could use them.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if c.state.AuditLog != "" {
		args = append(args,
			"--audit-policy-file="+c.path("audit-policy.yaml"),
			"--audit-log-path="+c.state.AuditLog,
			// One file: who counts requests does not want to look for the rotated ones.
			"--audit-log-maxsize=10240")
	}
	return component{
		name:   apiServer,
		path:   c.path("bin", apiServer),
		args:   append(args, c.state.APIServerArgs...),
		health: c.Server() + "/readyz",
	}
}

func (c *Cluster) controllerManager() component {
	port := c.state.Ports.ControllerManager
	args := []string{
		"--kubeconfig=" + c.componentKubeconfig(controllerManager),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.ca.Key("service-accounts"),
		"--root-ca-file=" + c.ca.Cert("ca"),
		"--cluster-signing-cert-file=" + c.ca.Cert("ca"),
		"--cluster-signing-key-file=" + c.ca.Key("ca"),
		"--allocate-node-cidrs=false",
		// The defaults (20 and 30) are meant for a shared server, and would be what a test waits for.
		"--kube-api-qps=300",
		"--kube-api-burst=600",
	}
	return component{
		name:   controllerManager,
		path:   c.path("bin", controllerManager),
		args:   append(args, c.state.ControllerManagerArgs...),
		health: fmt.Sprintf("https://127.0.0.1:%d/healthz", port), selfSigned: true,
	}
}

func (c *Cluster) scheduler() component {
	port := c.state.Ports.Scheduler
	return component{
		name: scheduler,
		path: c.path("bin", scheduler),
		args: []string{
			"--kubeconfig=" + c.componentKubeconfig(scheduler),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--leader-elect=false",
			"--kube-api-qps=300",
			"--kube-api-burst=600",
		},
		health: fmt.Sprintf("https://127.0.0.1:%d/healthz", port), selfSigned: true,
	}
}

// componentKubeconfig is the path of a component's own kubeconfig.
func (c *Cluster) componentKubeconfig(name string) string {
	return c.path("kubeconfigs", name+".kubeconfig")
}

// auditPolicy records who asked for what and not the bodies, once for each request, when it has been answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// writeCredentials makes the certificates and kubeconfigs that are not there yet or no longer fit.
func (c *Cluster) writeCredentials() error {
	service, err := firstAddress(c.serviceCIDR())
	if err != nil {
		return err
	}
	const masters = "system:masters"
	identities := []pki.Identity{
		{File: "apiserver", CommonName: "kube-apiserver", Hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local", "127.0.0.1", c.state.Host, service,
		}},
		{File: "admin", CommonName: "kubernetes-admin", Organization: []string{masters}},
		{File: "apiserver-kubelet", CommonName: "kube-apiserver-kubelet-client", Organization: []string{masters}},
		{File: "front-proxy", CommonName: "front-proxy"},
		{File: controllerManager, CommonName: "system:kube-controller-manager"},
	}
	clients := []string{controllerManager}
	if c.state.Node {
		identities = append(identities,
			pki.Identity{File: scheduler, CommonName: "system:kube-scheduler"},
			pki.Identity{File: kubeProxy, CommonName: "system:kube-proxy"},
			pki.Identity{File: kubelet, CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"},
				Hosts: []string{nodeName, c.nodeIP()}})
		clients = append(clients, scheduler, kubelet, kubeProxy)
	}
	for _, id := range identities {
		if err := c.ca.Issue(id); err != nil {
			return err
		}
	}
	if err := c.ca.IssueSigningKey("service-accounts"); err != nil {
		return err
	}
	for _, name := range clients {
		if err := c.ca.WriteKubeconfig(c.componentKubeconfig(name), c.Server(), name); err != nil {
			return err
		}
	}
	if c.state.AuditLog != "" {
		if err := os.MkdirAll(filepath.Dir(c.state.AuditLog), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	return c.ca.WriteKubeconfig(c.Kubeconfig(), c.Server(), "admin")
}
