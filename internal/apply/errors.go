package apply

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/internal/program"
)

// Target names the object that an error is about.
type Target struct {
	Kind            program.Kind
	Namespace, Name string
}

// String is KIND NAMESPACE/NAME.
func (t Target) String() string {
	if t.Namespace == "" {
		return t.Kind.Kind + " " + t.Name
	}
	return t.Kind.Kind + " " + t.Namespace + "/" + t.Name
}

// ForbiddenError: the identity lacks a right.
type ForbiddenError struct {
	// Verb, Kind, Subresource and Namespace are what the right would have to be for. Namespace is empty for the whole cluster.
	Verb        string
	Kind        program.Kind
	Subresource string
	Namespace   string
	// User that was acting: the ServiceAccount's user name, or empty.
	User string
	// Impersonation: Libretto may not act as the ServiceAccount; nothing is known about the ServiceAccount's own rights.
	Impersonation bool
	Message       string
}

// Error implements error.
func (e *ForbiddenError) Error() string {
	if e.Impersonation {
		return fmt.Sprintf("Libretto may not act as %s: %s", e.User, e.Message)
	}
	who := e.User
	if who == "" {
		who = "the current user"
	}
	resource := e.Kind.GVR().GroupResource().String()
	if e.Subresource != "" {
		resource += "/" + e.Subresource
	}
	if e.Namespace == "" {
		return fmt.Sprintf("%s may not %s %s in the cluster: give it the right by a ClusterRole", who, e.Verb, resource)
	}
	return fmt.Sprintf("%s may not %s %s in namespace %s: give it the right by a Role", who, e.Verb, resource, e.Namespace)
}

// InvalidError: the API server finds the object invalid. It does not pass by itself.
type InvalidError struct {
	Target
	Message string
	// Fields are the paths that it complains about.
	Fields []string
}

// Error implements error.
func (e *InvalidError) Error() string { return fmt.Sprintf("%s is invalid: %s", e.Target, e.Message) }

// ImmutableError: the change touches fields that cannot change.
type ImmutableError struct {
	Target
	Fields  []string
	Message string
}

// Error implements error.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("%s cannot change at %s: set updatePolicy: Recreate to have it deleted and made anew, or delete it (%s)",
		e.Target, strings.Join(e.Fields, ", "), e.Message)
}

// AdmissionError: an admission webhook, a policy or a quota refused the object.
type AdmissionError struct {
	Target
	// By is the webhook or policy, where the message tells; "quota" for a quota.
	By      string
	Message string
}

// Error implements error.
func (e *AdmissionError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("%s was refused: %s", e.Target, e.Message)
	}
	return fmt.Sprintf("%s was refused by %s: %s", e.Target, e.By, e.Message)
}

// ConflictError: the object exists and is not ours to take.
type ConflictError struct {
	Target
	// Owner is who holds it, in words; empty: nobody that is known.
	Owner string
	// Instance: another instance of Libretto's holds it; no adoption rule helps.
	Instance bool
}

// Error implements error.
func (e *ConflictError) Error() string {
	switch {
	case e.Instance:
		return fmt.Sprintf("%s belongs to %s: give one of the two another name", e.Target, e.Owner)
	case e.Owner != "":
		return fmt.Sprintf("%s exists and is controlled by %s: choose another name, or set adoption: Force to take it over", e.Target, e.Owner)
	default:
		return fmt.Sprintf("%s exists and was not made by Libretto: choose another name, delete it, or set adoption: IfUnowned to take it over", e.Target)
	}
}

// KindMissingError: the API server does not have the kind.
type KindMissingError struct{ Kind program.Kind }

// Error implements error.
func (e *KindMissingError) Error() string {
	return fmt.Sprintf("the cluster has no kind %s of %s: install its CustomResourceDefinition", e.Kind.Kind, e.Kind.GroupVersion())
}

// NamespaceMissingError: the namespace of the object does not exist.
type NamespaceMissingError struct{ Target }

// Error implements error.
func (e *NamespaceMissingError) Error() string {
	return fmt.Sprintf("%s cannot be made: namespace %s does not exist", e.Target, e.Namespace)
}

// NamespaceTerminatingError: the namespace is being deleted; nothing can be created in it.
type NamespaceTerminatingError struct{ Target }

// Error implements error.
func (e *NamespaceTerminatingError) Error() string {
	return fmt.Sprintf("%s cannot be made: namespace %s is being deleted", e.Target, e.Namespace)
}

// StaleError: the object changed, went or was replaced since it was last seen. Look again.
type StaleError struct {
	Target
	Message string
}

// Error implements error.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s has changed since it was last seen: %s", e.Target, e.Message)
}

// DeletingError: the object is being deleted and has to be gone before it can be made anew.
type DeletingError struct {
	Target
	Finalizers []string
}

// Error implements error.
func (e *DeletingError) Error() string {
	if len(e.Finalizers) == 0 {
		return fmt.Sprintf("%s is being deleted", e.Target)
	}
	return fmt.Sprintf("%s is being deleted and waits for %s", e.Target, strings.Join(e.Finalizers, ", "))
}

// TransientError: the API server could not answer; it passes by itself.
type TransientError struct {
	Target
	// After is how long the API server asks to wait; 0: it does not say.
	After time.Duration
	// Unknown: the request may or may not have taken effect (a timeout, a lost connection).
	Unknown bool
	Message string
	cause   error
}

// Error implements error.
func (e *TransientError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("%s: no answer from the API server, the request may have taken effect: %s", e.Target, e.Message)
	}
	return fmt.Sprintf("%s: the API server cannot serve the request now: %s", e.Target, e.Message)
}

// Unwrap returns the cause.
func (e *TransientError) Unwrap() error { return e.cause }

func asImmutable(err error) (*ImmutableError, bool) {
	var out *ImmutableError
	ok := errors.As(err, &out)
	return out, ok
}
