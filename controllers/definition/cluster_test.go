package definition_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	configcrd "github.com/libretto-dev/libretto/config/crd"
	"github.com/libretto-dev/libretto/controllers/definition"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/discovery"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/testkit"
)

const patience = 20 * time.Second

// fakeEngine notes what it is told and works on nothing.
type fakeEngine struct {
	mu       sync.Mutex
	specs    map[string]engine.Spec
	state    engine.State
	onChange func(string)
}

func (e *fakeEngine) Ensure(_ context.Context, spec engine.Spec) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.specs[spec.Definition] = spec
	return nil
}

func (e *fakeEngine) Stop(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.specs, name)
}

func (e *fakeEngine) State(name string) (engine.State, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.specs[name]
	return e.state, ok
}

func (*fakeEngine) Retry() {}

func (e *fakeEngine) OnChange(f func(string)) { e.onChange = f }

func (e *fakeEngine) spec(name string) (engine.Spec, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.specs[name]
	return s, ok
}

// set changes the State and tells of it.
func (e *fakeEngine) set(name string, st engine.State) {
	e.mu.Lock()
	e.state = st
	e.mu.Unlock()
	e.onChange(name)
}

// world is a running Reconciler on the cluster under test.
type world struct {
	t        *testing.T
	engine   *fakeEngine
	registry *registry.Registry
	recorder *testkit.Recorder
	client   client.Client
	objects  *testkit.Client
	// namespace holds the ServiceAccount "acting", which may do anything; group is an API group of the test's own.
	namespace, group string
	stop             func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := testkit.Config(t)
	w := &world{t: t, objects: testkit.NewClient(t, cfg), namespace: testkit.Namespace(t, cfg), group: testkit.Group(t)}
	w.objects.Apply(t, "", string(configcrd.OperatorDefinitions)+"\n---\n"+string(configcrd.OperatorRevisions))
	w.objects.Apply(t, w.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: acting}}`)
	binding := w.objects.Apply(t, "", fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: %[1]s, name: acting}]`, w.namespace))
	t.Cleanup(func() {
		_ = w.objects.Delete(context.Background(), "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", binding[0].GetName())
	})
	testkit.Eventually(t, patience, "the API server serves definitions", func() error {
		_, err := w.objects.List(t.Context(), "libretto.dev/v1alpha1", "OperatorRevision", "", "")
		return err
	})
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start runs a Reconciler; with stop before, it is a restart that has lost all memory.
func (w *world) start() {
	t := w.t
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w.recorder = testkit.NewRecorder()
	cfg := w.recorder.Wrap(testkit.Config(t))
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		// Other tests have definitions in the same cluster.
		Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&v1alpha1.OperatorDefinition{}: {Label: labels.SelectorFromSet(labels.Set{"test": w.namespace})}}},
		Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	identities, err := identity.NewFactory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	live, err := discovery.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.engine = &fakeEngine{specs: map[string]engine.Spec{}, state: engine.State{Synced: true}}
	w.registry = registry.New()
	r := &definition.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), CRDs: &crd.Writer{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient()},
		Compiler: &definition.Compiler{Registry: w.registry, Live: live.Catalog}, Registry: w.registry, Engine: w.engine,
		Clients: func(sa *v1alpha1.ServiceAccountReference) (dynamic.Interface, meta.RESTMapper, error) {
			c, err := identities.For(sa)
			if err != nil {
				return nil, nil, err
			}
			return c.Dynamic, c.Mapper, nil
		},
		Events: mgr.GetEventRecorder("libretto"), Elected: mgr.Elected(),
	}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.client = mgr.GetClient()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not fill")
	}
}

// web is the document of a definition that stands for a ConfigMap; more is added to its spec.
func (w *world) web(name, more string) string {
	return fmt.Sprintf(`
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {labels: {test: %[2]s}, name: %[1]s}
spec:
  serviceAccount: {namespace: %[2]s, name: acting}
  crd:
    group: %[3]s
    names: {kind: Web}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {text: {type: string}, size: {type: integer}}}}}}
%[4]s`, name, w.namespace, w.group, more)
}

const configMap = `
  resources:
  - name: config
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}"}, data: {text: "${self.spec.text}"}}
`

// apply applies a document, and deletes it and its CustomResourceDefinition at the end.
func (w *world) apply(doc string) string {
	w.t.Helper()
	out := w.objects.Apply(w.t, "", doc)
	name := out[0].GetName()
	w.t.Cleanup(func() {
		w.stop() // it would put its finalizer back
		ctx := context.Background()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		_ = w.client.Patch(ctx, &v1alpha1.OperatorDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
		_ = w.objects.Delete(ctx, "libretto.dev/v1alpha1", "OperatorDefinition", "", name)
		_ = w.objects.Delete(ctx, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "webs."+w.group)
	})
	return name
}

func (w *world) get(name string) (*v1alpha1.OperatorDefinition, error) {
	u, err := w.objects.Get(w.t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name)
	if err != nil {
		return nil, err
	}
	def := &v1alpha1.OperatorDefinition{}
	return def, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, def)
}

// until waits until the condition has the status and the reason, for the newest generation.
func (w *world) until(name, kind string, status metav1.ConditionStatus, reason string) *v1alpha1.OperatorDefinition {
	w.t.Helper()
	var def *v1alpha1.OperatorDefinition
	testkit.Eventually(w.t, patience, fmt.Sprintf("%s is %s with reason %s", kind, status, reason), func() error {
		var err error
		if def, err = w.get(name); err != nil {
			return err
		}
		c := meta.FindStatusCondition(def.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != def.Generation {
			text, _ := yaml.Marshal(def.Status)
			return fmt.Errorf("generation %d, status:\n%s", def.Generation, text)
		}
		return nil
	})
	return def
}

func (w *world) untilGone(name string) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, name+" is gone", func() error {
		def, err := w.get(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		text, _ := yaml.Marshal(def.Status)
		return fmt.Errorf("it is there, status:\n%s", text)
	})
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.objects.Delete(w.t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) crd() (*apiextensionsv1.CustomResourceDefinition, error) {
	u, err := w.objects.Get(w.t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "webs."+w.group)
	if err != nil {
		return nil, err
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

func (w *world) revisions(name string) []string {
	w.t.Helper()
	list, err := w.objects.List(w.t.Context(), "libretto.dev/v1alpha1", "OperatorRevision", "", v1alpha1.LabelDefinition+"="+v1alpha1.DefinitionID(name))
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, rev := range list {
		out = append(out, rev.GetName())
	}
	slices.Sort(out)
	return out
}
