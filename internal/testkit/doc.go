// Package testkit is what tests against a real API server share: a cluster to talk to, names that no other test uses,
// objects from YAML, a transport that counts requests and injects faults, and waiting with a useful message. It is
// imported by _test.go files only. Golden files are in the package golden, which needs no client.
//
// The cluster is the one of the kubeconfig that LIBRETTO_TEST_KUBECONFIG names; `make test` starts one and sets it. Tests
// share it and run side by side, so each takes a namespace (Namespace) and an API group (Group) of its own and leaves
// nothing cluster-scoped behind.
package testkit
