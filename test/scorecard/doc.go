// Command libretto-scorecard holds this repository's scorecard tests: `operator-sdk scorecard` runs its image once for each test that
// bundle/tests/scorecard/config.yaml names, in a pod, with the bundle in /bundle. A test finds Libretto installed in its namespace,
// by whatever way, and prints a TestStatus and nothing else.
//
// From outside a cluster: BUNDLE=bundle SCORECARD_NAMESPACE=libretto-system libretto-scorecard TEST, with a KUBECONFIG.
package main
