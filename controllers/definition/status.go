package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/rbac"
)

// manyFailures is how many tries in a row fail before the status tells.
const manyFailures = 3

var serviceAccountKind = corev1.SchemeGroupVersion.WithKind("ServiceAccount")

// observe turns the State of the Engine into problems and counts.
func (r *Reconciler) observe(s *scope) {
	st, ok := r.Engine.State(s.def.Name)
	if !ok {
		return // the API server does not serve the kind yet, and that is a problem already
	}
	s.def.Status.Instances = counts(st)
	if st.Quarantined != "" {
		s.stall(v1alpha1.ConditionServed, v1alpha1.ReasonQuarantined, st.Quarantined)
	}
	s.rights(st)
	synced := st.Synced
	pending := map[string]bool{}
	for _, k := range s.work.Program.PendingKinds {
		pending[kindString(k)] = true
	}
	for _, w := range st.Watches {
		own := w.Kind == s.work.Program.Instance.GroupVersionKind
		switch {
		case w.NotFound && !pending[kindString(w.Kind)] && s.established:
			s.stall(servedIf(own), v1alpha1.ReasonKindNotFound, fmt.Sprintf("the API server does not serve %s: install it, or fix the definition", kindString(w.Kind)))
		case own && w.Forbidden:
			synced = true // not starting: rights says what is missing
			s.stall(v1alpha1.ConditionServed, v1alpha1.ReasonForbidden, "the instances cannot be watched: "+s.forbidden([]rbac.Request{watchRequest(w)}))
		case own && w.Error != "" && !w.NotFound:
			s.wait(v1alpha1.ConditionServed, v1alpha1.ReasonStarting, "the instances cannot be watched: "+w.Error)
		}
	}
	if !synced && len(s.problems) == 0 {
		s.wait(v1alpha1.ConditionServed, v1alpha1.ReasonStarting, "the watches are being started")
	}
	// Instances with a status of their own say themselves what is wrong with them: it is no fault of the definition.
	if st.Failing > 0 && !s.work.Program.WriteStatus {
		s.stall("", v1alpha1.ReasonApplyFailed, truncate(fmt.Sprintf("not all could be done for %s; the first: %s", counted(st.Failing, "object"), st.FailingMessage), shortMessage))
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// servedIf is Served when it is the kind of the instances that is gone.
func servedIf(own bool) string {
	if own {
		return v1alpha1.ConditionServed
	}
	return ""
}

func watchRequest(w engine.WatchState) rbac.Request {
	resource := w.Resource.Resource
	if resource == "" {
		resource = strings.ToLower(w.Kind.Kind)
	}
	return rbac.Request{Verb: "watch", Group: w.Kind.Group, Resource: resource}
}

// rights tells what rights are missing, by the check or by what the API server refused.
func (s *scope) rights(st engine.State) {
	missing := slices.Clone(s.missing)
	add := func(q rbac.Request) {
		if !slices.ContainsFunc(missing, func(m rbac.Request) bool {
			return m.Verb == q.Verb && m.Group == q.Group && m.Resource == q.Resource && m.Subresource == q.Subresource && (m.Namespace == "" || m.Namespace == q.Namespace)
		}) {
			missing = append(missing, q)
		}
	}
	for _, d := range st.Denied {
		add(rbac.Request{Verb: d.Verb, Group: d.Group, Resource: d.Resource, Subresource: d.Subresource, Namespace: d.Namespace})
	}
	for _, w := range st.Watches {
		if w.Forbidden && w.Kind != s.work.Program.Instance.GroupVersionKind {
			add(watchRequest(w))
		}
	}
	if len(missing) > 0 {
		s.stall("", v1alpha1.ReasonForbidden, s.forbidden(missing))
	}
}

// forbidden says what the ServiceAccount lacks, which Role would give it, and how to get that.
func (s *scope) forbidden(missing []rbac.Request) string {
	sa := s.serviceAccount()
	permissions := rbac.For(s.work.Program)
	byHolder := map[string][]string{}
	var holders []string
	for _, q := range missing {
		h := permissions.Explain(q).String()
		if byHolder[h] == nil {
			holders = append(holders, h)
		}
		byHolder[h] = append(byHolder[h], q.String())
	}
	slices.Sort(holders)
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = fmt.Sprintf("%s (%s)", strings.Join(byHolder[h], ", "), h)
	}
	return truncate(fmt.Sprintf("ServiceAccount %s/%s may not: %s; `libretto rbac` prints what it needs", sa.Namespace, sa.Name, strings.Join(parts, "; ")), shortMessage)
}

func counts(st engine.State) *v1alpha1.InstanceCounts {
	total, ready, stalled := int32(st.Total), int32(st.Ready), int32(st.Stalled) //nolint:gosec // counts of objects in memory
	return &v1alpha1.InstanceCounts{Total: &total, Ready: &ready, Stalled: &stalled}
}

// finish writes the status, if it differs, and records the events of what has changed.
func (r *Reconciler) finish(ctx context.Context, s *scope, failed error) (ctrl.Result, error) {
	if s.silent {
		return outcome(failed, s.requeueAfter)
	}
	if failed != nil && !apierrors.IsConflict(failed) && !errors.Is(failed, context.Canceled) {
		s.memory.failures++
	}
	if failed != nil {
		// One failed try tells nobody anything; one that goes on does.
		if s.memory.failures < manyFailures {
			return outcome(failed, 0)
		}
		s.def.Status = *s.before.Status.DeepCopy()
		s.wait(v1alpha1.ConditionServed, v1alpha1.ReasonReconcileFailed, truncate(failed.Error(), shortMessage))
	} else {
		s.memory.failures = 0
	}
	s.conditions()
	if err := r.patchStatus(ctx, s); err != nil && failed == nil {
		return outcome(err, 0)
	}
	r.Metrics.observe(s.def.Name, meta.IsStatusConditionTrue(s.def.Status.Conditions, v1alpha1.ConditionReady))
	return outcome(failed, s.requeueAfter)
}

// patchStatus writes the status in one patch, or not at all when nothing differs. Counts alone wait until countInterval has
// passed since the last time.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope) error {
	if equality.Semantic.DeepEqual(s.before.Status, s.def.Status) {
		return nil
	}
	rest, was := s.def.Status.DeepCopy(), s.before.Status.DeepCopy()
	rest.Instances, was.Instances = nil, nil
	if equality.Semantic.DeepEqual(was, rest) {
		if wait := countInterval - r.Clock.Since(s.memory.counted); wait > 0 {
			s.again(wait)
			return nil
		}
	}
	if !equality.Semantic.DeepEqual(s.before.Status.Instances, s.def.Status.Instances) {
		s.memory.counted = r.Clock.Now()
	}
	from := s.def.DeepCopy()
	from.Status = s.before.Status
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, s.def, patch, client.FieldOwner(v1alpha1.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status: %w", err)
	}
	r.record(s)
	return nil
}

