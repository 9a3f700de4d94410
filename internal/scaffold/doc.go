// Package scaffold writes a definition to start from: from a few fields, or from manifests that exist already (a kustomize
// base, a directory). It makes files in memory; what it makes compiles and, for the instance that comes with it, renders to
// what the manifests were.
package scaffold
