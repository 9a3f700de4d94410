// Package compile turns a definition into a Program, or into all that is wrong with it at once. It is pure: the same
// definition and the same catalog make the same Program. It is the only place that knows what a definition means: the
// controller, the webhook and the command line all ask it.
package compile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// Options say what a definition is compiled against.
type Options struct {
	// Catalog knows the kinds; nil: those of Kubernetes itself.
	Catalog schema.Catalog
}

// Compile compiles a definition. The Program is nil if one of the diagnostics is an error. The definition is not changed.
func Compile(def *v1alpha1.OperatorDefinition, opts Options) (*program.Program, diag.List) {
	c := &compiler{
		spec:    def.Spec.DeepCopy(),
		catalog: opts.Catalog,
		kinds:   map[runtimeschema.GroupVersionKind]*schema.Kind{},
		used:    map[string]bool{},
		program: &program.Program{Name: def.Name},
	}
	if c.catalog == nil {
		c.catalog = schema.Embedded()
	}
	setDefaults(c.spec)
	c.program.Definition = c.spec
	c.program.Hash = Hash(c.spec)

	c.names()
	c.instance()
	c.externals()
	c.variables()
	c.resources()
	c.order()
	c.status()
	c.operations()
	c.finishCRD()
	c.unused()

	slices.SortFunc(c.program.PendingKinds, func(a, b runtimeschema.GroupVersionKind) int {
		return cmp.Compare(a.String(), b.String())
	})
	list := c.list.Sort()
	if list.HasErrors() {
		return nil, list
	}
	return c.program, list
}

// Hash identifies a spec: 32 hex digits, the same for the same meaning, whatever the order of keys and the white space. The
// spec should have its defaults; Compile's Program.Hash is this hash.
func Hash(spec *v1alpha1.OperatorDefinitionSpec) string {
	sum := sha256.Sum256([]byte(Snapshot(spec)))
	return hex.EncodeToString(sum[:16])
}

// Snapshot writes a spec as JSON with sorted keys, the form in which revisions keep it.
func Snapshot(spec *v1alpha1.OperatorDefinitionSpec) string { return canonical(spec) }

// canonical writes JSON with sorted keys.
func canonical(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		return "" // a RawExtension that is no JSON: the API server and load let none through
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // no number may change
	if err := decoder.Decode(&value); err != nil {
		return ""
	}
	if text, err = json.Marshal(value); err != nil {
		return ""
	}
	return string(text)
}

// setDefaults sets what the API server sets, for definitions that did not pass through it.
func setDefaults(spec *v1alpha1.OperatorDefinitionSpec) {
	spec.WhenInstancesExist = cmp.Or(spec.WhenInstancesExist, v1alpha1.DefinitionDeletionBlock)
	if spec.RevisionHistoryLimit == nil {
		spec.RevisionHistoryLimit = ptr.To[int32](10)
	}
	if spec.CRD != nil {
		spec.CRD.Scope = cmp.Or(spec.CRD.Scope, v1alpha1.ResourceScopeNamespaced)
	}
	for i := range spec.Resources {
		r := &spec.Resources[i]
		r.DeletionPolicy = cmp.Or(r.DeletionPolicy, v1alpha1.DeletionPolicyDelete)
		r.Adoption = cmp.Or(r.Adoption, v1alpha1.AdoptionNever)
	}
}

// compiler is one compilation.
type compiler struct {
	spec    *v1alpha1.OperatorDefinitionSpec
	catalog schema.Catalog
	kinds   map[runtimeschema.GroupVersionKind]*schema.Kind
	list    diag.List
	program *program.Program

	// self is the schema of the instance.
	self *schema.Schema
	// vars are all variables that expressions of resources may use; env is their environment. Env is nil after a fault that
	// makes all expressions meaningless.
	vars []expr.Variable
	env  *expr.Env
	// randomEnv is env with random; made when it is needed.
	randomEnv *expr.Env
	// nodes are the resources in the order of the document.
	nodes []*node
	// used are the variables and externals that something reads.
	used map[string]bool
	// paramSchemas are the schemas of the parameters of operations.
	paramSchemas map[string]*schema.Schema
	// setFields are the fields that steps add to the status.
	setFields map[string]*props
	// variableReads are the variables and externals that a variable reads, by its name.
	variableReads map[string][]string
}

func (c *compiler) errorf(path, format string, args ...any) { c.list.Errorf(path, format, args...) }

func (c *compiler) add(d diag.Diagnostic) { c.list.Add(d) }

// namePattern is that of v1alpha1.Name.
var namePattern = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// reserved are the variables of operations: nothing else may have their names.
var reserved = []string{program.VarParams, program.VarSteps, program.VarOld, program.VarTrigger, program.VarRun, program.VarResult, program.VarObject}

func isName(name string) bool { return namePattern.MatchString(name) && name != "self" }

// nameTaken says what the API server says, too.
func nameTaken(name, path string) diag.Diagnostic {
	return diag.Diagnostic{Path: path, Message: "the name is a word of the expression language or one that Libretto uses itself; choose another", Found: fmt.Sprintf("%q", name)}
}

