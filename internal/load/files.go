package load

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/libretto-dev/libretto/internal/diag"
)

// maxBase is the size in bytes of all files of a kustomize base together: they have to fit into the definition.
const maxBase = 1 << 20

// Load reads files, directories (all .yaml, .yml and .json files in and below them, but not below a directory that holds a
// kustomization.yaml) and the standard input (-). Kustomizations with a path are read from their directories, which are
// relative to the file of the definition. What can be read is returned beside the errors about the rest.
func Load(paths ...string) ([]*Document, []Extra, diag.List) {
	var docs []*Document
	var extras []Extra
	var list diag.List
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			list.Add(diag.Diagnostic{File: path, Message: "cannot read: " + cause(err)})
			continue
		}
		if len(files) == 0 {
			list.Add(diag.Diagnostic{File: path, Message: "no YAML or JSON file is in this directory"})
		}
		for _, file := range files {
			data, err := read(file)
			if err != nil {
				list.Add(diag.Diagnostic{File: file, Message: "cannot read: " + cause(err)})
				continue
			}
			ds, es, faults := Parse(file, data)
			list = append(list, faults...)
			for _, d := range ds {
				list = append(list, Inline(d, filepath.Dir(file))...)
			}
			docs, extras = append(docs, ds...), append(extras, es...)
		}
	}
	list = append(list, sameName(docs)...)
	return docs, extras, list.Sort()
}

func sameName(docs []*Document) diag.List {
	var list diag.List
	first := map[string]*Document{}
	for _, d := range docs {
		name := d.Definition.Name
		before, twice := first[name]
		if !twice {
			first[name] = d
			continue
		}
		if name != "" {
			list = append(list, d.Locate(diag.List{{Severity: diag.Error, Path: "metadata.name",
				Message: fmt.Sprintf("there is another definition %q, in %s:%d", name, before.File, before.Positions.Of("metadata.name", 0).Line)}})...)
		}
	}
	return list
}

// cause is the reason of an error of the file system, without the path that is said already.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

func read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, maxFile+1))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// expand lists the files that a path stands for, sorted.
func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != path && (strings.HasPrefix(entry.Name(), ".") || isBase(name)):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		switch ext := filepath.Ext(name); {
		case kustomizationFiles[entry.Name()]: // of a base that was named itself
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			// A link is followed, as those of a mounted ConfigMap; what cannot be read to an end (a pipe, a device) is none of ours.
			if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
				return nil
			}
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

var kustomizationFiles = map[string]bool{"kustomization.yaml": true, "kustomization.yml": true, "Kustomization": true}

func isBase(dir string) bool {
	for name := range kustomizationFiles {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// Inline puts the files of kustomizations in place of their paths, which are relative to the directory dir. Places in the
// files are remembered.
func Inline(doc *Document, dir string) diag.List {
	var list diag.List
	for i := range doc.Definition.Spec.Resources {
		k := doc.Definition.Spec.Resources[i].Kustomization
		if k == nil || k.Path == "" {
			continue
		}
		at := diag.Child(diag.Index("spec.resources", i), "kustomization")
		base := filepath.Join(dir, filepath.FromSlash(k.Path))
		files, err := baseFiles(base)
		if err != nil {
			list.Add(diag.Diagnostic{Path: at + ".path", Message: fmt.Sprintf("cannot read the kustomize base %s: %s", base, err),
				Hint: "the path is relative to the file of the definition"})
			continue
		}
		k.Path, k.Files = "", files
		if doc.Positions.files == nil {
			doc.Positions.files = map[string]fileText{}
		}
		for name, text := range files {
			doc.Positions.files[diag.Child(at+".files", name)] = fileText{name: filepath.Join(base, filepath.FromSlash(name)), text: text}
		}
	}
	return doc.Locate(list)
}

func baseFiles(base string) (map[string]string, error) {
	if filepath.IsAbs(base) {
		if info, err := os.Stat(base); err == nil && !info.IsDir() {
			return nil, errors.New("it is not a directory")
		}
	}
	files := map[string]string{}
	size := 0
	err := filepath.WalkDir(base, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return errors.New(cause(err))
		case strings.HasPrefix(entry.Name(), ".") && name != base && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a plain file", name)
		}
		rel, err := filepath.Rel(base, name)
		if err != nil {
			return err
		}
		data, err := read(name)
		if err != nil {
			return errors.New(cause(err))
		}
		if size += len(data); size > maxBase || len(files) >= 100 {
			return fmt.Errorf("it has more than %d bytes or 100 files", maxBase)
		}
		files[filepath.ToSlash(rel)] = string(data)
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("it is empty")
	}
	return files, err
}
