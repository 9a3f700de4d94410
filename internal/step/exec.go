package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Exit codes by which a shell or runtime says that a command cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// exec runs a command in a container. Nothing but its exit code tells how it went: when that is lost, nobody knows. The command
// gets no environment of ours, which exec has no means for; ${run.uid} can be among its arguments.
//
// A command goes on in its container when nobody listens to it any more.
func (e *Executor) exec(ctx context.Context, req Request, a *program.ExecAction) (operation.Result, error) {
	if req.Start.Resume && !req.Start.Attempt.Verify {
		return operation.Result{}, unknown("the command was under way when the engine ended: nobody knows whether it had its effect")
	}
	c := command{container: a.Container}
	var err error
	if c.args, err = e.commandLine(req, a.Command); err != nil {
		return operation.Result{}, err
	}
	if c.stdin, err = req.Eval.Text(a.Stdin, req.Start.Vars); err != nil {
		return operation.Result{}, err
	}
	pod, err := e.pod(ctx, req, a)
	if err != nil {
		return operation.Result{}, err
	}
	if pod == nil {
		return e.hold(req, "no ready pod matches "+e.selectorText(req, a)), nil
	}
	c.namespace, c.pod = pod.Namespace, pod.Name
	if c.container == "" && len(pod.Spec.Containers) > 0 {
		c.container = pod.Spec.Containers[0].Name
	}
	return e.execResult(req, a, c, e.stream(ctx, c))
}

// commandLine computes a list of text. Items that are omitted are left out, numbers and booleans are written out.
func (e *Executor) commandLine(req Request, t *program.Template) ([]string, error) {
	value, err := req.Eval.Template(t, req.Start.Vars)
	if err != nil {
		return nil, err
	}
	list, ok := value.([]any)
	if !ok {
		return nil, permanent("command yields no list")
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		if expr.IsOmit(item) {
			continue
		}
		text, err := program.FormatText(item)
		if err != nil {
			return nil, permanent("command: %v", err)
		}
		out = append(out, text)
	}
	if len(out) == 0 || out[0] == "" {
		return nil, permanent("command is empty")
	}
	return out, nil
}

// selector computes the labels of an exec step.
func (e *Executor) selector(req Request, a *program.ExecAction) (labels.Set, error) {
	value, err := req.Eval.Template(a.Selector, req.Start.Vars)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok || len(object) == 0 {
		return nil, permanent("selector yields no labels")
	}
	out := labels.Set{}
	for k, v := range object {
		if out[k], err = program.FormatText(v); err != nil {
			return nil, permanent("selector: %s: %v", k, err)
		}
	}
	return out, nil
}

func (e *Executor) selectorText(req Request, a *program.ExecAction) string {
	set, err := e.selector(req, a)
	if err != nil {
		return "the selector"
	}
	return bounded(set.String(), maxTail)
}

// pod finds the pod of an exec step: the one that is named, or the first one by name of those selected that are ready; nil: there
// is none yet.
func (e *Executor) pod(ctx context.Context, req Request, a *program.ExecAction) (*corev1.Pod, error) {
	namespace, err := e.namespace(req, "", "the pod")
	if err != nil {
		return nil, err
	}
	t := apply.Target{Kind: podKind, Namespace: namespace}
	if a.Pod != nil {
		if t.Name, err = req.Eval.Text(a.Pod, req.Start.Vars); err != nil {
			return nil, err
		}
		if t.Name == "" {
			return nil, permanent("the name of the pod is empty")
		}
		live, err := e.get(ctx, t)
		if err != nil {
			return nil, beforehand(err)
		}
		if live == nil {
			return nil, temporary("%s is not there", t)
		}
		return podOf(live)
	}
	set, err := e.selector(req, a)
	if err != nil {
		return nil, err
	}
	list, err := e.resource(t).List(ctx, metav1.ListOptions{LabelSelector: set.AsSelector().String()})
	if err != nil {
		return nil, beforehand(e.writer.Explain(err, "list", t))
	}
	slices.SortFunc(list.Items, func(x, y unstructured.Unstructured) int { return strings.Compare(x.GetName(), y.GetName()) })
	for i := range list.Items {
		pod, err := podOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		if isReady(pod) {
			return pod, nil
		}
	}
	return nil, nil
}

