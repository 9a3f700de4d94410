package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

// ask gives an exec, http or job step its answer.
func (w *world) ask(req step.Request) (operation.Result, time.Duration) {
	asked, err := w.asked(req)
	var pending *expr.PendingError
	switch {
	case errors.As(err, &pending):
		return waiting("%s", err), 0
	case err != nil:
		return failed(true, "%s", err), 0
	}
	name := req.Run.Spec.Operation + "/" + req.Start.Step.Name
	w.happened.requests = append(w.happened.requests, request{name, asked})
	a := w.answer(name, req)
	if a == nil {
		w.fault = &missingAnswer{step: name, verify: req.Start.Attempt.Verify, action: req.Start.Action.Name(), asked: asked, attempt: req.Start.Attempt.Number}
		return operation.Result{}, 0
	}
	result := outcomeOf(a.Answer, req.Start.Action)
	if result.Outcome != operation.Succeeded {
		result.RetryAfter = a.retryAfter
	}
	return result, a.after
}

// missingAnswer ends a test: a step asks for something that the test does not answer.
type missingAnswer struct {
	step, action string
	verify       bool
	attempt      int32
	asked        map[string]any
}

func (m *missingAnswer) Error() string {
	what := fmt.Sprintf("attempt %d", m.attempt)
	if m.verify {
		what = "verify"
	}
	return fmt.Sprintf("no answer is left for step %s (%s, %s), which asks:\n%s\nadd one to answers: - {step: %s, output: …} or {step: %s, fail: …}",
		m.step, m.action, what, indent("  "+show(m.asked), "  "), m.step, m.step)
}

// answer picks the first answer that fits and is not used up.
func (w *world) answer(name string, req step.Request) *answer {
	fits := func(a *answer) bool {
		return a.Step == name && (a.Instance == "" || a.Instance == req.Run.Spec.Target) &&
			(a.Params == nil || len(compare("", map[string]any(a.Params), req.Run.Params)) == 0)
	}
	for i, a := range w.answers {
		if !fits(a) {
			continue
		}
		times := a.Times
		if times == 0 && slices.ContainsFunc(w.answers[i+1:], fits) {
			times = 1
		}
		if times == 0 || a.given < times {
			a.given++
			return a
		}
	}
	return nil
}

// asked is what the step asks for, computed.
func (w *world) asked(req step.Request) (map[string]any, error) {
	a, out := req.Start.Action, map[string]any{}
	var failure error
	set := func(name string, t *program.Template) {
		if t == nil || failure != nil {
			return
		}
		value, err := req.Eval.Template(t, req.Start.Vars)
		if err != nil {
			failure = fmt.Errorf("%s: %w", name, err)
			return
		}
		out[name] = value
	}
	switch {
	case a.Exec != nil:
		set("pod", a.Exec.Pod)
		set("selector", a.Exec.Selector)
		set("command", a.Exec.Command)
		set("stdin", a.Exec.Stdin)
		if a.Exec.Container != "" {
			out["container"] = a.Exec.Container
		}
	case a.HTTP != nil:
		out["method"] = a.HTTP.Method
		set("url", a.HTTP.URL)
		set("headers", a.HTTP.Headers)
		set("body", a.HTTP.Body)
	case a.Job != nil:
		set("template", a.Job.Template)
	}
	if failure != nil {
		return nil, failure
	}
	plain := &unstructured.Unstructured{Object: out}
	data, err := json.Marshal(plain.Object)
	if err != nil {
		return nil, err
	}
	var again map[string]any
	return again, utiljson.Unmarshal(data, &again)
}

// outcomeOf is what comes of an answer.
func outcomeOf(a *Answer, action *program.Action) operation.Result {
	var output any
	if a.Output != nil {
		output = a.Output.Value
	}
	result := map[string]any{}
	text, isText := output.(string)
	if !isText && output != nil {
		data, err := json.Marshal(output)
		if err == nil {
			text = string(data)
		}
	}
	switch {
	case action.Exec != nil:
		result = map[string]any{"stdout": text, "stderr": "", "exitCode": int64(0)}
	case action.HTTP != nil:
		result = map[string]any{"status": int64(200), "headers": map[string]any{}, "body": text}
	case action.Job != nil:
		result = map[string]any{"name": "job", "logs": "", "succeeded": true}
		if output == nil {
			output = map[string]any{}
		}
	}
	if !isText && output != nil {
		result["json"] = output
	}
	mergePatch(result, a.Result)
	out := operation.Result{Outcome: operation.Succeeded, Output: output, Result: result}
	switch {
	case a.Fail != "":
		out.Outcome, out.Message, out.Output = operation.Failed, a.Fail, nil
		if a.Permanent {
			out.Outcome = operation.FailedForGood
		}
	case a.Unknown != "":
		out.Outcome, out.Message, out.Output = operation.Unknown, a.Unknown, nil
	case action.HTTP != nil:
		byStatus(&out, action.HTTP, result)
	case action.Exec != nil:
		byExitCode(&out, action.Exec, result)
	}
	return out
}

// byStatus fails a request by its status.
func byStatus(out *operation.Result, a *program.HTTPAction, result map[string]any) {
	n, _ := number(result["status"])
	status := int32(n)
	good := status >= 200 && status <= 299
	if len(a.Success) > 0 {
		good = slices.Contains(a.Success, status)
	}
	if good {
		return
	}
	out.Output, out.Message, out.Outcome = nil, fmt.Sprintf("HTTP %d", status), operation.FailedForGood
	if status == 408 || status == 425 || status == 429 || status >= 500 && status <= 599 {
		out.Outcome = operation.Failed
	}
}

// byExitCode fails a command by its exit code.
func byExitCode(out *operation.Result, a *program.ExecAction, result map[string]any) {
	n, _ := number(result["exitCode"])
	code := int32(n)
	if code == 0 {
		return
	}
	out.Output, out.Message, out.Outcome = nil, strings.TrimSuffix(fmt.Sprintf("exit code %d: %v", code, result["stderr"]), ": "), operation.Failed
	if code == 126 || code == 127 || slices.Contains(a.PermanentExitCodes, code) {
		out.Outcome = operation.FailedForGood
	}
}
