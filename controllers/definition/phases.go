package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
)

// Sizes of messages in bytes.
const (
	// shortMessage is that of a condition in one look.
	shortMessage = 1024
	// longMessage is that of Accepted, which lists all errors.
	longMessage = 8192
)

// compile is a phase: it compiles the newest generation, unless that has been done and no kind has changed since.
func (r *Reconciler) compile(ctx context.Context, s *scope) error {
	m := s.memory
	key := fmt.Sprintf("%s/%d", s.def.UID, s.def.Generation)
	changed := m.takeStale()
	if changed {
		m.patience = 0
		r.Engine.Retry()
	}
	// A kind is served some seconds before the cluster tells what it looks like, and not all kinds come with a
	// CustomResourceDefinition: what waits for kinds is compiled again now and then.
	s.stale = changed || (m.patience > 0 && r.Clock.Since(m.compiledAt) >= m.patience)
	if s.stale || m.newest.key != key {
		p, ds := r.Compiler.Compile(ctx, s.def)
		m.newest = compiled{key: key, program: p, diagnostics: ds}
		m.compiledAt = r.Clock.Now()
		if m.patience > 0 {
			m.patience = min(2*m.patience, retryKinds)
		}
	}
	s.candidate = m.newest.program
	m.uses(m.newest.program, m.accepted.program)
	switch {
	case s.candidate == nil:
		return r.reject(ctx, s, v1alpha1.ReasonCompileFailed, m.newest.diagnostics.Errors().Summary(longMessage))
	case s.def.Spec.ServiceAccount == nil:
		return r.reject(ctx, s, v1alpha1.ReasonServiceAccountMissing,
			"spec.serviceAccount is not set: name the ServiceAccount that acts for the definition; `libretto rbac` prints one with the least rights")
	}
	return nil
}

