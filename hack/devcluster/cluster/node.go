package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	nodeName     = "node1"
	pauseImage   = "localhost/pause:1"
	busyboxImage = "localhost/busybox:1"
	cniBin       = "/usr/lib/cni"
	// socketPathMost is the kernel's limit for the path of a socket.
	socketPathMost = 107
)

// nodeBinary finds devnode beside this program, where build.sh puts it.
func nodeBinary(self string) (string, error) {
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return "", err
	}
	// Resolved as well: a later build may let the link point elsewhere while this cluster runs.
	path, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(real), "devnode"))
	if err != nil {
		return "", fmt.Errorf("a node needs the program devnode beside %s; build both with: hack/devcluster/build.sh node", real)
	}
	return path, nil
}

// nodePrograms maps each program that the node runs to the Debian package that has it.
var nodePrograms = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{cniBin + "/bridge", "containernetworking-plugins"},
	{cniBin + "/portmap", "containernetworking-plugins"},
	{"iptables-restore", "iptables"},
	{"conntrack", "conntrack"},
	{"ipset", "ipset"},
	{"ip", "iproute2"},
	{"socat", "socat"},
	{"busybox", "busybox-static"},
}

// missingPackages lists the Debian packages that have to be installed for a node.
func missingPackages() []string {
	var missing []string
	seen := map[string]bool{}
	for _, p := range nodePrograms {
		if _, err := exec.LookPath(p.program); err != nil && !seen[p.pkg] {
			seen[p.pkg] = true
			missing = append(missing, p.pkg)
		}
	}
	return missing
}

// prepareNode checks what a node needs of the machine, before anything is started, and writes its configuration.
func (c *Cluster) prepareNode() error {
	if os.Geteuid() != 0 {
		return errors.New("a node can only be run by root; without --node the cluster needs no privileges")
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("a node needs packages that are not installed; run hack/devcluster/install-node-deps.sh, or:\n  apt-get install -y --no-install-recommends %s", strings.Join(missing, " "))
	}
	if n := len(c.containerdSocket()); n > socketPathMost {
		return fmt.Errorf("%s is too long for a socket (%d characters, at most %d); choose a shorter --dir", c.containerdSocket(), n, socketPathMost)
	}
	for _, d := range []string{"containerd", "cni", "kubelet", "podlogs", "images"} {
		if err := os.MkdirAll(c.path(d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) containerdSocket() string { return c.path("containerd", "containerd.sock") }

func (c *Cluster) containerd() component {
	return component{
		name: containerd, path: "/usr/bin/containerd", inNode: true,
		args:   []string{"--config", c.path("containerd", "config.toml")},
		socket: c.containerdSocket(),
		after:  c.loadBaseImages,
	}
}

func (c *Cluster) kubelet() component {
	return component{
		name: kubelet, path: c.path("bin", kubelet), inNode: true,
		args: []string{
			"--config=" + c.path("kubelet.json"),
			"--kubeconfig=" + c.componentKubeconfig(kubelet),
			"--root-dir=" + c.path("kubelet"),
			"--hostname-override=" + nodeName,
			"--node-ip=" + c.nodeIP(),
		},
		health: "http://" + c.nodeIP() + ":10248/healthz",
	}
}

func (c *Cluster) kubeProxy() component {
	return component{
		name: kubeProxy, path: c.path("bin", kubeProxy), inNode: true,
		args: []string{
			"--kubeconfig=" + c.componentKubeconfig(kubeProxy),
			"--proxy-mode=iptables",
			"--cluster-cidr=" + c.podCIDR(),
			"--hostname-override=" + nodeName,
			"--healthz-bind-address=" + c.nodeIP() + ":10256",
			// These limits are the whole machine's and may not be changed from a network namespace.
			"--conntrack-max-per-core=0",
			"--conntrack-tcp-timeout-established=0",
			"--conntrack-tcp-timeout-close-wait=0",
			// The default waits a second after each change of a Service before the next one.
			"--iptables-min-sync-period=100ms",
		},
		health: "http://" + c.nodeIP() + ":10256/healthz",
	}
}

// writeNodeConfig writes the files that the network's number goes into.
func (c *Cluster) writeNodeConfig() error {
	cni, err := json.MarshalIndent(c.cniConfig(), "", "  ")
	if err != nil {
		return err
	}
	kubelet, err := json.MarshalIndent(c.kubeletConfig(), "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.path("cni", "10-bridge.conflist"), cni, 0o644),
		os.WriteFile(c.path("kubelet.json"), kubelet, 0o644),
		os.WriteFile(c.path("containerd", "config.toml"), []byte(c.containerdConfig()), 0o644),
	)
}

type object = map[string]any

func (c *Cluster) cniConfig() object {
	return object{
		"cniVersion": "0.4.0",
		"name":       "devcluster",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": object{
					"type":    "host-local",
					"dataDir": c.path("node", "ipam"),
					"ranges":  [][]object{{{"subnet": c.podCIDR()}}},
					"routes":  []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
}

func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
# Kubernetes needs none of these, and some of them complain about what this machine lacks.
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Without the capability to lower it, every sandbox would fail ("can't get final child's PID from pipe: EOF").
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`, c.path("containerd", "root"), c.path("containerd", "state"), c.containerdSocket(), pauseImage, cniBin, c.path("cni"))
}

func (c *Cluster) kubeletConfig() object {
	return object{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + c.containerdSocket(),
		"tlsCertFile":              c.ca.Cert(kubelet),
		"tlsPrivateKeyFile":        c.ca.Key(kubelet),
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": c.ca.Cert("ca")},
		},
		"authorization":      object{"mode": "Webhook"},
		"healthzBindAddress": c.nodeIP(),
		"clusterDomain":      "cluster.local",
		"podLogsDir":         c.path("podlogs"),
		"maxPods":            250,
		// What else runs on the machine is none of the cluster's business: no swap check, no reserved resources, no
		// eviction and image removal because a developer's disk is nearly full.
		"failSwapOn":                    false,
		"enforceNodeAllocatable":        []string{},
		"localStorageCapacityIsolation": false,
		"imageGCHighThresholdPercent":   100,
		"evictionHard":                  object{"memory.available": "100Mi"},
		"cgroupDriver":                  "cgroupfs",
		"cgroupRoot":                    "/" + c.cgroup(),
		"failCgroupV1":                  false,
		// Tests start and end many pods and watch their states.
		"serializeImagePulls":       false,
		"nodeStatusUpdateFrequency": "5s",
		"syncFrequency":             "10s",
		"registryPullQPS":           0,
		"eventRecordQPS":            0,
		"kubeAPIQPS":                300,
		"kubeAPIBurst":              600,
	}
}

// waitNodeReady waits until the node takes pods.
func (c *Cluster) waitNodeReady(ctx context.Context) error {
	return c.poll(ctx, "the node", func() error {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := c.api(ctx, "/api/v1/nodes/"+nodeName, &node); err != nil {
			return err
		}
		for _, cond := range node.Status.Conditions {
			if cond.Type == "Ready" && cond.Status == "True" {
				c.step("node %s: ready", nodeName)
				return nil
			}
			if cond.Type == "Ready" {
				return errors.New(cond.Message)
			}
		}
		return errors.New("the node has not reported yet")
	})
}
