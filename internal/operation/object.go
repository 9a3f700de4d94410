package operation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Instance is the identity of an instance.
type Instance struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
}

// InstanceOf returns the identity of an object.
func InstanceOf(object map[string]any) Instance {
	u := unstructured.Unstructured{Object: object}
	return Instance{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}
}

// Parse reads an operation object.
func Parse(object map[string]any) (*Run, error) {
	u := unstructured.Unstructured{Object: object}
	r := &Run{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		Generation: u.GetGeneration(), Created: u.GetCreationTimestamp().Time, Deleting: u.GetDeletionTimestamp() != nil,
		Finalizers: u.GetFinalizers(),
	}
	spec, _ := object["spec"].(map[string]any)
	known := map[string]any{}
	for _, field := range []string{"target", "operation", "cancel", "paused", "retry", "trigger"} {
		if v, ok := spec[field]; ok {
			known[field] = v
		}
	}
	if err := convert(known, &r.Spec); err != nil {
		return nil, fmt.Errorf("cannot read spec of operation object %s: %w", r.Name, err)
	}
	r.Params, _ = spec[r.Spec.Operation].(map[string]any)
	if status, ok := object["status"].(map[string]any); ok {
		if err := convert(status, &r.Status); err != nil {
			return nil, fmt.Errorf("cannot read status of operation object %s: %w", r.Name, err)
		}
	}
	return r, nil
}

func convert(content map[string]any, out any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, out)
}

// NewObject makes the operation object of a run. It has no trigger when a user makes it.
func NewObject(p *program.Program, instance Instance, op *program.Operation, trigger *v1alpha1.RunTrigger, params map[string]any, name string) map[string]any {
	spec := map[string]any{"target": instance.Name, "operation": op.Name}
	if trigger != nil {
		spec["trigger"] = triggerContent(trigger)
	}
	if op.HasParams { // with nothing in it too: the API server fills in defaults only where the field is there
		spec[op.Name] = map[string]any{}
		if len(params) > 0 {
			spec[op.Name] = runtime.DeepCopyJSON(params)
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec, "metadata": Marks(p, instance, op, trigger)}}
	u.SetAPIVersion(p.OperationKind.Kind.GroupVersion().String())
	u.SetKind(p.OperationKind.Kind.Kind)
	u.SetNamespace(instance.Namespace)
	u.SetName(name)
	return u.Object
}

// Marks are the metadata that make an operation object one of its instance.
func Marks(p *program.Program, instance Instance, op *program.Operation, trigger *v1alpha1.RunTrigger) map[string]any {
	meta := map[string]any{
		"labels": map[string]any{
			v1alpha1.LabelDefinition: v1alpha1.DefinitionID(p.Name),
			v1alpha1.LabelTarget:     string(instance.UID),
		},
		"annotations": map[string]any{v1alpha1.AnnotationDefinition: p.Name},
		"ownerReferences": []any{map[string]any{
			"apiVersion": instance.APIVersion, "kind": instance.Kind, "name": instance.Name, "uid": string(instance.UID),
		}},
	}
	if len(op.OnRemove) > 0 || trigger != nil && trigger.Type == v1alpha1.TriggerTypeDelete {
		meta["finalizers"] = []any{v1alpha1.FinalizerRun}
	}
	return meta
}

// maxName is how long the name of an object may be.
const maxName = 253

// NameFor makes the name of a run that a trigger or a step begins: the same for the same cause.
func NameFor(instance, operation, cause string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + operation + "\x00" + cause))
	tail := "-" + strings.ToLower(operation) + "-" + hex.EncodeToString(sum[:5])
	if most := maxName - len(tail); len(instance) > most {
		instance = strings.TrimRight(instance[:most], "-.")
	}
	return instance + tail
}

// HashOf is a hash of a JSON value: 16 hexadecimal digits, the same for the same value.
func HashOf(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte(err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Ended returns when a run ended; zero: it has not.
func (r *Run) Ended() time.Time {
	if !r.Status.State.Ended() || r.Status.CompletionTime == nil {
		return time.Time{}
	}
	return r.Status.CompletionTime.Time
}

// Owner returns an owner reference to the run.
func (r *Run) Owner(kind program.Kind) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: r.Name, UID: r.UID}
}

// Encode returns a value as JSON; nothing if it is none.
func Encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}
