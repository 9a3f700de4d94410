package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/program"
)

// declaration is a CustomResourceDefinition that a Program brings: that of the declared kind, and that of operation objects.
type declaration struct {
	crd *apiextensionsv1.CustomResourceDefinition
	// operations: it is the one of operation objects, of the instances with the resource of.
	operations bool
	of         string
}

// declarations lists what a Program declares, that of the instances first; nothing for a target without operations.
func declarations(p *program.Program) []declaration {
	var out []declaration
	if p.CRD != nil {
		out = append(out, declaration{crd: p.CRD})
	}
	if o := p.OperationKind; o != nil && o.CRD != nil {
		out = append(out, declaration{crd: o.CRD, operations: true, of: p.Instance.GVR().GroupResource().String()})
	}
	return out
}

// request asks for the CustomResourceDefinition.
func (d *declaration) request(definition string, allowBreaking bool) crd.Request {
	req := crd.Request{Want: d.crd, Definition: definition, AllowBreaking: allowBreaking}
	if d.operations {
		req.Annotations = map[string]string{v1alpha1.AnnotationOperationsOf: d.of}
		req.KeepVersions = true // the version is that of the instances, which moves on
		req.Instead = "wait until the operations that are under way have ended"
	}
	return req
}

// crdMemory is what is known of a CustomResourceDefinition: it need not be read while its resource version is the same.
type crdMemory struct {
	want        *apiextensionsv1.CustomResourceDefinition
	allow       bool
	seen        string // the resource version
	established bool
	message     string
}

// applyCRDs applies the CustomResourceDefinitions of a Program, and learns whether the API server serves the kinds.
func (r *Reconciler) applyCRDs(ctx context.Context, s *scope, p *program.Program) error {
	all := declarations(p)
	allow := s.def.Annotations[v1alpha1.AnnotationAllowBreaking] == "true"
	var changed []declaration
	for _, d := range all {
		differs, err := r.crdDiffers(ctx, s, d, allow)
		if err != nil {
			return err
		}
		if differs {
			changed = append(changed, d)
		}
	}
	// All or none: the first one is written when the others would be taken.
	for i := 1; i < len(changed); i++ {
		req := r.crdRequest(s, changed[i], allow)
		req.DryRun = true
		if _, err := r.CRDs.Apply(ctx, req); err != nil {
			return err
		}
	}
	for _, d := range changed {
		if err := r.applyCRD(ctx, s, d, allow); err != nil {
			return err
		}
	}
	s.established = true
	for _, d := range all {
		if m := s.memory.crds[d.crd.Name]; !m.established {
			s.established = false
			s.wait(v1alpha1.ConditionServed, v1alpha1.ReasonCRDNotEstablished, m.message)
		}
	}
	return nil
}

// crdDiffers tells whether a CustomResourceDefinition is not known to be as it should be.
func (r *Reconciler) crdDiffers(ctx context.Context, s *scope, d declaration, allow bool) (bool, error) {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := r.Client.Get(ctx, client.ObjectKey{Name: d.crd.Name}, have); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot read CustomResourceDefinition: %w", err)
	}
	m := s.memory.crds[d.crd.Name]
	return m == nil || m.want != d.crd || m.allow != allow || have.ResourceVersion == "" || m.seen != have.ResourceVersion, nil
}

func (r *Reconciler) crdRequest(s *scope, d declaration, allow bool) crd.Request {
	req := d.request(s.def.Name, allow)
	req.HasObjects = func(ctx context.Context) (bool, error) { return r.hasObjects(ctx, s, d) }
	return req
}

func (r *Reconciler) applyCRD(ctx context.Context, s *scope, d declaration, allow bool) error {
	name := d.crd.Name
	result, err := r.CRDs.Apply(ctx, r.crdRequest(s, d, allow))
	if err != nil {
		return err
	}
	was := s.memory.crds[name]
	m := &crdMemory{want: d.crd, allow: allow, seen: result.Live.ResourceVersion}
	m.established, m.message = crd.Established(result.Live)
	if s.memory.crds == nil {
		s.memory.crds = map[string]*crdMemory{}
	}
	s.memory.crds[name] = m
	if m.established && (was == nil || !was.established) {
		r.Engine.Retry()
	}
	if result.Written {
		r.Metrics.crdWritten(s.def.Name)
		ctrl.LoggerFrom(ctx).Info("Applied the CustomResourceDefinition", "crd", name)
	}
	if result.Adopted {
		s.event(false, "CRDAdopted", "took over CustomResourceDefinition "+name)
	}
	if result.Written && len(result.Breaking) > 0 {
		s.event(true, v1alpha1.ReasonBreakingChange, truncate("let through: "+(&crd.BreakingError{Name: name, Changes: result.Breaking}).Error(), shortMessage))
	}
	return nil
}

