package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Limits of http steps.
const (
	// maxCited bounds what a message cites of an answer, in bytes.
	maxCited = 200
	// maxPollURL bounds the URL that is kept in the attempt.
	maxPollURL = 4096
	// pollTimeout is how long one poll may take; it is asked again.
	pollTimeout = 30 * time.Second
	// pollEvery is how often a poll asks, when nobody says.
	pollEvery = 5 * time.Second
)

// repeatable are the methods that may be repeated (RFC 9110, section 9.2.2).
var repeatable = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}

// http makes a request, once: whether one that may not be repeated had its effect is not known when it was sent and its answer is
// lost. One that has begun work elsewhere leaves the URL to ask about it with the attempt.
func (e *Executor) http(ctx context.Context, req Request, a *program.HTTPAction) (operation.Result, error) {
	once := !slices.Contains(repeatable, a.Method) && !req.Start.Attempt.Verify
	if req.Start.Resume && req.Start.Attempt.Ref == "" && once {
		return operation.Result{}, unknown("the %s request was under way when the engine ended: nobody knows whether it had its effect", a.Method)
	}
	effect := a.Method != http.MethodGet && a.Method != http.MethodHead && !req.Start.Attempt.Verify
	call := &exchange{e: e, req: req, action: a, effect: effect}
	out, err := call.do(ctx)
	out.Message = call.masked(out.Message)
	var known *failure
	if errors.As(err, &known) {
		masked := *known
		masked.message = call.masked(known.message)
		return out, &masked
	}
	return out, err
}

// exchange is a request, and what is asked after it.
type exchange struct {
	e      *Executor
	req    Request
	action *program.HTTPAction
	// effect: the request may change something.
	effect bool

	url         *url.URL
	credentials credentials
}

func (x *exchange) do(ctx context.Context) (operation.Result, error) {
	ref, err := x.req.Start.Attempt.Ref, x.prepare(ctx)
	if ref != "" && x.action.Poll != nil {
		var known *failure
		if err != nil && (!errors.As(err, &known) || known.outcome != operation.FailedForGood) {
			// What was begun goes on: it is not begun again because it cannot be asked about now.
			return operation.Result{}, &waitError{again: x.pause(nil), message: err.Error()}
		}
		if err == nil {
			return x.poll(ctx, ref)
		}
	}
	if err != nil {
		return operation.Result{}, err
	}
	request, err := x.request(ctx)
	if err != nil {
		return operation.Result{}, err
	}
	got, err := x.send(request)
	if err != nil {
		return operation.Result{}, x.failed(ctx, err)
	}
	if !x.success(got.status) {
		return x.refused(got)
	}
	if x.action.Poll == nil {
		return got.succeeded(), nil
	}
	return x.begun(got)
}

// prepare computes the URL and reads the Secrets.
func (x *exchange) prepare(ctx context.Context) error {
	text, err := x.req.Eval.Text(x.action.URL, x.req.Start.Vars)
	if err != nil {
		return err
	}
	if x.url, err = parseURL(text); err != nil {
		return err
	}
	return x.readSecrets(ctx)
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return nil, permanent("url: it cannot be read")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, permanent("url: it has to begin with http:// or https:// and a host")
	case u.User != nil:
		return nil, permanent("url: it holds a user name; use auth, which takes it from a Secret")
	}
	return u, nil
}

// request computes the request.
func (x *exchange) request(ctx context.Context) (*http.Request, error) {
	body, kind, err := x.body()
	if err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(ctx, x.action.Method, x.url.String(), body)
	if err != nil {
		return nil, permanent("the request cannot be made: %v", withoutURL(err))
	}
	if kind != "" {
		out.Header.Set("Content-Type", kind)
	}
	if err := x.headers(out); err != nil {
		return nil, err
	}
	if out.Header.Get("Idempotency-Key") == "" && !x.req.Start.Attempt.Verify {
		out.Header.Set("Idempotency-Key", x.req.Start.Key)
	}
	x.credentials.authorize(out)
	return out, nil
}

// headers sets what the author wants to send.
func (x *exchange) headers(out *http.Request) error {
	out.Header.Set("User-Agent", "libretto")
	if x.action.Headers == nil {
		return nil
	}
	value, err := x.req.Eval.Template(x.action.Headers, x.req.Start.Vars)
	if err != nil {
		return err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return permanent("headers yields no object")
	}
	for name, v := range object {
		text, err := program.FormatText(v)
		if err != nil {
			return permanent("header %s: %v", name, err)
		}
		if strings.ContainsAny(name+text, "\r\n\x00") || name == "" {
			return permanent("header %s: it may not hold a line break", quote(name))
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			out.Host = text
			continue
		}
		out.Header.Set(name, text)
	}
	return nil
}

