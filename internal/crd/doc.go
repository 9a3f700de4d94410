// Package crd writes the CustomResourceDefinition of a definition: who may own it, what may change in it while objects are
// stored, and when it has to be written at all. It acts as Libretto itself. It does not make the CustomResourceDefinition
// (compile does) and does not look at instances.
package crd
