package apply

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/internal/watch"
)

// maxMessage bounds a message of the API server, in bytes.
const maxMessage = 512

// The API server tells some things in words only.
var (
	rbacDenied    = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"/]+)(?:/([^"]+))?"`)
	webhookDenied = regexp.MustCompile(`admission webhook "([^"]+)" denied the request(?:: ([\s\S]*))?`)
	policyDenied  = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' (?:with binding '[^']+' )?denied request(?:: ([\s\S]*))?`)
	managerHolds  = regexp.MustCompile(`conflict with "([^"]+)"`)
	// typedPatch is how server-side apply tells (as an internal error) that the object does not fit the schema.
	typedPatch = regexp.MustCompile(`failed to create typed (?:patch|live) object[^;]*; [^)]*\): ([\s\S]*)`)
	// undecodable is how it tells (as an internal error, too) that a value does not have the form that its field asks for.
	undecodable = regexp.MustCompile(`illegal base64 data|json: cannot unmarshal|unable to decode|cannot convert`)
	schemaPath  = regexp.MustCompile(`(?:^|\n|\s)(\.[^:\s]+):`)
)

// explain makes one of this package's errors of an answer of the API server to a request with the verb.
func (w *Writer) explain(err error, verb string, t Target) error {
	if err == nil {
		return nil
	}
	if meta.IsNoMatchError(err) || kindMissing(err) {
		return &KindMissingError{Kind: t.Kind}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		// No answer: a timeout, a lost connection.
		return &TransientError{Target: t, Unknown: true, Message: bounded(err.Error()), cause: err}
	}
	if refused := w.refused(err, status.Status(), verb, t); refused != nil {
		return refused
	}
	message := scrub(t, status.Status(), bounded(err.Error()))
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		return &StaleError{Target: t, Message: message}
	case apierrors.IsNotFound(err):
		if d := status.Status().Details; d != nil && d.Kind == "namespaces" {
			return &NamespaceMissingError{Target: t}
		}
		return &StaleError{Target: t, Message: "it is gone"}
	case transient(err):
		after, _ := apierrors.SuggestsClientDelay(err)
		return &TransientError{Target: t, After: time.Duration(after) * time.Second,
			Unknown: apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err), Message: message, cause: errors.New(message)}
	default:
		return w.invalid(status.Status(), t, message)
	}
}

// refused explains answers of authorization and admission; nil: it is none.
func (w *Writer) refused(err error, status metav1.Status, verb string, t Target) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return &NamespaceTerminatingError{Target: t}
	}
	text := status.Message
	if m := webhookDenied.FindStringSubmatch(text); m != nil {
		return &AdmissionError{Target: t, By: "webhook " + m[1], Message: withheld(t, bounded(orElse(m[2], "without a reason")))}
	}
	if m := policyDenied.FindStringSubmatch(text); m != nil {
		return &AdmissionError{Target: t, By: "policy " + m[1], Message: withheld(t, bounded(orElse(m[2], "without a reason")))}
	}
	if !apierrors.IsForbidden(err) {
		return nil
	}
	denied := &ForbiddenError{Verb: verb, Kind: t.Kind, Namespace: t.Namespace, User: w.user, Message: bounded(text)}
	if watch.IsImpersonationDenied(err) {
		denied.Impersonation = true
		return denied
	}
	if m := rbacDenied.FindStringSubmatch(text); m != nil {
		denied.User, denied.Verb, denied.Subresource = m[1], m[2], m[4]
		return denied
	}
	if strings.Contains(text, "exceeded quota") || strings.Contains(text, "failed quota") {
		return &AdmissionError{Target: t, By: "quota", Message: bounded(text)}
	}
	return &AdmissionError{Target: t, Message: withheld(t, bounded(text))}
}

// invalid explains that the object is wrong as it is.
func (w *Writer) invalid(status metav1.Status, t Target, message string) error {
	var fields, immutable []string
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Field == "metadata.uid" {
				return &StaleError{Target: t, Message: "another object has taken its name"}
			}
			if c.Field != "" && !slices.Contains(fields, c.Field) {
				fields = append(fields, c.Field)
			}
			if isImmutable(c.Message) && !slices.Contains(immutable, c.Field) {
				immutable = append(immutable, c.Field)
			}
		}
	}
	if m := typedPatch.FindStringSubmatch(status.Message); m != nil {
		for _, path := range schemaPath.FindAllStringSubmatch(m[1], maxMissing) {
			fields = append(fields, path[1])
		}
		message = scrub(t, metav1.Status{Details: causes(fields)}, bounded(m[1]))
	}
	if sensitive(t) && undecodable.MatchString(status.Message) {
		message = "a value below data is not base64; write text below stringData, or ${bytes(…)}"
	}
	if len(immutable) > 0 {
		return &ImmutableError{Target: t, Fields: immutable, Message: message}
	}
	return &InvalidError{Target: t, Message: message, Fields: fields}
}

func causes(fields []string) *metav1.StatusDetails {
	out := &metav1.StatusDetails{}
	for _, f := range fields {
		out.Causes = append(out.Causes, metav1.StatusCause{Field: f})
	}
	return out
}

// isImmutable tells whether the API server's words for a field say that it cannot change. There is no code for it.
func isImmutable(message string) bool {
	m := strings.ToLower(message)
	for _, words := range []string{"immutable", "may not change", "may not be changed", "cannot change", "cannot be changed",
		"updates to statefulset spec for fields other than"} {
		if strings.Contains(m, words) {
			return true
		}
	}
	return false
}

// transient tells whether an answer passes by itself. An object that does not fit the schema is an internal error too, and does
// not.
func transient(err error) bool {
	if apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err) {
		return !malformed(err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= 500 {
		return !malformed(err)
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err)
}

// malformed tells whether an error that the API server takes for its own is about what was sent.
func malformed(err error) bool {
	return typedPatch.MatchString(err.Error()) || undecodable.MatchString(err.Error())
}

// kindMissing tells whether a NotFound is about the kind, and not about an object: the API server then has no such path.
func kindMissing(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource")
}

// conflicting returns the field managers that an apply without force ran into, sorted.
func conflicting(err error) []string {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		if m := managerHolds.FindStringSubmatch(c.Message); m != nil && !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return out
}

func sensitive(t Target) bool { return t.Kind.Group == "" && t.Kind.Kind == "Secret" }

// scrub keeps values of Secrets out of messages: of what the API server says it leaves the fields alone.
func scrub(t Target, status metav1.Status, message string) string {
	if !sensitive(t) {
		return message
	}
	var fields []string
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Field != "" {
				fields = append(fields, c.Field)
			}
		}
	}
	if len(fields) == 0 {
		return orElse(string(status.Reason), "refused") + "; the API server's words are left out, they may hold values of the Secret"
	}
	return "see " + bounded(strings.Join(fields, ", ")) + "; the API server's words are left out, they may hold values of the Secret"
}

// withheld keeps words of an admission plugin about a Secret back.
func withheld(t Target, message string) string {
	if sensitive(t) {
		return "its words are left out, they may hold values of the Secret"
	}
	return message
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// bounded cuts a message to its maximum.
func bounded(s string) string {
	s = strings.TrimSpace(s)
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
