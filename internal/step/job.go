package step

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// maxJobName: the name of a Job is a label of its pods.
const maxJobName = 63

// job runs a Job to its end. Its name is made of the attempt: one that is there was made by it, and is waited for. Each attempt
// makes a Job of its own.
func (e *Executor) job(ctx context.Context, req Request, a *program.JobAction) (operation.Result, error) {
	t, err := e.jobTarget(req, a)
	if err != nil {
		return operation.Result{}, err
	}
	if e.options.Live != nil {
		if live := e.options.Live(t.Kind, t.Namespace, t.Name); live != nil {
			return e.jobResult(ctx, req, t, live)
		}
	}
	if req.Start.Resume {
		live, err := e.get(ctx, t)
		if err != nil {
			return operation.Result{}, e.lookAgain(req, err)
		}
		if live != nil {
			return e.jobResult(ctx, req, t, live)
		}
		if req.Start.Attempt.Ref != "" {
			return operation.Result{}, unknown("%s was deleted before its end was seen: nobody knows whether it had its effect", t)
		}
	}
	if before, err := e.jobBefore(ctx, req, t); err != nil || before != "" {
		if err != nil {
			return operation.Result{}, e.lookAgain(req, err)
		}
		return e.hold(req, "Job "+before+" of an attempt before has not ended yet"), nil
	}
	obj, err := e.jobObject(req, a, t)
	if err != nil {
		return operation.Result{}, err
	}
	made, err := e.writer.Create(ctx, t.Kind, obj)
	if err != nil {
		return operation.Result{}, e.lookAgain(req, err)
	}
	e.wrote(t.Kind, made)
	return e.jobResult(ctx, req, t, made)
}

// jobBefore deletes a Job of an attempt before that has not ended, and returns its name: no two attempts are at work together. It
// was stopped for lack of time, and its pods may take theirs to end.
func (e *Executor) jobBefore(ctx context.Context, req Request, t apply.Target) (string, error) {
	if req.Start.Attempt.Number <= 1 || req.Run.UID == "" {
		return "", nil
	}
	list, err := e.resource(t).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelRun + "=" + string(req.Run.UID)})
	if err != nil {
		return "", e.writer.Explain(err, "list", t)
	}
	for i := range list.Items {
		live := &list.Items[i]
		attempt := live.GetAnnotations()[v1alpha1.AnnotationAttempt]
		if !strings.HasPrefix(attempt, req.Start.Key+".") || attempt == req.Start.Attempt.ID {
			continue
		}
		job, err := jobFrom(live)
		if err != nil {
			return "", err
		}
		if ended, _, _ := jobEnd(job); ended {
			continue
		}
		if live.GetDeletionTimestamp() == nil {
			err = e.writer.Delete(ctx, apply.Deletion{Kind: t.Kind, Namespace: t.Namespace, Name: live.GetName(), UID: live.GetUID(),
				Propagation: metav1.DeletePropagationForeground})
		}
		return live.GetName(), err
	}
	return "", nil
}

func jobFrom(live *unstructured.Unstructured) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, job); err != nil {
		return nil, permanent("cannot read Job %s: %v", live.GetName(), err)
	}
	return job, nil
}

// jobTarget is the Job of the attempt. It needs no more of the template than its namespace.
func (e *Executor) jobTarget(req Request, a *program.JobAction) (apply.Target, error) {
	t := apply.Target{Kind: program.JobKind, Name: hashedName(strings.ToLower(req.Run.Name+"-"+req.Start.Step.Name), "-", req.Start.Attempt.ID, maxJobName)}
	t.Name = strings.ReplaceAll(t.Name, ".", "-")
	given := ""
	part, value, static := a.Template.Lookup("metadata", "namespace")
	switch {
	case static:
		given, _ = value.(string)
	case part != nil:
		var err error
		if given, err = req.Eval.Text(&program.Template{Root: part}, req.Start.Vars); err != nil {
			return t, err
		}
	}
	var err error
	t.Namespace, err = e.namespace(req, given, "the Job")
	return t, err
}

