// Command lint is golangci-lint with kube-api-linter built in. It is a module of its own because the two bring more
// dependencies than the product, and it takes the place of `golangci-lint custom`, which clones a repository: here both
// are pinned by go.sum.
package main

import (
	"fmt"
	"os"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter" // registers the linter kubeapilinter
)

func main() {
	info := commands.BuildInfo{GoVersion: "go1.26", Version: "v2.15.0", Commit: "", Date: ""}
	if err := commands.Execute(info); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitcodes.Failure)
	}
}
