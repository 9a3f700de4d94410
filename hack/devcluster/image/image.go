// Package image makes a container image from a directory, without a daemon, a registry or a build tool.
//
// The result is a docker-archive: a tar file with one layer, a configuration and a manifest, which containerd, Docker,
// Podman and most registry tools can read. The same directory always gives the same bytes.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Spec describes an image.
type Spec struct {
	// Name is the image's name with its tag, such as localhost/tool:1.
	Name string
	// Root is the directory that becomes the image's root.
	Root string
	// Entrypoint, Cmd, Env, WorkingDir and User are the container's defaults, as in a Dockerfile.
	Entrypoint, Cmd, Env []string
	WorkingDir, User     string
	// Architecture is that of the programs inside, by Go's name; empty means this machine's.
	Architecture string
}

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// WriteFile writes the image's archive to a file, whole or not at all.
func WriteFile(path string, spec Spec) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(Write(f, spec), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Write writes the image's archive.
func Write(w io.Writer, spec Spec) error {
	if !strings.Contains(spec.Name[strings.LastIndexByte(spec.Name, '/')+1:], ":") {
		return fmt.Errorf("image name %q has no tag; name it like localhost/tool:1", spec.Name)
	}
	// The layer's size and digest come before the layer in the archive, so it is written to a file first.
	layer, err := os.CreateTemp("", "devcluster-layer-*")
	if err != nil {
		return err
	}
	defer func() {
		layer.Close()
		os.Remove(layer.Name())
	}()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), spec.Root); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	config, err := json.Marshal(config(spec, digest))
	if err != nil {
		return err
	}
	configName := digestOf(config) + ".json"
	layerName := digest + "/layer.tar"
	manifest, err := json.Marshal([]manifestEntry{{Config: configName, RepoTags: []string{spec.Name}, Layers: []string{layerName}}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	return errors.Join(
		addFile(t, configName, int64(len(config)), bytes.NewReader(config)),
		addFile(t, layerName, size, layer),
		addFile(t, "manifest.json", int64(len(manifest)), bytes.NewReader(manifest)),
		t.Close(),
	)
}

type manifestEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// config is the image's configuration. The creation time is left out of it, like every other time.
func config(spec Spec, layerDigest string) map[string]any {
	arch := spec.Architecture
	if arch == "" {
		arch = runtime.GOARCH
	}
	env := spec.Env
	if !hasPath(env) {
		env = append([]string{defaultPath}, env...)
	}
	container := map[string]any{"Env": env}
	for key, list := range map[string][]string{"Entrypoint": spec.Entrypoint, "Cmd": spec.Cmd} {
		if len(list) > 0 {
			container[key] = list
		}
	}
	for key, value := range map[string]string{"WorkingDir": spec.WorkingDir, "User": spec.User} {
		if value != "" {
			container[key] = value
		}
	}
	return map[string]any{
		"architecture": arch,
		"os":           "linux",
		"config":       container,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerDigest}},
	}
}

func hasPath(env []string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, "PATH=") {
			return true
		}
	}
	return false
}

// writeLayer writes the directory as a tar file in which everything belongs to root and is of the same time, in the
// order of the names.
func writeLayer(w io.Writer, root string) error {
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", root)
	}
	t := tar.NewWriter(w)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return addEntry(t, root, path, d)
	})
	return errors.Join(err, t.Close())
}

func addEntry(t *tar.Writer, root, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	var link string
	switch {
	case info.Mode().IsRegular(), info.IsDir():
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is a %v; an image can hold only files, directories and links", path, info.Mode().Type())
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Typeflag: h.Typeflag, Name: filepath.ToSlash(name), Linkname: link, Size: h.Size, Mode: h.Mode, ModTime: time.Unix(0, 0),
	}
	if info.IsDir() {
		header.Name += "/"
	}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(t, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func addFile(t *tar.Writer, name string, size int64, content io.Reader) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
