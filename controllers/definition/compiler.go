package definition

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/schema"
)

// Compiler compiles definitions against all kinds that can be known: Kubernetes' own, those that other definitions at work
// declare, and those of the live cluster. The reconciler and the webhook share it. It is safe for concurrent use.
type Compiler struct {
	// Registry tells what other definitions declare.
	Registry *registry.Registry
	// Live makes a catalog of what the cluster serves now; nil: the cluster is not asked.
	Live func(context.Context) schema.Catalog
	// Beside knows kinds whose CustomResourceDefinitions lie beside the definitions; nil: none.
	Beside schema.Catalog
	// Metrics gets the time that compiling takes; nil: nobody.
	Metrics *Metrics
}

// Compile compiles a definition.
func (c *Compiler) Compile(ctx context.Context, def *v1alpha1.OperatorDefinition) (*program.Program, diag.List) {
	start := time.Now()
	p, ds := compile.Compile(def, compile.Options{Catalog: c.catalog(ctx, def.Name)}) //nolint:contextcheck // compile is pure: there is nothing to cancel
	c.Metrics.compiled(def.Name, time.Since(start), p != nil)
	return p, ds
}

// catalog leaves out what the definition itself declares: compile takes that from the document.
func (c *Compiler) catalog(ctx context.Context, definition string) schema.Catalog {
	catalogs := []schema.Catalog{schema.Embedded()}
	var declared []*apiextensionsv1.CustomResourceDefinition
	for _, name := range c.Registry.Names() {
		if e, ok := c.Registry.Get(name); ok && name != definition {
			for _, d := range declarations(e.Program) {
				declared = append(declared, d.crd)
			}
		}
	}
	if len(declared) > 0 {
		// One that cannot be read is left to the live cluster: it is not this definition's fault.
		if others, err := schema.FromCRDs(declared...); err == nil {
			catalogs = append(catalogs, others)
		}
	}
	if c.Beside != nil {
		catalogs = append(catalogs, c.Beside)
	}
	if c.Live != nil {
		catalogs = append(catalogs, c.Live(ctx))
	}
	return schema.Chain(catalogs...)
}
