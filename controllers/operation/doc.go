// Package operation reconciles operation objects: each is a run of an operation for one instance. It finds out whether the run
// has its turn, has the runner advance it, and writes its status.
package operation
