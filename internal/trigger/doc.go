// Package trigger decides when operations run by themselves: pure functions from an instance, what was remembered of it, the
// runs there are and the time, to the runs that are to begin and what is to be remembered.
//
// Invariants:
//   - What fires is named after its cause (the instance's UID and what happened), so that firing twice makes one run.
//   - Events fire by what is compared with what was remembered, never by watch events: quick edits collapse, and a restart
//     neither loses nor repeats one.
//   - Without anything to remember anew, the memory that is returned equals the one that was given.
package trigger
