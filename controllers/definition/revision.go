package definition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/registry"
)

// forRevision is the part of a spec that a revision is about: whatever only says how the definition itself is dealt with is
// left out, so that changing it makes no revision.
func forRevision(spec *v1alpha1.OperatorDefinitionSpec) *v1alpha1.OperatorDefinitionSpec {
	out := spec.DeepCopy()
	out.WhenInstancesExist = ""
	out.RevisionHistoryLimit = nil
	return out
}

// RevisionName returns the name of the OperatorRevision of a spec: the definition's name, cut where it is too long, a dash
// and a hash.
func RevisionName(definition string, spec *v1alpha1.OperatorDefinitionSpec) string {
	return revisionName(definition, compile.Snapshot(forRevision(spec)))
}

func revisionName(definition, text string) string {
	sum := sha256.Sum256([]byte(definition + "\n" + text))
	const most = 200
	if len(definition) > most {
		definition = strings.TrimRight(definition[:most], "-.")
	}
	return definition + "-" + hex.EncodeToString(sum[:5])
}

// readRevision returns the definition as it was when the revision was accepted.
func readRevision(rev *v1alpha1.OperatorRevision) (*v1alpha1.OperatorDefinition, error) {
	def := &v1alpha1.OperatorDefinition{}
	def.Name = rev.Spec.Definition
	if err := json.Unmarshal([]byte(rev.Spec.Snapshot), &def.Spec); err != nil {
		return nil, fmt.Errorf("cannot read OperatorRevision %s: %w", rev.Name, err)
	}
	return def, nil
}

// revision is a phase: it makes the OperatorRevision of an accepted candidate, and prunes old ones.
func (r *Reconciler) revision(ctx context.Context, s *scope) error {
	if s.candidate == nil {
		return nil
	}
	text := compile.Snapshot(forRevision(&s.def.Spec))
	name := revisionName(s.def.Name, text)
	existing := &v1alpha1.OperatorRevision{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, existing)
	switch {
	case apierrors.IsNotFound(err):
		if err := r.createRevision(ctx, s, name, text); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("cannot read OperatorRevision: %w", err)
	case !metav1.IsControlledBy(existing, s.def):
		// That of an earlier definition of the same name, on its way out: it is made anew, for the garbage collector takes it.
		if err := r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete OperatorRevision %s of an earlier definition: %w", name, err)
		}
		if err := r.createRevision(ctx, s, name, text); err != nil {
			return err
		}
	}
	s.work = registry.Entry{Program: s.candidate, Revision: name}
	if s.def.Status.Revision != name {
		r.Metrics.revision(s.def.Name, true)
		s.event(false, v1alpha1.ReasonAccepted, fmt.Sprintf("revision %s is at work", name))
	}
	s.def.Status.Revision = name
	return nil
}

func (r *Reconciler) createRevision(ctx context.Context, s *scope, name, text string) error {
	all, err := r.revisions(ctx, s.def)
	if err != nil {
		return err
	}
	number := int64(1)
	if len(all) > 0 {
		number = revisionNumber(&all[len(all)-1]) + 1
	}
	rev := &v1alpha1.OperatorRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(s.def.Name)},
			Annotations: map[string]string{v1alpha1.AnnotationDefinition: s.def.Name},
		},
		Spec: v1alpha1.OperatorRevisionSpec{Definition: s.def.Name, Revision: &number, Snapshot: text},
	}
	if err := controllerutil.SetControllerReference(s.def, rev, r.Client.Scheme(), controllerutil.WithBlockOwnerDeletion(false)); err != nil {
		return fmt.Errorf("cannot own OperatorRevision %s: %w", name, err)
	}
	if err := r.Client.Create(ctx, rev, client.FieldOwner(v1alpha1.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot create OperatorRevision %s: %w", name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Created a revision", "revision", name)
	return r.pruneRevisions(ctx, s, append(all, *rev))
}

