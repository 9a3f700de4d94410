// Package operation is the state machine of operations: pure functions from how a run stands to what is to be done next. What
// steps do is not known here, nor is any client or clock.
//
// Invariants:
//   - An attempt stands in the status before it is begun: whoever does what a Decision says persists its Status first, guarded
//     by the resource version, and does nothing if that fails.
//   - A step that has succeeded, or has failed for good, is never begun again, unless a user retries from it.
//   - An attempt that was begun and of which this process knows nothing is looked at, if its action can; if not, its outcome is
//     unknown, and the step's policy says what happens. It is never repeated silently.
//   - A timeout is unknown too.
//   - The same input yields the same Decision, and a Decision that is persisted and fed back yields no further change.
package operation
