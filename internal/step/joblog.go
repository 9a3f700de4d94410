package step

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/internal/apply"
)

const (
	// maxLogs is how much of the end of a log a Job yields, in bytes.
	maxLogs = 4 * 1024
	// logLines is how many lines of the end of a log are read, to find a result in them.
	logLines = 500
)

// jobEnding is what an ended Job leaves.
type jobEnding struct {
	// json is its result; nil: none.
	json map[string]any
	logs string
	// why its container ended, when it failed.
	why string
}

// jobOutput reads what the last pod of a Job says. A pod that is gone says nothing; of one that is there the log may be gone.
func (e *Executor) jobOutput(ctx context.Context, t apply.Target, job *batchv1.Job, complete bool) (jobEnding, error) {
	var out jobEnding
	pods, err := e.podsOf(ctx, job)
	if err != nil && passing(err) {
		return out, err
	}
	if err != nil { // waiting would not help, and the Job has done what it does
		out.logs = fmt.Sprintf("(the log cannot be read: %v)", err)
		return out, nil
	}
	pod := lastPod(pods, complete)
	if pod == nil {
		return out, nil
	}
	container, state := mainContainer(pod)
	if state != nil {
		out.json = objectIn(state.Message)
		if state.ExitCode != 0 {
			out.why = fmt.Sprintf("container %s: exit code %d", container, state.ExitCode)
			if state.Reason != "" && state.Reason != "Error" {
				out.why += ", " + state.Reason
			}
		}
	}
	text, err := e.podLog(ctx, t.Namespace, pod.Name, container)
	if err != nil {
		return out, err
	}
	out.logs = tail(text, maxLogs)
	if out.json == nil {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		out.json = objectIn(lines[len(lines)-1])
	}
	return out, nil
}

// objectIn reads a JSON object; nil: it is none.
func objectIn(text string) map[string]any {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return nil
	}
	value, err := parseJSON([]byte(text))
	if err != nil {
		return nil
	}
	object, _ := value.(map[string]any)
	return object
}

// podsOf lists the pods of a Job, the oldest first.
func (e *Executor) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	t := apply.Target{Kind: podKind, Namespace: job.Namespace}
	list, err := e.resource(t).List(ctx, metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(job.UID)})
	if err != nil {
		return nil, e.writer.Explain(err, "list", t)
	}
	out := make([]corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pod, err := podOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, *pod)
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// lastPod returns the newest pod that ended as the Job did, or else the newest one; nil: there is none.
func lastPod(pods []corev1.Pod, complete bool) *corev1.Pod {
	wanted := corev1.PodFailed
	if complete {
		wanted = corev1.PodSucceeded
	}
	for i := range slices.Backward(pods) {
		if pods[i].Status.Phase == wanted {
			return &pods[i]
		}
	}
	if len(pods) == 0 {
		return nil
	}
	return &pods[len(pods)-1]
}

// mainContainer returns the container that speaks for a pod: the first one; and how it ended, if it has. When it never began, it is
// the one of preparation that failed.
func mainContainer(pod *corev1.Pod) (string, *corev1.ContainerStateTerminated) {
	if len(pod.Spec.Containers) == 0 {
		return "", nil
	}
	name := pod.Spec.Containers[0].Name
	if state := terminated(pod.Status.ContainerStatuses, name); state != nil {
		return name, state
	}
	for _, c := range pod.Spec.InitContainers {
		if state := terminated(pod.Status.InitContainerStatuses, c.Name); state != nil && state.ExitCode != 0 {
			return c.Name, state
		}
	}
	return name, nil
}

func terminated(all []corev1.ContainerStatus, name string) *corev1.ContainerStateTerminated {
	for i := range all {
		if all[i].Name != name {
			continue
		}
		if s := all[i].State.Terminated; s != nil {
			return s
		}
		return all[i].LastTerminationState.Terminated
	}
	return nil
}

// podLog reads the end of a log. A log that is not there (the container never began, the node is gone) is empty.
func (e *Executor) podLog(ctx context.Context, namespace, pod, container string) (string, error) {
	cfg := rest.CopyConfig(e.options.Client.Config)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	server, path, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return "", fmt.Errorf("cannot tell the address of the API server: %w", err)
	}
	u := server.JoinPath(path, "namespaces", namespace, "pods", pod, "log")
	u.RawQuery = url.Values{"container": {container}, "tailLines": {strconv.Itoa(logLines)}, "limitBytes": {strconv.Itoa(MaxRead)}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("cannot make a request: %w", err)
	}
	resp, err := e.options.Client.HTTP.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot read the log: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read only
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxRead))
	if err != nil {
		return "", fmt.Errorf("cannot read the log: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "", fmt.Errorf("cannot read the log: %s", resp.Status)
	case http.StatusForbidden:
		return "(the log cannot be read: the ServiceAccount may not get pods/log)", nil
	default:
		return "", nil
	}
	return string(bytes.ReplaceAll(data, []byte{0}, nil)), nil
}
