package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

var viewStart = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func viewTime(seconds int) *metav1.MicroTime {
	t := metav1.NewMicroTime(viewStart.Add(time.Duration(seconds) * time.Second))
	return &t
}

// story is how a run goes, look by look.
func story() []v1alpha1.OperationRunStatus {
	attempt := func(number int32, state v1alpha1.StepState, message string) v1alpha1.Attempt {
		return v1alpha1.Attempt{ID: string(rune('a' + number)), Number: number, State: state, Message: message, StartTime: *viewTime(12)}
	}
	packed := v1alpha1.StepStatus{Name: "pack", State: v1alpha1.StepSucceeded, StartTime: viewTime(0), EndTime: viewTime(12)}
	return []v1alpha1.OperationRunStatus{
		{},
		{State: v1alpha1.RunPending, Message: "run x has not ended"},
		{State: v1alpha1.RunRunning, StartTime: viewTime(0), Progress: "0/3", Tries: 1, Steps: []v1alpha1.StepStatus{{Name: "pack", State: v1alpha1.StepRunning, StartTime: viewTime(0)}}},
		{State: v1alpha1.RunRunning, StartTime: viewTime(0), Progress: "1/3", Tries: 1, Steps: []v1alpha1.StepStatus{packed,
			{Name: "upload", State: v1alpha1.StepRunning, StartTime: viewTime(12), Message: "HTTP 503", Attempts: []v1alpha1.Attempt{attempt(1, v1alpha1.StepFailed, "HTTP 503")}}}},
		{State: v1alpha1.RunRunning, StartTime: viewTime(0), Progress: "1/3", Tries: 1, Steps: []v1alpha1.StepStatus{packed,
			{Name: "upload", State: v1alpha1.StepRunning, StartTime: viewTime(12), Attempts: []v1alpha1.Attempt{attempt(1, v1alpha1.StepFailed, "HTTP 503"), attempt(2, v1alpha1.StepRunning, "")}}}},
		{State: v1alpha1.RunFailed, StartTime: viewTime(0), CompletionTime: viewTime(20), Duration: "20s", Tries: 1, Step: "upload", Message: "HTTP 400", Steps: []v1alpha1.StepStatus{packed,
			{Name: "upload", State: v1alpha1.StepFailed, StartTime: viewTime(12), EndTime: viewTime(20), Message: "HTTP 400", Attempts: []v1alpha1.Attempt{
				attempt(1, v1alpha1.StepFailed, "HTTP 503"), attempt(2, v1alpha1.StepFailed, "HTTP 400")}}}},
	}
}

