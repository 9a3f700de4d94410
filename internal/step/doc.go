// Package step does what the steps of operations say, with the identity of the definition: it applies, patches and deletes
// objects, waits, runs commands and Jobs, makes HTTP requests, writes events and status fields, begins other operations. When
// and how often a step is done is not known here.
//
// Invariants:
//   - Whatever a step makes carries the UID of the run and the ID of the attempt, so that an attempt that is begun again finds
//     what it made.
//   - An attempt that cannot tell whether it had its effect says so: it is never guessed.
//   - No secret is in a message or an output that was not asked for.
package step
