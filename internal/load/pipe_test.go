package load_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/libretto-dev/libretto/internal/load"
)

// A directory may hold what cannot be read to an end, and links to files, as a mounted ConfigMap does.
func TestLoadSkipsPipesAndFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	target := filepath.Join(dir, "data")
	if err := os.WriteFile(target, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	docs, extras, problems := load.Load(dir)
	if len(docs) != 0 || len(extras) != 1 || problems.HasErrors() {
		t.Errorf("%d documents, %d others, %v", len(docs), len(extras), problems)
	}
}
