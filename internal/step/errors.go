package step

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
)

// Limits of texts, in bytes.
const (
	// maxMessage bounds a message.
	maxMessage = 1024
	// maxTail bounds what a message cites of a log or of standard error.
	maxTail = 512
	// maxLine bounds a line of a log step.
	maxLine = 4096
)

// failure is an error whose outcome is known.
type failure struct {
	outcome operation.Outcome
	message string
	after   time.Duration
	result  any
}

// Error implements error.
func (f *failure) Error() string { return f.message }

// permanent is an error after which another attempt is in vain.
func permanent(format string, args ...any) error {
	return &failure{outcome: operation.FailedForGood, message: fmt.Sprintf(format, args...)}
}

// temporary is an error after which another attempt may succeed.
func temporary(format string, args ...any) error {
	return &failure{outcome: operation.Failed, message: fmt.Sprintf(format, args...)}
}

// unknown is an error that leaves open whether there was an effect.
func unknown(format string, args ...any) error {
	return &failure{outcome: operation.Unknown, message: fmt.Sprintf(format, args...)}
}

func forGood(message string) operation.Result {
	return operation.Result{Outcome: operation.FailedForGood, Message: message}
}

// outcome makes a Result of an error. Of a write whose answer was lost it is not known whether it took effect; all that write
// this way find out when they are looked at again.
func (e *Executor) outcome(req Request, err error) operation.Result {
	var (
		known       *failure
		wait        *waitError
		pending     *expr.PendingError
		cost        *expr.CostError
		invalid     *apply.InvalidError
		immutable   *apply.ImmutableError
		admission   *apply.AdmissionError
		conflict    *apply.ConflictError
		terminating *apply.NamespaceTerminatingError
		transient   *apply.TransientError
		forbidden   *apply.ForbiddenError
	)
	out := operation.Result{Outcome: operation.Failed, Message: bounded(err.Error(), maxMessage)}
	switch {
	case errors.As(err, &known):
		out.Outcome, out.RetryAfter, out.Result = known.outcome, known.after, known.result
	case errors.As(err, &wait):
		out.Outcome, out.Again = operation.Waiting, wait.again
	case errors.As(err, &pending):
		return e.hold(req, out.Message)
	case errors.As(err, &forbidden):
		out.RetryAfter = retryForbidden // somebody has to give the right
	case errors.As(err, &cost), errors.As(err, &invalid), errors.As(err, &conflict), errors.As(err, &terminating):
		out.Outcome = operation.FailedForGood
	case errors.As(err, &immutable):
		out.Outcome = operation.FailedForGood
		out.Message = bounded(fmt.Sprintf("%s cannot change at %s; delete it in a step before, or give the new one another name (%s)",
			immutable.Target, strings.Join(immutable.Fields, ", "), immutable.Message), maxMessage)
	case errors.As(err, &admission):
		if admission.By != "quota" {
			out.Outcome = operation.FailedForGood
		}
	case errors.As(err, &transient):
		out.RetryAfter = transient.After
		if transient.Unknown {
			out.Outcome, out.Again = operation.Waiting, e.again(req)
		}
	}
	return out
}

// retryForbidden is how long to wait at least for a right that is missing.
const retryForbidden = 30 * time.Second

// passing tells whether an error says that the API server could not be asked: what was begun goes on all the same.
func passing(err error) bool {
	var transient *apply.TransientError
	return errors.As(err, &transient)
}

// notSent tells whether an error says that no connection was made, so that nothing was sent.
func notSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns)
}

// withoutURL takes the URL out of an error of an HTTP client: it may hold what is secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// bounded cuts a text to its maximum.
func bounded(s string, most int) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "�")
	if len(s) <= most {
		return s
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// tail is the end of a text, beginning with a whole line if it can.
func tail(s string, most int) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "�")
	if len(s) <= most {
		return s
	}
	cut := len(s) - most + len("…")
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	if at := strings.IndexByte(s[cut:], '\n'); at >= 0 && at < most/2 {
		cut += at + 1
	}
	return "…" + s[cut:]
}
