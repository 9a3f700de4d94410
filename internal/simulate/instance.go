package simulate

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/observe"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/trigger"
)

// pass is one look at one instance: what the reconciler of instances does in a cluster.
type pass struct {
	w         *world
	obj       *unstructured.Unstructured
	eval      *render.Evaluation
	walk      *plan.Walk
	was       v1alpha1.InstanceStatus
	resources []v1alpha1.ResourceStatus
	desired   map[key]bool
	problems  []problem
	runs      []*operation.Run
	memory    []v1alpha1.OperationMemory
	fields    map[string]any
	authors   []metav1.Condition
}

// problem is something that keeps an instance from being ready.
type problem struct {
	resource, reason, message string
	stalled                   bool
}

func (w *world) pass(k key) {
	obj := w.store.get(k)
	if obj == nil {
		return
	}
	p := w.program
	s := &pass{w: w, obj: obj, eval: render.New(p, obj.Object), walk: plan.New(p), resources: make([]v1alpha1.ResourceStatus, len(p.Nodes)), desired: map[key]bool{}}
	if content, ok := obj.Object["status"].(map[string]any); ok && p.WriteStatus {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s.was); err != nil {
			s.was = v1alpha1.InstanceStatus{}
		}
	}
	for i, n := range p.Nodes {
		s.resources[i] = v1alpha1.ResourceStatus{Name: n.Name, State: v1alpha1.ResourceWaiting}
	}
	if obj.GetDeletionTimestamp() != nil {
		s.delete()
		return
	}
	if matches, err := s.matches(); err != nil || !matches {
		if err != nil {
			s.evaluation("", err)
			s.write(s.summarize())
		}
		return
	}
	if finalizer := s.finalizer(); s.needsFinalizer() && !slices.Contains(obj.GetFinalizers(), finalizer) {
		held := obj.DeepCopy()
		held.SetFinalizers(append(held.GetFinalizers(), finalizer))
		s.obj, _ = w.store.update(held)
		s.eval = render.New(p, s.obj.Object)
	}
	w.bindExternals(s.eval)
	s.walkGraph()
	s.prune()
	s.operate()
	if w.fault != nil {
		return
	}
	if p.WriteStatus {
		s.authorsPart()
	}
	s.write(s.summarize())
}

func (s *pass) matches() (bool, error) {
	p := s.w.program
	if p.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(p.Selector)
		if err != nil || !selector.Matches(labelSet(s.obj.GetLabels())) {
			return false, err
		}
	}
	return s.eval.Matches()
}

func (s *pass) needsFinalizer() bool {
	return s.w.program.NeedsFinalizer() || s.w.program.HasDelete() && s.w.program.HoldFinalizer
}

func (s *pass) finalizer() string {
	if s.w.program.CRD == nil {
		return v1alpha1.TargetFinalizer(s.w.program.Name)
	}
	return v1alpha1.FinalizerInstance
}

// walkGraph makes the objects of all nodes that do not wait for others.
func (s *pass) walkGraph() {
	for n := s.walk.Next(); n != nil; n = s.walk.Next() {
		objects, err := s.eval.Render(n)
		switch {
		case errors.Is(err, render.ErrExcluded):
			s.walk.Set(n, plan.Excluded)
			s.resources[n.Index].State = v1alpha1.ResourceExcluded
		case err != nil:
			s.failed(n, err)
		default:
			s.apply(n, objects)
		}
	}
	for _, n := range s.w.program.Nodes {
		if s.walk.State(n) == plan.Unvisited {
			s.resources[n.Index].Message = s.walk.Blocked(n)
			s.keep(n)
		}
	}
}

func (s *pass) failed(n *program.Node, err error) {
	res := &s.resources[n.Index]
	res.Message = err.Error()
	if s.evaluation(n.Name, err) {
		res.State = v1alpha1.ResourceFailed
		s.walk.Set(n, plan.Failed)
	} else {
		s.walk.Set(n, plan.Waiting)
	}
	s.keep(n)
}

