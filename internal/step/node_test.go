package step_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// newNodeWorld is a world on a cluster that runs pods.
func newNodeWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("LIBRETTO_TEST_NODE") == "" {
		t.Skip("LIBRETTO_TEST_NODE is not set: `hack/test.sh --node` starts a cluster that runs pods")
	}
	return newWorld(t)
}

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: web, image: "localhost/busybox:1", imagePullPolicy: Never, command: [sh, -c, "%s"]}
`

func command(args ...any) *program.ExecAction {
	return &program.ExecAction{Selector: static(map[string]any{"app": "web"}), Command: static(args)}
}

func shell(text string) *program.ExecAction { return command("sh", "-c", text) }

func TestOnNodeExec(t *testing.T) {
	w := newNodeWorld(t)
	exec := func(a *program.ExecAction) program.Action { return program.Action{Exec: a} }

	// There is no pod yet: the attempt waits, and has begun nothing.
	req := w.request(exec(shell("echo hello; echo oops >&2")))
	r := w.executor.Do(t.Context(), req)
	if expect(t, r, operation.Waiting); !strings.Contains(r.Message, "no ready pod matches app=web") {
		t.Errorf("message %q", r.Message)
	}
	w.create(strings.Replace(fmt.Sprintf(webPod, "a-broken", "exit 1"), "busybox", "none", 1))
	w.create(fmt.Sprintf(webPod, "b", "sleep 1000"))
	r = w.finish(req)
	expect(t, r, operation.Succeeded)
	if diff := cmp.Diff(map[string]any{"stdout": "hello\n", "stderr": "oops\n", "exitCode": int64(0)}, r.Result); diff != "" || r.Output != "hello" {
		t.Errorf("output %q, %s", r.Output, diff)
	}
	req.Start.Resume = true
	expect(t, w.executor.Do(t.Context(), req), operation.Unknown)
	req.Start.Attempt.Verify = true
	expect(t, w.executor.Do(t.Context(), req), operation.Succeeded)

	long := shell("head -c 3000000 /dev/zero | tr '\\\\0' x; echo done >&2")
	if r := w.do(exec(long)); r.Outcome != operation.Succeeded || len(r.Output.(string)) != step.MaxRead || r.Result.(map[string]any)["stderr"] != "done\n" {
		t.Errorf("a long output: %d %s", r.Outcome, r.Message)
	}
	stdin := shell("wc -c; echo x$1")
	stdin.Stdin = static(strings.Repeat("y", 60000))
	if r := w.do(exec(stdin)); r.Output != "60000\nx" {
		t.Errorf("with stdin: %d %q %s", r.Outcome, r.Output, r.Message)
	}
	parsed := shell(`echo '{"n": 3}'`)
	parsed.Parse = v1alpha1.ParseFormatJSON
	if r := w.do(exec(parsed)); cmp.Diff(map[string]any{"n": int64(3)}, r.Output) != "" {
		t.Errorf("JSON: %v %s", r.Output, r.Message)
	}
	noJSON := shell("echo no")
	noJSON.Parse = v1alpha1.ParseFormatJSON
	permanent := shell("exit 3")
	permanent.PermanentExitCodes = []int32{3}
	otherContainer := shell("true")
	otherContainer.Container = "none"
	for name, tc := range map[string]struct {
		action  *program.ExecAction
		want    operation.Outcome
		message string
	}{
		"fails":     {shell("echo it is broken >&2; exit 3"), operation.Failed, "exit code 3: it is broken"},
		"permanent": {permanent, operation.FailedForGood, "exit code 3"},
		"no JSON":   {noJSON, operation.FailedForGood, "no JSON"},
		"not found": {command("no-such-command"), operation.FailedForGood, "cannot be run"},
		"127":       {shell("no-such-command"), operation.FailedForGood, "cannot be run"},
		"directory": {command("/tmp"), operation.FailedForGood, "cannot be run"},
		"container": {otherContainer, operation.FailedForGood, "none"},
		"pod":       {&program.ExecAction{Pod: static("none"), Command: static([]any{"true"})}, operation.Failed, "is not there"},
		"not begun": {&program.ExecAction{Pod: static("a-broken"), Command: static([]any{"true"})}, operation.Failed, ""},
		"by name":   {&program.ExecAction{Pod: static("b"), Command: static([]any{"true"})}, operation.Succeeded, ""},
	} {
		if r := w.do(exec(tc.action)); r.Outcome != tc.want || !strings.Contains(r.Message, tc.message) {
			t.Errorf("%s: outcome %d: %s", name, r.Outcome, r.Message)
		}
	}

	for text, want := range map[string]int{"cat": 0, "exit 5": 5} {
		stdout, code, err := w.executor.OverSPDY(t.Context(), w.namespace, "b", "in", "sh", "-c", text)
		if err != nil || code != want || stdout != map[bool]string{true: "in"}[want == 0] {
			t.Errorf("over SPDY: %q, exit code %d, %v", stdout, code, err)
		}
	}

	// Time runs out, and the pod goes, while the command runs: nobody knows.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	expect(t, w.executor.Do(ctx, w.request(exec(shell("sleep 100")))), operation.Unknown)
	go func() {
		time.Sleep(time.Second)
		if err := w.admin.Delete(t.Context(), "v1", "Pod", w.namespace, "b"); err != nil {
			t.Error(err)
		}
	}()
	r = w.executor.Do(t.Context(), w.request(exec(shell("sleep 100"))))
	if r.Outcome == operation.Succeeded {
		t.Errorf("a command whose pod went: %d %s", r.Outcome, r.Message)
	}
	t.Logf("the pod went: %d %s", r.Outcome, r.Message)

	// With the rights that the definition's role has, and without any.
	w.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: execer}, rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}, {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}]}`)
	w.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: execer}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: execer}, subjects: [{kind: ServiceAccount, name: execer, namespace: ` + w.namespace + `}]}`)
	w.create(fmt.Sprintf(webPod, "c", "sleep 1000"))
	w.options.Client = w.as("execer")
	w.restart()
	expect(t, w.do(exec(shell("true"))), operation.Succeeded)
	w.options.Client = w.as("nobody")
	w.restart()
	if r := w.executor.Do(t.Context(), w.request(exec(shell("true")))); r.Outcome != operation.Failed || !strings.Contains(r.Message, "pods") {
		t.Errorf("without a right: %d %s", r.Outcome, r.Message)
	}
}

func jobOf(text string) program.Action {
	return program.Action{Job: &program.JobAction{Template: static(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"terminationGracePeriodSeconds": int64(0),
		"containers":                    []any{map[string]any{"name": "it", "image": "localhost/busybox:1", "imagePullPolicy": "Never", "command": []any{"sh", "-c", text}}},
	}}}})}}
}

func TestOnNodeJob(t *testing.T) {
	w := newNodeWorld(t)
	req := w.request(jobOf(`echo begun; echo '{"n": 3}'`))
	r := w.executor.Do(t.Context(), req)
	expect(t, r, operation.Waiting)
	if err := expectOwner(w, r.Ref); err != nil {
		t.Error(err)
	}
	w.restart()
	req = again(req, r)
	r = w.finish(req)
	expect(t, r, operation.Succeeded)
	want := map[string]any{"name": req.Start.Attempt.Ref, "json": map[string]any{"n": int64(3)}, "logs": "begun\n{\"n\": 3}", "succeeded": true}
	if diff := cmp.Diff(want, r.Result); diff != "" {
		t.Error(diff)
	}
	expect(t, w.executor.Do(t.Context(), req), operation.Succeeded)
	if list, err := w.admin.List(t.Context(), "batch/v1", "Job", w.namespace, ""); err != nil || len(list) != 1 {
		t.Errorf("%d Jobs, %v", len(list), err)
	}

	r = w.do(jobOf(`echo chatter; printf '{"file": "x"}' > /dev/termination-log`))
	if diff := cmp.Diff(map[string]any{"file": "x"}, r.Output); diff != "" {
		t.Errorf("%s %s", diff, r.Message)
	}
	r = w.do(jobOf(`echo no result`))
	if diff := cmp.Diff(map[string]any{}, r.Output); diff != "" {
		t.Error(diff)
	}
	r = w.do(jobOf(`echo the disk is full; exit 4`))
	if expect(t, r, operation.Failed); !strings.Contains(r.Message, "the disk is full") || !strings.Contains(r.Message, "exit code 4") {
		t.Errorf("message %q", r.Message)
	}

	req = w.request(jobOf("sleep 1000"))
	r = w.executor.Do(t.Context(), req)
	req = again(req, r)
	if err := w.executor.Stop(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testTimeout, "the Job has gone", func() error {
		if _, err := w.admin.Get(t.Context(), "batch/v1", "Job", w.namespace, r.Ref); err == nil {
			return errStill
		}
		return nil
	})
	expect(t, w.executor.Do(t.Context(), req), operation.Unknown)
	if err := w.executor.Stop(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// An attempt does not begin while the Job of one before is still at work.
func TestOnNodeJobOverlap(t *testing.T) {
	w := newNodeWorld(t)
	first := w.request(jobOf("sleep 1000"))
	r := w.executor.Do(t.Context(), first)
	expect(t, r, operation.Waiting)
	testkit.Eventually(t, testTimeout, "it runs", func() error {
		pods, err := w.admin.List(t.Context(), "v1", "Pod", w.namespace, "")
		if err == nil && len(pods) == 1 {
			return nil
		}
		return errStill
	})
	second := w.request(jobOf("true"))
	held := w.executor.Do(t.Context(), second)
	if expect(t, held, operation.Waiting); !strings.Contains(held.Message, r.Ref) {
		t.Errorf("message %q", held.Message)
	}
	expect(t, w.finish(again(second, held)), operation.Succeeded)
	if _, err := w.admin.Get(t.Context(), "batch/v1", "Job", w.namespace, r.Ref); err == nil {
		t.Error("the first Job is still there")
	}
}

func expectOwner(w *world, name string) error {
	job := w.get("batch/v1", "Job", name)
	if refs := job.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != w.run.UID || job.GetLabels()[v1alpha1.LabelRun] != string(w.run.UID) {
		return fmt.Errorf("owners %v, labels %v", refs, job.GetLabels())
	}
	return nil
}