func (e *Executor) jobObject(req Request, a *program.JobAction, t apply.Target) (*unstructured.Unstructured, error) {
	value, err := req.Eval.Template(a.Template, req.Start.Vars)
	if err != nil {
		return nil, err
	}
	content, err := plainObject(value)
	if err != nil {
		return nil, err
	}
	authors, _ := content["metadata"].(map[string]any)
	delete(authors, "generateName")
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": marked(req, authors), "spec": content["spec"]}}
	obj.SetGroupVersionKind(t.Kind.GroupVersionKind)
	obj.SetNamespace(t.Namespace)
	obj.SetName(t.Name)
	switch {
	case req.Run.UID == "" || req.Program.OperationKind == nil || !collected(req, t):
		obj.SetOwnerReferences(nil)
	default:
		obj.SetOwnerReferences([]metav1.OwnerReference{req.Run.Owner(req.Program.OperationKind.Kind)})
	}
	spec, ok := content["spec"].(map[string]any)
	if !ok {
		return nil, permanent("the template of the Job has no spec")
	}
	if _, set := spec["backoffLimit"]; !set {
		spec["backoffLimit"] = int64(0) // the step's retries count
	}
	if pods, found, err := unstructured.NestedMap(spec, "template", "spec"); err == nil && found && pods["restartPolicy"] == nil {
		if err := unstructured.SetNestedField(spec, string(corev1.RestartPolicyNever), "template", "spec", "restartPolicy"); err != nil {
			return nil, permanent("the template of the Job is wrong: %v", err)
		}
	}
	// What happens when a pod cannot be traced any more: its labels tell whose it is, too.
	if err := unstructured.SetNestedField(spec, string(req.Run.UID), "template", "metadata", "labels", v1alpha1.LabelRun); err != nil {
		return nil, permanent("the template of the Job is wrong: %v", err)
	}
	return obj, nil
}

// jobResult tells how a Job stands.
func (e *Executor) jobResult(ctx context.Context, req Request, t apply.Target, live *unstructured.Unstructured) (operation.Result, error) {
	if live.GetAnnotations()[v1alpha1.AnnotationAttempt] != req.Start.Attempt.ID {
		return operation.Result{}, permanent("%s exists and was not made by this step: delete it", t)
	}
	job, err := jobFrom(live)
	if err != nil {
		return operation.Result{}, err
	}
	ended, complete, why := jobEnd(job)
	if !ended {
		if job.DeletionTimestamp != nil {
			return operation.Result{Outcome: operation.Waiting, Ref: t.Name, Again: e.again(req), Message: t.String() + " is being deleted before it ended"}, nil
		}
		return operation.Result{Outcome: operation.Waiting, Ref: t.Name, Again: 2 * againLate, Message: e.jobMessage(ctx, t, job)}, nil
	}
	end, err := e.jobOutput(ctx, t, job, complete)
	if err != nil {
		return operation.Result{}, &waitError{again: e.again(req), message: fmt.Sprintf("%s has ended, its output cannot be read: %v", t, err)}
	}
	result := map[string]any{"name": t.Name, "logs": end.logs, "succeeded": complete}
	out := operation.Result{Outcome: operation.Succeeded, Result: result, Output: map[string]any{}}
	if end.json != nil {
		result["json"], out.Output = end.json, end.json
	}
	if !complete {
		message := fmt.Sprintf("%s failed: %s", t, why)
		if end.why != "" {
			message += "; " + end.why
		}
		out.Outcome, out.Output, out.Message = operation.Failed, nil, bounded(message+cited(end.logs), maxMessage)
	}
	return out, nil
}

// jobEnd tells whether a Job has ended, how, and why it failed.
func jobEnd(job *batchv1.Job) (ended, complete bool, why string) {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return true, true, ""
		case batchv1.JobFailed:
			return true, false, strings.TrimSpace(c.Reason + " " + bounded(c.Message, maxTail/2))
		case batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
		}
	}
	return false, false, ""
}

// jobMessage says what a Job waits for: what its pod says, when it does not run.
func (e *Executor) jobMessage(ctx context.Context, t apply.Target, job *batchv1.Job) string {
	message := t.String() + " is running"
	if job.Status.Active == 0 {
		return t.String() + " has not begun"
	}
	if job.Status.Ready != nil && *job.Status.Ready > 0 {
		return message
	}
	pods, err := e.podsOf(ctx, job)
	if err != nil || len(pods) == 0 {
		return message
	}
	pod := &pods[len(pods)-1]
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" {
			return bounded(fmt.Sprintf("%s: pod %s: %s: %s", t, pod.Name, w.Reason, w.Message), maxMessage)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return bounded(fmt.Sprintf("%s: pod %s: %s", t, pod.Name, c.Message), maxMessage)
		}
	}
	return message
}

// stopJob deletes the Job of an attempt that has not ended, and its pods. Nothing is left running when the Job has gone.
func (e *Executor) stopJob(ctx context.Context, req Request, a *program.JobAction) error {
	t, err := e.jobTarget(req, a)
	if err != nil {
		return err
	}
	live, err := e.begun(ctx, req, t)
	if err != nil || live == nil || live.GetDeletionTimestamp() != nil {
		return err
	}
	if job, err := jobFrom(live); err == nil {
		if ended, _, _ := jobEnd(job); ended {
			return nil // its log may be of use; it goes with the run
		}
	}
	return e.writer.Delete(ctx, apply.Deletion{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: live.GetUID(),
		Propagation: metav1.DeletePropagationForeground})
}
