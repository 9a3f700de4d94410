package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/libretto-dev/libretto/hack/devcluster/image"
)

// LoadImages gives image archives to the node. Pods use them with imagePullPolicy Never or IfNotPresent.
func (c *Cluster) LoadImages(ctx context.Context, archives ...string) error {
	if !c.state.Node {
		return errors.New("the cluster has no node that could use an image; make it with: devcluster up --node")
	}
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			return err
		}
		out, err := c.ctr(ctx, "images", "import", archive)
		if err != nil {
			return fmt.Errorf("load %s: %w", archive, err)
		}
		fmt.Fprint(c.out, out)
	}
	return nil
}

// ctr runs containerd's client.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// loadBaseImages makes and loads the image of the sandboxes and one with the usual small programs.
func (c *Cluster) loadBaseImages(ctx context.Context) error {
	have, err := c.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		// The socket is there a little earlier than the service behind it.
		if err := c.poll(ctx, "containerd", func() (err error) { have, err = c.ctr(ctx, "images", "list", "--quiet"); return err }); err != nil {
			return err
		}
	}
	for name, make := range map[string]func(string) error{pauseImage: c.makePause, busyboxImage: c.makeBusybox} {
		if strings.Contains("\n"+have, "\n"+name+"\n") {
			continue
		}
		archive := c.path("images", strings.NewReplacer("/", "_", ":", "_").Replace(name)+".tar")
		if err := make(archive); err != nil {
			return fmt.Errorf("make image %s: %w", name, err)
		}
		if _, err := c.ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
		c.step("image %s: loaded", name)
	}
	return nil
}

func (c *Cluster) makePause(archive string) error {
	devnode, err := filepath.EvalSymlinks(c.path("bin", kubelet))
	if err != nil {
		return err
	}
	root := c.path("images", "pause")
	if err := copyFile(filepath.Join(filepath.Dir(devnode), "pause"), filepath.Join(root, "pause"), 0o755); err != nil {
		return err
	}
	return image.WriteFile(archive, image.Spec{Name: pauseImage, Root: root, Entrypoint: []string{"/pause"}})
}

// makeBusybox makes an image of the machine's static busybox, with a link for each of its programs.
func (c *Cluster) makeBusybox(archive string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	root := c.path("images", "busybox")
	if err := copyFile(busybox, filepath.Join(root, "bin", "busybox"), 0o755); err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":  "root:x:0:\nnobody:x:65534:\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for dir, mode := range map[string]os.FileMode{"tmp": 0o777 | os.ModeSticky, "root": 0o700, "var": 0o755} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(root, dir), mode); err != nil {
			return err
		}
	}
	return image.WriteFile(archive, image.Spec{Name: busyboxImage, Root: root, Cmd: []string{"/bin/sh"}})
}

func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}
