package apply

import (
	"time"

	"github.com/libretto-dev/libretto/internal/program"
)

// Target names the object that an error is about.
type Target struct {
	Kind            program.Kind
	Namespace, Name string
}

// ForbiddenError: the identity lacks a right.
type ForbiddenError struct {
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

// InvalidError: the API server finds the object invalid (status 422 or 400). It does not pass by itself.
type InvalidError struct {
	Target
	Message string
	// Fields are the paths that it complains about.
	Fields []string
}

// ImmutableError: the change touches fields that cannot change.
type ImmutableError struct {
	Target
	Fields  []string
	Message string
}

// AdmissionError: an admission webhook, a policy or a quota refused the object.
type AdmissionError struct {
	Target
	// By is the webhook or policy, where the message tells; "quota" for a quota.
	By      string
	Message string
}

// ConflictError: the object exists and is not ours to take.
type ConflictError struct {
	Target
	// Owner is who holds it, in words.
	Owner string
	// Instance: another instance of Libretto's holds it; no adoption rule helps.
	Instance bool
}

// KindMissingError: the API server does not have the kind.
type KindMissingError struct{ Kind program.Kind }

// NamespaceMissingError: the namespace of the object does not exist.
type NamespaceMissingError struct{ Target }

// NamespaceTerminatingError: the namespace is being deleted; nothing can be created in it.
type NamespaceTerminatingError struct{ Target }

// StaleError: the object changed, went or was replaced since it was last seen. Look again.
type StaleError struct {
	Target
	Message string
}

// DeletingError: the object is being deleted and has to be gone before it can be made anew.
type DeletingError struct {
	Target
	Finalizers []string
}

// TransientError: the API server could not answer; it passes by itself.
type TransientError struct {
	Target
	// After is how long the API server asks to wait; 0: it does not say.
	After time.Duration
	// Unknown: the request may or may not have taken effect (a timeout, a lost connection).
	Unknown bool
	cause   error
}

// Error implements error.
func (e *ForbiddenError) Error() string { return "" }

// Error implements error.
func (e *InvalidError) Error() string { return "" }

// Error implements error.
func (e *ImmutableError) Error() string { return "" }

// Error implements error.
func (e *AdmissionError) Error() string { return "" }

// Error implements error.
func (e *ConflictError) Error() string { return "" }

// Error implements error.
func (e *KindMissingError) Error() string { return "" }

// Error implements error.
func (e *NamespaceMissingError) Error() string { return "" }

// Error implements error.
func (e *NamespaceTerminatingError) Error() string { return "" }

// Error implements error.
func (e *StaleError) Error() string { return "" }

// Error implements error.
func (e *DeletingError) Error() string { return "" }

// Error implements error.
func (e *TransientError) Error() string { return "" }
