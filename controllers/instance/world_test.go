package instance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/controllers/instance"
	"github.com/libretto-dev/libretto/controllers/operation"
	"github.com/libretto-dev/libretto/internal/compile"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/schema"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// bundle is the kind most tests use: three children, of which two read the first. GROUP is replaced.
const bundle = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: bundles.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Bundle}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                message: {type: string, default: hello}
                port: {type: integer, default: 80}
                shards: {type: integer, default: 0}
                extra: {type: boolean, default: false}
  resources:
  - name: config
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-config"}
      data: {message: "${self.spec.message}"}
  - name: secret
    template:
      apiVersion: v1
      kind: Secret
      metadata: {name: "${self.metadata.name}-secret"}
      stringData: {message: "${config.data.message}"}
  - name: service
    template:
      apiVersion: v1
      kind: Service
      metadata:
        name: "${self.metadata.name}"
        annotations: {config-uid: "${config.metadata.uid}"}
      spec:
        selector: {app: "${self.metadata.name}"}
        ports: [{name: http, port: "${self.spec.port}"}]
  - name: shards
    forEach: {var: i, in: "lists.range(self.spec.shards)"}
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-shard-${i}"}
      data: {index: "${string(i)}"}
  - name: extra
    when: self.spec.extra
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-extra"}
  status:
    fields: {endpoint: "${service.metadata.name}:${self.spec.port}"}
    conditions:
    - {type: Reachable, status: "service.spec.clusterIP != ''", message: "at ${service.spec.clusterIP}"}
