package definition

import (
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/rbac"
)

// mostReviews is how many rights are asked for at most: a definition that lists many namespaces is checked in the first ones.
const mostReviews = 200

// rightsMemory is what is known of a ServiceAccount. It is looked at again when the Program changes, and every retryRights
// while something is missing.
type rightsMemory struct {
	program   *program.Program
	checked   time.Time
	noAccount bool
	denied    bool // Libretto may not impersonate it
	missing   []rbac.Request
}

func (m *rightsMemory) bad() bool { return m.noAccount || m.denied || len(m.missing) > 0 }

// pause is how long to wait before looking again: a ServiceAccount costs two requests, its rights cost one each.
func (m *rightsMemory) pause() time.Duration {
	if m.noAccount || m.denied {
		return retryAccount
	}
	return retryRights
}

func (m *rightsMemory) lacksWatch() bool {
	return slices.ContainsFunc(m.missing, func(q rbac.Request) bool { return q.Verb == "watch" })
}

// watchesRun tells whether the API server lets every watch of a definition run.
func (r *Reconciler) watchesRun(name string) bool {
	st, ok := r.Engine.State(name)
	return ok && st.Synced && !slices.ContainsFunc(st.Watches, func(w engine.WatchState) bool { return !w.Synced })
}

// access is a phase: it checks that the ServiceAccount exists, that Libretto may impersonate it, and that it has the rights
// that the Program needs. It blocks nothing: what is missing is told, and the work that is possible goes on.
func (r *Reconciler) access(ctx context.Context, s *scope) error {
	sa := s.serviceAccount()
	if sa == nil {
		return nil // a revision without one is not accepted
	}
	m := &s.memory.rights
	pause := m.pause()
	if m.lacksWatch() && r.watchesRun(s.def.Name) {
		pause = retryAccount // what is remembered is no longer so
	}
	old := r.Clock.Since(m.checked) >= pause
	if m.program != s.work.Program || (old && (m.bad() || r.engineDenied(s.def.Name))) {
		next, err := r.checkRights(ctx, s.work.Program, sa)
		if err != nil {
			return err
		}
		if m.bad() && !next.bad() {
			r.Engine.Retry()
		}
		*m = *next
	}
	if m.bad() {
		s.again(max(m.pause()-r.Clock.Since(m.checked), time.Second))
	}
	switch {
	case m.noAccount:
		s.stall("", v1alpha1.ReasonServiceAccountMissing,
			fmt.Sprintf("ServiceAccount %s/%s does not exist: create it, or apply what `libretto rbac` prints", sa.Namespace, sa.Name))
	case m.denied:
		s.stall("", v1alpha1.ReasonImpersonationDenied,
			fmt.Sprintf("Libretto may not impersonate ServiceAccount %s/%s: give its own ServiceAccount the verb impersonate on serviceaccounts %q in namespace %q",
				sa.Namespace, sa.Name, sa.Name, sa.Namespace))
	}
	s.missing = m.missing
	return nil
}

func (r *Reconciler) engineDenied(name string) bool {
	st, ok := r.Engine.State(name)
	return ok && (len(st.Denied) > 0 || slices.ContainsFunc(st.Watches, func(w engine.WatchState) bool { return w.Forbidden }))
}

func (r *Reconciler) checkRights(ctx context.Context, p *program.Program, sa *v1alpha1.ServiceAccountReference) (*rightsMemory, error) {
	out := &rightsMemory{program: p, checked: r.Clock.Now()}
	account := &metav1.PartialObjectMetadata{}
	account.SetGroupVersionKind(serviceAccountKind)
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: sa.Namespace, Name: sa.Name}, account)
	switch {
	case apierrors.IsNotFound(err):
		out.noAccount = true
	case apierrors.IsForbidden(err): // an installation narrowed to some ServiceAccounts need not be able to read it
	case err != nil:
		return nil, fmt.Errorf("cannot read ServiceAccount %s/%s: %w", sa.Namespace, sa.Name, err)
	}
	ok, err := MayImpersonate(ctx, sa, func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}
		err := r.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot ask whether Libretto may impersonate ServiceAccount %s/%s: %w", sa.Namespace, sa.Name, err)
	}
	out.denied = !ok
	if out.missing, err = r.missingRights(ctx, p, sa); err != nil {
		return nil, err
	}
	return out, nil
}

// MayImpersonate asks whether somebody may act as a ServiceAccount, by the verb impersonate or by the constrained one.
func MayImpersonate(ctx context.Context, sa *v1alpha1.ServiceAccountReference,
	allowed func(context.Context, *authorizationv1.ResourceAttributes) (bool, error),
) (bool, error) {
	plain := &authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts", Namespace: sa.Namespace, Name: sa.Name}
	if ok, err := allowed(ctx, plain); ok || err != nil {
		return ok, err
	}
	return allowed(ctx, &authorizationv1.ResourceAttributes{
		Verb: "impersonate:serviceaccount", Group: "authentication.k8s.io", Resource: "serviceaccounts", Namespace: sa.Namespace, Name: sa.Name,
	})
}

// missingRights asks for each right that the Program needs whether the ServiceAccount has it.
func (r *Reconciler) missingRights(ctx context.Context, p *program.Program, sa *v1alpha1.ServiceAccountReference) ([]rbac.Request, error) {
	requests := rbac.For(p).Requests()
	if len(requests) > mostReviews {
		requests = requests[:mostReviews]
	}
	var missing []rbac.Request
	for _, q := range requests {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + sa.Namespace + ":" + sa.Name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + sa.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: q.Verb, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name,
			},
		}}
		if err := r.Client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("cannot ask what ServiceAccount %s/%s may do: %w", sa.Namespace, sa.Name, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, q)
		}
	}
	return missing, nil
}
