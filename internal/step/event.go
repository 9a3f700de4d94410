package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// eventSource is the component that events are from.
const eventSource = "libretto.dev"

// Limits of events, in bytes.
const (
	maxEventReason  = 128
	maxEventMessage = 1024
)

var (
	eventKind  = coreKind("Event", "events")
	podKind    = coreKind("Pod", "pods")
	secretKind = coreKind("Secret", "secrets")
)

func coreKind(kind, resource string) program.Kind {
	return program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: kind}, Resource: resource, Namespaced: true}
}

// event writes an event about the instance, once for all attempts of the step: its name says which step of which run it is of. One
// about a cluster-scoped object lies in the namespace default, where kubectl looks.
func (e *Executor) event(ctx context.Context, req Request, a *program.EventAction) (operation.Result, error) {
	reason, err := req.Eval.Text(a.Reason, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	message, err := req.Eval.Text(a.Message, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	namespace := req.Instance.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	sort := a.Type
	if sort == "" {
		sort = corev1.EventTypeNormal
	}
	now := e.now().UTC().Format(time.RFC3339)
	about := map[string]any{"apiVersion": req.Instance.GetAPIVersion(), "kind": req.Instance.GetKind(), "name": req.Instance.GetName(),
		"uid": string(req.Instance.GetUID())}
	if own := req.Instance.GetNamespace(); own != "" {
		about["namespace"] = own
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{
			"name": hashedName(req.Instance.GetName(), ".", req.Start.Key, 253), "namespace": namespace,
			"labels":      map[string]any{v1alpha1.LabelRun: string(req.Run.UID)},
			"annotations": map[string]any{v1alpha1.AnnotationAttempt: req.Start.Attempt.ID},
		},
		"involvedObject": about, "type": sort, "reason": bounded(reason, maxEventReason), "message": bounded(message, maxEventMessage),
		"firstTimestamp": now, "lastTimestamp": now, "count": int64(1),
		"source": map[string]any{"component": eventSource}, "reportingComponent": eventSource,
	}}
	if _, err := e.writer.Create(ctx, eventKind, obj); err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Outcome: operation.Succeeded}, nil
}

// hashedName makes a name of at most so many bytes: a prefix, and a hash of what it is for.
func hashedName(prefix, separator, of string, most int) string {
	sum := sha256.Sum256([]byte(of))
	end := separator + hex.EncodeToString(sum[:5])
	if room := most - len(end); len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-.")
	}
	return prefix + end
}
