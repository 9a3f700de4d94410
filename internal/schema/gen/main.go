// Command gen writes the archive of Kubernetes' own kinds that package schema embeds. It reads the OpenAPI v3 documents
// from a directory (-dir, files as in api/openapi-spec/v3 of Kubernetes) or from the API server of the kubeconfig named by
// KUBECONFIG. What people read (descriptions, examples) is dropped. The same documents make the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/libretto-dev/libretto/internal/schema"
)

func main() {
	dir := flag.String("dir", "", "directory with OpenAPI v3 documents; default: the API server of KUBECONFIG")
	out := flag.String("o", "kubernetes.zip", "the archive to write")
	flag.Parse()
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	var documents [][]byte
	var err error
	if dir != "" {
		documents, err = fromDirectory(dir)
	} else {
		documents, err = fromServer(context.Background(), os.Getenv("KUBECONFIG"))
	}
	if err != nil {
		return err
	}
	data, err := pack(documents)
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

func fromDirectory(dir string) ([][]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "api*__v*_openapi.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no OpenAPI documents (api__v1_openapi.json, …)", dir)
	}
	documents := make([][]byte, 0, len(files))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		documents = append(documents, data)
	}
	return documents, nil
}

func fromServer(ctx context.Context, kubeconfig string) ([][]byte, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig of KUBECONFIG: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	data, err := get(ctx, client, config.Host+"/openapi/v3")
	if err != nil {
		return nil, fmt.Errorf("cannot list the OpenAPI documents: %w", err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("cannot list the OpenAPI documents: %w", err)
	}
	var documents [][]byte
	for path := range index.Paths {
		if !ownGroupVersion(path) {
			continue
		}
		data, err := get(ctx, client, config.Host+"/openapi/v3/"+path)
		if err != nil {
			return nil, fmt.Errorf("cannot get the OpenAPI document %s: %w", path, err)
		}
		documents = append(documents, data)
	}
	return documents, nil
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// ownGroupVersion tells whether the document at the path is of a group of Kubernetes' own: one without a domain, or below
// k8s.io.
func ownGroupVersion(path string) bool {
	parts := strings.Split(path, "/")
	if path == "api/v1" {
		return true
	}
	return len(parts) == 3 && parts[0] == "apis" && (!strings.Contains(parts[1], ".") || strings.HasSuffix(parts[1], ".k8s.io"))
}

// pack writes the archive.
func pack(documents [][]byte) ([]byte, error) {
	var resources []schema.APIResource
	packages := map[string]map[string]any{}
	for _, data := range documents {
		found, schemas, err := schema.ParseOpenAPI(data)
		if err != nil {
			return nil, fmt.Errorf("cannot read an OpenAPI document: %w", err)
		}
		resources = append(resources, found...)
		for name, raw := range schemas {
			var content map[string]any
			if err := json.Unmarshal(raw, &content); err != nil {
				return nil, fmt.Errorf("cannot read the schema %s: %w", name, err)
			}
			pkg := schema.ArchivePackage(name)
			if packages[pkg] == nil {
				packages[pkg] = map[string]any{}
			}
			packages[pkg][name] = compact(content)
		}
	}
	slices.SortFunc(resources, func(a, b schema.APIResource) int {
		return cmp.Or(cmp.Compare(a.GVK.Group, b.GVK.Group), cmp.Compare(a.GVK.Version, b.GVK.Version),
			cmp.Compare(a.GVK.Kind, b.GVK.Kind))
	})
	files := map[string]any{schema.ArchiveKinds: resources}
	for name, definitions := range packages {
		files[name+".json"] = definitions
	}
	return archive(files)
}

// dropped are the members of a schema that nothing here reads. A default is dropped where it is empty: the API server's own
// types write one for every field that is not a pointer.
var dropped = []string{"description", "example", "externalDocs", "title", "x-kubernetes-patch-merge-key",
	"x-kubernetes-patch-strategy", "x-kubernetes-unions", "x-kubernetes-map-type", "x-kubernetes-group-version-kind",
	"x-kubernetes-selectable-fields"}

// compact drops from a schema, and from those within it, what is not needed.
func compact(content map[string]any) map[string]any {
	for _, key := range dropped {
		delete(content, key)
	}
	switch content["default"] {
	case "", 0.0, false:
		delete(content, "default")
	}
	if m, ok := content["default"].(map[string]any); ok && len(m) == 0 {
		delete(content, "default")
	}
	if properties, ok := content["properties"].(map[string]any); ok {
		for _, p := range properties {
			if property, ok := p.(map[string]any); ok {
				compact(property)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if nested, ok := content[key].(map[string]any); ok {
			compact(nested)
		}
	}
	return content
}

func archive(files map[string]any) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := json.Marshal(files[name])
		if err != nil {
			return nil, err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate}) // no time: the same bytes every time
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
