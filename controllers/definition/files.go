package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
)

// Files puts definitions to work that come from files: there is no OperatorDefinition in the cluster, hence no status, no
// revision and no finalizer. It is a Runnable of a manager. The kinds of which objects may exist are kept in an annotation of
// the CustomResourceDefinition; a target without operations has none, and what an earlier state of its file made of other kinds
// is not found. CustomResourceDefinitions stay, also that of operations when the file has none any more; a change of the
// operations is let through whatever objects of them there are.
type Files struct {
	// Definitions are worked on in this order.
	Definitions []*v1alpha1.OperatorDefinition
	// ActAsSelf ignores the serviceAccount of the definitions: Libretto's own identity acts.
	ActAsSelf bool
	Compiler  *Compiler
	CRDs      *crd.Writer
	Registry  *registry.Registry
	Engine    Engine
	Metrics   *Metrics
	// Report is told how a definition stands when that changes; nil: nobody.
	Report func(definition, message string)
}

// How often Files looks again.
const (
	fileSoon  = 300 * time.Millisecond // something is under way
	fileLater = 5 * time.Second        // a kind is missing, or a request failed
)

// fileState is how one definition stands.
type fileState struct {
	def      *v1alpha1.OperatorDefinition
	program  *program.Program
	settled  bool
	reported string
}

// Start implements manager.Runnable. A definition that does not compile is an error: it ends the manager.
func (f *Files) Start(ctx context.Context) error {
	states, err := f.compileAll(ctx)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	f.Engine.OnChange(func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for {
		wait := time.Duration(0)
		for _, s := range states {
			if d := f.step(ctx, s); d > 0 && (wait == 0 || d < wait) {
				wait = d
			}
		}
		var timer <-chan time.Time // nil: never
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			for _, s := range states {
				f.Engine.Stop(s.def.Name)
			}
			return nil
		case <-timer:
		case <-changed:
		}
	}
}

