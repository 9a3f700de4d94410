package definition

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/rbac"
	"github.com/libretto-dev/libretto/internal/registry"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// scope is what the phases of one reconcile share. Phases fill it; only finish writes the status.
type scope struct {
	// def is the definition; its status is what finish writes.
	def *v1alpha1.OperatorDefinition
	// before is the definition as it was read.
	before *v1alpha1.OperatorDefinition
	// memory is what is kept of the definition between reconciles.
	memory *memory

	// stale: a kind that the Programs use has changed; they have been compiled again, or have to be.
	stale bool
	// candidate is the compiled newest generation; nil when it is not accepted.
	candidate *program.Program
	// work is the revision at work: the candidate, or the last one that was accepted. Its Program is nil when there is none.
	work registry.Entry
	// established tells whether the API server serves the kinds that the definition declares.
	established bool
	// missing are rights that the ServiceAccount lacks.
	missing []rbac.Request

	// problems are what goes wrong, the worst first within each condition.
	problems []problem
	// notes are events to be recorded when the status has been written.
	notes []note
	// requeueAfter is when to look again; zero: when something changes.
	requeueAfter time.Duration
	// done ends the phases; silent leaves the status as it is.
	done, silent bool
}

// problem is something that keeps a definition from being Ready.
type problem struct {
	// condition is Accepted or Served.
	condition string
	reason    string
	message   string
	// stalled: somebody has to act; otherwise it comes by itself.
	stalled bool
}

// note is an event.
type note struct {
	warning         bool
	reason, message string
}

func newScope(def *v1alpha1.OperatorDefinition, m *memory) *scope {
	return &scope{def: def, before: def.DeepCopy(), memory: m}
}

func (s *scope) stall(condition, reason, message string) {
	s.problems = append(s.problems, problem{condition: condition, reason: reason, message: message, stalled: true})
}

func (s *scope) wait(condition, reason, message string) {
	s.problems = append(s.problems, problem{condition: condition, reason: reason, message: message})
}

// again asks for another look after d at the latest.
func (s *scope) again(d time.Duration) {
	if s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

func (s *scope) event(warning bool, reason, message string) {
	s.notes = append(s.notes, note{warning: warning, reason: reason, message: message})
}

// serviceAccount is the identity that acts: that of the revision at work.
func (s *scope) serviceAccount() *v1alpha1.ServiceAccountReference {
	if s.work.Program != nil {
		return s.work.Program.Definition.ServiceAccount
	}
	return s.def.Spec.ServiceAccount
}

// memory is what is kept of a definition between reconciles. It is used by the one worker that has the definition, but for
// stale, groups and crdNames.
type memory struct {
	uid string
	// newest is the compiled newest generation, accepted the compiled revision that status.revision names.
	newest, accepted compiled
	// crds is what is known of the CustomResourceDefinitions, by name.
	crds map[string]*crdMemory
	// former is what is known of kinds of operation objects that the definition has no more.
	former formerMemory
	// rights is what is known of the ServiceAccount.
	rights rightsMemory
	// counted is when the counts of instances were last written.
	counted time.Time
	// compiledAt is when the Programs were last compiled, patience how long to wait until they are compiled again because of
	// kinds that the cluster did not have.
	compiledAt time.Time
	patience   time.Duration
	// failures counts the tries in a row that failed.
	failures int

	mu sync.Mutex
	// stale: a kind that the Programs use has changed.
	stale bool
	// groups are the API groups of kinds that the Programs use.
	groups map[string]bool
	// crdNames are the names of the CustomResourceDefinitions that the definition wants.
	crdNames map[string]bool
}

// compiled is a document and what became of it.
type compiled struct {
	// key identifies the document: empty when there is none.
	key         string
	program     *program.Program
	diagnostics diag.List
}

func (m *memory) takeStale() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.stale
	m.stale = false
	return was
}

// uses notes what a Program depends on outside of the definition.
func (m *memory) uses(ps ...*program.Program) {
	groups, crdNames := map[string]bool{}, map[string]bool{}
	for _, p := range ps {
		if p == nil {
			continue
		}
		for _, k := range p.PendingKinds {
			groups[k.Group] = true
		}
		for _, n := range p.Nodes {
			for _, k := range n.Kinds {
				groups[k.Group] = true
			}
		}
		for i := range p.Externals {
			groups[p.Externals[i].Kind.Group] = true
		}
		p.VisitActions(func(_ *program.Operation, _ *program.Step, a *program.Action) {
			for _, k := range namedKinds(a) {
				groups[k.Group] = true
			}
		})
		for _, d := range declarations(p) {
			crdNames[d.crd.Name] = true
		}
		if p.CRD == nil {
			groups[p.Instance.Group] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups, m.crdNames = groups, crdNames
}

// namedKinds are the kinds that an action names.
func namedKinds(a *program.Action) []program.Kind {
	switch {
	case a.Apply != nil:
		return []program.Kind{a.Apply.Kind}
	case a.Patch != nil && a.Patch.Object.Node == nil:
		return []program.Kind{a.Patch.Object.Kind}
	case a.Delete != nil && a.Delete.Object.Node == nil:
		return []program.Kind{a.Delete.Object.Kind}
	case a.Wait != nil && a.Wait.Object != nil && a.Wait.Object.Node == nil:
		return []program.Kind{a.Wait.Object.Kind}
	}
	return nil
}

// memories holds the memory of each definition. It is safe for concurrent use; its zero value is empty.
type memories struct {
	mu     sync.Mutex
	byName map[string]*memory
}

// of returns the memory of a definition; one with another UID is another definition.
func (ms *memories) of(def *v1alpha1.OperatorDefinition) *memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.byName[def.Name]
	if m == nil || m.uid != string(def.UID) {
		m = &memory{uid: string(def.UID)}
		if ms.byName == nil {
			ms.byName = map[string]*memory{}
		}
		ms.byName[def.Name] = m
	}
	return m
}

func (ms *memories) drop(name string) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.byName, name)
}

func (ms *memories) all() map[string]*memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return maps.Clone(ms.byName)
}

// groupChanged marks the definitions as stale that use kinds of the group, and returns their names.
func (ms *memories) groupChanged(group string) map[string]bool {
	out := map[string]bool{}
	for name, m := range ms.all() {
		m.mu.Lock()
		if m.groups[group] {
			m.stale, out[name] = true, true
		}
		m.mu.Unlock()
	}
	return out
}

// waitingFor returns the definitions that want the CustomResourceDefinition.
func (ms *memories) waitingFor(crdName string) map[string]bool {
	out := map[string]bool{}
	for name, m := range ms.all() {
		m.mu.Lock()
		if m.crdNames[crdName] {
			out[name] = true
		}
		m.mu.Unlock()
	}
	return out
}

// groupOf returns the group of a CustomResourceDefinition by its name, which is PLURAL.GROUP.
func groupOf(crdName string) string {
	_, group, _ := strings.Cut(crdName, ".")
	return group
}