// hasObjects tells whether an object of a kind is stored that has to stand a change of its schema. Operations that have ended
// are a record: nobody reads their parameters again.
func (r *Reconciler) hasObjects(ctx context.Context, s *scope, d declaration) (bool, error) {
	last, err := r.lastAccepted(ctx, s, false)
	if err != nil {
		return true, err
	}
	l := &leaving{Reconciler: r, scope: &scope{def: s.def, memory: s.memory, work: last}}
	if l.dynamic, l.mapper, err = r.Clients(l.serviceAccount()); err != nil {
		return true, err
	}
	matters := func(*unstructured.Unstructured) bool { return true }
	if d.operations {
		matters = underWay
	}
	live := &apiextensionsv1.CustomResourceDefinition{} // the new version may not be served yet
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: d.crd.Name}, live); err != nil {
		return true, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", d.crd.Name, err)
	}
	found := false
	err = l.within(ctx, l.resourceOf(live), func(ri dynamic.ResourceInterface) error {
		opts := metav1.ListOptions{Limit: page}
		for !found {
			list, err := ri.List(ctx, opts)
			if err != nil {
				return fmt.Errorf("cannot list objects: %w", err)
			}
			found = slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return matters(&o) })
			if opts.Continue = list.GetContinue(); opts.Continue == "" {
				break
			}
		}
		return nil
	})
	return found || err != nil, err
}

// underWay tells whether an operation has not ended.
func underWay(o *unstructured.Unstructured) bool {
	state, _, _ := unstructured.NestedString(o.Object, "status", "state") // none: nobody has looked at it yet
	return !v1alpha1.RunState(state).Ended()
}

// breakingOperations tells whether an error is a breaking change that is possible when operations have ended.
func breakingOperations(err error, p *program.Program) bool {
	var breaking *crd.BreakingError
	return errors.As(err, &breaking) && p.OperationKind != nil && p.OperationKind.CRD != nil && breaking.Name == p.OperationKind.CRD.Name
}

// kinds are the kinds that a definition has declared, as the API server has them.
type kinds struct {
	// instances is nil for a target, or when the kind is gone.
	instances *apiextensionsv1.CustomResourceDefinition
	// operations are the kinds of operation objects: that of now, and those of earlier revisions.
	operations []apiextensionsv1.CustomResourceDefinition
}

func (l *leaving) kinds(ctx context.Context) (kinds, error) {
	owned, err := l.CRDs.Owned(ctx, l.def.Name)
	if err != nil {
		return kinds{}, err
	}
	var out kinds
	for i := range owned {
		switch c := &owned[i]; {
		case l.def.Spec.CRD != nil && c.Name == crdName(l.def.Spec.CRD):
			out.instances = c
		case c.Annotations[v1alpha1.AnnotationOperationsOf] != "":
			out.operations = append(out.operations, *c)
		}
	}
	return out, nil
}

// resourceOf is where the objects of a kind are.
func (l *leaving) resourceOf(live *apiextensionsv1.CustomResourceDefinition) resource {
	gvr := storageResource(live)
	return resource{l.dynamic.Resource(gvr), gvr, live.Spec.Scope == apiextensionsv1.NamespaceScoped}
}

// own tells whether an owner of the object is of one of the kinds.
func (k kinds) own(o *unstructured.Unstructured) bool {
	is := func(c *apiextensionsv1.CustomResourceDefinition, ref metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		return c.Spec.Group == group && c.Spec.Names.Kind == ref.Kind
	}
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return (k.instances != nil && is(k.instances, ref)) ||
			slices.ContainsFunc(k.operations, func(c apiextensionsv1.CustomResourceDefinition) bool { return is(&c, ref) })
	})
}

// names of the CustomResourceDefinitions, those of operations first: their objects belong to instances.
func (k kinds) names() []string {
	var out []string
	for i := range k.operations {
		out = append(out, k.operations[i].Name)
	}
	if k.instances != nil {
		out = append(out, k.instances.Name)
	}
	return out
}

// crdName is the name of the CustomResourceDefinition that a document declares.
func crdName(spec *v1alpha1.CRDSpec) string {
	plural := spec.Names.Plural
	if plural == "" {
		plural = strings.ToLower(spec.Names.Kind) + "s"
	}
	return plural + "." + spec.Group
}

// storageResource is the resource of a kind in a version that is served, the stored one if possible.
func storageResource(live *apiextensionsv1.CustomResourceDefinition) runtimeschema.GroupVersionResource {
	out := runtimeschema.GroupVersionResource{Group: live.Spec.Group, Resource: live.Spec.Names.Plural}
	for i := range live.Spec.Versions {
		if v := &live.Spec.Versions[i]; v.Served && (out.Version == "" || v.Storage) {
			out.Version = v.Name
		}
	}
	return out
}
