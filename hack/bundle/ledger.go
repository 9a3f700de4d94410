package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// ledger is what was released, oldest first.
type ledger struct {
	Package        string    `json:"package"`
	Description    string    `json:"description"`
	Image          string    `json:"image"`
	BundleImage    string    `json:"bundleImage"`
	DefaultChannel string    `json:"defaultChannel"`
	Channels       []string  `json:"channels"`
	Releases       []release `json:"releases"`
}

type release struct {
	Version    string   `json:"version"`
	Date       string   `json:"date"`
	Channels   []string `json:"channels"`
	Skips      []string `json:"skips,omitempty"`
	Deprecated string   `json:"deprecated,omitempty"`
}

func readLedger(file string) (*ledger, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the ledger: %w", err)
	}
	l := &ledger{}
	if err := yaml.UnmarshalStrict(data, l); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	if err := l.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return l, nil
}

func (l *ledger) validate() error {
	if len(l.Releases) == 0 {
		return fmt.Errorf("no releases")
	}
	if !slices.Contains(l.Channels, l.DefaultChannel) {
		return fmt.Errorf("the default channel %q is not among the channels", l.DefaultChannel)
	}
	var before *version.Version
	for _, r := range l.Releases {
		v, err := version.ParseSemantic(r.Version)
		if err != nil {
			return fmt.Errorf("release %q: %w", r.Version, err)
		}
		if before != nil && !before.LessThan(v) {
			return fmt.Errorf("release %s stands after %s", r.Version, before)
		}
		before = v
		if _, err := time.Parse(time.RFC3339, r.Date); err != nil {
			return fmt.Errorf("release %s: date %q is not as in 2026-12-01T00:00:00Z", r.Version, r.Date)
		}
		if len(r.Channels) == 0 {
			return fmt.Errorf("release %s is in no channel", r.Version)
		}
		for _, c := range r.Channels {
			if !slices.Contains(l.Channels, c) {
				return fmt.Errorf("release %s is in channel %q, which is not among the channels", r.Version, c)
			}
		}
		for _, s := range r.Skips {
			if !slices.ContainsFunc(l.Releases, func(o release) bool { return o.Version == s }) {
				return fmt.Errorf("release %s skips %s, which was not released", r.Version, s)
			}
		}
	}
	return nil
}

func (l *ledger) newest() release { return l.Releases[len(l.Releases)-1] }

func (l *ledger) csv(v string) string { return l.Package + ".v" + v }

// entries are those of a channel: each release replaces the newest one before it that nothing skips.
func (l *ledger) entries(channel string) []entry {
	var all []entry
	var in []release
	for _, r := range l.Releases {
		if slices.Contains(r.Channels, channel) {
			in = append(in, r)
		}
	}
	for i, r := range in {
		e := entry{Name: l.csv(r.Version)}
		for _, s := range r.Skips {
			if slices.ContainsFunc(in, func(o release) bool { return o.Version == s }) {
				e.Skips = append(e.Skips, l.csv(s))
			}
		}
		for j := i - 1; j >= 0 && e.Replaces == ""; j-- {
			if name := l.csv(in[j].Version); !slices.Contains(e.Skips, name) {
				e.Replaces = name
			}
		}
		all = append(all, e)
	}
	return all
}

// replaces is the ClusterServiceVersion that the newest release replaces in the default channel, or in its first one.
func (l *ledger) replaces() string {
	newest := l.newest()
	channel := newest.Channels[0]
	if slices.Contains(newest.Channels, l.DefaultChannel) {
		channel = l.DefaultChannel
	}
	entries := l.entries(channel)
	return entries[len(entries)-1].Replaces
}
