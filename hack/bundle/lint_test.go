package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

const head = `schema: olm.package
name: p
defaultChannel: stable
`

func bundles(versions ...string) string {
	var b strings.Builder
	for _, v := range versions {
		b.WriteString("---\nschema: olm.bundle\npackage: p\nname: p.v" + v + "\nimage: registry.example.com/p:v" + v + "\n")
	}
	return b.String()
}

func TestLint(t *testing.T) {
	for name, c := range map[string]struct {
		reason, catalog string
		want            []string
	}{
		"good": {
			reason: "a line of releases, one of them skipped",
			catalog: head + bundles("1.0.0", "1.1.0", "1.1.1") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0}
- {name: p.v1.1.0, replaces: p.v1.0.0}
- {name: p.v1.1.1, replaces: p.v1.0.0, skips: [p.v1.1.0]}
`,
		},
		"heads": {
			reason: "OLM would not know which one to install",
			catalog: head + bundles("1.0.0", "1.1.0", "1.2.0") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0}
- {name: p.v1.1.0, replaces: p.v1.0.0}
- {name: p.v1.2.0, replaces: p.v1.0.0}
`,
			want: []string{"it must have one head, and has 2: p.v1.1.0, p.v1.2.0"},
		},
		"skipRange": {
			reason: "a range alone connects nothing",
			catalog: head + bundles("1.0.0", "1.1.0") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0}
- {name: p.v1.1.0, skipRange: ">=1.0.0 <1.1.0"}
`,
			want: []string{"has a skipRange and replaces nothing", "it must have one head"},
		},
		"stranded": {
			reason: "what a skipped version replaces cannot go on from there",
			catalog: head + bundles("1.0.0", "1.1.0", "1.2.0") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0}
- {name: p.v1.1.0, replaces: p.v1.0.0}
- {name: p.v1.2.0, skips: [p.v1.1.0]}
`,
			want: []string{"p.v1.0.0 is stranded"},
		},
		"misspelt": {
			reason: "opm takes the key without a word, and the edge is missing",
			catalog: head + bundles("1.0.0", "1.1.0") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0}
- {name: p.v1.1.0, replace: p.v1.0.0}
`,
			want: []string{`unknown field "replace"`},
		},
		"downwards": {
			reason: "an upgrade goes up",
			catalog: head + bundles("1.0.0", "1.1.0") + `---
schema: olm.channel
package: p
name: stable
entries:
- {name: p.v1.0.0, replaces: p.v1.1.0}
- {name: p.v1.1.0}
`,
			want: []string{"p.v1.1.0 goes to p.v1.0.0, which is not newer"},
		},
		"names": {
			reason: "channels, bundles and what is deprecated refer to each other",
			catalog: head + bundles("1.0.0") + `---
schema: olm.channel
package: p
name: beta
entries:
- {name: p.v1.1.0}
---
schema: olm.deprecations
package: p
entries:
- reference: {schema: olm.bundle, name: p.v0.9.0}
  message: gone
`,
			want: []string{"bundle p.v1.0.0 is in no channel", "p.v1.1.0 has no bundle", "channel beta: the name", "there is no bundle p.v0.9.0", `default channel "stable" does not exist`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			catalog, findings := readCatalog(fstest.MapFS{"p/catalog.yaml": {Data: []byte(c.catalog)}})
			findings = append(findings, catalog.lint()...)
			all := strings.Join(findings, "\n")
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("%s: %q is not among\n%s", c.reason, want, all)
				}
			}
			if len(c.want) == 0 && all != "" {
				t.Errorf("%s: found\n%s", c.reason, all)
			}
		})
	}
}

func TestEntries(t *testing.T) {
	l := &ledger{Package: "p", DefaultChannel: "stable", Channels: []string{"candidate", "stable"}, Releases: []release{
		{Version: "1.0.0", Date: "2026-01-01T00:00:00Z", Channels: []string{"candidate", "stable"}},
		{Version: "1.1.0", Date: "2026-01-01T00:00:00Z", Channels: []string{"candidate"}},
		{Version: "1.1.1", Date: "2026-01-01T00:00:00Z", Channels: []string{"candidate", "stable"}, Skips: []string{"1.1.0"}},
	}}
	if err := l.validate(); err != nil {
		t.Fatal(err)
	}
	stable, candidate := l.entries("stable"), l.entries("candidate")
	if len(stable) != 2 || stable[1].Replaces != "p.v1.0.0" || stable[1].Skips != nil {
		t.Errorf("stable: %v", stable)
	}
	if len(candidate) != 3 || candidate[2].Replaces != "p.v1.0.0" || len(candidate[2].Skips) != 1 {
		t.Errorf("candidate: %v", candidate)
	}
	if got := l.replaces(); got != "p.v1.0.0" {
		t.Errorf("replaces %q", got)
	}
	l.Releases[1].Version = "0.9.0"
	if err := l.validate(); err == nil {
		t.Error("a ledger that goes down is taken")
	}
}
