// Package olm checks the bundle and the catalogue with the code that others will check them with, and installs and upgrades
// Libretto by a real Operator Lifecycle Manager. It holds tests alone. Those that need a cluster are skipped unless
// hack/e2e-olm.sh runs them.
package olm
