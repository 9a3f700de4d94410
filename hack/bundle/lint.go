package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// catalog is a file-based catalogue of one package or several.
type catalog struct {
	packages     map[string]olmPackage
	channels     []olmChannel
	bundles      map[string]olmBundle
	deprecations []olmDeprecations
}

// readCatalog reads every YAML file below dir, each key against those that opm knows: opm takes a misspelt one without a word.
func readCatalog(dir fs.FS) (*catalog, []string) {
	c := &catalog{packages: map[string]olmPackage{}, bundles: map[string]olmBundle{}}
	var findings []string
	err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || (!strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".json")) {
			return err
		}
		data, err := fs.ReadFile(dir, path)
		if err != nil {
			return err
		}
		docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := c.add(doc); err != nil {
				findings = append(findings, fmt.Sprintf("%s: %v", path, err))
			}
		}
	})
	if err != nil {
		findings = append(findings, err.Error())
	}
	return c, findings
}

func (c *catalog) add(doc []byte) error {
	var head struct {
		Schema string `json:"schema"`
	}
	var content map[string]any
	if err := sigsyaml.Unmarshal(doc, &content); err != nil {
		return err
	}
	if len(content) == 0 {
		return nil // nothing but comments
	}
	if err := sigsyaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	switch head.Schema {
	case "olm.package":
		var p olmPackage
		if err := sigsyaml.UnmarshalStrict(doc, &p); err != nil {
			return err
		}
		c.packages[p.Name] = p
	case "olm.channel":
		var ch olmChannel
		if err := sigsyaml.UnmarshalStrict(doc, &ch); err != nil {
			return err
		}
		c.channels = append(c.channels, ch)
	case "olm.bundle":
		var b olmBundle
		if err := sigsyaml.UnmarshalStrict(doc, &b); err != nil {
			return err
		}
		if _, ok := c.bundles[b.Name]; ok {
			return fmt.Errorf("bundle %s stands here and elsewhere", b.Name)
		}
		c.bundles[b.Name] = b
	case "olm.deprecations":
		var d olmDeprecations
		if err := sigsyaml.UnmarshalStrict(doc, &d); err != nil {
			return err
		}
		c.deprecations = append(c.deprecations, d)
	default:
		return fmt.Errorf("unknown schema %q", head.Schema)
	}
	return nil
}

var channelName = regexp.MustCompile(`^(candidate|fast|stable)(-v\d+(\.\d+)?)?$`)

// lint tells what is wrong with the upgrade graph.
func (c *catalog) lint() []string {
	var f []string
	inChannel := map[string]bool{}
	for name, p := range c.packages {
		if !slices.ContainsFunc(c.channels, func(ch olmChannel) bool { return ch.Package == name && ch.Name == p.DefaultChannel }) {
			f = append(f, fmt.Sprintf("package %s: the default channel %q does not exist", name, p.DefaultChannel))
		}
	}
	for _, ch := range c.channels {
		if _, ok := c.packages[ch.Package]; !ok {
			f = append(f, fmt.Sprintf("channel %s: there is no package %q", ch.Name, ch.Package))
		}
		if !channelName.MatchString(ch.Name) {
			f = append(f, fmt.Sprintf("channel %s: the name should be candidate, fast or stable, with -vX or -vX.Y after it or not", ch.Name))
		}
		for _, e := range ch.Entries {
			inChannel[e.Name] = true
		}
		f = append(f, c.lintChannel(ch)...)
	}
	for name := range c.bundles {
		if !inChannel[name] {
			f = append(f, fmt.Sprintf("bundle %s is in no channel", name))
		}
	}
	for _, d := range c.deprecations {
		for _, e := range d.Entries {
			if e.Reference.Schema == "olm.bundle" && !inChannel[e.Reference.Name] {
				f = append(f, fmt.Sprintf("deprecations: there is no bundle %s", e.Reference.Name))
			}
		}
	}
	slices.Sort(f)
	return f
}

