package schema

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// kubernetesZip holds kinds.json, a list of APIResource, and one file per package of definitions (io.k8s.api.core.v1.json),
// so that only the packages that are needed are unpacked. It is written by gen.
//
//go:embed kubernetes.zip
var kubernetesZip []byte

// Embedded returns the catalog of Kubernetes' own kinds. It is read when it is used, and shared by all callers.
func Embedded() Catalog { return embedded() }

var embedded = sync.OnceValue(func() *archive {
	a, err := openArchive(kubernetesZip)
	if err != nil {
		err = fmt.Errorf("the embedded kinds cannot be read: %w", err) // the binary is broken; every look-up says so
		return &archive{pool: pool{raw: func(string) (json.RawMessage, error) { return nil, err }}, broken: err}
	}
	return a
})

// archive is a catalog in a zip file.
type archive struct {
	pool
	broken    error
	resources map[runtimeschema.GroupVersionKind]APIResource
	files     map[string]*zip.File

	packagesMu sync.Mutex
	packages   map[string]map[string]json.RawMessage
}

// ArchivePackage is the name of the package that a definition stands in, without the kind.
func ArchivePackage(definition string) string {
	if i := strings.LastIndexByte(definition, '.'); i > 0 {
		return definition[:i]
	}
	return "other"
}

// ArchiveKinds is the name of the list of kinds in the archive.
const ArchiveKinds = "kinds.json"

func openArchive(data []byte) (*archive, error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	a := &archive{
		files:     make(map[string]*zip.File, len(r.File)),
		packages:  map[string]map[string]json.RawMessage{},
		resources: map[runtimeschema.GroupVersionKind]APIResource{},
	}
	a.raw = a.read
	for _, f := range r.File {
		a.files[f.Name] = f
	}
	var resources []APIResource
	if err := a.unpack(ArchiveKinds, &resources); err != nil {
		return nil, err
	}
	for _, r := range resources {
		a.resources[r.GVK] = r
	}
	return a, nil
}

func (a *archive) unpack(name string, into any) error {
	f, ok := a.files[name]
	if !ok {
		return fmt.Errorf("%s is missing", name)
	}
	r, err := f.Open()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	return nil
}

// read returns the text of a definition.
func (a *archive) read(definition string) (json.RawMessage, error) {
	a.packagesMu.Lock()
	defer a.packagesMu.Unlock()
	name := ArchivePackage(definition)
	pkg, ok := a.packages[name]
	if !ok {
		if a.files[name+".json"] == nil {
			return nil, nil
		}
		if err := a.unpack(name+".json", &pkg); err != nil {
			return nil, err
		}
		a.packages[name] = pkg
	}
	return pkg[definition], nil
}

// Kind implements Catalog.
func (a *archive) Kind(gvk runtimeschema.GroupVersionKind) (*Kind, error) {
	if a.broken != nil {
		return nil, a.broken
	}
	r, ok := a.resources[gvk]
	if !ok {
		return nil, unknownKind(gvk)
	}
	s, err := a.lookup(r.Definition)
	if err != nil {
		return nil, err
	}
	return &Kind{GVK: r.GVK, Resource: r.Resource, Namespaced: r.Namespaced, HasStatus: r.HasStatus, Schema: s}, nil
}

// Kinds implements Lister.
func (a *archive) Kinds() []runtimeschema.GroupVersionKind {
	kinds := make([]runtimeschema.GroupVersionKind, 0, len(a.resources))
	for gvk := range a.resources {
		kinds = append(kinds, gvk)
	}
	return kinds
}
