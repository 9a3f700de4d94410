package engine

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/watch"
)

func childOf(o *watch.Object) types.UID { return types.UID(o.Labels[v1alpha1.LabelInstance]) }

// OwnerOf returns the instance that a child names; false: it names none.
func OwnerOf(child *watch.Object) (Request, bool) {
	owner := child.Annotations[v1alpha1.AnnotationOwner]
	if owner == "" {
		return Request{}, false
	}
	if namespace, name, found := strings.Cut(owner, "/"); found {
		return Request{Namespace: namespace, Name: name}, true
	}
	return Request{Name: owner}, true
}

func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(s)
}
