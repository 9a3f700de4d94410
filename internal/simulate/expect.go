package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/operation"
)

// expect finds where the world is not as expected.
func (w *world) expect(e *Expect) []Difference {
	var out []Difference
	if e.Ready != nil || e.Reason != "" || e.Message != "" || e.Status != nil {
		out = append(out, w.expectInstance(e)...)
	}
	for i, want := range e.Resources {
		out = append(out, w.expectObject(diag.Index("resources", i), want)...)
	}
	for i, ref := range e.Absent {
		found := w.store.list(ref.names)
		for _, o := range found {
			got := "it is there"
			if len(found) > 1 {
				got += " in " + o.GetNamespace()
			}
			if o.GetDeletionTimestamp() != nil {
				got = "it is being deleted, and held by " + strings.Join(o.GetFinalizers(), ", ")
			}
			out = append(out, Difference{Path: diag.Index("absent", i) + " " + ref.String(), Want: nothing, Got: got})
		}
	}
	if e.Operations != nil {
		out = append(out, w.expectRuns(e.Operations)...)
	}
	out = append(out, w.expectHappened(e)...)
	return out
}

func (w *world) expectInstance(e *Expect) []Difference {
	o, err := w.instance(e.Instance)
	if err != nil {
		return []Difference{{Path: "instance", Want: "a " + w.program.Instance.Kind, Got: err.Error()}}
	}
	var out []Difference
	ready := conditionOf(o, v1alpha1.ConditionReady)
	why := strings.TrimPrefix(fmt.Sprintf("%v: %v", ready["reason"], ready["message"]), "<nil>: <nil>")
	if is := ready["status"] == "True"; e.Ready != nil && *e.Ready != is {
		d := Difference{Path: "ready", Want: fmt.Sprint(*e.Ready), Got: fmt.Sprint(is)}
		if !is {
			d.Hint = why
			if strings.Contains(why, "its controller has not seen it yet") || strings.Contains(why, "available") {
				d.Hint += "\nno controllers are at work in a test: the step ready: all, or ready: all above the steps, makes resources ready"
			}
		}
		out = append(out, d)
	}
	if e.Reason != "" && ready["reason"] != e.Reason {
		out = append(out, Difference{Path: "reason", Want: e.Reason, Got: why})
	}
	if message := fmt.Sprint(ready["message"]); e.Message != "" && !strings.Contains(message, e.Message) {
		out = append(out, Difference{Path: "message", Want: "a text with " + show(e.Message), Got: show(message)})
	}
	if e.Status != nil {
		status, _ := o.Object["status"].(map[string]any)
		out = append(out, compareObjects("status", e.Status, status)...)
	}
	return out
}

func conditionOf(o *unstructured.Unstructured, name string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return map[string]any{}
}

func (w *world) expectObject(path string, want v1alpha1.JSONObject) []Difference {
	u := named(want)
	path += " " + strings.TrimSpace(u.GetKind()+" "+u.GetName())
	if u.GetKind() == "" || u.GetName() == "" {
		return []Difference{{Path: path, Want: "kind and metadata.name", Got: show(map[string]any(want))}}
	}
	ref := Reference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
	o, err := w.lookUp(ref)
	if err != nil {
		return []Difference{{Path: path, Want: "it is there", Got: err.Error(), Hint: cmp.Or(w.whyCollected(ref), w.whyMissing(u.GroupVersionKind().GroupKind()))}}
	}
	return compareObjects(path, u.Object, o.Object)
}

// whyCollected says with which owner an object has gone that is not there.
func (w *world) whyCollected(ref Reference) string {
	for _, k := range slices.SortedFunc(maps.Keys(w.store.collected), func(a, b key) int { return cmp.Compare(a.String(), b.String()) }) {
		gone := w.store.collected[k]
		if !ref.names(gone.object) {
			continue
		}
		why := fmt.Sprintf("it was removed with %s, which owns it", gone.owner)
		if gone.object.GetLabels()[v1alpha1.LabelRun] != "" { // by an apply step
			why += "; deletionPolicy: Retain keeps it"
		}
		return why
	}
	return ""
}

