package observe

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rule looks at an object of one kind.
type rule struct {
	check func(o object) result
	// fields are the paths below the object that check reads, beside those of every kind.
	fields [][]string
}

// result of a rule.
type result struct {
	ready   bool
	failed  bool
	message string
}

func yes() result { return result{ready: true} }

func no(format string, args ...any) result { return result{message: fmt.Sprintf(format, args...)} }

func failed(format string, args ...any) result {
	return result{failed: true, message: fmt.Sprintf(format, args...)}
}

// KStatus tells whether the object is ready. If not, message says what is missing; failed means that it will not become ready
// without somebody doing something. An object of a kind without a status is ready when it exists.
func KStatus(obj *unstructured.Unstructured) (ready bool, message string, failed bool) {
	o := object{obj.Object}
	if obj.GetDeletionTimestamp() != nil {
		return false, "it is being deleted", false
	}
	if seen, ok := o.integer("status", "observedGeneration"); ok && seen < o.number("metadata", "generation") {
		return false, "its controller has not seen the newest generation yet", false
	}
	r := rules(obj.GroupVersionKind().GroupKind())
	if r.check == nil {
		r.check = generic
	}
	out := r.check(o)
	return out.ready, out.message, out.failed
}

// Fields are the paths that KStatus reads of the objects of a kind, beside their metadata.
func Fields(group, kind string) [][]string {
	fields := [][]string{{"status", "observedGeneration"}, {"status", "conditions"}}
	return append(fields, rules(schema.GroupKind{Group: group, Kind: kind}).fields...)
}

// rules returns what is special about a kind; the zero rule: nothing.
func rules(kind schema.GroupKind) rule {
	status := func(names ...string) [][]string {
		out := make([][]string, 0, len(names))
		for _, name := range names {
			out = append(out, strings.Split(name, "."))
		}
		return out
	}
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return rule{deployment, status("spec.replicas", "spec.paused", "status.replicas", "status.updatedReplicas", "status.availableReplicas")}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return rule{statefulSet, status("spec.replicas", "spec.updateStrategy", "status.replicas", "status.readyReplicas", "status.currentReplicas",
			"status.updatedReplicas", "status.currentRevision", "status.updateRevision")}
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return rule{daemonSet, status("spec.updateStrategy.type", "status.desiredNumberScheduled", "status.currentNumberScheduled",
			"status.updatedNumberScheduled", "status.numberAvailable")}
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		return rule{replicaSet, status("spec.replicas", "status.replicas", "status.availableReplicas")}
	case schema.GroupKind{Group: "", Kind: "ReplicationController"}:
		return rule{replicaSet, status("spec.replicas", "status.replicas", "status.availableReplicas")}
	case schema.GroupKind{Group: "", Kind: "Pod"}:
		return rule{pod, status("status.phase", "status.reason", "status.message", "status.containerStatuses", "status.initContainerStatuses")}
	case schema.GroupKind{Group: "", Kind: "PersistentVolumeClaim"}:
		return rule{claim, status("status.phase")}
	case schema.GroupKind{Group: "", Kind: "PersistentVolume"}:
		return rule{volume, status("status.phase", "status.message")}
	case schema.GroupKind{Group: "", Kind: "Service"}:
		return rule{service, status("spec.type", "spec.clusterIP", "status.loadBalancer")}
	case schema.GroupKind{Group: "", Kind: "Namespace"}:
		return rule{namespace, status("status.phase")}
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return rule{job, status("spec.completions", "spec.parallelism", "spec.suspend", "status.succeeded", "status.active", "status.failed")}
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return rule{disruptionBudget, status("status.currentHealthy", "status.desiredHealthy")}
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return rule{customResourceDefinition, nil}
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return rule{apiService, nil}
	default:
		return rule{}
	}
}

// generic goes by the conditions Stalled, Reconciling and Ready (or Available), as far as there are any.
func generic(o object) result {
	if c, ok := o.condition("Stalled"); ok && c.status == "True" {
		return failed("%s", c.text())
	}
	if c, ok := o.condition("Reconciling"); ok && c.status == "True" {
		return no("%s", c.text())
	}
	if c, ok := o.condition("Ready"); ok {
		if c.status == "True" && !c.outdated(o) {
			return yes()
		}
		return no("%s", c.text())
	}
	return yes()
}

// object reads an unstructured object.
type object struct{ content map[string]any }

func (o object) value(path ...string) any {
	v, ok, err := unstructured.NestedFieldNoCopy(o.content, path...)
	if !ok || err != nil {
		return nil
	}
	return v
}

func (o object) integer(path ...string) (int64, bool) {
	switch v := o.value(path...).(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), true
	case int:
		return int64(v), true
	}
	return 0, false
}

// number is integer, or 0.
func (o object) number(path ...string) int64 {
	n, _ := o.integer(path...)
	return n
}

// wanted is integer, or 1: the default of replicas.
func (o object) wanted(path ...string) int64 {
	if n, ok := o.integer(path...); ok {
		return n
	}
	return 1
}

func (o object) text(path ...string) string {
	s, _ := o.value(path...).(string)
	return s
}

func (o object) list(path ...string) []any {
	l, _ := o.value(path...).([]any)
	return l
}

// condition is an entry of status.conditions.
type condition struct {
	name, status, reason, message string
	generation                    int64
}

func (o object) condition(name string) (condition, bool) {
	for _, item := range o.list("status", "conditions") {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		c := object{m}
		if c.text("type") == name {
			return condition{name, c.text("status"), c.text("reason"), c.text("message"), c.number("observedGeneration")}, true
		}
	}
	return condition{}, false
}

// outdated tells whether the condition is about an older generation.
func (c condition) outdated(o object) bool {
	return c.generation != 0 && c.generation < o.number("metadata", "generation")
}

// maxMessage bounds what is quoted of a condition, in bytes.
const maxMessage = 256

// text says what the condition says.
func (c condition) text() string {
	out := c.message
	if out == "" {
		out = c.reason
	}
	if out == "" {
		return fmt.Sprintf("its condition %s is %s", c.name, c.status)
	}
	if len(out) > maxMessage {
		out = strings.ToValidUTF8(out[:maxMessage], "") + "…"
	}
	return out
}
