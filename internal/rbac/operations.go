package rbac

import (
	"strings"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Kinds that steps use without naming them.
var (
	podKind    = coreKind("Pod", "pods")
	secretKind = coreKind("Secret", "secrets")
	eventKind  = coreKind("Event", "events")
)

func coreKind(kind, resource string) program.Kind {
	return program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: kind}, Resource: resource, Namespaced: true}
}

// eventNamespace is where events about cluster-scoped objects lie.
const eventNamespace = "default"

// operations adds what operation objects and the steps of operations need.
func (b *builder) operations() {
	p := b.program
	if p.OperationKind == nil {
		return
	}
	k := p.OperationKind.Kind
	where := b.served(k)
	b.add(where, right{
		group: k.Group, resource: b.resource(k), verbs: []string{"get", "list", "watch", "create", "patch", "delete"}, why: "the operations",
	})
	b.add(where, right{group: k.Group, resource: b.resource(k) + "/status", verbs: []string{"patch"}, why: "the status of the operations"})
	p.VisitActions(func(o *program.Operation, s *program.Step, a *program.Action) {
		b.action(stepOf(o, s), a)
	})
	for _, o := range p.Operations {
		for _, s := range o.Steps {
			if s.Verify == nil {
				continue
			}
			b.exec("verify of "+stepOf(o, s), s.Verify.Exec)
			b.http("verify of "+stepOf(o, s), s.Verify.HTTP)
		}
	}
}

func stepOf(o *program.Operation, s *program.Step) string {
	return "operation " + o.Name + ", step " + s.Name
}

// action adds what one action needs. What is not listed (log, set, run) needs nothing beside the rights to instances and
// operation objects.
func (b *builder) action(why string, a *program.Action) {
	switch {
	case a.Apply != nil:
		b.apply(why, a.Apply)
	case a.Patch != nil:
		b.patch(why, a.Patch)
	case a.Delete != nil:
		b.object(why, &a.Delete.Object, "", "get", "delete")
	case a.Wait != nil && a.Wait.Object != nil:
		b.object(why, a.Wait.Object, "", "get")
	case a.Exec != nil:
		b.exec(why, a.Exec)
	case a.Job != nil:
		b.job(why, a.Job)
	case a.HTTP != nil:
		b.http(why, a.HTTP)
	case a.Event != nil:
		where := []string{eventNamespace}
		if b.program.Instance.Namespaced {
			where = b.served(eventKind)
		}
		b.add(where, right{resource: eventKind.Resource, verbs: []string{"get", "create"}, why: why})
	}
}

func (b *builder) apply(why string, a *program.ApplyAction) {
	ns := field(a.Template, "metadata", "namespace")
	where := b.near(why, a.Kind, ns)
	b.add(where, right{
		group: a.Kind.Group, resource: b.resource(a.Kind), verbs: []string{"get", "list", "watch", "create", "patch"}, why: why,
	})
	b.escalation(why, applied(a))
}

// applied is what rights can be read from in the template of an apply step.
func applied(a *program.ApplyAction) written {
	w := written{APIVersion: a.Kind.GroupVersion().String(), Kind: a.Kind.Kind}
	w.Metadata.Namespace = field(a.Template, "metadata", "namespace")
	w.RoleRef.Kind = field(a.Template, "roleRef", "kind")
	w.RoleRef.Name = field(a.Template, "roleRef", "name")
	w.Rules = printed(a.Template, "rules")
	return w
}

func (b *builder) patch(why string, a *program.PatchAction) {
	if a.Subresource == "" {
		b.object(why, &a.Object, "", "get", "patch")
		return
	}
	b.object(why, &a.Object, "", "get")
	b.object(why, &a.Object, "/"+a.Subresource, "patch")
}

// object adds rights to an object that a step names: a resource of the definition, or any other.
func (b *builder) object(why string, ref *program.ObjectReference, subresource string, verbs ...string) {
	if ref.Node != nil {
		spaces := []string{""}
		if spec := b.resourceSpec(ref.Node.Name); spec != nil {
			spaces = writtenNamespaces(spec)
		}
		for _, k := range ref.Node.Kinds {
			for _, ns := range spaces {
				b.add(b.at(k, ns), right{group: k.Group, resource: b.resource(k) + subresource, verbs: verbs, why: why})
			}
		}
		return
	}
	r := right{group: ref.Kind.Group, resource: b.resource(ref.Kind) + subresource, verbs: verbs, why: why}
	if name := text(ref.Name); name != "" && !strings.Contains(name, "${") {
		r.names = []string{name}
	}
	b.add(b.near(why, ref.Kind, text(ref.Namespace)), r)
}

// near is at, with a note where rights are wider than one might think.
func (b *builder) near(why string, k program.Kind, ns string) []string {
	if strings.Contains(ns, "${") && !isInstanceNamespace(ns) && len(b.namespaces) > 0 && k.Namespaced {
		b.note("the namespace in " + why + " is an expression, so its rights are cluster-wide")
	}
	return b.at(k, ns)
}

func (b *builder) exec(why string, a *program.ExecAction) {
	if a == nil {
		return
	}
	where := b.served(podKind)
	find := "get"
	if a.Selector != nil {
		find = "list"
	}
	b.add(where, right{resource: "pods", verbs: []string{find}, why: why})
	// Over a WebSocket it is a GET, for which the API server asks for create as well; over SPDY a POST, which is create alone.
	b.add(where, right{resource: "pods/exec", verbs: []string{"get", "create"}, why: why})
}

func (b *builder) job(why string, a *program.JobAction) {
	k := program.JobKind
	where := b.near(why, k, field(a.Template, "metadata", "namespace"))
	b.add(where, right{
		group: k.Group, resource: k.Resource, verbs: []string{"get", "list", "watch", "create", "delete"}, why: why,
	})
	b.add(where, right{resource: "pods", verbs: []string{"list"}, why: why})
	b.add(where, right{resource: "pods/log", verbs: []string{"get"}, why: why})
}

// http adds the right to read the Secrets of a request.
func (b *builder) http(why string, a *program.HTTPAction) {
	if a == nil {
		return
	}
	secrets := []*program.Template{a.Basic, a.ClientCertificate}
	for _, key := range []*program.SecretKey{a.Bearer, a.CA} {
		if key != nil {
			secrets = append(secrets, key.Secret)
		}
	}
	for _, name := range secrets {
		if name == nil {
			continue
		}
		r := right{resource: secretKind.Resource, verbs: []string{"get"}, why: why}
		if static := text(name); !strings.Contains(static, "${") {
			r.names = []string{static}
		}
		b.add(b.served(secretKind), r)
	}
}

// holdsRuns tells whether operation objects carry Libretto's finalizer.
func holdsRuns(p *program.Program) bool {
	for _, o := range p.Operations {
		if len(o.OnRemove) > 0 || o.On(v1alpha1.EventTriggerDelete) {
			return true
		}
	}
	return false
}
