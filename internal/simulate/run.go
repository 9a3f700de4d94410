package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Result is how a test went.
type Result struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Definition is its name.
	Definition string `json:"definition,omitempty"`
	Passed     bool   `json:"passed"`
	// Steps is how many steps were done.
	Steps    int       `json:"steps"`
	Failures []Failure `json:"failures,omitempty"`
	// Span is how much time passed in the test.
	Span string `json:"span,omitempty"`
	// Elapsed is how long the test took.
	Elapsed time.Duration `json:"-"`
}

// Failure is a step of a test that did not go as expected.
type Failure struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Step counts from 1; 0: before the first one.
	Step        int          `json:"step"`
	Action      string       `json:"action"`
	Message     string       `json:"message,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
}

// String prints it for people.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", f.File, f.Line)
	if f.Step > 0 {
		fmt.Fprintf(&b, "step %d, ", f.Step)
	}
	b.WriteString(f.Action)
	if f.Message != "" {
		b.WriteString(": " + indent(f.Message, "  "))
	}
	for _, d := range f.Differences {
		b.WriteString("\n  " + indent(d.String(), "  "))
	}
	return b.String()
}

// Run runs a test of a compiled definition.
func Run(ctx context.Context, t *Test, p *program.Program) *Result {
	r := &Result{Name: t.Name, File: t.File, Line: t.Line, Definition: p.Name}
	w := newWorld(ctx, p, t)
	for i, o := range t.Given {
		if err := w.given(o); err != nil {
			r.fail(t, diag.Index("given", i), 0, "given", err)
			return r
		}
	}
	if err := w.settle(); err != nil {
		r.fail(t, "given", 0, "given", err)
		return r
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		path := diag.Index("steps", i) + "." + s.action()
		if s.Expect != nil {
			if differences := w.expect(s.Expect); len(differences) > 0 {
				r.Failures = append(r.Failures, Failure{File: t.File, Line: t.place(path), Step: i + 1, Action: "expect", Differences: differences})
				break // what follows builds on it
			}
		} else if err := w.step(s); err != nil {
			r.fail(t, path, i+1, s.action(), err)
			break
		}
		r.Steps++
	}
	r.Passed = len(r.Failures) == 0
	if d := w.now.Sub(t.begin); d > 0 {
		r.Span = d.String()
	}
	return r
}

func (r *Result) fail(t *Test, path string, step int, action string, err error) {
	r.Failures = append(r.Failures, Failure{File: t.File, Line: t.place(path), Step: step, Action: action, Message: err.Error()})
}

// step does a step of a test, and has everything come to rest.
func (w *world) step(s *Step) error {
	var err error
	switch {
	case s.Apply != nil:
		for _, o := range *s.Apply {
			if err = w.applyObject(o); err != nil {
				break
			}
		}
	case s.Patch != nil:
		err = w.patchObject(s.Patch)
	case s.Delete != nil:
		err = w.deleteObject(*s.Delete)
	case s.Start != nil:
		err = w.start(s.Start)
	case s.Cancel != nil:
		err = w.changeRun(s.Cancel.Name, s.Cancel.Operation, map[string]any{"cancel": true})
	case s.Retry != nil:
		retry := map[string]any{"id": fmt.Sprintf("retry-%d", w.store.version)}
		if s.Retry.From != "" {
			retry["from"] = s.Retry.From
		}
		err = w.changeRun(s.Retry.Name, s.Retry.Operation, map[string]any{"retry": retry})
	case s.Ready != nil:
		err = w.readyStep(s.Ready)
	case s.Restart:
		w.restart()
	case s.Advance != "":
		return w.advance(s.advance)
	}
	if s.Refused != "" {
		var refused *refusedError
		switch {
		case err == nil:
			return fmt.Errorf("want it refused with %q, and it was not", s.Refused)
		case !errors.As(err, &refused):
			return err
		case !strings.Contains(err.Error(), s.Refused):
			return fmt.Errorf("want it refused with %q, got: %w", s.Refused, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return w.settle()
}

// refusedError is an object that the API server would not take.
type refusedError struct {
	what string
	list diag.List
}

func (e *refusedError) Error() string {
	return e.what + " is refused: " + strings.TrimSpace(e.list.Errors().String())
}

// object makes an object of what a test says; namespaced ones without a namespace are in default.
func (w *world) object(content v1alpha1.JSONObject) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	if o.GetAPIVersion() == "" || o.GetKind() == "" || o.GetName() == "" {
		return nil, errors.New("an object needs apiVersion, kind and metadata.name")
	}
	if o.GetNamespace() == "" && w.namespaced(o.GroupVersionKind().GroupKind()) {
		o.SetNamespace("default")
	}
	Normalize(o)
	return o, nil
}

// namespaced tells whether objects of a kind are in namespaces, as far as the definition tells.
func (w *world) namespaced(gk runtimeschema.GroupKind) bool {
	if k, ok := w.kind(gk); ok {
		return k.Namespaced || k.Pending
	}
	switch gk {
	case runtimeschema.GroupKind{Kind: "Namespace"}, runtimeschema.GroupKind{Kind: "Node"}, runtimeschema.GroupKind{Kind: "PersistentVolume"},
		runtimeschema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}, runtimeschema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
		runtimeschema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:
		return false
	}
	return true
}

// kind finds a kind that the definition uses.
func (w *world) kind(gk runtimeschema.GroupKind) (program.Kind, bool) {
	p := w.program
	kinds := []program.Kind{p.Instance}
	if p.OperationKind != nil {
		kinds = append(kinds, p.OperationKind.Kind)
	}
	for i := range p.Externals {
		kinds = append(kinds, p.Externals[i].Kind)
	}
	for _, n := range p.Nodes {
		kinds = append(kinds, n.Kinds...)
	}
	p.VisitActions(func(_ *program.Operation, _ *program.Step, a *program.Action) {
		switch {
		case a.Apply != nil:
			kinds = append(kinds, a.Apply.Kind)
		case a.Patch != nil:
			kinds = append(kinds, a.Patch.Object.Kind)
		case a.Delete != nil:
			kinds = append(kinds, a.Delete.Object.Kind)
		case a.Wait != nil && a.Wait.Object != nil:
			kinds = append(kinds, a.Wait.Object.Kind)
		}
	})
	for _, k := range kinds {
		if k.GroupKind() == gk {
			return k, true
		}
	}
	return program.Kind{}, false
}

// admit checks an object of a kind of the definition as the API server would.
func (w *world) admit(o, old *unstructured.Unstructured) error {
	p := w.program
	gk := o.GroupVersionKind().GroupKind()
	var list diag.List
	switch {
	case p.CRD != nil && gk == p.Instance.GroupKind():
		list = Admit(w.ctx, p.CRD, o, old)
		o.SetAPIVersion(p.Instance.GroupVersion().String())
	case p.OperationKind != nil && gk == p.OperationKind.Kind.GroupKind():
		list = Admit(w.ctx, p.OperationKind.CRD, o, old)
	}
	if list.HasErrors() {
		return &refusedError{what: o.GetKind() + " " + o.GetName(), list: list}
	}
	return nil
}

// given puts an object into the world as it is, with its status.
func (w *world) given(content v1alpha1.JSONObject) error {
	o, err := w.object(content)
	if err != nil {
		return err
	}
	if err := w.admit(o, nil); err != nil {
		return err
	}
	_, err = w.store.create(o)
	return err
}

// applyObject is what `kubectl apply` does.
func (w *world) applyObject(content v1alpha1.JSONObject) error {
	o, err := w.object(content)
	if err != nil {
		return err
	}
	k := keyOfObject(o)
	old := w.store.get(k)
	after := o.DeepCopy()
	if old != nil {
		merged := runtime.DeepCopyJSON(old.Object)
		removeLeft(merged, w.store.applied[k]["test"], o.Object)
		setOver(merged, o.Object)
		after = &unstructured.Unstructured{Object: merged}
	}
	if err := w.admit(after, old); err != nil {
		return err
	}
	if old == nil {
		_, err = w.store.create(after)
	} else {
		w.store.update(after)
	}
	if err != nil {
		return err
	}
	if w.store.applied[k] == nil {
		w.store.applied[k] = map[string]map[string]any{}
	}
	w.store.applied[k]["test"] = o.Object
	return nil
}

// patchObject merges a part of an object into one that is there, status and all.
func (w *world) patchObject(content v1alpha1.JSONObject) error {
	patch := named(content)
	o, err := w.lookUp(Reference{APIVersion: patch.GetAPIVersion(), Kind: patch.GetKind(), Namespace: patch.GetNamespace(), Name: patch.GetName()})
	if err != nil {
		return err
	}
	after := o.DeepCopy()
	mergePatch(after.Object, patch.Object)
	Normalize(after)
	if err := w.admit(after, o); err != nil {
		return err
	}
	w.store.update(after)
	return nil
}

// named is a part of an object. It may be named as by references, with name and namespace in place of metadata.
func named(content v1alpha1.JSONObject) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	name, ok := o.Object["name"].(string)
	if !ok || o.GetName() != "" {
		return o
	}
	delete(o.Object, "name")
	o.SetName(name)
	if namespace, ok := o.Object["namespace"].(string); ok {
		delete(o.Object, "namespace")
		o.SetNamespace(namespace)
	}
	return o
}

func (w *world) deleteObject(ref Reference) error {
	o, err := w.lookUp(ref)
	if err != nil {
		return err
	}
	w.store.remove(keyOfObject(o))
	return nil
}

// lookUp finds the object that a test names: by kind and name, and by group and namespace where that is needed.
func (w *world) lookUp(ref Reference) (*unstructured.Unstructured, error) {
	if ref.Kind == "" || ref.Name == "" {
		return nil, errors.New("an object is named by kind and name")
	}
	found := w.store.list(ref.names)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no %s%s", ref, w.others(ref.Kind))
	}
	return nil, fmt.Errorf("there are %d objects %s: say which with apiVersion and namespace", len(found), ref)
}

// names tells whether an object is one that is meant.
func (r Reference) names(o *unstructured.Unstructured) bool {
	return o.GetKind() == r.Kind && o.GetName() == r.Name && (r.Namespace == "" || o.GetNamespace() == r.Namespace) &&
		(r.APIVersion == "" || runtimeschema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group == o.GroupVersionKind().Group)
}

// others lists objects of a kind, for a message.
func (w *world) others(kind string) string {
	var names []string
	for _, o := range w.store.list(func(o *unstructured.Unstructured) bool { return o.GetKind() == kind }) {
		names = append(names, o.GetName())
	}
	if len(names) == 0 {
		return ""
	}
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return "; there is " + strings.Join(names, ", ")
}

// start makes an operation object, as a user would.
func (w *world) start(s *Start) error {
	p := w.program
	if p.OperationKind == nil {
		return errors.New("the definition has no operations")
	}
	instance, err := w.instance(s.Instance)
	if err != nil {
		return err
	}
	op := p.Operation(s.Operation)
	if op == nil {
		var names []string
		for _, op := range p.Operations {
			names = append(names, op.Name)
		}
		return fmt.Errorf("the definition has no operation %q; %s", s.Operation, diag.DidYouMean(s.Operation, names))
	}
	name := s.Name
	for n := 1; name == ""; n++ {
		candidate := fmt.Sprintf("%s-%d", strings.ToLower(s.Operation), n)
		if w.store.live(p.OperationKind.Kind, instance.GetNamespace(), candidate) == nil {
			name = candidate
		}
	}
	spec := map[string]any{"target": instance.GetName(), "operation": s.Operation}
	if op.HasParams || len(s.Params) > 0 { // with nothing in it too: defaults are filled in only where the field is there
		spec[s.Operation] = map[string]any{}
		if len(s.Params) > 0 {
			spec[s.Operation] = map[string]any(s.Params)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(p.OperationKind.Kind.GroupVersion().String())
	o.SetKind(p.OperationKind.Kind.Kind)
	o.SetNamespace(instance.GetNamespace())
	o.SetName(name)
	Normalize(o)
	if err := w.admit(o, nil); err != nil {
		return err
	}
	_, err = w.store.create(o)
	return err
}

// changeRun changes the spec of a run.
func (w *world) changeRun(name, op string, spec map[string]any) error {
	o, err := w.run(name, op)
	if err != nil {
		return err
	}
	run, err := operation.Parse(o.Object)
	if err != nil {
		return err
	}
	if _, retry := spec["retry"]; retry && (!run.Status.State.Ended() || run.Status.State == v1alpha1.RunSucceeded) {
		return fmt.Errorf("run %s cannot be retried: it is %s", run.Name, run.Status.State)
	} else if retry && run.Spec.Cancel {
		return fmt.Errorf("run %s cannot be retried: it was cancelled; start another one", run.Name)
	}
	if retry, _ := spec["retry"].(map[string]any); retry["from"] != nil {
		if err := w.hasStep(run.Spec.Operation, fmt.Sprint(retry["from"])); err != nil {
			return err
		}
	}
	after := o.DeepCopy()
	mergePatch(after.Object, map[string]any{"spec": spec})
	if err := w.admit(after, o); err != nil {
		return err
	}
	w.store.update(after)
	return nil
}

// hasStep refuses a step that an operation does not have.
func (w *world) hasStep(name, step string) error {
	op := w.program.Operation(name)
	if op == nil || op.Step(step) != nil {
		return nil
	}
	names := make([]string, 0, len(op.Steps))
	for _, s := range op.Steps {
		names = append(names, s.Name)
	}
	hint := diag.DidYouMean(step, names)
	if hint == "" {
		hint = "there is " + diag.OneOf(names, 20)
	}
	return fmt.Errorf("operation %s has no step %q; %s", name, step, hint)
}

func (w *world) readyStep(r *references) error {
	if r.all {
		// What waits for others is made once these are ready.
		for range maxPasses {
			version := w.store.version
			w.makeReady()
			if err := w.settle(); err != nil || version == w.store.version {
				return err
			}
		}
		return errors.New("resources are made without end")
	}
	for _, ref := range r.list {
		o, err := w.lookUp(ref)
		if err != nil {
			return err
		}
		w.makeObjectReady(o)
	}
	return nil
}
