// Package observe tells from an object's own status whether it is ready: the rules that all Kubernetes kinds follow
// (kstatus), and those of the kinds that came before them. It is pure.
package observe

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// KStatus tells whether the object is ready. If not, message says what is missing; failed means that it will not become ready
// without somebody doing something.
func KStatus(obj *unstructured.Unstructured) (ready bool, message string, failed bool) {
	return false, "", false
}

// Fields are the paths that KStatus reads of the objects of a kind.
func Fields(group, kind string) [][]string { return nil }