// body computes what is sent: text as it is, all else as JSON.
func (x *exchange) body() (*strings.Reader, string, error) {
	if x.action.Body == nil {
		return strings.NewReader(""), "", nil
	}
	value, err := x.req.Eval.Template(x.action.Body, x.req.Start.Vars)
	switch text, isText := value.(string); {
	case err != nil:
		return nil, "", err
	case expr.IsOmit(value):
		return strings.NewReader(""), "", nil
	case isText:
		return strings.NewReader(text), "text/plain; charset=utf-8", nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, "", permanent("body cannot be written as JSON: %v", err)
	}
	return strings.NewReader(string(data)), "application/json", nil
}

// failed tells what it means that there is no answer.
func (x *exchange) failed(ctx context.Context, err error) error {
	var denied *deniedError
	var lost *lostError
	if errors.As(err, &denied) {
		return permanent("%s: %v", x, denied)
	}
	message := withoutURL(err).Error()
	if ctx.Err() != nil {
		message = "it was stopped"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			message = "time ran out"
		}
	}
	if errors.As(err, &lost) && x.effect {
		return unknown("%s: no answer, and it was sent: nobody knows whether it had its effect: %s", x, bounded(message, maxTail))
	}
	return temporary("%s: %s", x, bounded(message, maxTail))
}

// String is the method and the URL without its query, which may hold what is secret; so may the path, if the URL reads a Secret.
func (x *exchange) String() string {
	if readsSecret(x.req.Program, x.action.URL) {
		return x.action.Method + " " + x.url.Scheme + "://" + x.url.Host + "/…"
	}
	return x.action.Method + " " + plainURL(x.url)
}

// readsSecret tells whether a template reads an external or a resource that is a Secret, by itself or through a variable.
func readsSecret(p *program.Program, t *program.Template) bool {
	secret := map[string]bool{}
	for i := range p.Externals {
		secret[p.Externals[i].Name] = p.Externals[i].Kind.Kind == "Secret"
	}
	for _, n := range p.Nodes {
		secret[n.Name] = slices.ContainsFunc(n.Kinds, func(k program.Kind) bool { return k.Kind == "Secret" })
	}
	for _, v := range p.Variables { // each reads those before it
		secret[v.Name] = slices.ContainsFunc(v.Expr.Variables(), func(name string) bool { return secret[name] })
	}
	for _, u := range t.Uses {
		if slices.ContainsFunc(u.Expr.Variables(), func(name string) bool { return secret[name] }) {
			return true
		}
	}
	return false
}

func plainURL(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

func (x *exchange) success(status int) bool {
	if len(x.action.Success) > 0 {
		return slices.Contains(x.action.Success, int32(status)) //nolint:gosec // three digits
	}
	return status >= 200 && status <= 299
}

// mayPass tells whether a status that is no success may pass.
func mayPass(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests || status >= 500 && status <= 599
}

// refused tells what a status means that is no success.
func (x *exchange) refused(got *answer) (operation.Result, error) {
	f := &failure{outcome: operation.FailedForGood, message: x.complaint(x.String(), got), result: got.result()}
	if mayPass(got.status) {
		f.outcome, f.after = operation.Failed, got.retryAfter(x.e.now())
	}
	return operation.Result{}, f
}

// complaint cites an answer, as far as no secret can be in it.
func (x *exchange) complaint(what string, got *answer) string {
	message := fmt.Sprintf("%s: %d %s", what, got.status, http.StatusText(got.status))
	if location := got.header.Get("Location"); location != "" && got.status >= 300 && got.status <= 399 {
		return message + ": it leads elsewhere, where it is not followed"
	}
	if cited := x.citable(got.text()); cited != "" {
		message += ": " + bounded(cited, maxCited)
	}
	return message
}

// begun tells, of a request that succeeded, whether the work is done already, and else where to ask.
func (x *exchange) begun(got *answer) (operation.Result, error) {
	if out, done, err := x.judge(got, x.String()); done || err != nil {
		return out, err
	}
	target, err := x.pollURL(got)
	if err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Outcome: operation.Waiting, Ref: target, Again: x.pause(got), Message: bounded(x.String()+" has begun it; waiting until it is done", maxMessage)}, nil
}