`

// world is an engine with one definition or more, and a cluster.
type world struct {
	t         testing.TB
	cfg       *rest.Config
	kube      *testkit.Client
	recorder  *testkit.Recorder
	engine    *engine.Engine
	registry  *registry.Registry
	namespace string
	group     string
	specs     []engine.Spec
	// newReconciler is instance.New unless a test wants another one.
	newReconciler func(*engine.Run) reconcile.TypedReconciler[engine.Request]

	// namespaceLabels is what the engine asks for the labels of a namespace.
	namespaceLabels func(string) (map[string]string, bool)
	// clock of breakers and deadlines: the real one, until a test steps it.
	clock *steppedClock

	// onEvent is told of each event of the engine; nil: nobody is.
	onEvent func(engine.Event)

	mu     sync.Mutex
	events []engine.Event
	notes  []string
}

// newWorld starts an engine for definitions; GROUP and NAMESPACE in them are replaced.
func newWorld(t testing.TB, definitions ...string) *world {
	t.Helper()
	w := &world{t: t, cfg: testkit.Config(t), recorder: testkit.NewRecorder(), group: testkit.Group(t), clock: &steppedClock{}}
	w.kube = testkit.NewClient(t, w.cfg)
	w.namespace = testkit.Namespace(t, w.cfg)
	for _, d := range definitions {
		w.declare(d)
	}
	w.startEngine()
	t.Cleanup(func() { w.engine.StopAll() })
	return w
}

func (w *world) text(s string) string {
	return strings.NewReplacer("GROUP", w.group, "NAMESPACE", w.namespace).Replace(s)
}

// compileText compiles a definition; kinds of the definitions declared before are known.
func (w *world) compileText(text string) *program.Program {
	w.t.Helper()
	docs, _, problems := load.Parse("definition.yaml", []byte(w.text(text)))
	if problems.HasErrors() || len(docs) != 1 {
		w.t.Fatalf("cannot load: %v", problems)
	}
	catalog := schema.Embedded()
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, s := range w.specs {
		if s.Program.CRD != nil {
			crds = append(crds, s.Program.CRD)
		}
	}
	more, err := schema.FromCRDs(crds...)
	if err != nil {
		w.t.Fatal(err)
	}
	p, problems := compile.Compile(docs[0].Definition, compile.Options{Catalog: schema.Chain(catalog, more)})
	if problems.HasErrors() {
		w.t.Fatalf("does not compile:\n%s", problems)
	}
	return p
}

// addCompiled compiles a definition for the engine.
func (w *world) addCompiled(text string) *program.Program {
	w.t.Helper()
	p := w.compileText(text)
	w.specs = append(w.specs, engine.Spec{
		Definition: p.Name, Program: p, Revision: p.Name + "-1", ManagedKinds: kindsOf(p), ServiceAccount: p.Definition.ServiceAccount,
	})
	return p
}

// declare compiles a definition and establishes its CRD.
func (w *world) declare(text string) {
	w.t.Helper()
	p := w.addCompiled(text)
	if p.CRD != nil {
		w.establish(p.CRD, p.Instance)
	}
	if k := p.OperationKind; k != nil {
		w.establish(k.CRD, k.Kind)
	}
}

// establish makes the API server serve a kind.
func (w *world) establish(definition *apiextensionsv1.CustomResourceDefinition, kind program.Kind) {
	w.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		w.t.Fatal(err)
	}
	delete(content, "status")
	crd := &unstructured.Unstructured{Object: content}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if _, err := w.kube.TryApply(w.t.Context(), "", crd); err != nil {
		w.t.Fatalf("the API server does not take the CRD: %v", err)
	}
	w.t.Cleanup(func() {
		_ = w.kube.Delete(context.Background(), crd.GetAPIVersion(), crd.GetKind(), "", crd.GetName())
	})
	testkit.Eventually(w.t, 10*time.Second, "the CRD is established", func() error {
		_, err := w.kube.List(w.t.Context(), kind.GroupVersion().String(), kind.Kind, w.namespace, "")
		return err
	})
}

func kindsOf(p *program.Program) []runtimeschema.GroupVersionKind {
	var kinds []runtimeschema.GroupVersionKind
	for _, k := range p.StepKinds() {
		kinds = append(kinds, k.GroupVersionKind)
	}
	for _, n := range p.Nodes {
		for _, k := range n.Kinds {
			if !slices.Contains(kinds, k.GroupVersionKind) {
				kinds = append(kinds, k.GroupVersionKind)
			}
		}
	}
	slices.SortFunc(kinds, func(a, b runtimeschema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// startEngine starts a new engine, as after a restart of the process.
func (w *world) startEngine() {
	w.t.Helper()
	identities, err := identity.NewFactory(w.recorder.Wrap(w.cfg))
	if err != nil {
		w.t.Fatal(err)
	}
	w.registry = registry.New()
	log := logr.Discard()
	if testing.Verbose() {
		log = testr.NewWithOptions(w.t.(*testing.T), testr.Options{})
	}
	doer := func(r *engine.Run) runner.Doer { return runner.NewDoer(r, nil) }
	if w.newReconciler == nil {
		w.newReconciler = func(r *engine.Run) reconcile.TypedReconciler[engine.Request] { return instance.New(r, doer(r)) }
	}
	w.engine, err = engine.New(engine.Options{
		Identities: identities, Registry: w.registry, NewReconciler: w.newReconciler,
		NewOperations: func(r *engine.Run) reconcile.TypedReconciler[engine.Request] { return operation.New(r, doer(r)) },
		Observer:      w.observe, Recorder: w, Logger: log, Clock: w.clock, NamespaceLabels: w.namespaceLabels,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.specs {
		w.ensure(s)
	}
}

func (w *world) ensure(s engine.Spec) {
	w.t.Helper()
	w.registry.Set(s.Definition, registry.Entry{Program: s.Program, Revision: s.Revision})
	if err := w.engine.Ensure(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// revise puts a new revision of the first definition to work.
func (w *world) revise(text string) {
	w.t.Helper()
	p := w.compileText(text)
	s := &w.specs[0]
	for _, k := range kindsOf(p) {
		if !slices.Contains(s.ManagedKinds, k) {
			s.ManagedKinds = append(slices.Clone(s.ManagedKinds), k)
		}
	}
	s.Program, s.Revision = p, p.Name+"-"+p.Hash
	w.ensure(*s)
}

func (w *world) observe(ev engine.Event) {
	if w.onEvent != nil {
		w.onEvent(ev)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, ev)
}

// Eventf implements events.EventRecorder.
func (w *world) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(note, args...)))
}

var _ events.EventRecorder = &world{}

func (w *world) notesWith(part string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, n := range w.notes {
		if strings.Contains(n, part) {
			out = append(out, n)
		}
	}
	return out
}

func (w *world) actions(action engine.Action) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.Action == action {
			n++
		}
	}
	return n
}

// apply applies YAML in the namespace of the world.
func (w *world) apply(text string) { w.t.Helper(); w.kube.Apply(w.t, w.namespace, w.text(text)) }

func (w *world) bundle(name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf("apiVersion: GROUP/v1\nkind: Bundle\nmetadata: {name: %s}\nspec: %s\n", name, spec))
}

func (w *world) get(apiVersion, kind, name string) (*unstructured.Unstructured, error) {
	return w.kube.Get(w.t.Context(), w.text(apiVersion), kind, w.namespace, name)
}

// condition waits until an object has the condition with the status, and returns its message.
func (w *world) condition(apiVersion, kind, name, conditionType, status string) string {
	w.t.Helper()
	message := ""
	testkit.Eventually(w.t, 20*time.Second, fmt.Sprintf("%s %s is %s=%s", kind, name, conditionType, status), func() error {
		obj, err := w.get(apiVersion, kind, name)
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range list {
			c, _ := c.(map[string]any)
			if c["type"] != conditionType {
				continue
			}
			message, _ = c["message"].(string)
			generation, _ := c["observedGeneration"].(int64)
			if c["status"] == status && generation == obj.GetGeneration() {
				return nil
			}
		}
		return fmt.Errorf("generation %d, status: %v", obj.GetGeneration(), obj.Object["status"])
	})
	return message
}

func (w *world) ready(name string) {
	w.t.Helper()
	w.condition("GROUP/v1", "Bundle", name, "Ready", "True")
}

// children returns the children of all instances in the namespace, as KIND/NAME, sorted.
func (w *world) children() []string {
	w.t.Helper()
	var names []string
	for _, kind := range []string{"ConfigMap", "Secret", "Service"} {
		list, err := w.kube.List(w.t.Context(), "v1", kind, w.namespace, v1alpha1.LabelInstance)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range list {
			names = append(names, kind+"/"+list[i].GetName())
		}
	}
	slices.Sort(names)
	return names
}

func (w *world) eventuallyChildren(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	testkit.Eventually(w.t, 20*time.Second, "the children are as wanted", func() error {
		if got := w.children(); !slices.Equal(got, want) {
			return fmt.Errorf("children %v, want %v", got, want)
		}
		return nil
	})
}

// settle waits until no request has been made for a while.
func (w *world) settle() {
	w.t.Helper()
	last, since := -1, time.Now()
	for time.Since(since) < 500*time.Millisecond {
		if n := len(w.recorder.Requests()); n != last {
			last, since = n, time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// steppedClock is the real clock, some steps ahead.
type steppedClock struct {
	clock.RealClock
	ahead atomic.Int64
}

// Step makes time pass.
func (c *steppedClock) Step(d time.Duration) { c.ahead.Add(int64(d)) }

// Now implements clock.PassiveClock.
func (c *steppedClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.ahead.Load())) }

// Since implements clock.PassiveClock.
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
