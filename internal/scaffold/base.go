package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// closure returns the files that a kustomize base consists of, as absolute paths: its own, and those of the directories that
// it builds upon. What is not a local file is an error: bases are built in memory, without a network.
func closure(dir string) ([]string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	seen := map[string]bool{}
	if err := collect(abs, seen); err != nil {
		return nil, err
	}
	return sortedKeys(seen), nil
}

func collect(dir string, seen map[string]bool) error {
	file := filepath.Join(dir, baseFile(dir))
	if seen[file] {
		return nil
	}
	seen[file] = true
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read a kustomize base: %w", err)
	}
	var content map[string]any
	if err := yaml.Unmarshal(data, &content); err != nil {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	for _, key := range []string{"helmCharts", "helmChartInflationGenerator"} {
		if content[key] != nil {
			return fmt.Errorf("%s uses %s, which needs a program and a network: run kustomize build --enable-helm into a directory first, and use --from with that", file, key)
		}
	}
	for _, key := range []string{"resources", "bases", "components"} {
		list, _ := content[key].([]any)
		for _, item := range list {
			entry, _ := item.(string)
			if _, err := os.Stat(filepath.Join(dir, entry)); errors.Is(err, fs.ErrNotExist) && isRemote(entry) {
				return fmt.Errorf("%s builds upon %s: bases are built in memory, without a network; copy it beside the base first", file, entry)
			}
		}
	}
	return collectReferences(dir, content, seen)
}

func isRemote(entry string) bool {
	return strings.Contains(entry, "://") || strings.HasPrefix(entry, "git@") || strings.Contains(entry, "?ref=") || strings.HasPrefix(entry, "github.com/")
}

// collectReferences takes every string that names an existing file or base as a reference; taking one too many does no harm.
func collectReferences(dir string, value any, seen map[string]bool) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if err := collectReferences(dir, v[key], seen); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := collectReferences(dir, item, seen); err != nil {
				return err
			}
		}
	case string:
		return collectPath(dir, v, seen)
	}
	return nil
}

func collectPath(dir, text string, seen map[string]bool) error {
	if text == "" || strings.ContainsAny(text, "\n\x00") {
		return nil
	}
	candidates := []string{text}
	if _, after, found := strings.Cut(text, "="); found {
		candidates = append(candidates, after) // KEY=FILE of a generator
	}
	for _, c := range candidates {
		path := filepath.Join(dir, c)
		info, err := os.Stat(path)
		switch {
		case err != nil || c == "":
		case info.IsDir() && isBase(path):
			return collect(path, seen)
		case info.Mode().IsRegular():
			seen[path] = true
		}
	}
	return nil
}

// keepBase copies the base, lifts what kustomize itself cannot replace in the copy, and makes one resource of it.
func (c *conversion) keepBase() error {
	files, err := closure(c.Dir)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", c.Dir, err)
	}
	top := commonDir(root, files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("cannot read a kustomize base: %w", err)
		}
		rel, err := filepath.Rel(top, f)
		if err != nil {
			return fmt.Errorf("cannot copy %s: %w", f, err)
		}
		c.result.Files[BaseDir+"/"+filepath.ToSlash(rel)] = c.edit(f, data)
	}
	c.dropLeftOut()
	if rel, err := filepath.Rel(top, root); err == nil && rel != "." {
		c.result.Files[BaseDir+"/kustomization.yaml"] = []byte("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- " + filepath.ToSlash(rel) + "\n")
	}
	c.note("the base was copied to %s/: what stands there is part of the operator from now on", BaseDir)
	c.note("names stay as they are in the base, so a namespace can hold one instance; for several, set namePrefix and make the labels that selectors use hold ${self.metadata.name} (or start again with --flatten)")
	data, err := c.definition([]ordered{{
		{key: "name", value: "base"},
		{key: "kustomization", value: c.kustomization(), comment: "A kustomize base, built in memory; each of its objects is a child of the " + c.Kind + "."},
	}})
	c.result.Files[DefinitionFile] = data
	return err
}

