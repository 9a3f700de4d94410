// Package definition makes an OperatorDefinition work: it compiles it, keeps its revisions, applies its
// CustomResourceDefinitions (that of the declared kind, and that of operation objects), checks the rights that it needs and
// hands the Program to the Engine. It does not touch instances and operation objects, but for the deletion of a definition, and
// it knows nothing of what a Program makes.
//
// What wakes it: definitions, CustomResourceDefinitions (as metadata), the Engine (State changed), and a timer where something
// outside has to change: a missing right, a missing ServiceAccount, a kind that no CRD announces.
//
// What it writes: the finalizer and the status of the definition, one patch of each at most per reconcile and none when
// nothing differs; OperatorRevisions; the CustomResourceDefinitions. All with Libretto's own identity. Only the elected replica
// writes; the others compile and fill their caches.
//
// Invariants: a document with errors changes nothing that runs. A kind stands in status.managedKinds before the Engine gets a
// Program that makes objects of it. Deletion needs no document that compiles.
package definition
