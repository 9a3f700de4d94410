package engine

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/observe"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/rbac"
	"github.com/libretto-dev/libretto/internal/watch"
)

// retryLookUp is how long to wait after a kind could not be looked up: objects of it may hold up a deletion.
const retryLookUp = 5 * time.Second

// fitWatches makes the watches fit the spec. Kinds of earlier revisions, which the Program does not know, are looked up
// first, in the background.
func (r *Run) fitWatches() {
	r.fitting.Lock()
	defer r.fitting.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	spec := r.Spec()
	p := spec.Program
	permissions := r.Rights(p)
	instances := &watch.Interest{Kind: p.Instance, Namespaces: watchedNamespaces(permissions, p.Instance)}
	if p.Selector != nil {
		if selector, err := selectorOf(p.Selector); err == nil {
			instances.Selector = selector.String()
		}
	}
	known := programKinds(p)
	var children []watch.Interest
	for _, gvk := range spec.ManagedKinds {
		kind, ours := known[gvk]
		if !ours {
			if kind, ours = r.kinds.get(gvk); !ours {
				r.lookUp(gvk)
				continue
			}
		}
		if kind.Pending {
			continue // compiled again when the kind appears
		}
		interest := watch.Interest{
			Kind:     kind,
			Selector: v1alpha1.LabelDefinition + "=" + v1alpha1.DefinitionID(spec.Definition),
			Fields:   FieldsRead(p, kind),
		}
		if _, made := known[gvk]; made {
			interest.Namespaces = watchedNamespaces(permissions, kind)
		}
		children = append(children, interest)
	}
	var operations *watch.Interest
	if p.OperationKind != nil {
		kind := p.OperationKind.Kind
		operations = &watch.Interest{Kind: kind, Namespaces: watchedNamespaces(permissions, kind)}
	}
	r.set.Ensure(instances, operations, children)
}

// lookUp finds the resource of a kind and fits the watches again. It is called by fitWatches.
func (r *Run) lookUp(gvk runtimeschema.GroupVersionKind) {
	if !r.kinds.begin(gvk) {
		return
	}
	r.wg.Go(func() {
		mapping, err := r.client.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case meta.IsNoMatchError(err):
			r.kinds.end(gvk, program.Kind{GroupVersionKind: gvk, Pending: true})
		case err != nil:
			r.log.Error(err, "Cannot look up a kind of an earlier revision", "kind", gvk.String(), "retryAfter", retryLookUp)
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(retryLookUp):
			}
			r.kinds.fail(gvk) // fitting begins another try
		default:
			r.kinds.end(gvk, program.Kind{
				GroupVersionKind: gvk, Resource: mapping.Resource.Resource,
				Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
			})
		}
		r.fitWatches()
	})
}

// kindCache remembers kinds that were looked up.
type kindCache struct {
	mu    sync.Mutex
	kinds map[runtimeschema.GroupVersionKind]program.Kind
	busy  map[runtimeschema.GroupVersionKind]bool
}

func (c *kindCache) get(gvk runtimeschema.GroupVersionKind) (program.Kind, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kinds[gvk]
	return k, ok
}

func (c *kindCache) begin(gvk runtimeschema.GroupVersionKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[gvk] {
		return false
	}
	if c.busy == nil {
		c.busy = map[runtimeschema.GroupVersionKind]bool{}
		c.kinds = map[runtimeschema.GroupVersionKind]program.Kind{}
	}
	c.busy[gvk] = true
	return true
}

func (c *kindCache) end(gvk runtimeschema.GroupVersionKind, kind program.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[gvk] = kind
	delete(c.busy, gvk)
}

func (c *kindCache) fail(gvk runtimeschema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, gvk)
}

// Kind returns a kind that the Program makes, or one of an earlier revision that has been looked up.
func (r *Run) Kind(gvk runtimeschema.GroupVersionKind) (program.Kind, bool) {
	if k, ok := programKinds(r.Spec().Program)[gvk]; ok {
		return k, true
	}
	return r.kinds.get(gvk)
}

func programKinds(p *program.Program) map[runtimeschema.GroupVersionKind]program.Kind {
	kinds := map[runtimeschema.GroupVersionKind]program.Kind{}
	for _, k := range p.StepKinds() {
		kinds[k.GroupVersionKind] = k
	}
	for _, n := range p.Nodes {
		for _, k := range n.Kinds {
			kinds[k.GroupVersionKind] = k
		}
	}
	return kinds
}

// watchedNamespaces returns the namespaces in which the least rights allow a watch of the kind; none: all.
func watchedNamespaces(permissions *rbac.Permissions, kind program.Kind) []string {
	if !kind.Namespaced {
		return nil
	}
	var namespaces []string
	for _, s := range permissions.Scopes {
		if !allowsWatch(s, kind) {
			continue
		}
		if s.Namespace == "" {
			return nil
		}
		namespaces = append(namespaces, s.Namespace)
	}
	return namespaces
}

func allowsWatch(s rbac.Scope, kind program.Kind) bool {
	for i := range s.Rules {
		rule := &s.Rules[i]
		if len(rule.ResourceNames) == 0 && slices.Contains(rule.APIGroups, kind.Group) &&
			slices.Contains(rule.Resources, kind.Resource) && slices.Contains(rule.Verbs, "watch") {
			return true
		}
	}
	return false
}

// FieldsRead returns the paths that expressions and readiness read of the children of a kind; nil: anything.
func FieldsRead(p *program.Program, kind program.Kind) [][]string {
	fields := [][]string{}
	for _, n := range p.Nodes {
		if !slices.Contains(n.Kinds, kind) {
			continue
		}
		if n.Ready == nil {
			fields = append(fields, observe.Fields(kind.Group, kind.Kind)...)
		}
		read := fieldsOf(p.Refs(), n.Name, !n.Single())
		if read == nil {
			return nil
		}
		fields = append(fields, read...)
	}
	return fields
}

// fieldsOf returns the paths that are read of the objects of a variable, each of them when it is a list; nil: anything.
func fieldsOf(refs []expr.Ref, variable string, list bool) [][]string {
	fields := [][]string{}
	for _, ref := range refs {
		if ref.Variable != variable {
			continue
		}
		path := ref.Path
		if list && len(path) > 0 {
			path = path[1:] // the item of the list
		}
		if len(path) == 0 {
			return nil
		}
		fields = append(fields, path)
	}
	return fields
}

func sameKinds(a, b []runtimeschema.GroupVersionKind) bool { return slices.Equal(a, b) }
