package instance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/rbac"
	"github.com/libretto-dev/libretto/internal/watch"
)

// maxMessage is how long a message in a status or an event may be, in bytes.
const maxMessage = 1000

// problem is something that keeps an instance from being ready.
type problem struct {
	// resource is the name of the resource; empty for the instance itself.
	resource string
	reason   string
	message  string
	// stalled: somebody has to act. Otherwise it passes by itself.
	stalled bool
	// transient: try again soon.
	transient bool
	denied    []engine.Denied
}

func (s *scope) problem(p problem) {
	p.message = bounded(p.message)
	s.problems = append(s.problems, p)
}

func bounded(message string) string {
	message = strings.TrimSpace(message)
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "…"
}

// evaluationProblem sorts an error of an expression.
func evaluationProblem(resource string, err error) problem {
	var pending *expr.PendingError
	if errors.As(err, &pending) {
		return problem{resource: resource, reason: v1alpha1.ReasonWaiting, message: err.Error()}
	}
	return problem{resource: resource, reason: v1alpha1.ReasonEvaluationFailed, message: err.Error(), stalled: true}
}

// classify sorts an error of a request.
func classify(resource string, err error) problem {
	p := problem{resource: resource, message: err.Error(), stalled: true, reason: v1alpha1.ReasonApplyFailed}
	var (
		forbidden *apply.ForbiddenError
		invalid   *apply.InvalidError
		immutable *apply.ImmutableError
		admission *apply.AdmissionError
		conflict  *apply.ConflictError
		missing   *apply.KindMissingError
		noSpace   *apply.NamespaceMissingError
		ending    *apply.NamespaceTerminatingError
		stale     *apply.StaleError
		deleting  *apply.DeletingError
		passing   *apply.TransientError
	)
	switch {
	case errors.As(err, &forbidden):
		p.reason = v1alpha1.ReasonForbidden
		if forbidden.Impersonation {
			p.reason = v1alpha1.ReasonImpersonationDenied
		} else {
			p.denied = []engine.Denied{{
				Verb: forbidden.Verb, Group: forbidden.Kind.Group, Resource: forbidden.Kind.Resource,
				Subresource: forbidden.Subresource, Namespace: forbidden.Namespace,
			}}
		}
	case errors.As(err, &invalid):
		p.reason = v1alpha1.ReasonInvalid
	case errors.As(err, &immutable):
		p.reason = v1alpha1.ReasonImmutable
	case errors.As(err, &admission):
		p.reason = v1alpha1.ReasonAdmissionDenied
	case errors.As(err, &conflict):
		p.reason = v1alpha1.ReasonConflict
	case errors.As(err, &missing):
		p.reason = v1alpha1.ReasonKindNotFound
	case errors.As(err, &noSpace):
	case errors.As(err, &ending), errors.As(err, &deleting):
		p.reason, p.stalled = v1alpha1.ReasonWaiting, false
	case errors.As(err, &stale), errors.As(err, &passing):
		p.reason, p.stalled, p.transient = v1alpha1.ReasonProgressing, false, true
	}
	return p
}

// explain adds to a refused request which Role of the definition would hold the right.
func (s *scope) explain(p problem, err error) problem {
	var f *apply.ForbiddenError
	if !errors.As(err, &f) || f.Impersonation {
		return p
	}
	p.message = s.lacks(f.Kind, f.Verb, f.Subresource, f.Namespace)
	return p
}

// lacks says which right is missing, and where it is to be given.
func (s *scope) lacks(kind program.Kind, verb, subresource, namespace string) string {
	who := "Libretto's identity"
	if s.run.User() != "" {
		who = "ServiceAccount " + strings.Replace(strings.TrimPrefix(s.run.User(), "system:serviceaccount:"), ":", "/", 1)
	}
	request := rbac.Request{Verb: verb, Group: kind.Group, Resource: kind.Resource, Subresource: subresource, Namespace: namespace}
	holder := s.run.Rights(s.program).Explain(request)
	return fmt.Sprintf("%s may not %s; %s should allow it: apply what `libretto rbac` prints for the definition", who, request, holder)
}

// watchProblem notes that the watch of a kind does not run.
func (s *scope) watchProblem(resource string, kind program.Kind, state watch.State) {
	p := problem{resource: resource, reason: v1alpha1.ReasonWaiting}
	name := kind.Kind
	if kind.Group != "" {
		name += "." + kind.Group
	}
	switch state.Phase {
	case watch.PhaseForbidden:
		p.reason, p.stalled = v1alpha1.ReasonForbidden, true
		p.message = s.lacks(kind, "watch", "", "")
		p.denied = []engine.Denied{{Verb: "watch", Group: kind.Group, Resource: kind.Resource}}
	case watch.PhaseNotFound:
		p.reason, p.stalled = v1alpha1.ReasonKindNotFound, true
		p.message = fmt.Sprintf("the API server does not have kind %s; it goes on by itself when the kind appears", name)
	case watch.PhasePending, watch.PhaseSynced:
		p.message = fmt.Sprintf("waits for the watch of %s to begin", name)
	case watch.PhaseError:
		p.message = fmt.Sprintf("the watch of %s does not run: %v", name, state.Err)
	}
	s.problem(p)
}
