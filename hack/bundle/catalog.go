package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The blobs of a file-based catalogue, with the keys that opm knows.
type (
	olmPackage struct {
		Schema         string `json:"schema"`
		Name           string `json:"name"`
		DefaultChannel string `json:"defaultChannel"`
		Description    string `json:"description,omitempty"`
		Icon           *icon  `json:"icon,omitempty"`
		Properties     []any  `json:"properties,omitempty"`
	}
	icon struct {
		Data      string `json:"base64data"`
		MediaType string `json:"mediatype"`
	}
	olmChannel struct {
		Schema     string  `json:"schema"`
		Package    string  `json:"package"`
		Name       string  `json:"name"`
		Entries    []entry `json:"entries"`
		Properties []any   `json:"properties,omitempty"`
	}
	entry struct {
		Name      string   `json:"name"`
		Replaces  string   `json:"replaces,omitempty"`
		Skips     []string `json:"skips,omitempty"`
		SkipRange string   `json:"skipRange,omitempty"`
	}
	olmBundle struct {
		Schema        string `json:"schema"`
		Package       string `json:"package"`
		Name          string `json:"name"`
		Image         string `json:"image"`
		Properties    []any  `json:"properties,omitempty"`
		RelatedImages []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"relatedImages,omitempty"`
	}
	olmDeprecations struct {
		Schema  string        `json:"schema"`
		Package string        `json:"package"`
		Entries []deprecation `json:"entries"`
	}
	deprecation struct {
		Reference struct {
			Schema string `json:"schema"`
			Name   string `json:"name,omitempty"`
		} `json:"reference"`
		Message string `json:"message"`
	}
)

// writeCatalog writes the package, its channels and what is deprecated. The bundles' blobs stand beside them, one file for each
// release, as opm rendered them.
func writeCatalog(l *ledger, config, out string) error {
	blobs, err := l.blobs(config)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteString("# Made by \"make catalog\" from config/catalog/releases.yaml. Do not edit.\n")
	for i, b := range blobs {
		data, err := yaml.Marshal(b)
		if err != nil {
			return fmt.Errorf("cannot write a blob of the catalogue: %w", err)
		}
		if i > 0 {
			text.WriteString("---\n") // none before the first: opm takes comments alone for an empty blob
		}
		text.Write(data)
	}
	return write(filepath.Join(out, "package.yaml"), text.Bytes())
}

// writeTemplate writes the same as a template of opm, in which a bundle is the name of its image.
func writeTemplate(l *ledger, config, bundleImage, out string) error {
	blobs, err := l.blobs(config)
	if err != nil {
		return err
	}
	if bundleImage == "" {
		bundleImage = l.BundleImage
	}
	for _, r := range l.Releases {
		blobs = append(blobs, map[string]string{"schema": "olm.bundle", "image": bundleImage + ":v" + r.Version})
	}
	data, err := yaml.Marshal(map[string]any{"schema": "olm.template.basic", "entries": blobs})
	if err != nil {
		return fmt.Errorf("cannot write the template: %w", err)
	}
	return write(filepath.Join(out, "basic.yaml"), append([]byte("---\n"), data...))
}

// blobs are the package, its channels and what is deprecated.
func (l *ledger) blobs(config string) ([]any, error) {
	svg, err := os.ReadFile(filepath.Join(config, "icon.svg"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the icon: %w", err)
	}
	blobs := []any{olmPackage{
		Schema: "olm.package", Name: l.Package, DefaultChannel: l.DefaultChannel, Description: l.Description,
		Icon: &icon{Data: base64.StdEncoding.EncodeToString(svg), MediaType: "image/svg+xml"},
	}}
	for _, c := range l.Channels {
		if entries := l.entries(c); len(entries) > 0 {
			blobs = append(blobs, olmChannel{Schema: "olm.channel", Package: l.Package, Name: c, Entries: entries})
		}
	}
	deprecated := olmDeprecations{Schema: "olm.deprecations", Package: l.Package}
	for _, r := range l.Releases {
		if r.Deprecated != "" {
			d := deprecation{Message: r.Deprecated}
			d.Reference.Schema, d.Reference.Name = "olm.bundle", l.csv(r.Version)
			deprecated.Entries = append(deprecated.Entries, d)
		}
	}
	if len(deprecated.Entries) > 0 {
		blobs = append(blobs, deprecated)
	}
	return blobs, nil
}

func write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	return os.WriteFile(file, data, 0o644)
}
