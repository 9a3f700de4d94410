package scaffold

import (
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/schema"
)

// FromOptions say what to make out of manifests.
type FromOptions struct {
	Options
	// Dir is a kustomize base or a directory of manifests.
	Dir string
	// Flatten makes a template of each object of a kustomize base instead of keeping the base.
	Flatten bool
	// Catalog tells which kinds have a namespace. Kinds that it does not know are taken to have one.
	Catalog schema.Catalog
}

// BaseDir is where a kustomize base is copied to, below the output directory; CRDDir takes CustomResourceDefinitions, which
// are not made per instance.
const (
	BaseDir = "base"
	CRDDir  = "crds"
)

// Manifests reads what From starts with: the objects of a kustomize base, or those in the files of a directory.
func Manifests(dir string) ([]*unstructured.Unstructured, error) {
	if isBase(dir) {
		return buildBase(dir)
	}
	objects, _, err := readManifests(dir)
	return objects, err
}

// From makes a definition out of a kustomize base or a directory of manifests. Images, replicas and hosts become fields of
// spec, with the values that were found as defaults. For the instance that comes with it, the definition renders to the same
// objects, without the Namespace that they live in and CustomResourceDefinitions.
func From(o FromOptions) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	info, err := os.Stat(o.Dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read manifests: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file: --from takes a kustomize base or a directory of manifests", o.Dir)
	}
	if _, err := os.Stat(path.Join(o.Dir, "Chart.yaml")); err == nil && !isBase(o.Dir) {
		return nil, fmt.Errorf("%s is a Helm chart: run helm template into a directory first, and use --from with that", o.Dir)
	}
	c := &conversion{FromOptions: o, result: &Result{Files: map[string][]byte{}}}
	if err := c.read(); err != nil {
		return nil, err
	}
	if len(c.objects) == 0 {
		return nil, fmt.Errorf("%s holds no manifests", o.Dir)
	}
	c.sortOut()
	if len(c.objects) == 0 {
		return nil, fmt.Errorf("%s holds nothing but Namespaces and CustomResourceDefinitions: nothing that an instance could stand for", o.Dir)
	}
	if c.base && !o.Flatten {
		err = c.keepBase()
	} else {
		err = c.templates()
	}
	if err != nil {
		return nil, err
	}
	c.result.Files[InstanceFile], err = c.instance()
	return c.result, err
}

// conversion is the state of From.
type conversion struct {
	FromOptions
	result *Result
	// base tells whether Dir is a kustomize base.
	base bool
	// objects are the objects that an instance stands for.
	objects []*unstructured.Unstructured
	// namespace is the one that the objects live in, as the manifests say; empty: they do not say.
	namespace string
	// namespaced tells whether a Namespace object for it was found and left out.
	namespaceLeftOut bool
	crds             []*unstructured.Unstructured
	knobs            knobs
	// prefix is what the names of the objects have in common and what the name of an instance takes the place of.
	prefix string
}

func (c *conversion) note(format string, args ...any) {
	c.result.Notes = append(c.result.Notes, fmt.Sprintf(format, args...))
}

func (c *conversion) read() error {
	c.base = isBase(c.Dir)
	if c.base {
		objects, err := buildBase(c.Dir)
		c.objects = objects
		return err
	}
	objects, skipped, err := readManifests(c.Dir)
	c.objects = objects
	for _, s := range skipped {
		c.note("%s holds no Kubernetes object and was left out", s)
	}
	return err
}

// sortOut takes Namespaces and CustomResourceDefinitions out and finds the namespace and the knobs.
func (c *conversion) sortOut() {
	c.result.Objects = len(c.objects)
	counts := map[string]int{}
	for _, o := range c.objects {
		if ns := o.GetNamespace(); ns != "" {
			counts[ns]++
		}
	}
	for ns, n := range counts {
		if n > counts[c.namespace] || n == counts[c.namespace] && ns < c.namespace {
			c.namespace = ns
		}
	}
	if c.ClusterScoped {
		c.namespace = ""
	}
	var kept []*unstructured.Unstructured
	var secrets []string
	for _, o := range c.objects {
		switch {
		case isCRD(o):
			c.crds = append(c.crds, o)
			continue
		case c.isOwnNamespace(o):
			c.namespaceLeftOut = true
			if c.namespace == "" {
				c.namespace = o.GetName()
			}
			continue
		case o.GetKind() == "Secret" && o.GroupVersionKind().Group == "":
			secrets = append(secrets, o.GetName())
		}
		kept = append(kept, o)
	}
	c.objects = kept
	c.knobs = findKnobs(kept)
	if c.namespaceLeftOut {
		c.note("the Namespace %s was left out: an instance lives in a namespace, and its objects live beside it", c.namespace)
	}
	for _, crd := range c.crds {
		c.result.Files[path.Join(CRDDir, crd.GetName()+".yaml")] = printObject(crd)
		c.note("the CustomResourceDefinition %s was moved to %s/: it is shared by all instances, so install it beside the definition (kubectl apply -f %s/)", crd.GetName(), CRDDir, CRDDir)
	}
	if len(secrets) > 0 {
		c.note("the values of Secret %s now stand in the definition: make it an external object (spec.external), or one with createOnce and random.password", strings.Join(secrets, ", "))
	}
	c.shared()
}

// isOwnNamespace tells whether an object is the Namespace that the others live in. The only Namespace there is counts when
// the objects name none.
func (c *conversion) isOwnNamespace(o *unstructured.Unstructured) bool {
	if o.GetKind() != "Namespace" || o.GroupVersionKind().Group != "" || c.ClusterScoped {
		return false
	}
	return o.GetName() == c.namespace || c.namespace == ""
}

func isCRD(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" && o.GroupVersionKind().Group == "apiextensions.k8s.io"
}

// shared warns of cluster-scoped objects: their names are the same for all instances.
func (c *conversion) shared() {
	var names []string
	for _, o := range c.objects {
		if !c.isNamespaced(o.GroupVersionKind()) {
			names = append(names, o.GetKind()+" "+o.GetName())
		}
	}
	if len(names) > 0 && !c.ClusterScoped {
		c.note("%s: cluster-scoped, so only one instance can have it unless its name holds ${self.metadata.namespace} or ${self.metadata.name}", strings.Join(names, ", "))
	}
}

func (c *conversion) isNamespaced(gvk runtimeschema.GroupVersionKind) bool {
	if c.Catalog == nil {
		return true
	}
	kind, err := c.Catalog.Kind(gvk)
	return err != nil || kind.Namespaced
}

// instanceName is the name of the instance for which the definition renders to what was found.
func (c *conversion) instanceName() string {
	if c.prefix != "" {
		return c.prefix
	}
	return c.singular()
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
