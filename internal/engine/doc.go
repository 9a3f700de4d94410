// Package engine runs definitions: for each one a controller of its own, with its own identity, watches, queue, workers and
// quarantine, so that none can slow, stall or crash another. What a worker does with an instance is not known here: a
// reconciler is made for each run.
//
// Invariants:
//   - Watches run on every replica; workers only on the elected one.
//   - A change of the Program fits the watches to it and works on every instance again; nothing is restarted.
//   - No worker runs before the watches have answered, with what there is or with why not.
//   - After a few panics within some minutes a definition is quarantined until its revision changes.
package engine
