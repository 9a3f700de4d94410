package kustomization

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// FileError is a fault of one file of a base.
type FileError struct {
	// File is the path in the base; empty for the base as a whole.
	File    string
	Message string
	Hint    string
	// Near is text in the file that the fault is about.
	Near string
}

// Error implements error.
func (e *FileError) Error() string {
	text := e.Message
	if e.File != "" {
		text = e.File + ": " + text
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// kustomizationFile is what matters here of a kustomization.
type kustomizationFile struct {
	Resources             []string          `json:"resources"`
	Bases                 []string          `json:"bases"`
	Components            []string          `json:"components"`
	CRDs                  []string          `json:"crds"`
	Configurations        []string          `json:"configurations"`
	Generators            []string          `json:"generators"`
	Transformers          []string          `json:"transformers"`
	Validators            []string          `json:"validators"`
	PatchesStrategicMerge []string          `json:"patchesStrategicMerge"`
	Patches               []pathEntry       `json:"patches"`
	PatchesJSON6902       []pathEntry       `json:"patchesJson6902"`
	Replacements          []pathEntry       `json:"replacements"`
	OpenAPI               map[string]string `json:"openapi"`
	ConfigMapGenerator    []generator       `json:"configMapGenerator"`
	SecretGenerator       []generator       `json:"secretGenerator"`
	HelmCharts            []any             `json:"helmCharts"`
	HelmChartInflation    []any             `json:"helmChartInflationGenerator"`
	HelmGlobals           any               `json:"helmGlobals"`
}

type pathEntry struct {
	Path string `json:"path"`
}

type generator struct {
	Files []string `json:"files"`
	Envs  []string `json:"envs"`
	Env   string   `json:"env"`
}

// checkFile refuses what would leave the files of the base or run something.
func checkFile(name string, files map[string][]byte) error {
	if name == "" || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "../") || name == ".." {
		return &FileError{File: name, Message: "not a path within the base", Hint: "paths are relative and clean, such as app/deployment.yaml"}
	}
	if !IsKustomization(name) {
		return nil
	}
	var k kustomizationFile
	if err := yaml.Unmarshal(files[name], &k); err != nil {
		return &FileError{File: name, Message: "not a kustomization: " + strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: ")}
	}
	if len(k.HelmCharts) > 0 || len(k.HelmChartInflation) > 0 || k.HelmGlobals != nil {
		return &FileError{File: name, Message: "Helm charts cannot be used: nothing is run and nothing is fetched", Near: "helm", Hint: "write the chart's objects into the base (helm template)"}
	}
	// The configuration of a plugin may name files as it likes, remote ones among them, and can be patched together: it cannot
	// be checked as the words of a kustomization can.
	for field, list := range map[string][]string{"generators": k.Generators, "transformers": k.Transformers, "validators": k.Validators} {
		if len(list) > 0 {
			return &FileError{File: name, Message: field + " cannot be used: plugins may read what is not in the base", Near: field,
				Hint: "use the words of a kustomization instead: configMapGenerator, secretGenerator, patches, replacements, labels, …"}
		}
	}
	return k.checkPaths(name, files)
}

func (k *kustomizationFile) checkPaths(name string, files map[string][]byte) error {
	dir := path.Dir(name)
	for _, list := range [][]string{k.Resources, k.Bases, k.Components, k.CRDs, k.Configurations, k.PatchesStrategicMerge} {
		for _, entry := range list {
			if err := checkEntry(name, dir, entry, files); err != nil {
				return err
			}
		}
	}
	for _, list := range [][]pathEntry{k.Patches, k.PatchesJSON6902, k.Replacements} {
		for _, entry := range list {
			if entry.Path == "" {
				continue
			}
			if err := checkEntry(name, dir, entry.Path, files); err != nil {
				return err
			}
		}
	}
	for _, entry := range k.dataFiles() {
		if err := checkEntry(name, dir, entry, files); err != nil {
			return err
		}
	}
	if entry := k.OpenAPI["path"]; entry != "" {
		return checkEntry(name, dir, entry, files)
	}
	return nil
}

// dataFiles are the files whose text becomes data of ConfigMaps and Secrets.
func (k *kustomizationFile) dataFiles() []string {
	var out []string
	for _, list := range [][]generator{k.ConfigMapGenerator, k.SecretGenerator} {
		for _, g := range list {
			for _, f := range g.Files {
				if _, file, named := strings.Cut(f, "="); named {
					f = file
				}
				out = append(out, f)
			}
			out = append(out, g.Envs...)
			if g.Env != "" {
				out = append(out, g.Env)
			}
		}
	}
	return out
}

// checkEntry refuses what is neither a file nor a directory of the base, nor text in place of a file.
func checkEntry(name, dir, entry string, files map[string][]byte) error {
	if strings.Contains(entry, "\n") {
		return nil
	}
	target := path.Join(dir, entry)
	if !path.IsAbs(entry) && !strings.HasPrefix(target, "../") {
		if _, ok := files[target]; ok {
			return nil
		}
		for file := range files {
			if strings.HasPrefix(file, target+"/") || target == "." {
				return nil
			}
		}
	}
	e := &FileError{File: name, Message: fmt.Sprintf("%s is not in the base", entry), Near: entry}
	switch {
	case remote(entry):
		e.Message, e.Hint = entry+" is a remote base: nothing is fetched", "copy its files into the base"
	case path.IsAbs(entry) || strings.HasPrefix(target, "../"):
		e.Message, e.Hint = entry+" lies outside the base", "put everything that is used below the directory of the base"
	}
	return e
}

func remote(entry string) bool {
	return strings.Contains(entry, "://") || strings.HasPrefix(entry, "git@") || strings.HasPrefix(entry, "github.com/") || strings.Contains(entry, "?ref=") || strings.Contains(entry, ".git/")
}

// DataFiles returns the paths of the files in a base whose text becomes data of ConfigMaps and Secrets, as far as its
// kustomizations can be read.
func DataFiles(files map[string]string) map[string]bool {
	out := map[string]bool{}
	for name, text := range files {
		if !IsKustomization(name) {
			continue
		}
		var k kustomizationFile
		if err := yaml.Unmarshal(bytes.TrimSpace([]byte(text)), &k); err != nil {
			continue
		}
		for _, f := range k.dataFiles() {
			out[path.Join(path.Dir(name), f)] = true
		}
	}
	return out
}
