package apply

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// UpToDate tells whether Apply would find nothing to do. It makes no request.
func (w *Writer) UpToDate(req Request) bool {
	live := req.Live
	if live == nil || live.Deleting() || types.UID(live.Labels[v1alpha1.LabelInstance]) != instanceOf(req.Desired) {
		return false
	}
	if req.CreateOnce {
		return true
	}
	if live.Annotations[v1alpha1.AnnotationDesired] != req.Desired.Hash {
		return false
	}
	set, err := w.owned.get(live.Owned)
	if err != nil {
		return false
	}
	covered, _ := set.covers(req.Desired.Object, instanceOf(req.Desired))
	return covered
}
