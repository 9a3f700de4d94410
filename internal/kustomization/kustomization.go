// Package kustomization builds kustomize bases in memory. It knows nothing of expressions: its input are files as they are
// after evaluation. Nothing outside the given files is read, nothing is run.
package kustomization

import (
	"container/list"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	// maxObjects is how many objects a base may build.
	maxObjects = 1000
	baseDir    = "/base"
	overlayDir = "/overlay"
)

// Builder builds bases and remembers the newest results by their inputs. It is safe for concurrent use.
type Builder struct {
	size int

	mu     sync.Mutex
	known  map[[sha256.Size]byte]*list.Element
	newest *list.List // of *result
	builds uint64
}

type result struct {
	key     [sha256.Size]byte
	objects []*unstructured.Unstructured
}

// NewBuilder returns a Builder that remembers at most size results.
func NewBuilder(size int) *Builder {
	return &Builder{size: max(size, 1), known: map[[sha256.Size]byte]*list.Element{}, newest: list.New()}
}

// Builds is how often a base was really built, for tests and metrics.
func (b *Builder) Builds() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.builds
}

// Build builds the base in files, a map from path to content that holds a kustomization.yaml at its top. overlay, if not
// nil, is the content of a kustomization.yaml over it, in JSON. The objects are in build order; they are shared with later
// callers and must not be changed.
func (b *Builder) Build(files map[string][]byte, overlay []byte) ([]*unstructured.Unstructured, error) {
	key := keyOf(files, overlay)
	b.mu.Lock()
	if e, ok := b.known[key]; ok {
		b.newest.MoveToFront(e)
		objects := e.Value.(*result).objects //nolint:forcetypeassert // the list holds nothing else
		b.mu.Unlock()
		return objects, nil
	}
	b.builds++
	b.mu.Unlock()

	objects, err := build(files, overlay)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[key]; !ok {
		b.known[key] = b.newest.PushFront(&result{key: key, objects: objects})
	}
	for b.newest.Len() > b.size {
		oldest := b.newest.Remove(b.newest.Back()).(*result) //nolint:forcetypeassert // as above
		delete(b.known, oldest.key)
	}
	return objects, nil
}

func keyOf(files map[string][]byte, overlay []byte) (key [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range sortedNames(files) {
		fmt.Fprintf(h, "%d %d ", len(name), len(files[name]))
		h.Write([]byte(name))
		h.Write(files[name])
	}
	fmt.Fprintf(h, "%d ", len(overlay))
	h.Write(overlay)
	h.Sum(key[:0])
	return key
}

func sortedNames(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// kustomize has tables of its own that are filled while it builds, so that two builds cannot run at the same time.
var oneAtATime sync.Mutex

func build(files map[string][]byte, overlay []byte) (objects []*unstructured.Unstructured, err error) {
	if err := checkSize(files); err != nil {
		return nil, err
	}
	for _, name := range sortedNames(files) {
		if err := checkFile(name, files); err != nil {
			return nil, err
		}
	}
	if _, ok := Top(files); !ok {
		return nil, &FileError{Message: "there is no kustomization.yaml at the top of the base"}
	}
	fs := filesys.MakeFsInMemory()
	for _, name := range sortedNames(files) {
		if err := fs.WriteFile(path.Join(baseDir, name), files[name]); err != nil {
			return nil, fmt.Errorf("cannot prepare %s: %w", name, err)
		}
	}
	dir := baseDir
	if overlay != nil {
		dir = overlayDir
		if err := fs.WriteFile(path.Join(overlayDir, "kustomization.yaml"), overlay); err != nil {
			return nil, fmt.Errorf("cannot prepare the overlay: %w", err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.PluginConfig = types.DisabledPluginConfig()
	options.LoadRestrictions = types.LoadRestrictionsNone // all there is are the files in memory
	options.Reorder = krusty.ReorderOptionNone

	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("kustomize failed: %v", p)
		}
	}()
	built, err := krusty.MakeKustomizer(options).Run(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize: %s", clean(err.Error()))
	}
	if built.Size() > maxObjects {
		return nil, fmt.Errorf("the base builds %d objects; at most %d are possible", built.Size(), maxObjects)
	}
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", r.CurId(), err)
		}
		object := map[string]any{}
		if err := utiljson.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", r.CurId(), err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}
	return objects, nil
}

// clean takes the directories that nobody knows out of kustomize's errors.
func clean(message string) string {
	for _, dir := range []string{baseDir, overlayDir} {
		message = strings.ReplaceAll(message, "'"+dir+"'", "the base")
		message = strings.ReplaceAll(message, dir+"/", "")
		message = strings.ReplaceAll(message, dir, "the base")
	}
	return message
}

// Top returns the name of the kustomization file at the top of a base.
func Top[V any](files map[string]V) (string, bool) {
	for _, name := range names {
		if _, ok := files[name]; ok {
			return name, true
		}
	}
	return "", false
}

var names = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// IsKustomization tells whether a file is a kustomization.
func IsKustomization(name string) bool { return slices.Contains(names, path.Base(name)) }

// OverlayBase is what the resources of an overlay contain.
const OverlayBase = "../base"