func (c *catalog) lintChannel(ch olmChannel) []string {
	var f []string
	say := func(format string, args ...any) {
		f = append(f, fmt.Sprintf("channel %s: ", ch.Name)+fmt.Sprintf(format, args...))
	}
	entries, left, skipped := map[string]entry{}, map[string]bool{}, map[string]bool{}
	for _, e := range ch.Entries {
		if _, ok := entries[e.Name]; ok {
			say("%s stands in it twice", e.Name)
		}
		entries[e.Name] = e
	}
	for _, e := range ch.Entries {
		for _, s := range e.Skips {
			skipped[s] = true
		}
		for _, older := range e.leaves() {
			left[older] = true
			if !lower(older, e.Name) {
				say("%s goes to %s, which is not newer", older, e.Name)
			}
		}
		c.lintEntry(e, entries, say)
	}
	var heads []string
	for name := range entries {
		if !left[name] {
			heads = append(heads, name)
		}
	}
	slices.Sort(heads)
	if len(heads) != 1 {
		say("it must have one head, and has %d: %s", len(heads), strings.Join(heads, ", "))
		return f
	}
	return append(f, stranded(ch.Name, heads[0], entries, skipped)...)
}

func (c *catalog) lintEntry(e entry, entries map[string]entry, say func(string, ...any)) {
	if !c.hasBundle(e.Name) {
		say("%s has no bundle", e.Name)
	}
	if e.Replaces == "" && e.SkipRange != "" && len(entries) > 1 {
		say("%s has a skipRange and replaces nothing: older versions are not connected with it", e.Name)
	}
	if _, ok := entries[e.Replaces]; !ok && c.hasBundle(e.Replaces) {
		say("%s replaces %s, which is not in the channel", e.Name, e.Replaces)
	}
}

// leaves are the entries from which an upgrade goes to this one.
func (e entry) leaves() []string {
	if e.Replaces == "" {
		return e.Skips
	}
	return append(slices.Clone(e.Skips), e.Replaces)
}

// stranded tells which versions do not come to the head. A skipped one goes to what skips it, whatever it says itself.
func stranded(channel, head string, entries map[string]entry, skipped map[string]bool) []string {
	next := map[string][]string{}
	for name, e := range entries {
		if !skipped[name] {
			next[e.Replaces] = append(next[e.Replaces], name)
		}
		for _, s := range e.Skips {
			next[s] = append(next[s], name)
		}
	}
	var f []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		seen, todo := map[string]bool{}, []string{name}
		for len(todo) > 0 && !seen[head] {
			at := todo[0]
			todo = todo[1:]
			if !seen[at] {
				seen[at] = true
				todo = append(todo, next[at]...)
			}
		}
		if !seen[head] {
			f = append(f, fmt.Sprintf("channel %s: %s is stranded: no path leads from it to %s", channel, name, head))
		}
	}
	return f
}

func (c *catalog) hasBundle(name string) bool {
	_, ok := c.bundles[name]
	return ok
}

// lower tells whether the version in the name of a is below that of b. Names without a version are not compared.
func lower(a, b string) bool {
	parse := func(name string) *version.Version {
		_, v, _ := strings.Cut(name, ".v")
		parsed, err := version.ParseSemantic(v)
		if err != nil {
			return nil
		}
		return parsed
	}
	va, vb := parse(a), parse(b)
	return va == nil || vb == nil || va.LessThan(vb)
}

// mermaid draws the channels.
func (c *catalog) mermaid() string {
	var b strings.Builder
	b.WriteString("graph LR\n")
	for _, ch := range c.channels {
		fmt.Fprintf(&b, "  subgraph %s\n", ch.Name)
		for _, e := range ch.Entries {
			id := func(name string) string { return ch.Name + "-" + name + "[\"" + name + "\"]" }
			fmt.Fprintf(&b, "    %s\n", id(e.Name))
			if e.Replaces != "" {
				fmt.Fprintf(&b, "    %s --> %s\n", id(e.Replaces), id(e.Name))
			}
			for _, s := range e.Skips {
				fmt.Fprintf(&b, "    %s -. skipped .-> %s\n", id(s), id(e.Name))
			}
		}
		b.WriteString("  end\n")
	}
	return b.String()
}
