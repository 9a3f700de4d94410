// Package step does what the steps of operations say, with the identity of the definition: it applies, patches and deletes
// objects, waits, runs commands and Jobs, makes HTTP requests, writes events and status fields, begins other operations. When
// and how often a step is done is not known here.
//
// Invariants:
//   - Whatever a step makes carries the UID of the run and the ID of the attempt, so that an attempt that is begun again finds
//     what it made. Names of Jobs, events and runs are made of the attempt or of its key.
//   - An attempt that cannot tell whether it had its effect says so: it is never guessed. A command is a success only when the
//     server says so; a connection that just ends is none.
//   - What has begun and cannot be asked about is waited for, and not begun anew: a Job, another run, work that is polled.
//   - What is deleted is named by its UID, which is persisted before.
//   - An object that no operation of the instance has made is not applied to.
//   - No secret is in a message or an output that was not asked for.
package step
