package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/observe"
	"github.com/libretto-dev/libretto/internal/plan"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/watch"
)

// parallelWrites is how many requests one instance may have under way.
const parallelWrites = 16

// applied is what came of one object.
type applied struct {
	desired render.Object
	live    *watch.Object
	outcome apply.Outcome
	err     error
}

// finished is a node whose objects have been applied.
type finished struct {
	node    *program.Node
	objects []applied
	panic   any
}

// walkGraph makes the objects of all nodes, each as soon as what it waits for is there, independent ones at the same time.
// Expressions are computed on this goroutine alone; requests run on others.
func (s *scope) walkGraph(ctx context.Context) error {
	results := make(chan finished, len(s.program.Nodes)) // so that nobody waits for ever if this goroutine panics
	slots := make(chan struct{}, parallelWrites)
	running := 0
	s.run.Computing.Lock()
	defer s.run.Computing.Unlock()
	for {
		for n := s.walk.Next(); n != nil; n = s.walk.Next() {
			objects, ok := s.render(n)
			if !ok {
				continue
			}
			if s.upToDate(n, objects) {
				s.settle(finished{node: n, objects: objects})
				continue
			}
			s.walk.Set(n, plan.Running)
			running++
			go s.applyNode(ctx, n, objects, slots, results)
		}
		if running == 0 {
			break
		}
		f := s.await(results)
		running--
		if f.panic != nil {
			for ; running > 0; running-- {
				s.await(results)
			}
			panic(f.panic)
		}
		s.settle(f)
	}
	for _, n := range s.program.Nodes {
		if s.walk.State(n) == plan.Unvisited {
			s.resources[n.Index].Message = s.walk.Blocked(n)
			s.keepExisting(n)
		}
	}
	return ctx.Err()
}

// await waits for requests, and lets others compute meanwhile.
func (s *scope) await(results <-chan finished) finished {
	s.run.Computing.Unlock()
	defer s.run.Computing.Lock()
	return <-results
}

// render computes the objects of a node and looks up the live ones; false: there is nothing to apply, and why is noted.
func (s *scope) render(n *program.Node) ([]applied, bool) {
	objects, err := s.eval.Render(n)
	switch {
	case errors.Is(err, render.ErrExcluded):
		s.walk.Set(n, plan.Excluded) // readers see an object without fields, as Render has noted
		s.resources[n.Index].State = v1alpha1.ResourceExcluded
		return nil, false
	case err != nil:
		p := evaluationProblem(n.Name, err)
		s.fail(n, p)
		return nil, false
	}
	for _, o := range objects {
		state := s.run.Set().State(o.Kind)
		if o.Kind.Pending {
			state = watch.State{Phase: watch.PhaseNotFound}
		}
		if !state.HasSynced {
			s.watchProblem(n.Name, o.Kind, state)
			s.resources[n.Index].Message = s.problems[len(s.problems)-1].message
			s.walk.Set(n, plan.Waiting)
			if s.problems[len(s.problems)-1].stalled {
				s.resources[n.Index].State = v1alpha1.ResourceFailed
			}
			s.keepExisting(n)
			return nil, false
		}
	}
	list := make([]applied, len(objects))
	for i, o := range objects {
		s.desired[keyOf(o)] = true
		list[i] = applied{desired: o, live: s.run.Set().Get(o.Kind, o.GetNamespace(), o.GetName())}
	}
	return list, true
}

// fail notes that a node cannot go on.
func (s *scope) fail(n *program.Node, p problem) {
	s.problem(p)
	res := &s.resources[n.Index]
	res.Message = bounded(p.message)
	if p.stalled {
		res.State = v1alpha1.ResourceFailed
		s.walk.Set(n, plan.Failed)
	} else {
		res.State = v1alpha1.ResourceWaiting
		s.walk.Set(n, plan.Waiting)
	}
	s.keepExisting(n)
}

// keepExisting keeps what a node that could not be computed has made earlier.
func (s *scope) keepExisting(n *program.Node) {
	for _, o := range s.run.Set().ByInstance(s.obj.UID) {
		if o.Annotations[v1alpha1.AnnotationResource] == n.Name {
			s.desired[itemOf(o).Key] = true
		}
	}
}

func (s *scope) upToDate(n *program.Node, objects []applied) bool {
	for i := range objects {
		a := &objects[i]
		if !s.run.Writer().UpToDate(s.request(n, a)) {
			return false
		}
		a.outcome.Action = apply.Unchanged
	}
	return true
}

func (s *scope) request(n *program.Node, a *applied) apply.Request {
	return apply.Request{
		Desired: a.desired, Live: a.live, Adoption: n.Adoption, UpdatePolicy: n.UpdatePolicy, CreateOnce: n.CreateOnce,
		InstanceLives: s.instanceLives,
	}
}

// instanceLives: an instance that cannot be seen may live all the same, in a namespace that is not watched or as one of
// another definition. Only an object that another instance of this definition held, which is gone, is free.
func (s *scope) instanceLives(uid types.UID) bool {
	return uid != "" && uid != s.obj.UID && (s.run.Set().InstanceByUID(uid) != nil || !s.run.Set().InstanceState().Synced())
}

