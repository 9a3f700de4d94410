// Package apply writes children: it creates, changes and deletes them with server-side apply, and it tells, without a
// request, that nothing has to be written. It knows one object at a time; order, pruning and what follows from an error are
// its callers' concern.
//
// Invariants:
//   - An object that exists and is not ours is never touched, unless the adoption rule says so, and never when another living
//     instance holds it.
//   - An object that is known is addressed with its UID: a write meant to change it never makes another one in its place.
//   - A request that ended without an answer is unknown (TransientError with Unknown): nothing is assumed of it.
//   - Messages are bounded and hold no values of Secrets.
package apply
