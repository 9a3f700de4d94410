package engine

import (
	"slices"
	"strings"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/watch"
)

// state is what the definition is told.
func (r *Run) state() State {
	spec := r.Spec()
	st := State{Quarantined: r.quarantine.reason(), Synced: r.settled()}
	for _, o := range spec.Program.Operations {
		if o.Stale > 0 {
			if st.Stale == nil {
				st.Stale = map[string]int{}
			}
			st.Stale[o.Name] = 0
		}
	}
	r.reports.sum(&st)
	if spec.Program.CRD != nil {
		st.Total = len(r.set.Instances())
	}
	st.Watches = append(st.Watches, watchState(spec.Program.Instance.GroupVersionKind, spec.Program.Instance.GVR(), r.set.InstanceState()))
	if k := spec.Program.OperationKind; k != nil {
		st.Watches = append(st.Watches, watchState(k.Kind.GroupVersionKind, k.Kind.GVR(), r.set.OperationState()))
	}
	states := r.set.States()
	for kind, s := range states {
		st.Watches = append(st.Watches, watchState(kind.GroupVersionKind, kind.GVR(), s))
	}
	slices.SortFunc(st.Watches, func(a, b WatchState) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
	st.Idle = r.idle()
	observeState(spec.Definition, st)
	return st
}

func watchState(gvk runtimeschema.GroupVersionKind, gvr runtimeschema.GroupVersionResource, s watch.State) WatchState {
	out := WatchState{
		Kind: gvk, Resource: gvr, Synced: s.Synced(),
		Forbidden: s.Phase == watch.PhaseForbidden, NotFound: s.Phase == watch.PhaseNotFound,
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

// idle returns the kinds of earlier revisions of which no object is left.
func (r *Run) idle() []runtimeschema.GroupVersionKind {
	spec := r.Spec()
	made := programKinds(spec.Program)
	used := map[runtimeschema.GroupVersionKind]bool{}
	for _, o := range r.set.Children() {
		used[o.Kind.GroupVersionKind] = true
	}
	var idle []runtimeschema.GroupVersionKind
	for _, gvk := range spec.ManagedKinds {
		if _, ok := made[gvk]; ok || used[gvk] {
			continue
		}
		kind, ok := r.kinds.get(gvk)
		if ok && (kind.Pending || r.set.State(kind).Synced() || r.set.State(kind).Phase == watch.PhaseNotFound) {
			idle = append(idle, gvk)
		}
	}
	return idle
}
