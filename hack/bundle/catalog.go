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
	svg, err := os.ReadFile(filepath.Join(config, "icon.svg"))
	if err != nil {
		return fmt.Errorf("cannot read the icon: %w", err)
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
	var text bytes.Buffer
	text.WriteString("# Made by \"make catalog\" from config/catalog/releases.yaml. Do not edit.\n")
	for i, b := range blobs {
		if i > 0 {
			text.WriteString("---\n") // none before the first: opm takes comments alone for an empty blob
		}
		data, err := yaml.Marshal(b)
		if err != nil {
			return fmt.Errorf("cannot write a blob of the catalogue: %w", err)
		}
		text.Write(data)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("cannot make the catalogue: %w", err)
	}
	return os.WriteFile(filepath.Join(out, "package.yaml"), text.Bytes(), 0o644)
}
