package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// OperatorDefinition is an operator written as one document: a declared kind (or an existing one that it targets), the
// resources that an object of the kind stands for, and what the status of such an object says.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=opdef,categories=libretto
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.status.kind`
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.instances.total`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OperatorDefinition struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the author writes.
	// +required
	Spec OperatorDefinitionSpec `json:"spec,omitempty,omitzero"`
	// status is what Libretto reports about the definition.
	// +optional
	Status OperatorDefinitionStatus `json:"status,omitzero"`
}

// OperatorDefinitionList is a list of OperatorDefinition.
//
// +kubebuilder:object:root=true
type OperatorDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []OperatorDefinition `json:"items"`
}

// OperatorDefinitionSpec is the document an author writes.
//
// +kubebuilder:validation:XValidation:rule="has(self.crd) != has(self.target)",message="exactly one of spec.crd (a kind of your own) and spec.target (an existing kind) must be set"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.crd) || !has(self.crd) || (oldSelf.crd.group == self.crd.group && oldSelf.crd.names.kind == self.crd.names.kind)",message="spec.crd.group and spec.crd.names.kind cannot change; write a new definition"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.crd) || !has(self.crd) || ((has(oldSelf.crd.names.plural) ? oldSelf.crd.names.plural : oldSelf.crd.names.kind.lowerAscii() + 's') == (has(self.crd.names.plural) ? self.crd.names.plural : self.crd.names.kind.lowerAscii() + 's') && (has(oldSelf.crd.scope) ? oldSelf.crd.scope : 'Namespaced') == (has(self.crd.scope) ? self.crd.scope : 'Namespaced'))",message="spec.crd.names.plural and spec.crd.scope cannot change; write a new definition"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.crd) == has(self.crd)",message="a definition cannot change between spec.crd and spec.target; write a new definition"
// +kubebuilder:validation:XValidation:rule="!has(self.target) || !has(self.status) || (has(self.target.manage) && 'Status' in self.target.manage)",message="spec.status needs target.manage to contain Status: Libretto writes no status to objects of a foreign kind unless asked"
type OperatorDefinitionSpec struct {
	// crd declares the kind. It takes the words of a CustomResourceDefinition's spec, so that an existing one can be pasted
	// in; what a namespaced kind with a single version would only repeat has a default.
	// +optional
	CRD *CRDSpec `json:"crd,omitempty"`

	// target names an existing kind that the definition attaches to, instead of declaring one.
	// +optional
	Target *Target `json:"target,omitempty"`

	// serviceAccount is the identity that reads, watches and writes the instances and their resources. Libretto itself holds
	// no right to them. It is required in a cluster; `libretto run` acts as the user of the kubeconfig.
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// namespaces limits the namespaces whose instances are served. Default: all.
	// +optional
	Namespaces *NamespaceScope `json:"namespaces,omitempty"`

	// variables are named expressions that the others may use. A variable may use self, external objects and variables that
	// stand before it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Variables []Variable `json:"variables,omitempty"`

	// external lists objects that expressions read and that are never written.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	External []External `json:"external,omitempty"`

	// resources are the objects that an instance stands for.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Resources []Resource `json:"resources,omitempty"`

	// operations are named procedures: what happens at create, update, delete, on a schedule, on a condition or on demand.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Operations []Operation `json:"operations,omitempty"`

	// operationKind names the kind of operation objects, one of which stands for one run.
	// +optional
	OperationKind *OperationKind `json:"operationKind,omitempty"`

	// status says what the status of an instance shows beside what Libretto writes itself.
	// +optional
	Status *InstanceStatusSpec `json:"status,omitempty"`

	// whenInstancesExist says what deleting the definition does while instances of it exist. Block (the default) refuses:
	// the definition stays until its instances are gone. Orphan leaves instances, their resources and the CRD in place and
	// removes Libretto's finalizers from them. Delete deletes the instances first, each in the order of its resources.
	// +optional
	// +kubebuilder:default=Block
	WhenInstancesExist DefinitionDeletion `json:"whenInstancesExist,omitempty"`

	// revisionHistoryLimit is how many revisions are kept beside the one in use. Default 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// DefinitionDeletion says what deleting a definition does while instances of it exist.
//
// +kubebuilder:validation:Enum=Block;Orphan;Delete
type DefinitionDeletion string

// What deleting a definition does while instances of it exist.
const (
	DefinitionDeletionBlock  DefinitionDeletion = "Block"
	DefinitionDeletionOrphan DefinitionDeletion = "Orphan"
	DefinitionDeletionDelete DefinitionDeletion = "Delete"
)

// Target is an existing kind that a definition attaches to.
type Target struct {
	// apiVersion of the kind, for example v1 or apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// selector limits the objects by label.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// when limits the objects further by a CEL expression over self that yields a boolean. An object for which it turns
	// false loses its resources.
	// +optional
	When Expression `json:"when,omitempty"`
	// manage lists what Libretto may write to the objects themselves. Without it, nothing: the conditions of the objects are
	// summed up in the status of the definition, in events and in metrics.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Manage []TargetManagement `json:"manage,omitempty"`
}

// TargetManagement is something that Libretto may write to an object of a foreign kind.
//
// +kubebuilder:validation:Enum=Status;Finalizer
type TargetManagement string

// What Libretto may write to an object of a foreign kind.
const (
	// TargetManagementStatus lets Libretto write status.fields and conditions.
	TargetManagementStatus TargetManagement = "Status"
	// TargetManagementFinalizer lets Libretto hold the object until its resources are gone in order.
	TargetManagementFinalizer TargetManagement = "Finalizer"
)

// ServiceAccountReference names a ServiceAccount.
type ServiceAccountReference struct {
	// namespace of the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NamespaceScope limits the namespaces that a definition serves.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.selector)",message="exactly one of namespaces.names and namespaces.selector must be set"
type NamespaceScope struct {
	// names lists the namespaces. The ServiceAccount then needs rights in those alone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`
	// selector selects the namespaces by label.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Expression is a CEL expression without the ${…}.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=4096
type Expression string

// Name is the name of something that expressions refer to.
//
// +kubebuilder:validation:Pattern=`^[a-z][A-Za-z0-9]*$`
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="!(self in ['self','schema','params','steps','old','trigger','run','result','object','item','random','hash','json','omit','true','false','null','in','as','break','const','continue','else','for','function','if','import','let','loop','package','namespace','return','var','void','while'])",message="the name is a word of the expression language or one that Libretto uses itself; choose another"
type Name string

// Variable is a named expression.
type Variable struct {
	// name that expressions use.
	// +required
	Name Name `json:"name,omitempty"`
	// value is a CEL expression.
	// +required
	Value Expression `json:"value,omitempty"`
}

// External is an object, or a list of objects, that expressions read. It is never written.
//
// +kubebuilder:validation:XValidation:rule="has(self.ref) != has(self.selector)",message="exactly one of ref (one object) and selector (a list of objects) must be set"
type External struct {
	// name that expressions use.
	// +required
	Name Name `json:"name,omitempty"`
	// apiVersion of the object, for example v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// ref names one object. Its strings may contain ${…}. An empty name means that there is none.
	// +optional
	Ref *ExternalReference `json:"ref,omitempty"`
	// selector selects objects by label; expressions see a list. Its strings may contain ${…}.
	// +optional
	Selector *ExternalSelector `json:"selector,omitempty"`
	// optional lets expressions see an object that does not exist as an empty optional (use ?). Without it, whatever reads
	// the object waits for it.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// ExternalReference names one object.
type ExternalReference struct {
	// name of the object; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`
	// namespace of the object; may contain ${…}. Default: the namespace of the instance.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`
}

// ExternalSelector selects objects by label.
type ExternalSelector struct {
	// matchLabels are the labels that the objects must have; values may contain ${…}.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=20
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// namespace of the objects; may contain ${…}. Default: the namespace of the instance, or all when it has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`
}

// Resource is an object, or several, that an instance stands for.
//
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.kustomization)",message="exactly one of template and kustomization must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.createOnce) || !self.createOnce || !has(self.updatePolicy)",message="updatePolicy has no effect on a resource with createOnce: remove one of them"
type Resource struct {
	// name that expressions and other resources use.
	// +required
	Name Name `json:"name,omitempty"`

	// template is the object, with ${…} in any string.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`

	// kustomization is a kustomize base that is built in memory, with ${…} in any string; each of its objects is a child.
	// +optional
	Kustomization *Kustomization `json:"kustomization,omitempty"`

	// when is a CEL expression that yields a boolean: the resource exists only while it is true.
	// +optional
	When Expression `json:"when,omitempty"`

	// forEach repeats the resource for each item of a list; expressions elsewhere see a list of objects.
	// +optional
	ForEach *ForEach `json:"forEach,omitempty"`

	// ready is a CEL expression that yields a boolean. It sees the object by the name of the resource (with forEach: each
	// one). Default: what the kind's own status says (kstatus).
	// +optional
	Ready Expression `json:"ready,omitempty"`

	// dependsOn names resources that must be ready before this one is made. An expression that reads another resource waits
	// for the value that it reads without being listed here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	DependsOn []Name `json:"dependsOn,omitempty"`

	// deletionPolicy says what happens to the object when the instance is deleted or no longer wants it. Default Delete.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// adoption says what happens when the object exists already and is not ours. Never (the default) reports a conflict;
	// IfUnowned takes it over unless another instance or controller owns it; Force takes it over in any case but one: an
	// object that another Libretto instance holds.
	// +optional
	// +kubebuilder:default=Never
	Adoption Adoption `json:"adoption,omitempty"`

	// updatePolicy says what happens when a change touches a field that the API server does not let change. Fail (the
	// default) reports it; Recreate deletes the object and makes it anew.
	// +optional
	UpdatePolicy UpdatePolicy `json:"updatePolicy,omitempty"`

	// createOnce makes the object once and never changes it again, for what must not change, such as a generated password.
	// Functions of random may be used here only. A deleted object is made anew.
	// +optional
	CreateOnce *bool `json:"createOnce,omitempty"`
}

// ForEach repeats a resource.
type ForEach struct {
	// var is the name of the item in the expressions of the resource.
	// +required
	Var Name `json:"var,omitempty"`
	// in is a CEL expression that yields a list, of at most 1000 items.
	// +required
	In Expression `json:"in,omitempty"`
}

// DeletionPolicy says what happens to an object that is no longer wanted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// What happens to an object that is no longer wanted.
const (
	DeletionPolicyDelete DeletionPolicy = "Delete"
	DeletionPolicyRetain DeletionPolicy = "Retain"
)

// Adoption says what happens when an object exists already.
//
// +kubebuilder:validation:Enum=Never;IfUnowned;Force
type Adoption string

// What happens when an object exists already.
const (
	AdoptionNever     Adoption = "Never"
	AdoptionIfUnowned Adoption = "IfUnowned"
	AdoptionForce     Adoption = "Force"
)

// UpdatePolicy says what happens when a change touches an immutable field.
//
// +kubebuilder:validation:Enum=Fail;Recreate
type UpdatePolicy string

// What happens when a change touches an immutable field.
const (
	UpdatePolicyFail     UpdatePolicy = "Fail"
	UpdatePolicyRecreate UpdatePolicy = "Recreate"
)

// InstanceStatusSpec says what the status of an instance shows.
type InstanceStatusSpec struct {
	// fields are fields of the status, with ${…} in any string. A field whose expressions cannot be computed yet keeps its
	// last value. Its type is taken from the expression unless the schema of the kind declares it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Fields *runtime.RawExtension `json:"fields,omitempty"`
	// conditions are conditions beside Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=20
	Conditions []ConditionSpec `json:"conditions,omitempty"`
}

// ConditionSpec is a condition of the author's.
type ConditionSpec struct {
	// type of the condition.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!(self in ['Ready','Reconciling','Stalled'])",message="Ready, Reconciling and Stalled are written by Libretto; choose another type"
	Type string `json:"type,omitempty"`
	// status is a CEL expression that yields a boolean; the condition is Unknown while it cannot be computed.
	// +required
	Status Expression `json:"status,omitempty"`
	// reason is a CamelCase word; may contain ${…}. Default: the type, or Not and the type.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// message is text for people; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// OperatorDefinitionStatus is what Libretto reports about a definition.
type OperatorDefinitionStatus struct {
	// conditions say how the definition stands; docs/reference/conditions.md lists them.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions are about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// kind is the declared or target kind, as KIND.VERSION.GROUP.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=400
	Kind string `json:"kind,omitempty"`
	// revision is the name of the OperatorRevision at work.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// managedKinds are the kinds of which the definition may have made objects, in this revision or an earlier one. A kind
	// is written here before the first object of it is made, so that every object can be found again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	ManagedKinds []ManagedKind `json:"managedKinds,omitempty"`
	// instances counts the instances.
	// +optional
	Instances *InstanceCounts `json:"instances,omitempty"`
}

// ManagedKind is a kind of which a definition may have made objects.
type ManagedKind struct {
	// apiVersion of the kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the name of the kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
}

// InstanceCounts counts the instances of a definition. It lags behind by some seconds.
type InstanceCounts struct {
	// total is the number of instances.
	// +required
	// +kubebuilder:validation:Minimum=0
	Total *int32 `json:"total,omitempty"`
	// ready is the number of instances that are Ready.
	// +required
	// +kubebuilder:validation:Minimum=0
	Ready *int32 `json:"ready,omitempty"`
	// stalled is the number of instances that need somebody to act.
	// +required
	// +kubebuilder:validation:Minimum=0
	Stalled *int32 `json:"stalled,omitempty"`
}