// judge tells whether an answer says that the work is done, or has failed. An expression that cannot be computed on it says neither.
func (x *exchange) judge(got *answer, what string) (operation.Result, bool, error) {
	p := x.action.Poll
	vars := maps.Clone(x.req.Start.Vars)
	if vars == nil {
		vars = map[string]any{}
	}
	vars[program.VarResult] = got.result()
	if p.Failed != nil {
		if failed, err := x.req.Eval.Bool(p.Failed, vars); err == nil && failed {
			return operation.Result{}, true, &failure{outcome: operation.FailedForGood, message: x.complaint(what+": the work has failed", got), result: got.result()}
		}
	}
	if p.Until == nil {
		if got.status == http.StatusAccepted {
			return operation.Result{}, false, nil
		}
		return got.succeeded(), true, nil
	}
	done, err := x.req.Eval.Bool(p.Until, vars)
	var cost *expr.CostError
	if errors.As(err, &cost) {
		return operation.Result{}, false, err
	}
	if err != nil || !done {
		return operation.Result{}, false, nil
	}
	return got.succeeded(), true, nil
}

// pollURL is where to ask. What the server names is on the server itself.
func (x *exchange) pollURL(got *answer) (string, error) {
	text := got.header.Get("Location")
	given := x.action.Poll.URL != nil
	if given {
		vars := maps.Clone(x.req.Start.Vars)
		if vars == nil {
			vars = map[string]any{}
		}
		vars[program.VarResult] = got.result()
		var err error
		if text, err = x.req.Eval.Text(x.action.Poll.URL, vars); err != nil {
			// The request has had its effect: it is not made again for that.
			return "", permanent("poll.url: %v (the request itself has succeeded)", err)
		}
	}
	if text == "" {
		return "", permanent("%s: the answer has no header Location: set poll.url (the request itself has succeeded)", x)
	}
	u, err := got.url.Parse(text)
	if err != nil {
		return "", permanent("%s: the URL to poll cannot be read (the request itself has succeeded)", x)
	}
	if u, err = parseURL(u.String()); err != nil {
		return "", permanent("poll: %v (the request itself has succeeded)", err)
	}
	if !given && !sameOrigin(u, x.url) {
		return "", permanent("%s: the header Location leads to %s, another server: set poll.url if that is meant (the request itself has succeeded)", x, u.Host)
	}
	if len(u.String()) > maxPollURL {
		return "", permanent("%s: the URL to poll has more than %d bytes (the request itself has succeeded)", x, maxPollURL)
	}
	return u.String(), nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host) }

// pause is how long to wait before asking again.
func (x *exchange) pause(got *answer) time.Duration {
	if got != nil {
		if after := got.retryAfter(x.e.now()); after > 0 {
			return after
		}
	}
	if x.action.Poll.Every > 0 {
		return x.action.Poll.Every
	}
	return pollEvery
}

// poll asks once whether the work is done. Credentials go to the server of the request only.
func (x *exchange) poll(ctx context.Context, ref string) (operation.Result, error) {
	u, err := parseURL(ref)
	if err != nil {
		return operation.Result{}, err
	}
	what := "GET " + plainURL(u)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ref, nil)
	if err != nil {
		return operation.Result{}, permanent("%s: %v", what, withoutURL(err))
	}
	if sameOrigin(u, x.url) {
		if err := x.headers(request); err != nil {
			return operation.Result{}, err
		}
		request.Header.Del("Content-Type")
		x.credentials.authorize(request)
	}
	got, err := x.send(request)
	var denied *deniedError
	switch {
	case errors.As(err, &denied):
		return operation.Result{}, permanent("%s: %v", what, denied)
	case err != nil:
		return operation.Result{Outcome: operation.Waiting, Again: x.pause(nil), Message: bounded(what+": "+withoutURL(err).Error(), maxMessage)}, nil
	case mayPass(got.status):
		return operation.Result{Outcome: operation.Waiting, Again: x.pause(got), Message: bounded(x.complaint(what, got), maxMessage)}, nil
	case !x.success(got.status) && (got.status < 200 || got.status > 299):
		return operation.Result{}, &failure{outcome: operation.FailedForGood, message: x.complaint(what, got), result: got.result()}
	}
	if out, done, err := x.judge(got, what); done || err != nil {
		return out, err
	}
	return operation.Result{Outcome: operation.Waiting, Again: x.pause(got), Message: bounded(what+": it is not done yet", maxMessage)}, nil
}
