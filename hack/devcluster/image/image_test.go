package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func makeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{"bin/tool": "program", "etc/b": "2", "etc/a": "1"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Chmod(filepath.Join(root, "bin/tool"), 0o755),
		os.Symlink("tool", filepath.Join(root, "bin/alias")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	); err != nil {
		t.Fatal(err)
	}
	return root
}

func archive(t *testing.T, spec Spec) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, spec); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func files(t *testing.T, data []byte) (map[string][]byte, []*tar.Header) {
	t.Helper()
	content := map[string][]byte{}
	var headers []*tar.Header
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		if content[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSameDirectoryGivesSameBytes(t *testing.T) {
	spec := Spec{Name: "localhost/tool:1", Root: makeRoot(t), Entrypoint: []string{"/bin/tool"}, Env: []string{"A=1"}}
	first := archive(t, spec)
	if err := os.Chtimes(filepath.Join(spec.Root, "etc/a"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	other := spec
	other.Root = makeRoot(t)
	for what, again := range map[string][]byte{"other times": archive(t, spec), "another directory": archive(t, other)} {
		if !bytes.Equal(first, again) {
			t.Errorf("%s: other bytes", what)
		}
	}
}

func TestArchiveIsConsistent(t *testing.T) {
	content, _ := files(t, archive(t, Spec{Name: "localhost/tool:1", Root: makeRoot(t), Entrypoint: []string{"/bin/tool"}, User: "65532"}))
	var manifest []manifestEntry
	if err := json.Unmarshal(content["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	m := manifest[0]
	if m.RepoTags[0] != "localhost/tool:1" {
		t.Errorf("name %v", m.RepoTags)
	}
	var config struct {
		Config struct {
			Entrypoint, Env []string
			User            string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(content[m.Config], &config); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content[m.Layers[0]])
	if want := "sha256:" + hex.EncodeToString(sum[:]); config.Rootfs.DiffIDs[0] != want {
		t.Errorf("the configuration names layer %s, the layer is %s", config.Rootfs.DiffIDs[0], want)
	}
	if config.Config.Entrypoint[0] != "/bin/tool" || config.Config.User != "65532" || !hasPath(config.Config.Env) {
		t.Errorf("configuration %+v", config.Config)
	}
}

func TestLayerKeepsModesAndLinksAndDropsOwners(t *testing.T) {
	content, _ := files(t, archive(t, Spec{Name: "localhost/tool:1", Root: makeRoot(t)}))
	var layer []byte
	for name, data := range content {
		if strings.HasSuffix(name, "/layer.tar") {
			layer = data
		}
	}
	_, headers := files(t, layer)
	byName := map[string]*tar.Header{}
	for _, h := range headers {
		byName[h.Name] = h
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: owner %d:%d %q, time %v", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	if h := byName["bin/tool"]; h == nil || h.Mode&0o777 != 0o755 {
		t.Errorf("bin/tool: %+v", h)
	}
	if h := byName["bin/alias"]; h == nil || h.Linkname != "tool" {
		t.Errorf("bin/alias: %+v", h)
	}
	if h := byName["tmp/"]; h == nil || h.Mode&0o1777 != 0o1777 {
		t.Errorf("tmp/: %+v", h)
	}
}

func TestWhatCannotBeAnImageIsRefused(t *testing.T) {
	fifo := makeRoot(t)
	if err := syscall.Mkfifo(filepath.Join(fifo, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]Spec{
		"no tag":          {Name: "localhost:5000/tool", Root: makeRoot(t)},
		"no directory":    {Name: "localhost/tool:1", Root: filepath.Join(fifo, "absent")},
		"file for a root": {Name: "localhost/tool:1", Root: filepath.Join(fifo, "bin/tool")},
		"named pipe":      {Name: "localhost/tool:1", Root: fifo},
	} {
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteFile(out, spec); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}
