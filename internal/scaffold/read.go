package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// baseFiles are the names under which kustomize looks for its file.
func baseFiles() []string {
	return []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}
}

// baseFile returns the name of the kustomization file in a directory, or "".
func baseFile(dir string) string {
	for _, name := range baseFiles() {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return name
		}
	}
	return ""
}

func isBase(dir string) bool { return baseFile(dir) != "" }

func buildBase(dir string) ([]*unstructured.Unstructured, error) {
	if _, err := closure(dir); err != nil {
		return nil, err // names what is remote, before kustomize tries to fetch it
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("cannot build the kustomize base %s: %w", dir, err)
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("cannot read what kustomize built: %w", err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("cannot read what kustomize built: %w", err)
		}
		out = append(out, o)
	}
	return out, nil
}

// readManifests reads all .yaml, .yml and .json files below a directory, by name; hidden files are left out. skipped are the
// files that hold no object.
func readManifests(dir string) (objects []*unstructured.Unstructured, skipped []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && path != dir {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(path)
		if d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("cannot read manifests: %w", err)
		}
		found, err := parseManifests(data)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		if len(found) == 0 {
			skipped = append(skipped, path)
		}
		objects = append(objects, found...)
		return nil
	})
	return objects, skipped, err
}

func parseManifests(data []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var raw map[string]any
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if raw["kind"] == nil || raw["apiVersion"] == nil {
			continue
		}
		o, err := toObject(raw)
		if err != nil {
			return nil, err
		}
		if !o.IsList() {
			out = append(out, clean(o))
			continue
		}
		err = o.EachListItem(func(item runtimeObject) error {
			if u, ok := item.(*unstructured.Unstructured); ok {
				out = append(out, clean(u))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// toObject normalizes numbers as the API server does.
func toObject(raw map[string]any) (*unstructured.Unstructured, error) {
	data, err := yaml.Marshal(raw)
	if err != nil {
		return nil, err
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	return o, o.UnmarshalJSON(data)
}

// clean removes what an API server adds, so that exported manifests can be used.
func clean(o *unstructured.Unstructured) *unstructured.Unstructured {
	unstructured.RemoveNestedField(o.Object, "status")
	for _, f := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences"} {
		unstructured.RemoveNestedField(o.Object, "metadata", f)
	}
	if a := o.GetAnnotations(); a != nil {
		delete(a, "kubectl.kubernetes.io/last-applied-configuration")
		delete(a, "deployment.kubernetes.io/revision")
		if len(a) == 0 {
			a = nil
		}
		o.SetAnnotations(a)
	}
	if o.GetKind() == "Service" {
		if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" && ip != "" {
			unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
			unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
		}
	}
	return o
}
