package runner

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

// NewDoer returns what does the steps of a definition, with its identity. Steps of http may not reach the denied networks.
func NewDoer(run *engine.Run, denyHTTP []netip.Prefix) Doer {
	return step.New(step.Options{
		Client: run.Client(),
		Live: func(kind program.Kind, namespace, name string) *unstructured.Unstructured {
			if o := run.Set().Get(kind, namespace, name); o != nil {
				return o.Unstructured()
			}
			return nil
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
