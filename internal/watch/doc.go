// Package watch keeps what one definition has to know of the cluster: its instances, their children and the external objects
// that expressions read. There is one Set per definition, because it reads with the definition's identity.
//
// Invariants:
//   - Nothing waits. Ensure and WatchExternals return at once; a kind that is forbidden or missing has a State that says so, is
//     tried again with growing pauses, and hinders no other kind.
//   - Children are selected by the definition's label on the server, and only what is needed of them is kept.
//   - A write of our own is known at once (Observe), whatever the delay of the watch.
//   - Objects are immutable once handed out.
package watch
