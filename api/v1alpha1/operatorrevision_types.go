package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OperatorRevision is an accepted, immutable snapshot of an OperatorDefinition. Instances follow a revision, never the
// definition itself, so that a definition that no longer compiles changes nothing that runs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=oprev,categories=libretto
// +kubebuilder:printcolumn:name="Definition",type=string,JSONPath=`.spec.definition`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OperatorRevision struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the snapshot.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a revision cannot be changed"
	Spec OperatorRevisionSpec `json:"spec,omitzero"`
}

// OperatorRevisionList is a list of OperatorRevision.
//
// +kubebuilder:object:root=true
type OperatorRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []OperatorRevision `json:"items"`
}

// OperatorRevisionSpec is a snapshot of a definition.
type OperatorRevisionSpec struct {
	// definition is the name of the OperatorDefinition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Definition string `json:"definition,omitempty"`
	// revision counts the revisions of the definition, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision *int64 `json:"revision,omitempty"`
	// snapshot is the spec of the definition, as JSON text with sorted keys: text, because a later version of Libretto must
	// read what it accepted, whatever the schema of a definition says by then.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1000000
	Snapshot string `json:"snapshot,omitempty"`
}
