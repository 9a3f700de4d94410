// Package v1alpha1 holds the kinds that an author of operators writes and reads: OperatorDefinition and OperatorRevision,
// and the part of the status that every instance shares. It imports apimachinery only.
//
// +kubebuilder:object:generate=true
// +groupName=libretto.dev
package v1alpha1
