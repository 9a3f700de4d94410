// Package rbac tells which rights a compiled definition needs: the least Roles and ClusterRole for its ServiceAccount. It is
// pure: the command line, the definition controller's check and the packaging print and compare the same answer, and the
// same Program yields the same bytes.
package rbac
