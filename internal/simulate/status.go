package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/status"
)

// sumUp notes runs that belong to the life of the instance and have not come to a good end.
func (s *pass) sumUp() {
	for _, op := range s.w.program.Operations {
		run := operation.Vital(op, s.runs)
		if run == nil {
			continue
		}
		switch run.Status.State {
		case v1alpha1.RunFailed, v1alpha1.RunUnknown:
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: operation.FailedMessage(op, run)})
		case v1alpha1.RunCancelled:
			instance := strings.ToLower(s.w.program.Instance.Kind) + "/" + s.obj.GetName()
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonOperationFailed, stalled: true, message: operation.CancelledMessage(op, run, instance)})
		case v1alpha1.RunSucceeded:
		case v1alpha1.RunPending, v1alpha1.RunRunning, v1alpha1.RunUndoing, "":
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonProgressing, message: "operation " + op.Name + " is under way"})
		}
	}
}

func (s *pass) sumUpStale() {
	bound := false
	var messages []string
	for _, op := range s.w.program.Operations {
		if op.Stale == 0 {
			continue
		}
		bound = true
		since := s.obj.GetCreationTimestamp().Time
		for _, m := range s.memory {
			if m.Name == op.Name && m.Since.After(since) {
				since = m.Since.Time
			}
		}
		stale, last := operation.Stale(s.w.now, op, since, s.runs)
		if stale {
			messages = append(messages, fmt.Sprintf("operation %s has not succeeded for more than %s", op.Name, op.Stale))
			continue
		}
		if last.IsZero() {
			last = since
		}
		s.w.wakeAt(last.Add(op.Stale + time.Second))
	}
	if !bound {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionOperationStale, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFresh,
		Message: "no operation has gone without success for too long"}
	if len(messages) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonStale, strings.Join(messages, "; ")
	}
	s.authors = append(s.authors, c)
}

// authorsPart computes the author's status fields and conditions.
func (s *pass) authorsPart() {
	fields, err := s.eval.StatusFields()
	if err != nil {
		s.evaluation("", err)
	}
	s.fields = fields
	for _, c := range s.eval.Conditions() {
		s.authors = append(s.authors, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
}

func (s *pass) summarize() status.Summary {
	if len(s.problems) > 0 {
		worst := s.problems[0]
		for _, p := range s.problems[1:] {
			if p.stalled && !worst.stalled {
				worst = p
			}
		}
		if worst.resource != "" {
			worst.message = "resource " + worst.resource + ": " + worst.message
		}
		return status.Summary{Reason: worst.reason, Message: worst.message, Stalled: worst.stalled}
	}
	made := 0
	for _, n := range s.w.program.Nodes {
		switch s.walk.State(n) {
		case plan.Ready:
			made++
		case plan.Excluded:
		case plan.Unvisited, plan.Running, plan.Waiting, plan.Applied, plan.Failed:
			return status.Summary{Reason: v1alpha1.ReasonProgressing, Message: fmt.Sprintf("resource %s: %s", n.Name, s.resources[n.Index].Message)}
		}
	}
	if made == 1 {
		return status.Summary{Ready: true, Reason: v1alpha1.ReasonReady, Message: "1 resource is ready"}
	}
	return status.Summary{Ready: true, Reason: v1alpha1.ReasonReady, Message: fmt.Sprintf("%d resources are ready", made)}
}

// write writes the status of the instance.
func (s *pass) write(sum status.Summary) {
	if !s.w.program.WriteStatus {
		return
	}
	current := s.w.store.get(keyOfObject(s.obj))
	old, _ := current.Object["status"].(map[string]any)
	wanted := maps.Clone(old)
	if wanted == nil {
		wanted = map[string]any{}
	}
	for name, value := range s.fields {
		if wanted[name] = value; value == nil {
			delete(wanted, name)
		}
	}
	is := v1alpha1.InstanceStatus{
		ObservedGeneration: s.obj.GetGeneration(), Revision: revision, Resources: s.resources, Inventory: s.inventory(), Operations: s.was.Operations,
		Conditions: status.Conditions(s.was.Conditions, sum, s.authors, s.obj.GetGeneration(), metav1.NewTime(s.w.now)),
	}
	if s.memory != nil && s.w.program.CRD != nil {
		is.Operations = s.memory
	}
	ours := map[string]any{}
	data, err := json.Marshal(is)
	if err == nil {
		err = json.Unmarshal(data, &ours)
	}
	if err != nil {
		s.w.fault = fmt.Errorf("cannot encode the status: %w", err)
		return
	}
	for _, name := range []string{"conditions", "observedGeneration", "revision", "resources", "inventory", "operations", "deletion"} {
		delete(wanted, name)
		if value, ok := ours[name]; ok {
			wanted[name] = value
		}
	}
	o := current.DeepCopy()
	o.Object["status"] = wanted
	Normalize(o)
	s.w.store.update(o)
}

func (s *pass) inventory() []v1alpha1.InventoryEntry {
	children := s.children()
	items := make([]inventory.Item, 0, len(children))
	for _, o := range children {
		items = append(items, inventory.FromMetadata(o.GroupVersionKind(), o.GetNamespace(), o.GetName(), o.GetUID(), o.GetAnnotations()))
	}
	return inventory.Entries(items)
}
