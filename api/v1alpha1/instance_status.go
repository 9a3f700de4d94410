package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstanceStatus is the part of the status that every instance of a declared kind shares. Beside it stand the author's own
// status.fields.
type InstanceStatus struct {
	// conditions: Ready, Reconciling, Stalled, and the author's.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revision is the name of the OperatorRevision that the instance follows.
	Revision string `json:"revision,omitempty"`
	// resources tells how each resource of the definition stands, in the order of creation.
	Resources []ResourceStatus `json:"resources,omitempty"`
	// inventory lists the objects that the instance has made, in the order of creation.
	Inventory []InventoryEntry `json:"inventory,omitempty"`
	// operations holds what the triggers of operations remember.
	Operations []OperationMemory `json:"operations,omitempty"`
	// deletion is the run of a Delete operation in a namespace that is being deleted, where no operation object can be made.
	Deletion []DeletionRun `json:"deletion,omitempty"`
}

// DeletionRun is a run without an operation object.
type DeletionRun struct {
	// Operation is the name of the operation.
	Operation string             `json:"operation"`
	Status    OperationRunStatus `json:"status"`
}

// ResourceStatus tells how one resource of the definition stands.
type ResourceStatus struct {
	// name of the resource in the definition.
	Name string `json:"name"`
	// state is a word for the resource as a whole.
	State ResourceState `json:"state"`
	// ready counts the objects that are ready, as READY/TOTAL.
	Ready string `json:"ready,omitempty"`
	// message says what the resource waits for, or what went wrong and what to do.
	Message string `json:"message,omitempty"`
}

// ResourceState is the state of a resource.
type ResourceState string

// States of a resource.
const (
	// ResourceReady: every object is there and ready.
	ResourceReady ResourceState = "Ready"
	// ResourceProgressing: every object is applied, some are not ready yet.
	ResourceProgressing ResourceState = "Progressing"
	// ResourceWaiting: an expression reads a value that is not there yet, or a dependsOn is not ready.
	ResourceWaiting ResourceState = "Waiting"
	// ResourceExcluded: when is false.
	ResourceExcluded ResourceState = "Excluded"
	// ResourceFailed: it could not be applied; message says why.
	ResourceFailed ResourceState = "Failed"
)

// InventoryEntry lists objects of one kind in one namespace that come from one resource.
type InventoryEntry struct {
	// resource is the name of the resource in the definition.
	Resource string `json:"resource"`
	// apiVersion of the objects.
	APIVersion string `json:"apiVersion"`
	// kind of the objects.
	Kind string `json:"kind"`
	// namespace of the objects; empty for a cluster-scoped kind.
	Namespace string `json:"namespace,omitempty"`
	// names of the objects, sorted.
	Names []string `json:"names"`
	// wave is the position in the order of creation; deletion goes from the highest to the lowest.
	Wave int32 `json:"wave"`
	// deletionPolicy is Retain for objects that stay.
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}
