package definition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// retryFormer is how often it is looked whether the last object of a former kind of operation objects has gone.
const retryFormer = time.Minute

// reasonOperationsRemain is that of the event that tells of a kind that stays.
const reasonOperationsRemain = "OperationsRemain"

// formerMemory is what is known of kinds of operation objects that the definition has no more.
type formerMemory struct {
	// checked is when they were last looked at, for program.
	checked time.Time
	program *program.Program
	// told holds the names of the CustomResourceDefinitions of which an event has told.
	told map[string]bool
}

// formerOperations is a phase: a definition that has lost its last operation, or has given the kind of its operations another
// name, leaves a CustomResourceDefinition behind. It is deleted when no operation object is left: what is there is a record
// that may be all that is known of a backup. What is being deleted is let go, for nobody does the steps it waits for.
func (r *Reconciler) formerOperations(ctx context.Context, s *scope) error {
	names, err := r.formerKinds(ctx, s)
	if err != nil {
		return err
	}
	m := &s.memory.former
	if len(names) == 0 {
		*m = formerMemory{}
		return nil
	}
	if since := r.Clock.Since(m.checked); m.program == s.work.Program && since < retryFormer {
		s.again(retryFormer - since)
		return nil
	}
	m.checked, m.program = r.Clock.Now(), s.work.Program
	l := &leaving{Reconciler: r, scope: s}
	if l.dynamic, l.mapper, err = r.Clients(s.serviceAccount()); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	for _, name := range names {
		stays, err := l.dropFormer(ctx, name)
		if err != nil {
			return err
		}
		if stays == "" {
			delete(m.told, name)
			continue
		}
		s.again(retryFormer)
		if m.told == nil {
			m.told = map[string]bool{}
		}
		if !m.told[name] {
			m.told[name] = true
			s.event(false, reasonOperationsRemain, truncate(stays, shortMessage))
		}
	}
	return nil
}

// formerKinds returns the names of the CustomResourceDefinitions of operation objects that the revision at work does not have.
func (r *Reconciler) formerKinds(ctx context.Context, s *scope) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := r.Client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(s.def.Name)}); err != nil {
		return nil, fmt.Errorf("cannot list CustomResourceDefinitions: %w", err)
	}
	all := declarations(s.work.Program)
	var out []string
	for i := range list.Items {
		c := &list.Items[i]
		wanted := slices.ContainsFunc(all, func(d declaration) bool { return d.crd.Name == c.Name })
		if !wanted && c.Annotations[v1alpha1.AnnotationOperationsOf] != "" && c.DeletionTimestamp.IsZero() {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// dropFormer deletes a CustomResourceDefinition of operation objects if there is none, and says why it stays otherwise.
func (l *leaving) dropFormer(ctx context.Context, name string) (stays string, err error) {
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := l.Reader.Get(ctx, client.ObjectKey{Name: name}, live); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	operations := l.resourceOf(live)
	err = l.release(ctx, operations, v1alpha1.FinalizerRun, func(o *unstructured.Unstructured) bool { return !o.GetDeletionTimestamp().IsZero() })
	if err != nil && !apierrors.IsForbidden(err) {
		return "", err
	}
	n, names, err := l.few(ctx, operations)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("CustomResourceDefinition %s, of operations that the definition has no more, stays: the ServiceAccount may not list %s; delete it when you need no record of them",
			name, operations.gvr.GroupResource()), nil
	case err != nil:
		return "", err
	case n > 0:
		return fmt.Sprintf("CustomResourceDefinition %s, of operations that the definition has no more, stays while there are records of them: %s; delete those that you do not need, and it goes with the last one",
			name, listed(names, n)), nil
	}
	if _, err := l.CRDs.Delete(ctx, name, l.def.Name); err != nil {
		return "", err
	}
	ctrl.LoggerFrom(ctx).Info("Deleted the CustomResourceDefinition of operations that the definition has no more", "crd", name)
	return "", nil
}

// listed lists the first names of n.
func listed(names []string, n int64) string {
	list := strings.Join(names, ", ")
	if int64(len(names)) < n {
		list += ", …"
	}
	return list
}