func TestLineView(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	for _, status := range story() {
		v.show(&operationRun{status: status}, viewStart)
		v.show(&operationRun{status: status}, viewStart.Add(time.Second)) // nothing is said twice
	}
	want := `  waits: run x has not ended
  pack: running
  pack: Succeeded in 12s
  upload: running
  upload: attempt 1: Failed: HTTP 503
  upload: Failed in 8.0s: HTTP 400
  Failed in 20s
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestLiveView(t *testing.T) {
	var out bytes.Buffer
	v := &liveView{out: &out, width: func() int { return 40 }}
	looks := story()
	for i := range looks {
		v.show(&operationRun{status: looks[i]}, viewStart.Add(15*time.Second))
	}
	if n := strings.Count(out.String(), "\x1b[3A\x1b[J"); n != 2 {
		t.Errorf("3 lines are drawn anew %d times\n%q", n, out.String())
	}
	frame := strings.Join(v.frame(&operationRun{status: looks[4]}, viewStart.Add(15*time.Second)), "\n")
	want := `  ✓ pack       12s
  ● upload    3.0s  attempt 2
  Running 15s, 1/3 steps done`
	if frame != want {
		t.Errorf("got\n%s\nwant\n%s", frame, want)
	}
	for i := range looks {
		for _, line := range v.frame(&operationRun{status: looks[i]}, viewStart.Add(999*time.Hour)) {
			if n := len([]rune(line)); n > 40 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

func TestShortDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "0.2s": 240 * time.Millisecond, "14s": 14900 * time.Millisecond, "3m20s": 200 * time.Second, "5h12m": 5*time.Hour + 12*time.Minute, "3d4h": 76 * time.Hour,
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// TestFailure: a run that did not succeed tells what to do next.
func TestFailure(t *testing.T) {
	c := &operationClient{operationOptions: &operationOptions{namespace: "ns"}, given: true}
	k := &operationKind{Runs: servedKind{Kind: "BoardOperation", Namespaced: true}}
	k.Runs.GVR.Resource = "boardoperations"
	cases := map[string]operationRun{
		"backup failed at step copy: HTTP 400\n  see:   libretto operation describe boardoperation/x -n ns\n  retry: libretto operation retry boardoperation/x -n ns   (when the cause is mended)": {
			status: v1alpha1.OperationRunStatus{State: v1alpha1.RunFailed, Step: "copy", Message: "HTTP 400"}},
		"backup ended without anybody knowing whether a step had its effect at step copy: cut off\n  see:   libretto operation describe boardoperation/x -n ns\n  next:  look whether step copy had its effect.\n         If it had: libretto operation retry boardoperation/x -n ns --from note\n         If not:    libretto operation retry boardoperation/x -n ns --from copy": {
			status: v1alpha1.OperationRunStatus{State: v1alpha1.RunUnknown, Step: "copy", Message: "cut off", Steps: []v1alpha1.StepStatus{
				{Name: "copy", State: v1alpha1.StepUnknown}, {Name: "note", State: v1alpha1.StepSucceeded}}}},
		"backup ended without anybody knowing whether a step had its effect at step copy\n  see:   libretto operation describe boardoperation/x -n ns\n  next:  look whether step copy had its effect.\n         If it had: libretto operation retry boardoperation/x -n ns --from NEXT --force, where NEXT is the step after it\n         If not:    libretto operation retry boardoperation/x -n ns --from copy": {
			status: v1alpha1.OperationRunStatus{State: v1alpha1.RunUnknown, Step: "copy", Steps: []v1alpha1.StepStatus{{Name: "copy", State: v1alpha1.StepUnknown}}}},
		"backup was cancelled: spec.cancel is true\n  see:   libretto operation describe boardoperation/x -n ns": {
			spec: v1alpha1.OperationRunSpec{Cancel: true}, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunCancelled, Message: "spec.cancel is true"}},
	}
	for want, run := range cases {
		run.kind, run.object = k, newRunObject(k, "team", "backup", "x", nil)
		run.spec.Operation = "backup"
		if got := c.failure(t.Context(), &run); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// retryStory is how a run is begun again that failed at its last step: the first look is that before, and the second is too early.
func retryStory() []v1alpha1.OperationRunStatus {
	failed := story()[5]
	obeyed := v1alpha1.OperationRunStatus{State: v1alpha1.RunPending, Retry: "1", Tries: 1, Message: "run y has not ended", Steps: failed.Steps[:1]}
	done := v1alpha1.StepStatus{Name: "upload", State: v1alpha1.StepSucceeded, StartTime: viewTime(60), EndTime: viewTime(63)}
	return []v1alpha1.OperationRunStatus{failed, failed, obeyed, {State: v1alpha1.RunSucceeded, Retry: "1", Tries: 2, Duration: "3s", StartTime: viewTime(60), CompletionTime: viewTime(63),
		Steps: []v1alpha1.StepStatus{failed.Steps[0], done}}}
}

func TestViewsOfRetry(t *testing.T) {
	looks := retryStory()
	var out bytes.Buffer
	v := newView(&out)
	live := &liveView{out: &bytes.Buffer{}, width: func() int { return 40 }}
	v.after(&looks[0])
	live.after(&looks[0])
	var frames []string
	for i := range looks {
		v.show(&operationRun{status: looks[i]}, viewStart)
		frames = append(frames, strings.Join(live.frame(&operationRun{status: looks[i]}, viewStart.Add(70*time.Second)), "\n"))
	}
	if want := "try 2:\n  waits: run y has not ended\n  upload: Succeeded in 3.0s\n  Succeeded in 3s\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for i, want := range []string{"  to begin again", "  to begin again", "try 2:\n  Pending: run y has not ended", "try 2:\n  ✓ upload    3.0s\n  Succeeded 3.0s"} {
		if frames[i] != want {
			t.Errorf("look %d: got\n%s\nwant\n%s", i, frames[i], want)
		}
	}
	refused := looks[0]
	refused.Retry = "1"
	if _, _, again := anotherTry(&looks[0], &refused); again {
		t.Error("a retry that was refused is a try")
	}
}

func TestMayBeginWith(t *testing.T) {
	steps := func(states ...v1alpha1.StepState) []v1alpha1.StepStatus {
		var out []v1alpha1.StepStatus
		for i, s := range states {
			out = append(out, v1alpha1.StepStatus{Name: []string{"lock", "copy", "note"}[i], State: s})
		}
		return out
	}
	all := []string{"lock", "copy", "note"}
	for _, tc := range []struct {
		reason, from, want string
		state              v1alpha1.RunState
		steps              []v1alpha1.StepStatus
		names              []string
		force              bool
	}{
		{reason: "what failed", from: "copy", steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepFailed), names: all},
		{reason: "undone", from: "copy", want: "step lock has been undone: begin with --from lock", steps: steps(v1alpha1.StepUndone, v1alpha1.StepFailed), names: all},
		{reason: "after what failed", from: "note", want: "step copy has failed: begin with --from copy; if its effect is there all the same, add --force",
			steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepFailed), names: all},
		{reason: "by force", from: "note", steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepFailed), names: all, force: true},
		{reason: "by force, and unknown", from: "more", steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepFailed), force: true},
		{reason: "by force, after what is undone", from: "copy", force: true, want: "step lock has been undone: begin with --from lock", steps: steps(v1alpha1.StepUndone, v1alpha1.StepFailed), names: all},
		{reason: "after what was cancelled", from: "note", want: "step copy was cancelled: begin with --from copy; if its effect is there all the same, add --force",
			steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepCancelled), names: all},
		{reason: "a failure that was passed", from: "note", steps: steps(v1alpha1.StepFailed, v1alpha1.StepSucceeded, v1alpha1.StepFailed), names: all},
		{reason: "after what is unknown: the user has looked", from: "note", state: v1alpha1.RunUnknown, steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepUnknown), names: all},
		{reason: "no such step", from: "cpy", want: `operation backup has no step "cpy"; did you mean "copy"?`, names: all},
		{reason: "perhaps no such step", from: "note", want: `no step "note" has begun in boardoperation/x; there is "copy" or "lock"; of the steps to come nothing is known here: ` +
			`if operation backup has that one, add --force`, steps: steps(v1alpha1.StepSucceeded, v1alpha1.StepFailed)},
	} {
		k := &operationKind{Runs: servedKind{Kind: "BoardOperation"}}
		run := &operationRun{kind: k, object: newRunObject(k, "team", "backup", "x", nil)}
		run.spec.Operation, run.status = "backup", v1alpha1.OperationRunStatus{State: tc.state, Steps: tc.steps}
		names, known := tc.names, true
		if names == nil {
			names, known = (&operationClient{}).stepsOf(t.Context(), run)
		}
		got := ""
		if err := run.mayBeginWith(tc.from, names, known, tc.force); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestSilence(t *testing.T) {
	attempts := func(a v1alpha1.Attempt) []v1alpha1.StepStatus {
		return []v1alpha1.StepStatus{{Name: "copy", State: v1alpha1.StepRunning, Attempts: []v1alpha1.Attempt{a}}}
	}
	for _, tc := range []struct {
		reason  string
		age     time.Duration
		spec    v1alpha1.OperationRunSpec
		status  v1alpha1.OperationRunStatus
		unaware bool
		want    string
	}{
		{reason: "not begun", age: 40 * time.Second, want: "nothing has been written for 40s: is Libretto at work?"},
		{reason: "just made", age: 20 * time.Second},
		{reason: "waits for its turn", age: time.Hour, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunPending, Reason: "WaitsForTurn"}},
		{reason: "nothing under way", age: 3 * time.Minute, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning, Steps: attempts(v1alpha1.Attempt{State: v1alpha1.StepFailed, RetryTime: viewTime(-120)})},
			want: "nothing has been written for 3m0s: is Libretto at work?"},
		{reason: "an attempt under way", age: time.Hour, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning, Steps: attempts(v1alpha1.Attempt{State: v1alpha1.StepRunning})}},
		{reason: "an attempt to come", age: time.Hour, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning, Steps: attempts(v1alpha1.Attempt{State: v1alpha1.StepFailed, RetryTime: viewTime(10)})}},
		{reason: "paused", age: time.Hour, spec: v1alpha1.OperationRunSpec{Paused: true}, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning}},
		{reason: "a change that nobody sees", age: time.Minute, unaware: true, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunRunning, Steps: attempts(v1alpha1.Attempt{State: v1alpha1.StepRunning})},
			want: "nothing has been written for 1m0s: is Libretto at work?"},
		{reason: "ended", age: time.Hour, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunFailed}},
		{reason: "a retry that nobody sees", age: time.Minute, spec: v1alpha1.OperationRunSpec{Retry: &v1alpha1.RunRetry{ID: "1"}}, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunFailed},
			want: "nothing has been written for 1m0s: is Libretto at work?"},
	} {
		run := &operationRun{object: newRunObject(&operationKind{}, "team", "backup", "x", nil), spec: tc.spec, status: tc.status}
		run.object.SetCreationTimestamp(metav1.NewTime(viewStart.Add(-24 * time.Hour)))
		written := metav1.NewTime(viewStart.Add(-tc.age))
		run.object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "libretto", Time: &written}})
		if tc.unaware {
			run.object.SetGeneration(2)
		}
		if got := run.silence(viewStart); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

// operationFake is a client of a cluster that holds objects.
func operationFake(objects ...runtime.Object) *operationClient {
	instances := servedKind{GVR: runtimeschema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "boards"}, Kind: "Board", Namespaced: true}
	runs := servedKind{GVR: runtimeschema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "boardoperations"}, Kind: "BoardOperation", Namespaced: true}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[runtimeschema.GroupVersionResource]string{
		instances.GVR: "BoardList", runs.GVR: "BoardOperationList", v1alpha1.GroupVersion.WithResource("operatorrevisions"): "OperatorRevisionList",
	}, objects...)
	return &operationClient{operationOptions: &operationOptions{namespace: "ns"}, client: client, kinds: []operationKind{{Definition: "boards", Instances: instances, Runs: runs}}}
}

func board(status map[string]any, deleted bool) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Board", "metadata": map[string]any{"name": "team", "namespace": "ns"}, "status": status}}
	if deleted {
		at := metav1.NewTime(viewStart)
		o.SetDeletionTimestamp(&at)
		o.SetFinalizers([]string{"libretto.dev/cleanup"})
	}
	return o
}

// TestStepsOfRevision: the steps of an operation are those of the revision that the instance follows.
func TestStepsOfRevision(t *testing.T) {
	revision := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "libretto.dev/v1alpha1", "kind": "OperatorRevision", "metadata": map[string]any{"name": "boards-2"},
		"spec": map[string]any{"snapshot": `{"operations":[{"name":"backup","steps":[{"log":"a"},{"name":"copy","log":"b"},{"log":"c"}]}]}`}}}
	c := operationFake(board(map[string]any{"revision": "boards-2"}, false), revision)
	run := &operationRun{kind: &c.kinds[0], object: newRunObject(&c.kinds[0], "team", "backup", "x", nil)}
	run.spec.Target, run.spec.Operation = "team", "backup"
	run.status = v1alpha1.OperationRunStatus{State: v1alpha1.RunUnknown, Revision: "boards-1", Step: "copy", Steps: []v1alpha1.StepStatus{{Name: "copy", State: v1alpha1.StepUnknown}}}
	if names, known := c.stepsOf(t.Context(), run); !known || strings.Join(names, " ") != "log copy log2" {
		t.Errorf("%v, %t", names, known)
	}
	want := "look whether step copy had its effect.\n  If it had: libretto operation retry boardoperation/x --from log2\n  If not:    libretto operation retry boardoperation/x --from copy"
	if got := c.next(t.Context(), run); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	run.status.Step, run.status.Steps[0].Name = "log2", "log2"
	if had, _ := c.ways(run, []string{"log", "copy", "log2"}, true); had != "nothing is left to do, for it is the last step" {
		t.Error(had)
	}
}

// TestGone: the run of a Delete operation that is gone with its instance has succeeded; any other has not.
func TestGone(t *testing.T) {
	onDelete := &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeDelete}
	for _, tc := range []struct {
		reason  string
		trigger *v1alpha1.RunTrigger
		state   v1alpha1.RunState
		there   []runtime.Object
		want    string
	}{
		{reason: "it was under way", trigger: onDelete, state: v1alpha1.RunRunning},
		{reason: "the new try was not seen", trigger: onDelete, state: v1alpha1.RunFailed},
		{reason: "a new instance has its name", trigger: onDelete, state: v1alpha1.RunRunning, there: []runtime.Object{board(nil, false)}},
		{reason: "it was undone", trigger: onDelete, state: v1alpha1.RunUndoing, want: "somebody has deleted it"},
		{reason: "of a user", state: v1alpha1.RunRunning, want: "somebody has deleted it"},
	} {
		c := operationFake(tc.there...)
		run := &operationRun{kind: &c.kinds[0], object: newRunObject(&c.kinds[0], "team", "backup", "x", nil), status: v1alpha1.OperationRunStatus{State: tc.state}}
		run.object.SetGeneration(2)
		run.spec.Target, run.spec.Trigger = "team", tc.trigger
		var out bytes.Buffer
		err := c.gone(t.Context(), &out, run, waitFor{retry: "1"})
		switch {
		case tc.want == "" && (err != nil || out.String() != "succeeded; board/team is gone\n"):
			t.Errorf("%s: %v, %s", tc.reason, err, out.String())
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

// TestDescribeInstanceInDeletion: what is being deleted is not ready, and shows the runs that it keeps itself.
func TestDescribeInstanceInDeletion(t *testing.T) {
	ready := map[string]any{"type": "Ready", "status": "True"}
	o := board(map[string]any{"conditions": []any{ready}, "deletion": []any{map[string]any{"operation": "archive", "status": map[string]any{
		"state": "Running", "step": "copy", "steps": []any{map[string]any{"name": "copy", "state": "Running", "message": "HTTP 503", "attempts": []any{map[string]any{
			"id": "a", "number": int64(1), "state": "Running", "startTime": "2026-01-01T12:00:00.000000Z"}}}}}}}}, true)
	now := viewStart.Add(40 * time.Second)
	if got := readiness(o, now); got != ": being deleted for 40s" {
		t.Error(got)
	}
	ready["status"], ready["reason"], ready["message"] = "False", "Deleting", "operation archive is under way"
	if got := readiness(board(map[string]any{"conditions": []any{ready}}, true), now); got != ": being deleted for 40s, not ready, Deleting: operation archive is under way" {
		t.Error(got)
	}
	var out bytes.Buffer
	if err := describeDeletion(&out, o, now); err != nil {
		t.Fatal(err)
	}
	want := "Deletion, without operation objects as the namespace is being deleted:\n  archive  Running at step copy\n    ● copy  Running    HTTP 503\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestDescribeSteps: an undo step that was reached while the run is paused has not begun.
func TestDescribeSteps(t *testing.T) {
	var out bytes.Buffer
	describeSteps(&out, newPainter(&out), []v1alpha1.StepStatus{{Name: "lock", State: v1alpha1.StepSucceeded, Undo: []v1alpha1.StepStatus{{Name: "unlock", State: v1alpha1.StepRunning}}}}, viewStart, "")
	if want := "✓ lock  Succeeded\n    undo:\n      ○ unlock  Pending  \n"; out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
	run := &operationRun{spec: v1alpha1.OperationRunSpec{Paused: true}, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunUndoing}}
	if got := run.stateText(); got != "Undoing (paused)" {
		t.Error(got)
	}
}
