// Package program holds the compiled form of a definition: a Program. It is a value: made by compile, immutable, shared by
// the engine, the command line, the webhook and the packaging. It knows no client, no clock and no YAML.
package program

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
)

// Program is a compiled definition.
type Program struct {
	// Name is the name of the definition.
	Name string
	// Hash identifies the definition's spec: same spec, same hash.
	Hash string
	// Definition is the spec that was compiled, with defaults.
	Definition *v1alpha1.OperatorDefinitionSpec
	// Instance is the declared or target kind, in the version that expressions see.
	Instance Kind
	// CRD is the CustomResourceDefinition of the declared kind, with the status fields that Libretto adds; nil for a target.
	CRD *apiextensionsv1.CustomResourceDefinition
	// Selector limits the instances of a target; nil: all.
	Selector *metav1.LabelSelector
	// Match limits the instances of a target further; nil: all.
	Match *expr.Expr
	// WriteStatus and HoldFinalizer say what may be written to instances. Both are true for a declared kind.
	WriteStatus, HoldFinalizer bool

	// Variables, in order.
	Variables []Variable
	// Externals, in order of the document.
	Externals []External
	// Nodes are the resources in topological order: a node stands behind all that it depends on.
	Nodes []*Node
	// StatusFields is the template of the author's status fields; nil: none.
	StatusFields *Template
	// Conditions are the author's conditions.
	Conditions []Condition
	// Operations, in order of the document.
	Operations []*Operation
	// OperationKind is the kind of operation objects; nil without operations.
	OperationKind *OperationKinds
	// PendingKinds are kinds that no catalog knew when the Program was compiled: nodes and expressions that use them are
	// untyped, and the Program has to be compiled again when the kinds appear.
	PendingKinds []runtimeschema.GroupVersionKind
}

// Kind is a kind as the API server serves it.
type Kind struct {
	runtimeschema.GroupVersionKind
	// Resource is the plural in URLs; empty for a kind that is pending.
	Resource string
	// Namespaced tells whether objects of the kind live in namespaces.
	Namespaced bool
	// Pending: no catalog knew the kind; Resource and Namespaced are not known.
	Pending bool
	// Reports: by its schema, the kind is a custom one whose controller reports conditions and observedGeneration. An object
	// with neither has not been seen by its controller, and is not ready.
	Reports bool
}

// GVR returns the group, version and resource.
func (k Kind) GVR() runtimeschema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// Variable is a named expression.
type Variable struct {
	Name string
	Expr *expr.Expr
}

// External is an object, or a list of objects, that is read.
type External struct {
	Name     string
	Kind     Kind
	Optional bool
	// List: selected by labels; expressions see a list.
	List bool
	// ObjectName, Namespace and Labels are templates of strings. Namespace may be nil: that of the instance.
	ObjectName, Namespace *Template
	Labels                *Template
}

// Node is a resource of the definition.
type Node struct {
	// Name of the resource.
	Name string
	// Index in Program.Nodes.
	Index int
	// Wave is the length of the longest chain of dependencies below the node: nodes of the same wave are independent of each other.
	Wave int
	// Reads lists the nodes whose objects the expressions read: the node waits until these are applied and the values are there.
	Reads []*Node
	// After lists the nodes of dependsOn: the node waits until these are ready.
	After []*Node
	// ReadsExternals lists the externals that the node reads, by name, through variables too.
	ReadsExternals []string

	When *expr.Expr
	// ForEach is nil for a single object.
	ForEach *ForEach
	// Ready is nil for kstatus.
	Ready *expr.Expr
	// Template is set for a template, Kustomization for a kustomization.
	Template      *Template
	Kustomization *Kustomization

	// Kinds of the objects: one for a template; those of the base for a kustomization. A template's apiVersion and kind are
	// never expressions.
	Kinds []Kind

	DeletionPolicy v1alpha1.DeletionPolicy
	Adoption       v1alpha1.Adoption
	UpdatePolicy   v1alpha1.UpdatePolicy
	CreateOnce     bool
}

// Single tells whether expressions see the node as one object (true) or as a list of objects.
func (n *Node) Single() bool { return n.ForEach == nil && n.Kustomization == nil }

// ForEach repeats a node.
type ForEach struct {
	Var string
	In  *expr.Expr
}

// Condition is a condition of the author's.
type Condition struct {
	Type            string
	Status          *expr.Expr
	Reason, Message *Template
}

// Template is a JSON value in which strings that hold ${…} have been replaced by what computes them. It is immutable.
// Its fields and methods are in template.go.

// Kustomization is a kustomize base whose strings may hold ${…}. Its fields are in kustomization.go.
