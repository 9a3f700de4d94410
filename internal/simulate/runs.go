package simulate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

// activity is an attempt that the engine has begun.
type activity struct {
	owner  types.UID
	result operation.Result
	// until is when the result comes in.
	until time.Time
	// due is when a waiting attempt is looked at again; looked is the version of the store that it has seen.
	due    time.Time
	looked int64
}

// driver drives one run.
type driver struct {
	w        *world
	obj      *unstructured.Unstructured
	run      *operation.Run
	op       *program.Operation
	instance *unstructured.Unstructured
}

// drive does what is next for a run: what the reconciler of operation objects does in a cluster.
func (w *world) drive(k key) {
	obj := w.store.get(k)
	if obj == nil {
		return
	}
	run, err := operation.Parse(obj.Object)
	if err != nil {
		w.fault = fmt.Errorf("%s cannot be read: %w", k, err)
		return
	}
	d := &driver{w: w, obj: obj, run: run, op: w.program.Operation(run.Spec.Operation)}
	d.instance = w.store.live(w.program.Instance, run.Namespace, run.Spec.Target)
	switch {
	case obj.GetDeletionTimestamp() != nil:
		d.remove()
	case d.op == nil:
		w.fault = fmt.Errorf("run %s: the definition has no operation %q", run.Name, run.Spec.Operation)
	default:
		if d.adopt() {
			d.advance(false)
		}
	}
}

// adopt gives a run that a user made what those have that triggers make. It tells whether the run can go on.
func (d *driver) adopt() bool {
	if d.instance == nil || d.run.Status.State.Ended() || d.obj.GetLabels()[v1alpha1.LabelTarget] != "" {
		return true
	}
	marked := d.obj.DeepCopy()
	mergePatch(marked.Object, map[string]any{"metadata": operation.Marks(d.w.program, operation.InstanceOf(d.instance.Object), d.op, d.run.Spec.Trigger)})
	Normalize(marked)
	d.w.store.update(marked)
	return false
}

// remove does what has to be done before an operation object goes.
func (d *driver) remove() {
	leaving := d.instance == nil || d.instance.GetDeletionTimestamp() != nil
	switch {
	case d.op != nil && !d.run.Status.State.Ended() && d.instance != nil:
		d.advance(false)
	case leaving || d.op == nil || len(d.op.OnRemove) == 0 || d.run.Status.State != v1alpha1.RunSucceeded:
		d.letGo()
	default:
		if d.advance(true) {
			d.letGo()
		}
	}
}

func (d *driver) letGo() {
	d.w.forget(d.run.UID)
	current := d.w.store.get(keyOfObject(d.obj))
	if current == nil {
		return
	}
	free := current.DeepCopy()
	free.SetFinalizers(slices.DeleteFunc(free.GetFinalizers(), func(f string) bool { return f == v1alpha1.FinalizerRun }))
	d.w.store.update(free)
}

// advance does what Decide says. It tells whether the steps of onRemove are done.
func (d *driver) advance(removing bool) bool {
	w := d.w
	dec := operation.Decide(operation.Input{
		Now: w.now, Operation: d.op, Run: d.run, Turn: d.turn(), Revision: revision, Removing: removing,
		Eval: evaluator{w.evaluation(d.instance)}, Known: w.known,
	})
	if dec.Changed {
		content, err := operation.StatusContent(dec.Status)
		if err != nil {
			w.fault = err
			return false
		}
		o := d.obj.DeepCopy()
		o.Object["status"] = content
		d.obj, _ = w.store.update(o)
		d.run.Status = *dec.Status
	}
	for i := range dec.Stop {
		d.stop(&dec.Stop[i])
	}
	w.wakeAt(dec.Wake)
	for i := range dec.Start {
		if d.begin(dec.Start[i]); w.fault != nil {
			return false
		}
	}
	if dec.Status.State.Ended() && !removing || dec.Removed {
		w.forget(d.run.UID)
	}
	return dec.Removed
}

// turn tells whether the run may go on, beside the other runs of its instance.
func (d *driver) turn() operation.Turn {
	if d.instance == nil {
		return operation.Turn{Fail: fmt.Sprintf("there is no %s %s", d.w.program.Instance.Kind, d.run.Spec.Target)}
	}
	var runs []*operation.Run
	for _, o := range d.w.runs() {
		target, _, _ := unstructured.NestedString(o.Object, "spec", "target")
		if target != d.run.Spec.Target || o.GetNamespace() != d.run.Namespace {
			continue
		}
		if o.GetName() == d.run.Name {
			runs = append(runs, d.run)
		} else if other, err := operation.Parse(o.Object); err == nil {
			runs = append(runs, other)
		}
	}
	return operation.Turns(runs, d.w.program.Operation, d.instance.GetDeletionTimestamp() != nil)[d.run.Name]
}

// known is what the engine knows of an attempt.
func (w *world) known(attempt string) (operation.Standing, operation.Result) {
	a := w.activities[attempt]
	switch {
	case a == nil:
		return operation.Absent, operation.Result{}
	case w.now.Before(a.until):
		w.wakeAt(a.until)
		return operation.Active, operation.Result{}
	}
	return operation.Done, a.result
}

func (w *world) forget(owner types.UID) {
	for id, a := range w.activities {
		if a.owner == owner {
			delete(w.activities, id)
		}
	}
}

// begin makes an attempt, or looks at one again.
func (d *driver) begin(s operation.Start) {
	w := d.w
	a := w.activities[s.Attempt.ID]
	if a != nil && w.now.Before(a.until) {
		w.wakeAt(a.until)
		return
	}
	if a != nil && a.result.Outcome == operation.Waiting && a.looked == w.store.version && (a.due.IsZero() || w.now.Before(a.due)) {
		w.wakeAt(a.due)
		return
	}
	first := a == nil
	if first {
		a = &activity{owner: d.run.UID}
		w.activities[s.Attempt.ID] = a
	}
	req := step.Request{Program: w.program, Instance: d.instance, Run: d.run, Start: s, Eval: evaluator{w.evaluation(d.instance)}}
	before := a.result
	var after time.Duration
	a.result, after = w.do(req)
	a.until, a.due, a.looked = w.now.Add(after), time.Time{}, w.store.version
	if a.result.Outcome == operation.Waiting && a.result.Again > 0 {
		a.due = w.now.Add(a.result.Again)
	}
	if after > 0 {
		w.wakeAt(a.until)
	}
	w.wakeAt(a.due)
	if first || a.result.Outcome != before.Outcome || a.result.Message != before.Message {
		w.turns++
	}
}

// stop ends an attempt, and the run that it has begun.
func (d *driver) stop(s *operation.Start) {
	delete(d.w.activities, s.Attempt.ID)
	if s.Action.Run == nil {
		return
	}
	child := d.w.store.live(d.w.program.OperationKind.Kind, d.run.Namespace, operation.NameFor(d.run.Spec.Target, s.Action.Run.Operation, s.Attempt.ID))
	if child == nil {
		return
	}
	cancelled := child.DeepCopy()
	mergePatch(cancelled.Object, map[string]any{"spec": map[string]any{"cancel": true}})
	d.w.store.update(cancelled)
}
