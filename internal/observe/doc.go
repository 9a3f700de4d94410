// Package observe tells from an object's own status whether it is ready: the conditions that all kinds share, and the rules of
// the kinds that have none. It is pure.
package observe
