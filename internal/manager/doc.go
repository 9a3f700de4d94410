// Package manager puts the pieces together and runs them: the caches, the engine, the reconciler of definitions (or the
// definitions of files), the webhook, leader election, metrics and probes. There is no rule of Libretto's in it.
package manager
