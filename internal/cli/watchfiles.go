package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxWatched limits the directories that are watched, so that a definition in a large tree costs nothing.
	maxWatched = 200
	// restTime is how long files must rest before they are read: editors write in several steps.
	restTime = 200 * time.Millisecond
)

// watchFiles tells when something changed in the directories of the paths, bases of kustomizations with them. The channel
// is nil when nothing can be watched.
func watchFiles(ctx context.Context, paths []string) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	watched := 0
	for _, p := range paths {
		if p == "-" {
			continue
		}
		dir := p
		if info, err := os.Stat(p); err != nil || !info.IsDir() {
			dir = filepath.Dir(p)
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return nil //nolint:nilerr // what cannot be read is not watched
			case path != dir && strings.HasPrefix(d.Name(), "."), watched >= maxWatched:
				return filepath.SkipDir
			}
			watched++
			return w.Add(path)
		})
		if err != nil {
			return nil, fmt.Errorf("cannot watch %s: %w", dir, err)
		}
	}
	out := make(chan struct{})
	go forward(ctx, w, out)
	return out, nil
}

// forward sends once after each burst of changes.
func forward(ctx context.Context, w *fsnotify.Watcher, out chan<- struct{}) {
	defer func() { _ = w.Close() }()
	var rest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.Events:
			if !open {
				return
			}
			if e.Op != fsnotify.Chmod {
				rest = time.After(restTime)
			}
			if info, err := os.Stat(e.Name); e.Has(fsnotify.Create) && err == nil && info.IsDir() {
				_ = w.Add(e.Name) // a directory that is gone again need not be watched
			}
		case err := <-w.Errors: // too many changes at once: read again
			if err == nil {
				return
			}
			rest = time.After(restTime)
		case <-rest:
			rest = nil
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}