func (s *scope) applyNode(ctx context.Context, n *program.Node, objects []applied, slots chan struct{}, results chan<- finished) {
	f := finished{node: n, objects: objects}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range objects {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			defer func() {
				if p := recover(); p != nil {
					mu.Lock()
					f.panic = p
					mu.Unlock()
				}
			}()
			s.applyOne(ctx, n, &objects[i])
		}()
	}
	wg.Wait()
	results <- f
}

func (s *scope) applyOne(ctx context.Context, n *program.Node, a *applied) {
	key := circuitKey{uid: s.obj.UID, key: keyOf(a.desired)}
	if why := s.r.breaker.open(key); why != "" && a.live != nil {
		a.err = &fightingError{why: why}
		return
	}
	a.outcome, a.err = s.run.Writer().Apply(ctx, s.request(n, a))
	switch {
	case a.err != nil || a.outcome.Action == apply.Unchanged:
	case s.r.breaker.count(key, s.obj.Generation, a.outcome) && s.r.breaker.enter(key):
		s.run.CountCircuit(1)
	}
}

// settle notes what came of a node, and binds its objects for the expressions of others.
func (s *scope) settle(f finished) {
	n := f.node
	res := &s.resources[n.Index]
	objects := make([]*unstructured.Unstructured, 0, len(f.objects))
	failed := false
	for i := range f.objects {
		a := &f.objects[i]
		s.told(n, a)
		if a.err == nil && a.outcome.Action == apply.Unchanged && s.r.breaker.rest(circuitKey{uid: s.obj.UID, key: keyOf(a.desired)}) {
			s.run.CountCircuit(-1)
		}
		if a.err != nil || a.outcome.Action == apply.Deleted {
			failed = true
			s.objectProblem(n, a)
			continue
		}
		if a.outcome.Object != nil {
			a.live = s.run.Set().Observe(watch.RoleChild, a.desired.Kind, a.outcome.Object)
		}
		objects = append(objects, a.live.Unstructured())
	}
	if failed {
		return
	}
	s.eval.Bind(n, objects)
	ready, message := 0, ""
	for _, o := range objects {
		ok, why, stuck := s.ready(n, o)
		if ok {
			ready++
		} else if message == "" {
			message = fmt.Sprintf("%s %s: %s", o.GetKind(), o.GetName(), why)
		}
		if stuck {
			s.problem(problem{resource: n.Name, reason: v1alpha1.ReasonApplyFailed, stalled: true,
				message: fmt.Sprintf("%s %s failed: %s", o.GetKind(), o.GetName(), why)})
		}
	}
	res.Ready = fmt.Sprintf("%d/%d", ready, len(objects))
	if ready == len(objects) {
		res.State = v1alpha1.ResourceReady
		s.walk.Set(n, plan.Ready)
		return
	}
	res.State, res.Message = v1alpha1.ResourceProgressing, bounded(message)
	s.walk.Set(n, plan.Applied)
}

// ready tells whether an object is ready: by the author's expression, or by what its kind's status says.
func (s *scope) ready(n *program.Node, o *unstructured.Unstructured) (ok bool, why string, stuck bool) {
	if o.GetDeletionTimestamp() != nil {
		return false, "it is being deleted", false
	}
	if n.Ready == nil {
		if unseen(n, o) {
			return false, "its controller has not seen it yet", false
		}
		return observe.KStatus(o)
	}
	ok, why, err := s.eval.Ready(n, o)
	if err != nil {
		p := evaluationProblem(n.Name, err)
		if p.stalled {
			s.problem(p)
		}
		return false, err.Error(), false
	}
	return ok, why, false
}

// unseen tells that an object is of a kind that says how it stands, and has said nothing yet. By kstatus alone it would count
// as ready.
func unseen(n *program.Node, o *unstructured.Unstructured) bool {
	for _, k := range n.Kinds {
		if k.Reports && k.GroupVersionKind == o.GroupVersionKind() {
			_, generation, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "observedGeneration")
			_, conditions, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
			return !generation && !conditions
		}
	}
	return false
}

// objectProblem notes why an object is not as desired.
func (s *scope) objectProblem(n *program.Node, a *applied) {
	var p problem
	var fighting *fightingError
	switch {
	case a.err == nil:
		p = problem{resource: n.Name, reason: v1alpha1.ReasonProgressing,
			message: fmt.Sprintf("%s %s is deleted and made anew", a.desired.GetKind(), a.desired.GetName())}
	case errors.As(a.err, &fighting):
		p = problem{resource: n.Name, reason: v1alpha1.ReasonFighting, message: fmt.Sprintf("%s %s %s",
			a.desired.GetKind(), a.desired.GetName(), fighting.why), stalled: true}
	default:
		p = s.explain(classify(n.Name, a.err), a.err)
	}
	s.fail(n, p)
}

func keyOf(o render.Object) inventory.Key {
	return inventory.Key{GroupKind: o.Kind.GroupKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func itemOf(o *watch.Object) inventory.Item {
	i := inventory.FromMetadata(o.Kind.GroupVersionKind, o.Namespace, o.Name, o.UID, o.Annotations)
	i.Deleting, i.Finalizers = o.Deleting(), o.Finalizers
	return i
}