// evaluation notes an error of an expression; it tells whether somebody has to mend it.
func (s *pass) evaluation(resource string, err error) bool {
	var pending *expr.PendingError
	if errors.As(err, &pending) {
		s.problems = append(s.problems, problem{resource: resource, reason: v1alpha1.ReasonWaiting, message: err.Error()})
		return false
	}
	s.problems = append(s.problems, problem{resource: resource, reason: v1alpha1.ReasonEvaluationFailed, message: err.Error(), stalled: true})
	return true
}

// keep keeps what a node that could not be computed has made earlier.
func (s *pass) keep(n *program.Node) {
	for _, o := range s.children() {
		if o.GetAnnotations()[v1alpha1.AnnotationResource] == n.Name {
			s.desired[keyOfObject(o)] = true
		}
	}
}

func (s *pass) children() []*unstructured.Unstructured {
	return s.w.store.list(func(o *unstructured.Unstructured) bool {
		return o.GetLabels()[v1alpha1.LabelInstance] == string(s.obj.GetUID())
	})
}

func (s *pass) apply(n *program.Node, rendered []render.Object) {
	live := make([]*unstructured.Unstructured, 0, len(rendered))
	for _, o := range rendered {
		k := keyOfObject(o.Unstructured)
		s.desired[k] = true
		if now := s.w.store.get(k); now != nil && n.CreateOnce {
			live = append(live, now)
			continue
		}
		made, _ := s.w.store.apply(v1alpha1.FieldManager, o.DeepCopy())
		live = append(live, made)
	}
	s.eval.Bind(n, live)
	ready, message := 0, ""
	for _, o := range live {
		ok, why, stuck := s.ready(n, o)
		if ok {
			ready++
		} else if message == "" {
			message = fmt.Sprintf("%s %s: %s", o.GetKind(), o.GetName(), why)
		}
		if stuck {
			s.problems = append(s.problems, problem{resource: n.Name, reason: v1alpha1.ReasonApplyFailed, stalled: true,
				message: fmt.Sprintf("%s %s failed: %s", o.GetKind(), o.GetName(), why)})
		}
	}
	res := &s.resources[n.Index]
	res.Ready = fmt.Sprintf("%d/%d", ready, len(live))
	res.State = v1alpha1.ResourceReady
	s.walk.Set(n, plan.Ready)
	if ready < len(live) {
		res.State, res.Message = v1alpha1.ResourceProgressing, message
		s.walk.Set(n, plan.Applied)
	}
}

func (s *pass) ready(n *program.Node, o *unstructured.Unstructured) (ok bool, why string, stuck bool) {
	if n.Ready == nil {
		for _, k := range n.Kinds {
			if k.Reports && k.GroupVersionKind == o.GroupVersionKind() && o.Object["status"] == nil {
				return false, "its controller has not seen it yet", false
			}
		}
		return observe.KStatus(o)
	}
	ok, why, err := s.eval.Ready(n, o)
	if err != nil {
		s.evaluation(n.Name, err)
		return false, err.Error(), false
	}
	return ok, why, false
}

// prune removes what no node wants any more, once it is known what all nodes want.
func (s *pass) prune() {
	if !s.walk.MayPrune() {
		return
	}
	for _, o := range s.children() {
		if !s.desired[keyOfObject(o)] {
			s.removeChild(o)
		}
	}
}

// removeChild removes a child, or lets go of one that is retained.
func (s *pass) removeChild(o *unstructured.Unstructured) {
	if o.GetAnnotations()[v1alpha1.AnnotationDeletionPolicy] != string(v1alpha1.DeletionPolicyRetain) {
		s.w.store.remove(keyOfObject(o))
		return
	}
	left := o.DeepCopy()
	labels := left.GetLabels()
	delete(labels, v1alpha1.LabelInstance)
	left.SetLabels(labels)
	s.w.store.update(left)
}

