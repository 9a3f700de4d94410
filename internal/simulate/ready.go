package simulate

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// makeReady gives each resource of the definition the status that its controller would give it.
func (w *world) makeReady() {
	for _, o := range w.store.list(func(o *unstructured.Unstructured) bool { return o.GetLabels()[v1alpha1.LabelInstance] != "" }) {
		w.makeObjectReady(o)
	}
}

func (w *world) makeObjectReady(o *unstructured.Unstructured) {
	status := readyStatus(o, w.reports(o))
	if status == nil || o.GetDeletionTimestamp() != nil {
		return
	}
	ready := o.DeepCopy()
	mergePatch(ready.Object, map[string]any{"status": status})
	w.store.update(ready)
}

// reports tells whether the controller of a kind of others reports conditions.
func (w *world) reports(o *unstructured.Unstructured) bool {
	for _, n := range w.program.Nodes {
		if slices.ContainsFunc(n.Kinds, func(k program.Kind) bool { return k.Reports && k.GroupVersionKind == o.GroupVersionKind() }) {
			return true
		}
	}
	return false
}

// readyStatus is the status of an object of which all is well; nil: objects of the kind have none.
func readyStatus(o *unstructured.Unstructured, reports bool) map[string]any {
	generation := o.GetGeneration()
	replicas, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		replicas = 1
	}
	conditions := func(name string) []any {
		return []any{map[string]any{"type": name, "status": "True", "reason": "Test", "message": ""}}
	}
	switch o.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return map[string]any{"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
			"availableReplicas": replicas, "conditions": conditions("Available")}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return map[string]any{"observedGeneration": generation, "replicas": replicas, "readyReplicas": replicas, "currentReplicas": replicas,
			"updatedReplicas": replicas, "availableReplicas": replicas, "currentRevision": "test", "updateRevision": "test"}
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return map[string]any{"observedGeneration": generation, "desiredNumberScheduled": int64(1), "currentNumberScheduled": int64(1),
			"updatedNumberScheduled": int64(1), "numberReady": int64(1), "numberAvailable": int64(1)}
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Kind: "ReplicationController"}:
		return map[string]any{"observedGeneration": generation, "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}
	case schema.GroupKind{Kind: "Pod"}:
		return map[string]any{"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions("Ready")}
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return map[string]any{"phase": "Bound"}
	case schema.GroupKind{Kind: "PersistentVolume"}:
		return map[string]any{"phase": "Available"}
	case schema.GroupKind{Kind: "Namespace"}:
		return map[string]any{"phase": "Active"}
	case schema.GroupKind{Kind: "Service"}:
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "type"); kind == "LoadBalancer" {
			return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.1"}}}}
		}
		return nil
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return map[string]any{"succeeded": int64(1), "conditions": conditions("Complete")}
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return map[string]any{"observedGeneration": generation, "currentHealthy": int64(1), "desiredHealthy": int64(1)}
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return map[string]any{"conditions": conditions("Established")}
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return map[string]any{"conditions": conditions("Available")}
	}
	if reports {
		return map[string]any{"observedGeneration": generation, "conditions": conditions("Ready")}
	}
	return nil
}
