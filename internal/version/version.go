// Package version tells which build of Libretto this is.
package version

import (
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -X github.com/libretto-dev/libretto/internal/version.version=v1.2.3. Nothing writes it later.
var version string

// Info is a build.
type Info struct {
	// Version is the release, or the version of the module, or devel.
	Version string `json:"version"`
	// Commit of the sources; empty when not known. Modified: the sources differed from the commit.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Date of the commit, in RFC 3339.
	Date     string `json:"date,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns the build that is running.
func Get() Info {
	info := Info{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if ok && info.Version == "" && build.Main.Version != "(devel)" {
		info.Version = build.Main.Version
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.Date = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	return info
}