// names checks that no two things have the same name.
func (c *compiler) names() {
	first := map[v1alpha1.Name]string{}
	claim := func(name v1alpha1.Name, path, what string) {
		switch {
		case name == "self", slices.Contains(reserved, string(name)):
			c.add(nameTaken(string(name), path))
			return
		case !isName(string(name)):
			c.add(diag.Diagnostic{Path: path, Message: "should match '" + namePattern.String() + "'", Found: fmt.Sprintf("%q", name)})
			return
		}
		if before, taken := first[name]; taken {
			c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("the name %q is that of %s too", name, before),
				Hint: "expressions could not tell the two apart; rename one"})
			return
		}
		first[name] = what
	}
	for i, v := range c.spec.Variables {
		claim(v.Name, diag.Index("spec.variables", i)+".name", "a variable")
	}
	for i, e := range c.spec.External {
		claim(e.Name, diag.Index("spec.external", i)+".name", "an external object")
	}
	for i, r := range c.spec.Resources {
		claim(r.Name, diag.Index("spec.resources", i)+".name", "a resource")
	}
	for i, r := range c.spec.Resources {
		if r.ForEach == nil {
			continue
		}
		if what, taken := first[r.ForEach.Var]; taken {
			c.add(diag.Diagnostic{Path: diag.Index("spec.resources", i) + ".forEach.var",
				Message: fmt.Sprintf("the name %q is that of %s too", r.ForEach.Var, what), Hint: "choose another name for the item"})
		}
	}
}

// kind looks a kind up. A kind that no catalog knows is pending. ok is false after an error.
func (c *compiler) kind(apiVersion, name, path string) (program.Kind, *schema.Kind, bool) {
	gv, err := runtimeschema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Version == "" {
		c.add(diag.Diagnostic{Path: diag.Child(path, "apiVersion"), Message: "not an apiVersion", Expected: "VERSION or GROUP/VERSION", Found: fmt.Sprintf("%q", apiVersion)})
		return program.Kind{}, nil, false
	}
	gvk := gv.WithKind(name)
	if known, ok := c.kinds[gvk]; ok && known != nil {
		return kindOf(known), known, true
	}
	known, err := c.catalog.Kind(gvk)
	switch {
	case err == nil:
		c.kinds[gvk] = known
		return kindOf(known), known, true
	case !errors.Is(err, schema.ErrUnknownKind):
		c.errorf(path, "cannot look up the kind %s: %s", schema.KindString(gvk), err)
		return program.Kind{}, nil, false
	}
	return c.unknownKind(gvk, path)
}

func (c *compiler) unknownKind(gvk runtimeschema.GroupVersionKind, path string) (program.Kind, *schema.Kind, bool) {
	d := diag.Diagnostic{Severity: diag.Warning, Path: diag.Child(path, "kind"),
		Message: fmt.Sprintf("the kind %s is not known", schema.KindString(gvk)),
		Hint:    "its fields are not checked before it appears; give its CustomResourceDefinition beside the definition to check it now"}
	if near, ok := schema.SuggestKind(c.catalog, gvk); ok {
		d.Hint = fmt.Sprintf("did you mean %s? If not: its fields are checked once the kind appears", schema.KindString(near))
		// Kubernetes' own groups never get a kind by a CustomResourceDefinition: here the kind is misspelt.
		if ownGroup(gvk.Group) {
			d.Severity, d.Hint = diag.Error, fmt.Sprintf("did you mean %s?", schema.KindString(near))
		}
	} else if gvk.Group == "" {
		d.Severity, d.Hint = diag.Error, ""
	}
	c.add(d)
	if d.Severity == diag.Error {
		return program.Kind{}, nil, false
	}
	if !slices.Contains(c.program.PendingKinds, gvk) {
		c.program.PendingKinds = append(c.program.PendingKinds, gvk)
	}
	return program.Kind{GroupVersionKind: gvk, Pending: true}, nil, true
}

// ownGroup tells whether a group belongs to Kubernetes itself, whose kinds are all known.
func ownGroup(group string) bool {
	switch group {
	case "", "apps", "batch", "extensions", "autoscaling", "policy", "rbac.authorization.k8s.io", "networking.k8s.io", "storage.k8s.io",
		"scheduling.k8s.io", "coordination.k8s.io", "certificates.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io",
		"discovery.k8s.io", "node.k8s.io", "events.k8s.io":
		return true
	}
	return false
}

func kindOf(k *schema.Kind) program.Kind {
	return program.Kind{GroupVersionKind: k.GVK, Resource: k.Resource, Namespaced: k.Namespaced, Reports: reports(k)}
}

// reports tells whether the controller of a kind says how its objects stand. Kubernetes' own kinds have rules of their own.
func reports(k *schema.Kind) bool {
	if k.Schema == nil || !k.HasStatus || ownGroup(k.GVK.Group) {
		return false
	}
	status, ok := k.Schema.Field("status")
	if !ok {
		return false
	}
	_, conditions := status.Field("conditions")
	_, generation := status.Field("observedGeneration")
	return conditions && generation
}

// object reads the JSON of a field that takes any object.
func (c *compiler) object(raw *runtime.RawExtension, path string) (map[string]any, bool) {
	value, err := decodeJSON(raw.Raw)
	if err != nil {
		c.errorf(path, "cannot read it as JSON: %s", err)
		return nil, false
	}
	object, ok := value.(map[string]any)
	if !ok {
		c.add(diag.Diagnostic{Path: path, Message: "the value has the wrong type", Expected: "object"})
	}
	return object, ok
}
