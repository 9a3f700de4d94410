// Package instance works on one instance of a definition: it makes the objects that the instance stands for, keeps them as
// they should be, removes what is no longer wanted, and says in the instance's status how that stands. One reconciler is made
// for each definition; it knows the cluster through the definition's own watches and writes with the definition's identity.
//
// What wakes it: the instance, its children, the external objects that its expressions read; a new revision; a watch that
// began or failed; a timer after something that somebody has to mend.
//
// What it writes: children (server-side apply), at most one status patch per pass, a finalizer where one is needed, events
// on transitions.
//
// Invariants: a converged instance costs no request. Nothing is made before the watch of its kind has listed what there is.
// Nothing is removed unless every resource is resolved and applied. Deletion reads the inventory alone: no expression, no
// Program.
package instance