// conditions sets the conditions by the problems.
func (s *scope) conditions() {
	generation := s.def.Generation
	s.def.Status.ObservedGeneration = &generation
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.def.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	positive := func(kind, reason, message string) {
		for _, p := range s.problems {
			if p.condition == kind {
				set(kind, metav1.ConditionFalse, p.reason, p.message)
				return
			}
		}
		set(kind, metav1.ConditionTrue, reason, message)
	}
	if s.def.DeletionTimestamp.IsZero() {
		positive(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "revision "+s.def.Status.Revision)
	}
	positive(v1alpha1.ConditionServed, v1alpha1.ReasonServed, "instances are worked on")

	worst := s.worst()
	if worst == nil {
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "instances are worked on as revision "+s.def.Status.Revision+" says")
	} else {
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, worst.reason, truncate(worst.message, shortMessage))
	}
	for kind, stalled := range map[string]bool{v1alpha1.ConditionReconciling: false, v1alpha1.ConditionStalled: true} {
		if i := slices.IndexFunc(s.problems, func(p problem) bool { return p.stalled == stalled }); i >= 0 {
			set(kind, metav1.ConditionTrue, s.problems[i].reason, truncate(s.problems[i].message, shortMessage))
		} else {
			meta.RemoveStatusCondition(&s.def.Status.Conditions, kind)
		}
	}
	slices.SortFunc(s.def.Status.Conditions, func(a, b metav1.Condition) int {
		return slices.Index(conditionOrder, a.Type) - slices.Index(conditionOrder, b.Type)
	})
}

// conditionOrder is that in which conditions are listed.
var conditionOrder = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionAccepted, v1alpha1.ConditionServed,
}

// worst is what Ready tells: what somebody has to do comes before what comes by itself.
func (s *scope) worst() *problem {
	for _, stalled := range []bool{true, false} {
		for i := range s.problems {
			if s.problems[i].stalled == stalled {
				return &s.problems[i]
			}
		}
	}
	return nil
}
