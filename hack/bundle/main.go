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
bundle template --ledger FILE --out DIR             write basic.yaml, a template of the catalogue (--bundle-image)
bundle examples --dir DIR                           print the examples of the bundle in DIR
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
	bundleImage := flags.String("bundle-image", "", "the images of the bundles, without tag")
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
	return do(args[0], l, options{config: *config, dir: *dir, image: *image, bundleImage: *bundleImage, out: *out})
}

type options struct{ config, dir, image, bundleImage, out string }

func do(command string, l *ledger, o options) error {
	switch command {
	case "ledger":
		newest := l.newest()
		fmt.Printf("package=%s\nversion=%s\nchannels=%s\ndefault_channel=%s\nbundle_image=%s\nmanager_image=%s\n",
			l.Package, newest.Version, strings.Join(newest.Channels, ","), l.DefaultChannel, l.BundleImage, l.Image)
		return nil
	case "finish":
		return finish(l, o.config, o.dir, o.image)
	case "catalog":
		return writeCatalog(l, o.config, o.out)
	case "template":
		return writeTemplate(l, o.config, o.bundleImage, o.out)
	case "examples":
		return printExamples(l, o.dir)
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
