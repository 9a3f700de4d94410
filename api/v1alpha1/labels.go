package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
)

// Labels and annotations that Libretto puts on what it makes. Labels hold hashes and UIDs alone, so that no name is too
// long for them; names are in annotations.
const (
	// LabelDefinition is on every child and on the CRD: a hash of the definition's name. Informers of children select by it.
	LabelDefinition = "libretto.dev/definition"
	// LabelInstance is on every child: the UID of the instance.
	LabelInstance = "libretto.dev/instance"
	// AnnotationDefinition is the definition's name.
	AnnotationDefinition = "libretto.dev/definition-name"
	// AnnotationOwner is the instance, as NAMESPACE/NAME or NAME.
	AnnotationOwner = "libretto.dev/owner"
	// AnnotationResource is the name of the resource in the definition that the child comes from.
	AnnotationResource = "libretto.dev/resource"
	// AnnotationWave is the position of the child in the order of creation; deletion goes from the highest to the lowest.
	AnnotationWave = "libretto.dev/wave"
	// AnnotationDesired is a hash of what was last applied. With the owned fields of the live object it tells, without
	// another request and across restarts, that nothing has to be written.
	AnnotationDesired = "libretto.dev/desired"
	// AnnotationDeletionPolicy is on children that stay when their instance goes: Retain.
	AnnotationDeletionPolicy = "libretto.dev/deletion-policy"

	// AnnotationAdopt lets a definition take over a CustomResourceDefinition that exists already and has no other owner; its
	// value is the definition's name. It is written by the one who may change the CustomResourceDefinition.
	AnnotationAdopt = "libretto.dev/adopt"
	// AnnotationAdopted is on a CustomResourceDefinition that was taken over: it stays when its definition goes.
	AnnotationAdopted = "libretto.dev/adopted"
	// AnnotationAllowBreaking on a definition, with the value true, lets a change of the schema through that objects which
	// are stored already may not stand.
	AnnotationAllowBreaking = "libretto.dev/allow-breaking-changes"
	// AnnotationManagedKinds is on the CustomResourceDefinition of a definition that comes from a file, which has no status:
	// the kinds of which it may have made objects, as KIND.VERSION.GROUP, with commas.
	AnnotationManagedKinds = "libretto.dev/managed-kinds"
	// AnnotationOperationsOf is on the CustomResourceDefinition of operation objects: the resource of their instances, as
	// PLURAL.GROUP.
	AnnotationOperationsOf = "libretto.dev/operations-of"

	// AnnotationForceDelete: "true" on an instance, or an operation object, that is being deleted lets it go at once. What it has made and the garbage
	// collector does not reach is left behind; an event names it.
	AnnotationForceDelete = "libretto.dev/force-delete"

	// LabelAggregateToCleanup is on ClusterRoles that are aggregated into the one with which Libretto itself takes its finalizer
	// off instances whose ServiceAccount has lost its rights.
	LabelAggregateToCleanup = "libretto.dev/aggregate-to-cleanup"

	// LabelRun is on what a step of an operation makes: the UID of the operation object. AnnotationAttempt is the ID of the attempt.
	LabelRun          = "libretto.dev/run"
	AnnotationAttempt = "libretto.dev/attempt"
	// FinalizerRun is on operation objects that must not go before their steps have been done: runs of event: Delete, and those
	// whose operation has onRemove.
	FinalizerRun = "libretto.dev/run"
	// LabelTarget is on operation objects, and on what their steps make: the UID of the instance.
	LabelTarget = "libretto.dev/target"

	// FinalizerInstance is on instances with children that the garbage collector does not reach.
	FinalizerInstance = "libretto.dev/instance"
	// FinalizerDefinition is on definitions, so that none goes before its instances.
	FinalizerDefinition = "libretto.dev/definition"

	// FieldManager owns the fields of children. It never changes: renaming it would orphan fields on every child.
	FieldManager = "libretto"
	// FieldManagerStatus owns the status of instances.
	FieldManagerStatus = "libretto-status"
)

// DefinitionID returns the value of LabelDefinition for a definition's name: 16 hexadecimal digits. It never changes: a
// change would orphan every child.
func DefinitionID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// TargetFinalizer returns the finalizer on objects of a target kind: several definitions may attach to one object, and each
// takes off its own.
func TargetFinalizer(definition string) string {
	return FinalizerInstance + "-" + DefinitionID(definition)
}
