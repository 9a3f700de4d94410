//go:build ignore

// Command olmv1-render prints the objects that operator-controller, that is OLM v1, makes of a bundle, by its own code: it loads,
// validates and renders. build.sh compiles it inside the sources of operator-controller, whose packages nobody else may import.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/bundle/source"
	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/render"
	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/render/certproviders"
	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/render/registryv1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: olmv1-render BUNDLE NAMESPACE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "olmv1-render:", err)
		os.Exit(1)
	}
}

func run(dir, namespace string) error {
	bundle, err := source.FromFS(os.DirFS(dir)).GetBundle()
	if err != nil {
		return fmt.Errorf("cannot load the bundle: %w", err)
	}
	objects, err := registryv1.Renderer.Render(bundle, namespace, render.WithCertificateProvider(certproviders.CertManagerCertificateProvider{}))
	if err != nil {
		return fmt.Errorf("the bundle is refused: %w", err)
	}
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Printf("---\n%s", data)
	}
	return nil
}