// whyMissing says which resource that makes objects of a kind has not made them, and why.
func (w *world) whyMissing(gk runtimeschema.GroupKind) string {
	for _, o := range w.instances() {
		resources, _, _ := unstructured.NestedSlice(o.Object, "status", "resources")
		for _, item := range resources {
			r, _ := item.(map[string]any)
			if r["message"] == nil || r["state"] != string(v1alpha1.ResourceWaiting) && r["state"] != string(v1alpha1.ResourceFailed) {
				continue
			}
			for _, n := range w.program.Nodes {
				if n.Name != r["name"] {
					continue
				}
				for _, k := range n.Kinds {
					if k.Kind == gk.Kind {
						return fmt.Sprintf("resource %s is %v: %v", n.Name, r["state"], r["message"])
					}
				}
			}
		}
	}
	return ""
}

// expectRuns compares the runs of the operations that are named, oldest first.
func (w *world) expectRuns(want []ExpectRun) []Difference {
	var out []Difference
	all := map[string][]*operation.Run{}
	var there []string
	for _, o := range w.runs() {
		run, err := operation.Parse(o.Object)
		if err != nil {
			continue
		}
		all[run.Spec.Operation] = append(all[run.Spec.Operation], run)
		there = append(there, describeRun(run))
	}
	if len(want) == 0 && len(there) > 0 {
		return []Difference{{Path: "operations", Want: "no run", Got: strings.Join(there, "\n")}}
	}
	next, counts := map[string]int{}, map[string]int{}
	for i := range want {
		r := &want[i]
		path := diag.Index("operations", i) + " " + r.Operation
		if w.program.Operation(r.Operation) == nil {
			out = append(out, Difference{Path: path, Want: "an operation of the definition", Got: "there is none of that name"})
			continue
		}
		runs := 1
		if r.Runs != nil {
			runs = *r.Runs
		}
		counts[r.Operation] += runs
		for ; runs > 0 && next[r.Operation] < len(all[r.Operation]); runs-- {
			out = append(out, w.expectRun(path, r, all[r.Operation][next[r.Operation]])...)
			next[r.Operation]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if got := len(all[name]); got != counts[name] {
			list := make([]string, 0, got)
			for _, r := range all[name] {
				list = append(list, describeRun(r))
			}
			text := fmt.Sprint(got)
			if got > 0 {
				text += ":\n" + strings.Join(list, "\n")
			}
			out = append(out, Difference{Path: "runs of " + name, Want: fmt.Sprint(counts[name]), Got: text})
		}
	}
	return out
}

// describeRun is a run in one line.
func describeRun(r *operation.Run) string {
	why := "Manual"
	if r.Spec.Trigger != nil {
		why = string(r.Spec.Trigger.Type)
	}
	text := fmt.Sprintf("%s (%s of %s, by %s): %s", r.Name, r.Spec.Operation, r.Spec.Target, why, r.Status.State)
	if r.Status.Step != "" {
		text += " at step " + r.Status.Step
	}
	if r.Status.Message != "" {
		text += ": " + r.Status.Message
	}
	return text
}

// beganBy says what began a run.
func beganBy(r *operation.Run) string {
	if r.Spec.Trigger == nil {
		return string(v1alpha1.TriggerTypeManual)
	}
	return string(r.Spec.Trigger.Type)
}

func (w *world) expectRun(path string, want *ExpectRun, got *operation.Run) []Difference {
	var out []Difference
	differ := func(field, want, got, hint string) {
		if want != got {
			if got == "" {
				got = nothing
			}
			out = append(out, Difference{Path: path + "." + field, Want: want, Got: got, Hint: hint})
		}
	}
	st := &got.Status
	if want.State != "" {
		differ("state", want.State, string(st.State), describeRun(got))
	}
	if want.Name != "" {
		differ("name", want.Name, got.Name, "")
	}
	if want.Instance != "" {
		differ("instance", want.Instance, got.Spec.Target, "")
	}
	if want.Trigger != "" {
		differ("trigger", want.Trigger, beganBy(got), "")
	}
	if want.Step != "" {
		differ("step", want.Step, st.Step, "")
	}
	if want.Message != "" && !strings.Contains(st.Message, want.Message) {
		differ("message", "a text with "+show(want.Message), show(st.Message), "")
	}
	if want.Params != nil {
		out = append(out, compareObjects(path+".params", want.Params, got.Params)...)
	}
	if want.Output != nil {
		out = append(out, compareObjects(path+".output", want.Output, st.Output)...)
	}
	op := w.program.Operation(want.Operation)
	for _, name := range slices.Sorted(maps.Keys(want.Steps)) {
		if op.Step(name) == nil {
			var names []string
			for _, s := range op.Steps {
				names = append(names, s.Name)
			}
			differ("steps."+name, want.Steps[name], "the operation has no such step", diag.DidYouMean(name, names))
			continue
		}
		s := stepOf(st, name)
		differ("steps."+name, want.Steps[name], string(s.State), s.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Attempts)) {
		s := stepOf(st, name)
		differ("attempts."+name, fmt.Sprint(want.Attempts[name]), fmt.Sprint(len(s.Attempts)), s.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Outputs)) {
		var output any
		if s := stepOf(st, name); s.Output != nil {
			output = s.Output.Value
		}
		out = append(out, compare(path+".outputs."+name, want.Outputs[name].Value, output)...)
	}
	return out
}

func stepOf(st *v1alpha1.OperationRunStatus, name string) v1alpha1.StepStatus {
	for i := range st.Steps {
		if st.Steps[i].Name == name {
			return st.Steps[i]
		}
	}
	return v1alpha1.StepStatus{}
}

// String is the event as events are shown.
func (e ExpectEvent) String() string {
	text := strings.TrimSpace(e.Type + " " + e.Reason)
	if e.Message != "" {
		text += ": …" + e.Message + "…"
	}
	return text
}

// expectHappened looks for events, log lines and requests since the last time that any were asked for. They must come in the order
// of the test; others may be in between.
func (w *world) expectHappened(e *Expect) []Difference {
	var out []Difference
	h := &w.happened
	if e.Events != nil {
		events := h.events[h.countedEvents:]
		h.countedEvents = len(h.events)
		out = append(out, inOrder("events", e.Events, events, func(want ExpectEvent, got event) bool {
			return (want.Type == "" || want.Type == got.kind) && (want.Reason == "" || want.Reason == got.reason) && strings.Contains(got.message, want.Message)
		}, func(e event) string { return e.kind + " " + e.reason + ": " + e.message })...)
	}
	if e.Logs != nil {
		logs := h.logs[h.countedLogs:]
		h.countedLogs = len(h.logs)
		out = append(out, inOrder("logs", e.Logs, logs, func(want, got string) bool { return strings.Contains(got, want) }, func(s string) string { return s })...)
	}
	if e.Requests != nil {
		requests := h.requests[h.countedRequests:]
		h.countedRequests = len(h.requests)
		out = append(out, w.expectRequests(e.Requests, requests)...)
	}
	return out
}

// inOrder looks for what is wanted among what happened, in order. An empty list means that nothing has happened.
func inOrder[W, G any](path string, want []W, got []G, is func(W, G) bool, text func(G) string) []Difference {
	list := func() string {
		if len(got) == 0 {
			return nothing
		}
		lines := make([]string, 0, len(got))
		for _, g := range got {
			lines = append(lines, text(g))
		}
		return strings.Join(lines, "\n")
	}
	if len(want) == 0 && len(got) > 0 {
		return []Difference{{Path: path, Want: nothing, Got: list()}}
	}
	at := 0
	for i, wanted := range want {
		for at < len(got) && !is(wanted, got[at]) {
			at++
		}
		if at == len(got) {
			return []Difference{{Path: diag.Index(path, i), Want: strings.TrimSpace(fmt.Sprint(wanted)), Got: list()}}
		}
		at++
	}
	return nil
}

// expectRequests compares the requests of the steps that are named, in order.
func (w *world) expectRequests(want []ExpectRequest, got []request) []Difference {
	if len(want) == 0 && len(got) > 0 {
		names := make([]string, 0, len(got))
		for _, r := range got {
			names = append(names, r.step)
		}
		return []Difference{{Path: "requests", Want: nothing, Got: strings.Join(names, ", ")}}
	}
	var out []Difference
	next, counts := map[string]int{}, map[string]int{}
	byStep := map[string][]request{}
	for _, r := range got {
		byStep[r.step] = append(byStep[r.step], r)
	}
	for i, r := range want {
		counts[r.Step]++
		n := next[r.Step]
		next[r.Step]++
		if n < len(byStep[r.Step]) && r.Request != nil {
			out = append(out, compareObjects(diag.Index("requests", i)+" "+r.Step, r.Request, byStep[r.Step][n].content)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := len(byStep[name]); n != counts[name] {
			out = append(out, Difference{Path: "requests of " + name, Want: fmt.Sprint(counts[name]), Got: fmt.Sprint(n)})
		}
	}
	return out
}
