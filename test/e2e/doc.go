// Package e2e runs the examples as a user would: with the binary, on a real API server, through the command line and
// kubectl's kinds. It holds tests alone.
package e2e
