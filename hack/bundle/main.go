// Command bundle makes what operator-sdk and opm leave to be done: it finishes a generated bundle, writes the channels of the
// catalogue from the ledger of releases, and judges the catalogue's upgrade graph. `make bundle` and `make catalog` run it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

const usage = `bundle ledger  --ledger FILE                        print the newest release, as lines for a shell
bundle finish  --ledger FILE --config DIR --dir DIR finish the bundle in DIR (--image: other than the ledger's)
bundle catalog --ledger FILE --icon FILE --out DIR  write the package and its channels
bundle lint    DIR                                  judge the catalogue in DIR
bundle graph   DIR                                  print its upgrade graph, for Mermaid`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage:\n" + usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	ledgerFile := flags.String("ledger", "config/catalog/releases.yaml", "the ledger of releases")
	config := flags.String("config", "config/manifests", "where the icon and what goes into the bundle as it is are")
	dir := flags.String("dir", "bundle", "the bundle")
	image := flags.String("image", "", "the manager's image")
	out := flags.String("out", "catalog/libretto", "the catalogue of the package")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "lint" || args[0] == "graph" {
		return judge(args[0], flags.Arg(0))
	}
	l, err := readLedger(*ledgerFile)
	if err != nil {
		return err
	}
	switch args[0] {
	case "ledger":
		newest := l.newest()
		fmt.Printf("package=%s\nversion=%s\nchannels=%s\ndefault_channel=%s\nbundle_image=%s\n",
			l.Package, newest.Version, strings.Join(newest.Channels, ","), l.DefaultChannel, l.BundleImage)
		return nil
	case "finish":
		return finish(l, *config, *dir, *image)
	case "catalog":
		return writeCatalog(l, *config, *out)
	}
	return errors.New("usage:\n" + usage)
}

func judge(command, dir string) error {
	if dir == "" {
		return errors.New("usage:\n" + usage)
	}
	c, findings := readCatalog(os.DirFS(dir))
	if command == "graph" {
		fmt.Print(c.mermaid())
	} else {
		findings = append(findings, c.lint()...)
	}
	if len(findings) > 0 {
		return fmt.Errorf("%s:\n  %s", dir, strings.Join(findings, "\n  "))
	}
	return nil
}
