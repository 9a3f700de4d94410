// Package devcluster is a real Kubernetes for tests, demos and measurements: etcd, kube-apiserver and
// kube-controller-manager, and where pods have to run also kube-scheduler, kubelet, kube-proxy and containerd, built from
// their Go modules and run on this machine, without Docker and without an image registry.
//
// It is a module of its own because k8s.io/kubernetes brings hundreds of dependencies, at versions that the product
// need not share. Nothing imports it: whoever needs a cluster runs the program that build.sh builds. README.md tells how.
//
// The packages: cluster starts, watches and ends a cluster; proc starts processes and ends exactly those; pki makes
// certificates and kubeconfigs; image makes image archives. The programs under cmd are thin.
//
// # Constrained impersonation
//
// In Kubernetes 1.36 the feature gate ConstrainedImpersonation of kube-apiserver is beta and on by default (it was alpha
// and off in 1.35), so a cluster has it without any flag, and --apiserver-arg=--feature-gates=ConstrainedImpersonation=false
// turns it off, to see what a server without it does. With it, a request with Impersonate-User is allowed in one of two
// ways. Constrained: the caller has the verb impersonate:<mode> on the identity, in API group authentication.k8s.io,
// and the verb impersonate-on:<mode>:<verb> on what the request asks for. The mode is user-info (users), serviceaccount
// (serviceaccounts), arbitrary-node or associated-node (nodes). Or, when that is not granted, as ever: the caller has
// the verb impersonate on the identity, in the core API group, and may then do whatever that identity may. In both ways
// the identity itself must be allowed to do what is asked for.
package devcluster
