package watch

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/libretto-dev/libretto/internal/program"
)

// ForbiddenError: the identity may not list or watch a kind.
type ForbiddenError struct {
	// Verbs that were refused: list, watch, or both.
	Verbs []string
	Kind  program.Kind
	// Namespace is empty for all namespaces, and for a cluster-scoped kind.
	Namespace string
	// Name of the object, when one object was to be watched.
	Name string
	// Impersonation: Libretto may not act as the ServiceAccount.
	Impersonation bool
	// Message of the API server.
	Message string
}

// Error implements error.
func (e *ForbiddenError) Error() string {
	if e.Impersonation {
		return "cannot act as the ServiceAccount: " + e.Message
	}
	what := e.Kind.GVR().GroupResource().String()
	if e.Name != "" {
		what += " " + e.Name
	}
	where := "in all namespaces"
	switch {
	case e.Namespace != "":
		where = "in namespace " + e.Namespace
	case !e.Kind.Namespaced:
		where = "in the cluster"
	}
	return fmt.Sprintf("may not %s %s %s: %s", strings.Join(e.Verbs, " and "), what, where, e.Message)
}

// phaseOf returns the phase that an error stands for.
func phaseOf(err error) Phase {
	switch {
	case apierrors.IsForbidden(err):
		return PhaseForbidden
	case apierrors.IsNotFound(err):
		return PhaseNotFound
	default:
		return PhaseError
	}
}

// IsImpersonationDenied tells whether a Forbidden answer is about acting as the ServiceAccount, and not about what the
// ServiceAccount may do. Acting as somebody is a request of its own, which the API server names by a verb or by resource.
func IsImpersonationDenied(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	m := err.Error()
	return strings.Contains(m, "cannot impersonate") || strings.Contains(m, "impersonate:serviceaccount") ||
		strings.Contains(m, "impersonate-on:serviceaccount")
}
