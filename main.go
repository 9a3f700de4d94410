// Libretto runs Kubernetes operators that are written as one YAML document.
package main

import (
	"os"

	"github.com/libretto-dev/libretto/internal/cli"
)

func main() { os.Exit(cli.Main()) }
