// Package runner drives runs of operations: it asks the state machine what is next, persists that, and only then has it done.
// It keeps, in memory, what is under way in this process; what it does not know was begun by another one.
package runner