// revisions lists the revisions of a definition, oldest first.
func (r *Reconciler) revisions(ctx context.Context, def *v1alpha1.OperatorDefinition) ([]v1alpha1.OperatorRevision, error) {
	list := &v1alpha1.OperatorRevisionList{}
	if err := r.Client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(def.Name)}); err != nil {
		return nil, fmt.Errorf("cannot list OperatorRevisions: %w", err)
	}
	out := slices.DeleteFunc(list.Items, func(rev v1alpha1.OperatorRevision) bool { return !metav1.IsControlledBy(&rev, def) })
	slices.SortFunc(out, func(a, b v1alpha1.OperatorRevision) int { return int(revisionNumber(&a) - revisionNumber(&b)) })
	return out, nil
}

func revisionNumber(rev *v1alpha1.OperatorRevision) int64 {
	if rev.Spec.Revision == nil {
		return 0
	}
	return *rev.Spec.Revision
}

// pruneRevisions deletes the oldest revisions beyond the limit, never the newest nor the one at work.
func (r *Reconciler) pruneRevisions(ctx context.Context, s *scope, all []v1alpha1.OperatorRevision) error {
	keep := 10
	if s.def.Spec.RevisionHistoryLimit != nil {
		keep = int(*s.def.Spec.RevisionHistoryLimit)
	}
	old := slices.DeleteFunc(slices.Clone(all[:len(all)-1]), func(rev v1alpha1.OperatorRevision) bool { return rev.Name == s.def.Status.Revision })
	// The one at work until now stays as well until the new one is in the status: then it is the newest of the old ones.
	if len(all)-1 > len(old) {
		keep--
	}
	for i := 0; i < len(old)-max(keep, 0); i++ {
		if err := r.Client.Delete(ctx, &old[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete OperatorRevision %s: %w", old[i].Name, err)
		}
	}
	return nil
}

// lastAccepted returns the revision at work so far: what the registry has, or the OperatorRevision that the status names, or
// the newest one. Its Program is nil when there is none. stale: it has to be compiled again.
func (r *Reconciler) lastAccepted(ctx context.Context, s *scope, stale bool) (registry.Entry, error) {
	name := s.def.Status.Revision
	if e, ok := r.Registry.Get(s.def.Name); ok && !stale && (name == "" || e.Revision == name) {
		return e, nil
	}
	rev := &v1alpha1.OperatorRevision{}
	if name != "" {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, rev); client.IgnoreNotFound(err) != nil {
			return registry.Entry{}, fmt.Errorf("cannot read OperatorRevision: %w", err)
		}
	}
	// The status says which it is, but only a revision of the definition itself has been accepted.
	if rev.Name == "" || !metav1.IsControlledBy(rev, s.def) {
		all, err := r.revisions(ctx, s.def)
		if err != nil {
			return registry.Entry{}, err
		}
		if len(all) == 0 {
			return registry.Entry{}, nil
		}
		rev = &all[len(all)-1]
	}
	if m := &s.memory.accepted; m.key != rev.Name || stale {
		old, err := readRevision(rev)
		if err != nil {
			return registry.Entry{}, err
		}
		p, ds := r.Compiler.Compile(ctx, old)
		*m = compiled{key: rev.Name, program: p, diagnostics: ds}
	}
	if s.memory.accepted.program == nil {
		if e, ok := r.Registry.Get(s.def.Name); ok && e.Revision == rev.Name {
			return e, nil // it compiled before a kind changed: it goes on as it was
		}
		s.stall(v1alpha1.ConditionServed, v1alpha1.ReasonCompileFailed,
			fmt.Sprintf("revision %s no longer compiles: %s", rev.Name, s.memory.accepted.diagnostics.Errors().Summary(shortMessage)))
		return registry.Entry{}, nil
	}
	return registry.Entry{Program: s.memory.accepted.program, Revision: rev.Name}, nil
}