// compileAll compiles all definitions, twice where one uses a kind that another one declares.
func (f *Files) compileAll(ctx context.Context) ([]*fileState, error) {
	var all diag.List
	states := make([]*fileState, 0, len(f.Definitions))
	for _, d := range f.Definitions {
		def := d.DeepCopy()
		if f.ActAsSelf {
			def.Spec.ServiceAccount = nil
		}
		p, ds := f.Compiler.Compile(ctx, def)
		all = append(all, ds.Errors()...)
		if p != nil {
			states = append(states, &fileState{def: def, program: p})
			f.Registry.Set(def.Name, registry.Entry{Program: p})
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("cannot compile: %w", err)
	}
	for _, s := range states {
		if len(s.program.PendingKinds) > 0 {
			if p, ds := f.Compiler.Compile(ctx, s.def); p != nil {
				s.program = p
			} else {
				all = append(all, ds.Errors()...)
			}
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("cannot compile: %w", err)
	}
	return states, nil
}

// step does what is to be done for a definition, and says when to look again: 0 is when something changes.
func (f *Files) step(ctx context.Context, s *fileState) time.Duration {
	if !s.settled {
		if wait, err := f.put(ctx, s); err != nil {
			f.report(s, err.Error())
			return fileLater
		} else if wait > 0 {
			return wait
		}
		s.settled = true
	}
	wait := time.Duration(0)
	if len(s.program.PendingKinds) > 0 {
		wait = fileLater
		p, ds := f.Compiler.Compile(ctx, s.def)
		switch {
		case p == nil:
			f.report(s, "a kind that it waited for is there now, and does not fit: "+ds.Errors().Summary(shortMessage))
			return fileLater
		case len(p.PendingKinds) < len(s.program.PendingKinds):
			s.program, s.settled = p, false
			return fileSoon
		}
	}
	f.report(s, f.describe(s))
	return wait
}

// put applies the CustomResourceDefinitions and starts the work.
func (f *Files) put(ctx context.Context, s *fileState) (time.Duration, error) {
	kinds := programKinds(s.program)
	waits := ""
	for i, d := range declarations(s.program) {
		req := d.request(s.def.Name, d.operations || s.def.Annotations[v1alpha1.AnnotationAllowBreaking] == "true")
		if i == 0 {
			var err error
			if kinds, err = f.remember(ctx, &req, kinds); err != nil {
				return 0, err
			}
		}
		result, err := f.applyCRD(ctx, s, req)
		if err != nil {
			return 0, err
		}
		if ok, message := crd.Established(result.Live); !ok {
			waits = message
		}
	}
	if waits != "" {
		f.report(s, waits)
		return fileSoon, nil
	}
	revision := RevisionName(s.def.Name, &s.def.Spec)
	f.Registry.Set(s.def.Name, registry.Entry{Program: s.program, Revision: revision})
	err := f.Engine.Ensure(ctx, engine.Spec{
		Definition: s.def.Name, Program: s.program, Revision: revision, ServiceAccount: s.def.Spec.ServiceAccount, ManagedKinds: kinds,
	})
	return 0, err
}

// remember adds the kinds that were written down on the CustomResourceDefinition, and lets them all be written down there.
func (f *Files) remember(ctx context.Context, req *crd.Request, kinds []runtimeschema.GroupVersionKind) ([]runtimeschema.GroupVersionKind, error) {
	all := map[runtimeschema.GroupVersionKind]bool{}
	for _, k := range kinds {
		all[k] = true
	}
	annotations, err := f.CRDs.Annotations(ctx, req.Want.Name, req.Definition)
	if err != nil {
		return nil, err
	}
	for _, text := range strings.Split(annotations[v1alpha1.AnnotationManagedKinds], ",") {
		if gvk, _ := runtimeschema.ParseKindArg(text); gvk != nil {
			all[*gvk] = true
		}
	}
	sorted := sortedKinds(all)
	names := make([]string, len(sorted))
	for i, k := range sorted {
		names[i] = k.Kind + "." + k.Version + "." + k.Group
	}
	if req.Annotations == nil {
		req.Annotations = map[string]string{}
	}
	req.Annotations[v1alpha1.AnnotationManagedKinds] = strings.Join(names, ",")
	return sorted, nil
}

func (f *Files) applyCRD(ctx context.Context, s *fileState, req crd.Request) (*crd.Result, error) {
	result, err := f.CRDs.Apply(ctx, req)
	var conflict *crd.ConflictError
	switch {
	case err == nil:
		if result.Written {
			f.Metrics.crdWritten(s.def.Name)
			ctrl.LoggerFrom(ctx).Info("Applied the CustomResourceDefinition", "crd", req.Want.Name)
		}
		return result, nil
	case errors.As(err, &conflict), apierrors.IsInvalid(err):
		return nil, err
	}
	return nil, fmt.Errorf("cannot declare %s: %w", req.Want.Spec.Names.Kind, err)
}

// describe says how the work stands in one line.
func (f *Files) describe(s *fileState) string {
	st, ok := f.Engine.State(s.def.Name)
	if !ok {
		return "starting"
	}
	var parts []string
	if st.Quarantined != "" {
		parts = append(parts, st.Quarantined)
	}
	for _, w := range st.Watches {
		switch {
		case w.Forbidden:
			parts = append(parts, "may not watch "+kindString(w.Kind))
		case w.NotFound:
			parts = append(parts, "the cluster does not have "+kindString(w.Kind))
		}
	}
	for _, d := range st.Denied {
		parts = append(parts, fmt.Sprintf("may not %s %s", d.Verb, runtimeschema.GroupResource{Group: d.Group, Resource: d.Resource}))
	}
	for _, k := range s.program.PendingKinds {
		parts = append(parts, "waits for "+kindString(k))
	}
	slices.Sort(parts)
	if parts = slices.Compact(parts); len(parts) > 0 {
		return strings.Join(parts, "; ")
	}
	if !st.Synced {
		return "starting"
	}
	return "serving " + kindString(s.program.Instance.GroupVersionKind)
}

func (f *Files) report(s *fileState, message string) {
	if message == s.reported {
		return
	}
	s.reported = message
	if f.Report != nil {
		f.Report(s.def.Name, message)
	}
}