func (c *conversion) kustomization() ordered {
	out := ordered{{key: "path", value: "./" + BaseDir}}
	var images, replicas []ordered
	byName := map[string]int{}
	for i := range c.knobs.images {
		byName[c.knobs.images[i].repository]++
	}
	for i := range c.knobs.images {
		x := &c.knobs.images[i]
		if byName[x.repository] > 1 {
			continue
		}
		image := ordered{{key: "name", value: x.repository}, {key: "newName", value: "${" + x.path + ".repository}"}}
		if x.tag != "" {
			image = append(image, entry{key: "newTag", value: "${" + x.path + ".tag}"})
		}
		if x.digest != "" {
			image = append(image, entry{key: "digest", value: "${" + x.path + ".digest}"})
		}
		images = append(images, image)
	}
	for _, x := range c.knobs.replicas {
		replicas = append(replicas, ordered{{key: "name", value: x.name}, {key: "count", value: "${" + x.path + "}"}})
	}
	if len(images) > 0 {
		out = append(out, entry{key: "images", value: images})
	}
	if len(replicas) > 0 {
		out = append(out, entry{key: "replicas", value: replicas})
	}
	return out
}

// commonDir is the deepest directory that holds all files.
func commonDir(root string, files []string) string {
	for _, f := range files {
		for !strings.HasPrefix(f, root+string(filepath.Separator)) {
			root = filepath.Dir(root)
		}
	}
	return root
}

// edit makes ${ in a file literal, and in YAML replaces hosts and the namespace.
func (c *conversion) edit(name string, data []byte) []byte {
	text := escapeText(string(data))
	ext := filepath.Ext(name)
	if ext != ".yaml" && ext != ".yml" && filepath.Base(name) != "Kustomization" {
		return []byte(text)
	}
	for _, x := range c.knobs.hosts {
		scalar := regexp.MustCompile(`(?m)^(\s*(?:- )*(?:[A-Za-z]+: +)?)["']?` + regexp.QuoteMeta(x.host) + `["']?[ \t]*$`)
		text = scalar.ReplaceAllString(text, `${1}"$${`+x.path+`}"`)
	}
	if c.namespace != "" && !c.ClusterScoped {
		scalar := regexp.MustCompile(`(?m)^(\s*(?:- )*namespace: +)["']?` + regexp.QuoteMeta(c.namespace) + `["']?[ \t]*$`)
		text = scalar.ReplaceAllString(text, `${1}"$${self.metadata.namespace}"`)
	}
	return []byte(text)
}

// dropLeftOut removes the Namespace and CustomResourceDefinitions from the copied files, and files that are empty then from
// the lists of resources.
func (c *conversion) dropLeftOut() {
	if !c.namespaceLeftOut && len(c.crds) == 0 {
		return
	}
	empty := map[string]bool{}
	for _, name := range sortedKeys(c.result.Files) {
		if !strings.HasPrefix(name, BaseDir+"/") || contains(baseFiles(), filepath.Base(name)) {
			continue
		}
		kept, dropped := dropDocuments(string(c.result.Files[name]))
		if !dropped {
			continue
		}
		if strings.TrimSpace(kept) == "" {
			delete(c.result.Files, name)
			empty[name] = true
			continue
		}
		c.result.Files[name] = []byte(kept)
	}
	for name, data := range c.result.Files {
		if contains(baseFiles(), filepath.Base(name)) {
			c.result.Files[name] = []byte(dropEntries(string(data), filepath.ToSlash(filepath.Dir(name)), empty))
		}
	}
}

// dropDocuments removes documents of the kinds Namespace and CustomResourceDefinition.
func dropDocuments(text string) (kept string, dropped bool) {
	var out []string
	for _, doc := range regexp.MustCompile(`(?m)^---[^\n]*\n`).Split(text, -1) {
		var head struct {
			Kind string `json:"kind"`
		}
		if yaml.Unmarshal([]byte(doc), &head) == nil && (head.Kind == "Namespace" || head.Kind == "CustomResourceDefinition") {
			dropped = true
			continue
		}
		if strings.TrimSpace(doc) != "" {
			out = append(out, doc)
		}
	}
	return strings.Join(out, "---\n"), dropped
}

// dropEntries removes the list entries of a kustomization file that name a file that is gone.
func dropEntries(text, dir string, gone map[string]bool) string {
	lines := strings.Split(text, "\n")
	out := lines[:0]
	for _, line := range lines {
		entry := strings.Trim(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")), `"'`)
		if strings.HasPrefix(strings.TrimSpace(line), "- ") && gone[filepath.ToSlash(filepath.Join(dir, entry))] {
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
