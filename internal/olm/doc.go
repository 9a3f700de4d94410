// Package olm is how the manager stands to the Operator Lifecycle Manager that installed it: it asks for an upgrade to wait while
// runs of operations are under way. It knows neither definitions nor operations, only how many runs there are.
//
// Invariants:
//   - Without OLM, or under a version of it that has no OperatorConditions, nothing is read or written.
//   - The condition is written when it changes, and at no other time.
//   - What is not known yet, as when the manager has just started, changes nothing: a False stays until it is known to be over.
package olm
