package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"backup ended without anybody knowing whether a step had its effect at step copy: cut off\n  see:   libretto operation describe boardoperation/x -n ns\n  retry: libretto operation retry boardoperation/x -n ns --from STEP   (look first whether step copy had its effect)": {
			status: v1alpha1.OperationRunStatus{State: v1alpha1.RunUnknown, Step: "copy", Message: "cut off"}},
		"backup was cancelled: spec.cancel is true\n  see:   libretto operation describe boardoperation/x -n ns": {
			spec: v1alpha1.OperationRunSpec{Cancel: true}, status: v1alpha1.OperationRunStatus{State: v1alpha1.RunCancelled, Message: "spec.cancel is true"}},
	}
	for want, run := range cases {
		run.kind, run.object = k, newRunObject(k, "team", "backup", "x", nil)
		run.spec.Operation = "backup"
		if got := c.failure(&run); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
