// Package identity makes the clients that act for a definition. All that a definition reads, watches and writes goes through
// a client that impersonates its ServiceAccount, so that nothing is done with a right that the ServiceAccount does not
// have; Libretto itself holds no right to children.
//
// # What the API server needs
//
// The client sends the user name system:serviceaccount:NAMESPACE:NAME and nothing else. Groups are left out on purpose: for
// a ServiceAccount the API server adds them itself (system:serviceaccounts, system:serviceaccounts:NAMESPACE and
// system:authenticated), and naming them would need the right to impersonate groups and would rule out constrained
// impersonation.
//
// The rights of Libretto are of one of two sorts. Any API server takes the first:
//
//	apiGroups: [""]  resources: [serviceaccounts]  verbs: [impersonate]  resourceNames: [NAME]
//
// A server with constrained impersonation (Kubernetes 1.36 and later, by default) tries the second before the first, with
// the very same request, so that the client does not have to choose:
//
//	apiGroups: [authentication.k8s.io]  resources: [serviceaccounts]  verbs: [impersonate:serviceaccount]  resourceNames: [NAME]
//	apiGroups: [apps]  resources: [deployments]  verbs: [impersonate-on:serviceaccount:list, impersonate-on:serviceaccount:watch, …]
//
// The first of the two rules is namespaced: a Role beside the ServiceAccount will do. The second one says what Libretto may
// do while it impersonates, and stands where the objects are. The request is then checked against the rights of the
// ServiceAccount too. A request that passes by the plain verb impersonate needs no impersonate-on rule.
package identity
