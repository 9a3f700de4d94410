package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// Options say what to make.
type Options struct {
	// Kind, Group and Version of the declared kind. Version defaults to v1alpha1.
	Kind, Group, Version string
	// Fields of spec.
	Fields []Field
	// ClusterScoped makes a cluster-scoped kind.
	ClusterScoped bool
}

// Result is what was made.
type Result struct {
	// Files by slash-separated path below the output directory.
	Files map[string][]byte
	// Notes say what a reader of the files should know, one sentence each.
	Notes []string
	// Objects counts the objects that were found (From alone).
	Objects int
}

// Names of the files in a Result.
const (
	DefinitionFile = "definition.yaml"
	InstanceFile   = "instance.yaml"
)

var (
	kindPattern    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	groupPattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)
	versionPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

func (o *Options) complete() error {
	if o.Version == "" {
		o.Version = "v1alpha1"
	}
	switch {
	case !kindPattern.MatchString(o.Kind):
		return fmt.Errorf("kind %q is not a name in CamelCase, such as WebApp", o.Kind)
	case !groupPattern.MatchString(o.Group):
		return fmt.Errorf("group %q is not a domain of your own, such as example.com", o.Group)
	case strings.HasSuffix(o.Group, ".k8s.io"), strings.HasSuffix(o.Group, ".kubernetes.io"), o.Group == "libretto.dev":
		return fmt.Errorf("group %q is reserved: use a domain of your own, such as example.com", o.Group)
	case !versionPattern.MatchString(o.Version):
		return fmt.Errorf("version %q is not a version, such as v1 or v1alpha1", o.Version)
	}
	seen := map[string]bool{}
	for _, f := range o.Fields {
		if seen[f.Name] {
			return fmt.Errorf("field %q is there twice", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func (o *Options) singular() string { return strings.ToLower(o.Kind) }

func (o *Options) plural() string {
	s := o.singular()
	switch {
	case strings.HasSuffix(s, "s"), strings.HasSuffix(s, "x"), strings.HasSuffix(s, "ch"), strings.HasSuffix(s, "sh"):
		return s + "es"
	case strings.HasSuffix(s, "y") && len(s) > 1 && !strings.ContainsRune("aeiou", rune(s[len(s)-2])):
		return s[:len(s)-1] + "ies"
	}
	return s + "s"
}

func (o *Options) definitionName() string { return o.plural() + "." + o.Group }

// ExistsError tells that a file is there already.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s exists already; nothing was written: move it away, or choose another directory with --output", e.Path)
}

// Write writes the files below dir. It writes nothing and returns an *ExistsError when one of them is there already.
func (r *Result) Write(dir string) error {
	names := make([]string, 0, len(r.Files))
	for name := range r.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Lstat(path); err == nil {
			return &ExistsError{Path: path}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot look at %s: %w", path, err)
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("cannot make a directory for %s: %w", name, err)
		}
		if err := writeNew(path, r.Files[name]); err != nil {
			return err
		}
	}
	return nil
}

func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", path, err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
