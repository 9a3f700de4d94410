package runner

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
	"github.com/libretto-dev/libretto/internal/watch"
)

// NewDoer returns what does the steps of a definition, with its identity. Steps of http may not reach the denied networks.
func NewDoer(run *engine.Run, denyHTTP []netip.Prefix) Doer {
	return step.New(step.Options{
		Client: run.Client(),
		Live: func(kind program.Kind, namespace, name string) *unstructured.Unstructured {
			o := run.Set().Get(kind, namespace, name)
			if k := run.Spec().Program.OperationKind; k != nil && k.Kind.GroupVersionKind == kind.GroupVersionKind {
				o = run.Set().Operation(namespace, name)
			}
			if o != nil {
				return o.Unstructured()
			}
			return nil
		},
		Wrote: func(kind program.Kind, obj *unstructured.Unstructured) {
			p := run.Spec().Program
			switch {
			case kind.GroupVersionKind == p.Instance.GroupVersionKind:
				run.Set().Observe(watch.RoleInstance, kind, obj)
			case p.OperationKind != nil && kind.GroupVersionKind == p.OperationKind.Kind.GroupVersionKind:
				o := run.Set().Observe(watch.RoleOperation, kind, obj)
				run.RunChanged(nil, o)
				run.EnqueueRun(engine.Request{Namespace: o.Namespace, Name: o.Name}, engine.RunPriority, 0)
			case obj.GetLabels()[v1alpha1.LabelDefinition] == v1alpha1.DefinitionID(p.Name): // what the watch shows
				run.Set().Observe(watch.RoleChild, kind, obj)
			}
		},
		DenyHTTP: denyHTTP,
		Log: func(req step.Request, line string) {
			run.Log().Info(line, "operation", req.Run.Spec.Operation, "operationObject", req.Run.Namespace+"/"+req.Run.Name)
			run.Tell(engine.Event{
				Instance:  engine.Ref{Kind: req.Program.Instance, Namespace: req.Run.Namespace, Name: req.Run.Spec.Target},
				Operation: req.Run.Spec.Operation, Run: req.Run.Name, Step: req.Start.Step.Name, Action: engine.ActionLog, Message: line,
			})
		},
		Now: run.Clock().Now,
	})
}
