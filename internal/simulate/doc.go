// Package simulate runs tests of a definition without a cluster. A test is a YAML document: objects that there are, what commands,
// requests and Jobs answer, a time, and steps with what is expected after each.
//
// What is decided is decided by the packages that decide it in a cluster: plan, render, trigger and operation. What is made up here
// is the world around them: objects in memory, a clock that only the test moves, and answers in place of pods and services.
//
// Invariants:
//   - The same test yields the same result, down to the last byte: no clock, no chance, no order of maps.
//   - Nothing leaves the process.
package simulate