// operate begins the runs whose triggers fire, removes those that are not kept, and sums up how they stand.
func (s *pass) operate() {
	p := s.w.program
	if len(p.Operations) == 0 {
		return
	}
	s.readRuns()
	out := trigger.Evaluate(trigger.Input{
		Now: s.w.now, Operations: p.Operations, Self: s.obj.Object, Revision: revision, Memory: s.was.Operations, Known: s.was.Revision != "",
		Memoryless: p.CRD == nil, Runs: s.runs, Engine: fmt.Sprintf("engine-%d", s.w.engines), Resumed: s.w.resumed[s.obj.GetUID()],
		EngineStart: s.w.began, Eval: evaluator{s.eval}, Watched: s.eval.Bound,
	})
	s.memory = out.Memory
	s.w.wakeAt(out.Wake)
	for _, problem := range out.Problems {
		s.evaluation("", fmt.Errorf("operation %s: trigger %d: %w", problem.Operation, problem.Trigger, problem.Err))
	}
	s.fire(out.Fire)
	for _, name := range out.Cancel {
		if o := s.w.store.live(p.OperationKind.Kind, s.obj.GetNamespace(), name); o != nil {
			cancelled := o.DeepCopy()
			mergePatch(cancelled.Object, map[string]any{"spec": map[string]any{"cancel": true}})
			s.w.store.update(cancelled)
		}
	}
	for _, n := range out.Notes {
		kind := "Normal"
		if n.Warning {
			kind = "Warning"
		}
		s.w.happened.events = append(s.w.happened.events, event{kind, n.Reason, n.Message})
	}
	if out.Resumed {
		s.w.resumed[s.obj.GetUID()] = true
	}
	s.retain()
	s.sumUp()
	s.sumUpStale()
}

func (s *pass) readRuns() {
	s.runs = nil
	for _, o := range s.w.runs() {
		target, _, _ := unstructured.NestedString(o.Object, "spec", "target")
		if uid := o.GetLabels()[v1alpha1.LabelTarget]; target != s.obj.GetName() || o.GetNamespace() != s.obj.GetNamespace() || uid != "" && uid != string(s.obj.GetUID()) {
			continue
		}
		if run, err := operation.Parse(o.Object); err == nil {
			s.runs = append(s.runs, run)
		}
	}
}

// fire makes operation objects; one that is there already was made before.
func (s *pass) fire(firings []trigger.Firing) {
	for _, f := range firings {
		content := operation.NewObject(s.w.program, operation.InstanceOf(s.obj.Object), f.Operation, &f.Trigger, f.Params, f.Name)
		o := &unstructured.Unstructured{Object: content}
		Normalize(o)
		if s.w.store.get(keyOfObject(o)) != nil {
			continue
		}
		if list := Admit(s.w.ctx, s.w.program.OperationKind.CRD, o, nil); list.HasErrors() {
			s.problems = append(s.problems, problem{reason: v1alpha1.ReasonInvalid, stalled: true,
				message: fmt.Sprintf("cannot begin operation %s: %s", f.Operation.Name, list.Err())})
			continue
		}
		made, err := s.w.store.create(o)
		if err != nil {
			continue
		}
		if run, err := operation.Parse(made.Object); err == nil {
			s.runs = append(s.runs, run)
		}
	}
}

func (s *pass) retain() {
	for _, op := range s.w.program.Operations {
		mine := slices.DeleteFunc(slices.Clone(s.runs), func(r *operation.Run) bool { return r.Spec.Operation != op.Name })
		for _, name := range operation.Keep(s.w.now, mine, op.Retain) {
			if o := s.w.store.live(s.w.program.OperationKind.Kind, s.obj.GetNamespace(), name); o != nil {
				s.w.store.remove(keyOfObject(o))
			}
		}
	}
}

// newest returns the newest run that passes; nil: none.
func newest(runs []*operation.Run, among func(*operation.Run) bool) *operation.Run {
	var out *operation.Run
	for _, r := range runs {
		if among(r) && (out == nil || out.Created.Before(r.Created) || out.Created.Equal(r.Created) && out.Name < r.Name) {
			out = r
		}
	}
	return out
}
