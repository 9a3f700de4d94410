// Libretto runs Kubernetes operators that are written as one YAML document.
package main

import (
	"os"
	_ "time/tzdata" // schedules have time zones, and the image has no files

	"github.com/libretto-dev/libretto/internal/cli"
)

func main() { os.Exit(cli.Main()) }
