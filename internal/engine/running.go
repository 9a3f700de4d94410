package engine

import "github.com/libretto-dev/libretto/api/v1alpha1"

// RunningOperations returns how many runs of operations are under way, and whether that is known: every watch has answered.
func (e *Engine) RunningOperations() (int, bool) {
	if !e.Synced() {
		return 0, false
	}
	running := 0
	for _, r := range e.all() {
		for _, o := range r.set.Operations() {
			if s := stateOf(o); s == v1alpha1.RunRunning || s == v1alpha1.RunUndoing {
				running++
			}
		}
	}
	return running, true
}