func podOf(obj *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, pod); err != nil {
		return nil, permanent("cannot read Pod %s: %v", obj.GetName(), err)
	}
	return pod, nil
}

func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// execResult tells what came of a command.
func (e *Executor) execResult(req Request, a *program.ExecAction, c command, s streamed) (operation.Result, error) {
	if s.err != nil {
		return operation.Result{}, e.streamError(c, s.err)
	}
	result := map[string]any{"stdout": s.stdout.text(), "stderr": s.stderr.text(), "exitCode": int64(s.exitCode)}
	switch {
	case s.exitCode == exitNotExecutable || s.exitCode == exitNotFound:
		return operation.Result{}, permanent("%s cannot be run in %s (exit code %d)%s", quote(c.args[0]), c, s.exitCode, cited(s.stderr.text()))
	case s.exitCode != 0:
		out := operation.Result{Outcome: operation.Failed, Result: result,
			Message: bounded(fmt.Sprintf("%s in %s: exit code %d%s", quote(c.args[0]), c, s.exitCode, cited(s.stderr.text())), maxMessage)}
		if slices.Contains(a.PermanentExitCodes, int32(s.exitCode)) { //nolint:gosec // at most 255
			out.Outcome = operation.FailedForGood
		}
		return out, nil
	}
	out := operation.Result{Outcome: operation.Succeeded, Result: result, Output: strings.TrimSpace(s.stdout.text())}
	if a.Parse == v1alpha1.ParseFormatJSON {
		if s.stdout.more {
			return operation.Result{}, permanent("%s in %s: standard output has more than %d bytes (the command itself has succeeded)", quote(c.args[0]), c, MaxRead)
		}
		value, err := parseJSON(s.stdout.data)
		if err != nil {
			return operation.Result{}, permanent("%s in %s: standard output is no JSON: %v (the command itself has succeeded)", quote(c.args[0]), c, err)
		}
		result["json"], out.Output = value, value
	}
	return out, nil
}

// notStarted are words of container runtimes, kubelet and API server for a command that has not been started.
var notStarted = []string{"OCI runtime exec failed", "failed to start exec", "failed to create exec", "container not found", "is not running",
	"not found in pod", "unable to upgrade connection", "stopped container", "error dialing backend", "connection refused", "does not exist"}

// neverStarts are words for a command that cannot be run.
var neverStarts = []string{"executable file not found", "no such file or directory", "permission denied", "exec format error"}

// streamError tells what an error of the connection means.
func (e *Executor) streamError(c command, err error) error {
	var status apierrors.APIStatus
	var broken *brokenError
	switch {
	case errors.As(err, &status): // refused before anything began
		return beforehand(e.writer.Explain(err, "create", apply.Target{Kind: podKind, Namespace: c.namespace, Name: c.pod}))
	case notSent(err):
		return temporary("no connection to the API server: %v", err)
	case httpstream.IsUpgradeFailure(err) || strings.Contains(err.Error(), "unable to upgrade connection"): // there was no stream yet
		if strings.Contains(err.Error(), "is not valid for pod") {
			return permanent("there is no container %s in pod %s", c.container, c.pod)
		}
		return temporary("cannot run a command in %s: %s", c, tail(err.Error(), maxTail))
	case errors.As(err, &broken) && containsAny(broken.message, notStarted):
		if containsAny(broken.message, neverStarts) {
			return permanent("%s cannot be run in %s: %s", quote(c.args[0]), c, tail(broken.message, maxTail))
		}
		return temporary("cannot run a command in %s: %s", c, tail(broken.message, maxTail))
	}
	return unknown("the end of %s in %s is not known: %s", quote(c.args[0]), c, bounded(err.Error(), maxTail))
}

func containsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// quote cuts the name of a command. Its arguments are not told: they may hold a password.
func quote(s string) string { return bounded(s, 64) }

func cited(text string) string {
	if text = tail(text, maxTail); text != "" {
		return ": " + text
	}
	return ""
}

// parseJSON reads a JSON value; whole numbers become int64.
func parseJSON(data []byte) (any, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	if !json.Valid(data) {
		var raw json.RawMessage
		return nil, json.Unmarshal(data, &raw)
	}
	var out v1alpha1.JSONValue
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	return out.Value, nil
}