// reject does not accept the newest generation; the last accepted revision stays at work.
func (r *Reconciler) reject(ctx context.Context, s *scope, reason, message string) error {
	s.candidate = nil
	var err error
	if s.work, err = r.lastAccepted(ctx, s, s.stale); err != nil {
		return err
	}
	s.memory.uses(s.memory.newest.program, s.work.Program)
	if s.work.Program != nil {
		message += "\nRevision " + s.work.Revision + " stays at work."
	}
	s.stall(v1alpha1.ConditionAccepted, reason, message)
	if c := meta.FindStatusCondition(s.before.Status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.ObservedGeneration != s.def.Generation || c.Reason != reason {
		r.Metrics.revision(s.def.Name, false)
	}
	return nil
}

// customResourceDefinitions is a phase: it applies the CustomResourceDefinitions of the candidate, if it may.
func (r *Reconciler) customResourceDefinitions(ctx context.Context, s *scope) error {
	if s.candidate == nil {
		return nil
	}
	err := r.applyCRDs(ctx, s, s.candidate)
	var conflict *crd.ConflictError
	var breaking *crd.BreakingError
	switch {
	case errors.As(err, &conflict):
		return r.reject(ctx, s, v1alpha1.ReasonCRDConflict, conflict.Message)
	case errors.As(err, &breaking):
		if breakingOperations(err, s.candidate) {
			s.again(retryRights)
		}
		return r.reject(ctx, s, v1alpha1.ReasonBreakingChange, breaking.Error())
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		if apierrors.IsForbidden(err) {
			s.again(retryRights)
		}
		return r.reject(ctx, s, v1alpha1.ReasonCRDRejected, truncate(err.Error(), longMessage))
	}
	return err
}

// fallBack is a phase: where the candidate is not accepted, it keeps the CustomResourceDefinitions of the last revision.
func (r *Reconciler) fallBack(ctx context.Context, s *scope) error {
	if s.candidate != nil {
		return nil
	}
	if s.work.Program == nil {
		s.def.Status.Kind = kindOf(&s.def.Spec)
		if !slices.ContainsFunc(s.problems, func(p problem) bool { return p.condition == v1alpha1.ConditionServed }) {
			s.stall(v1alpha1.ConditionServed, s.problems[0].reason, "no revision has been accepted yet")
		}
		s.done = true
		return nil
	}
	if err := r.applyCRDs(ctx, s, s.work.Program); err != nil {
		var conflict *crd.ConflictError
		var breaking *crd.BreakingError
		if errors.As(err, &conflict) || errors.As(err, &breaking) {
			s.stall(v1alpha1.ConditionServed, v1alpha1.ReasonCRDConflict, truncate(err.Error(), shortMessage))
			return nil
		}
		return err
	}
	return nil
}

// managedKinds is a phase: it writes down the kinds of which objects may be made before any is made. When that changes the
// status, the phases end here: the status that was written wakes the definition again.
func (r *Reconciler) managedKinds(_ context.Context, s *scope) error {
	want := map[runtimeschema.GroupVersionKind]bool{}
	for _, k := range programKinds(s.work.Program) {
		want[k] = true
	}
	idle := map[runtimeschema.GroupVersionKind]bool{}
	if st, ok := r.Engine.State(s.def.Name); ok && s.before.Status.Revision == s.work.Revision {
		for _, k := range st.Idle {
			idle[k] = true
		}
	}
	for _, k := range s.def.Status.ManagedKinds {
		if gvk := runtimeschema.FromAPIVersionAndKind(k.APIVersion, k.Kind); !idle[gvk] {
			want[gvk] = true
		}
	}
	kinds := sortedKinds(want)
	widened := false
	have := managedKinds(&s.def.Status)
	for _, k := range kinds {
		widened = widened || !slices.Contains(have, k)
	}
	s.def.Status.ManagedKinds = nil
	for _, k := range kinds {
		s.def.Status.ManagedKinds = append(s.def.Status.ManagedKinds, v1alpha1.ManagedKind{APIVersion: k.GroupVersion().String(), Kind: k.Kind})
	}
	s.def.Status.Revision = s.work.Revision
	s.def.Status.Kind = kindString(s.work.Program.Instance.GroupVersionKind)
	if widened || s.before.Status.Revision != s.work.Revision {
		s.wait(v1alpha1.ConditionServed, v1alpha1.ReasonStarting, "revision "+s.work.Revision+" is being put to work")
		s.again(time.Second) // in case that the change of the status does not wake it
		s.done = true
	}
	return nil
}

// serve is a phase: it puts the revision to work, and reads how the work stands.
func (r *Reconciler) serve(ctx context.Context, s *scope) error {
	r.Registry.Set(s.def.Name, s.work)
	if _, running := r.Engine.State(s.def.Name); s.established || running {
		if err := r.Engine.Ensure(ctx, engineSpec(s.def, s.work, false)); err != nil {
			return fmt.Errorf("cannot start the work on instances: %w", err)
		}
	}
	if pending := s.work.Program.PendingKinds; len(pending) > 0 {
		names := make([]string, len(pending))
		for i, k := range pending {
			names[i] = kindString(k)
		}
		slices.Sort(names)
		s.wait("", v1alpha1.ReasonKindsPending, fmt.Sprintf("the cluster does not have %s yet; what needs it waits", strings.Join(slices.Compact(names), ", ")))
		s.memory.patience = max(s.memory.patience, time.Second)
		s.again(s.memory.patience)
	} else {
		s.memory.patience = 0
	}
	r.observe(s)
	return nil
}

// standby is what a replica does that is not elected: it compiles and fills caches, and writes nothing.
func (r *Reconciler) standby(ctx context.Context, s *scope) error {
	entry, err := r.lastAccepted(ctx, s, s.memory.takeStale())
	if err != nil || entry.Program == nil {
		return err
	}
	s.memory.uses(entry.Program)
	r.Registry.Set(s.def.Name, entry)
	if err := r.Engine.Ensure(ctx, engineSpec(s.def, entry, !s.def.DeletionTimestamp.IsZero())); err != nil {
		return fmt.Errorf("cannot fill caches: %w", err)
	}
	return nil
}

func engineSpec(def *v1alpha1.OperatorDefinition, e registry.Entry, draining bool) engine.Spec {
	return engine.Spec{
		Definition: def.Name, UID: def.UID, Program: e.Program, Revision: e.Revision,
		ServiceAccount: e.Program.Definition.ServiceAccount, ManagedKinds: managedKinds(&def.Status), Draining: draining,
	}
}

func managedKinds(status *v1alpha1.OperatorDefinitionStatus) []runtimeschema.GroupVersionKind {
	out := make([]runtimeschema.GroupVersionKind, 0, len(status.ManagedKinds))
	for _, k := range status.ManagedKinds {
		out = append(out, runtimeschema.FromAPIVersionAndKind(k.APIVersion, k.Kind))
	}
	return out
}

// programKinds lists the kinds that a Program makes objects of, by its resources or by the steps of its operations.
func programKinds(p *program.Program) []runtimeschema.GroupVersionKind {
	all := map[runtimeschema.GroupVersionKind]bool{}
	for _, n := range p.Nodes {
		for _, k := range n.Kinds {
			all[k.GroupVersionKind] = true
		}
	}
	for _, k := range p.StepKinds() {
		all[k.GroupVersionKind] = true
	}
	return sortedKinds(all)
}

func sortedKinds(m map[runtimeschema.GroupVersionKind]bool) []runtimeschema.GroupVersionKind {
	out := make([]runtimeschema.GroupVersionKind, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b runtimeschema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// kindString prints KIND.VERSION.GROUP.
func kindString(k runtimeschema.GroupVersionKind) string {
	return strings.TrimSuffix(k.Kind+"."+k.Version+"."+k.Group, ".")
}

// kindOf is the kind that a document names, without compiling it.
func kindOf(spec *v1alpha1.OperatorDefinitionSpec) string {
	switch {
	case spec.Target != nil:
		return kindString(runtimeschema.FromAPIVersionAndKind(spec.Target.APIVersion, spec.Target.Kind))
	case spec.CRD != nil && len(spec.CRD.Versions) > 0:
		return kindString(runtimeschema.GroupVersionKind{Group: spec.CRD.Group, Version: spec.CRD.Versions[0].Name, Kind: spec.CRD.Names.Kind})
	}
	return ""
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
