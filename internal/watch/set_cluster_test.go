package watch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit"
	"github.com/libretto-dev/libretto/internal/watch"
)

const timeout = 20 * time.Second

var (
	configMaps = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true}
	secrets    = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets", Namespaced: true}
)

// events collects what a Set reports.
type events struct {
	mu  sync.Mutex
	all []watch.Event
}

func (e *events) add(event watch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) find(match func(watch.Event) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, match)
}

type fixture struct {
	t         *testing.T
	namespace string
	admin     *identity.Client
	recorder  *testkit.Recorder
	events    events
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, namespace: testkit.Namespace(t, testkit.Config(t)), recorder: testkit.NewRecorder()}
	f.admin = f.client(nil)
	return f
}

func (f *fixture) client(sa *v1alpha1.ServiceAccountReference) *identity.Client {
	f.t.Helper()
	factory, err := identity.NewFactory(f.recorder.Wrap(testkit.Config(f.t)))
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := factory.For(sa)
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

func (f *fixture) set(client *identity.Client) *watch.Set {
	set := watch.NewSet(watch.Options{Client: client.Dynamic, OnEvent: f.events.add})
	f.t.Cleanup(set.Stop)
	return set
}

// interest selects the children of this test's definition.
func (f *fixture) interest(kind program.Kind) watch.Interest {
	return watch.Interest{Kind: kind, Selector: v1alpha1.LabelDefinition + "=" + f.namespace}
}

func (f *fixture) child(name, instance string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": f.namespace, "name": name, "labels": map[string]any{
			v1alpha1.LabelDefinition: f.namespace, v1alpha1.LabelInstance: instance}},
		"data": map[string]any{"x": "1"},
	}}
}

func (f *fixture) apply(obj *unstructured.Unstructured) *unstructured.Unstructured {
	f.t.Helper()
	out, err := f.admin.Dynamic.Resource(configMaps.GVR()).Namespace(f.namespace).Apply(f.t.Context(), obj.GetName(), obj,
		metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

func phase(state func() watch.State, want watch.Phase) func() error {
	return func() error {
		if got := state(); got.Phase != want {
			return fmt.Errorf("phase %s (%v), want %s", got.Phase, got.Err, want)
		}
		return nil
	}
}

func TestSet(t *testing.T) {
	f := newFixture(t)
	f.apply(f.child("a", "i1"))
	set := f.set(f.admin)
	set.Ensure(nil, nil, []watch.Interest{f.interest(configMaps)})
	testkit.Eventually(t, timeout, "synced", phase(func() watch.State { return set.State(configMaps) }, watch.PhaseSynced))
	a := set.Get(configMaps, f.namespace, "a")
	if a == nil || a.Owned.Raw() == "" || a.Content["data"] == nil {
		t.Fatalf("a: %+v", a)
	}
	if !f.events.find(func(e watch.Event) bool { return e.Initial && e.New != nil && e.New.Name == "a" }) {
		t.Error("no initial event")
	}

	// Our own write is known at once.
	b := set.Observe(watch.RoleChild, configMaps, f.apply(f.child("b", "i1")))
	if got := set.Get(configMaps, f.namespace, "b"); got == nil || got.UID != b.UID {
		t.Fatal("b is not known at once")
	}
	if got := set.ByInstance("i1"); len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("children of i1: %v", got)
	}
	testkit.Eventually(t, timeout, "the echo", func() error {
		if !f.events.find(func(e watch.Event) bool { return e.New != nil && e.New.Name == "b" }) {
			return errors.New("no event")
		}
		return nil
	})

	// Somebody else's change, with its manager.
	if _, err := f.admin.Dynamic.Resource(configMaps.GVR()).Namespace(f.namespace).Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"data":{"x":"2"}}`), metav1.PatchOptions{FieldManager: "hand"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, timeout, "the change", func() error {
		if got := set.Get(configMaps, f.namespace, "a"); got.ResourceVersion == a.ResourceVersion {
			return errors.New("not yet")
		}
		return nil
	})
	if got := set.Get(configMaps, f.namespace, "a"); len(got.Managers) != 1 || got.Managers[0].Name != "hand" || got.Owned == a.Owned {
		t.Errorf("managers %v, owned %s", got.Managers, got.Owned.Raw())
	}
	f.recorder.ExpectSilence(t, 500*time.Millisecond)
}

// Objects made from the same template share their owned fields, whatever their instance.
func TestOwnedFieldsAreShared(t *testing.T) {
	f := newFixture(t)
	make := func(name, uid string) *watch.Object {
		obj := f.child(name, uid)
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: types.UID(uid)}})
		return watch.NewObject(configMaps, f.apply(obj))
	}
	a, b := make("a", "00000000-0000-0000-0000-000000000001"), make("b", "00000000-0000-0000-0000-000000000002")
	if a.Owned.Raw() != b.Owned.Raw() || !strings.Contains(a.Owned.Raw(), watch.InstancePlaceholder) {
		t.Errorf("owned fields differ:\n%s\n%s", a.Owned.Raw(), b.Owned.Raw())
	}
}

// A watch that is forbidden hinders nothing, does not run hot, and recovers.
func TestForbiddenWatchRecovers(t *testing.T) {
	f := newFixture(t)
	cfg := testkit.Config(t)
	testkit.ServiceAccount(t, cfg, f.namespace, "sa")
	sa := &v1alpha1.ServiceAccountReference{Namespace: f.namespace, Name: "sa"}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	grant := func(name, resource string) {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"list", "watch"}}}}
		if _, err := cs.RbacV1().Roles(f.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: f.namespace, Name: "sa"}}}
		if _, err := cs.RbacV1().RoleBindings(f.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grant("configmaps", "configmaps")
	in := func(kind program.Kind) watch.Interest {
		i := f.interest(kind)
		i.Namespaces = []string{f.namespace}
		return i
	}
	set := f.set(f.client(sa))
	set.Ensure(nil, nil, []watch.Interest{in(configMaps), in(secrets)})
	testkit.Eventually(t, timeout, "ConfigMaps are watched", phase(func() watch.State { return set.State(configMaps) }, watch.PhaseSynced))
	testkit.Eventually(t, timeout, "Secrets are forbidden", phase(func() watch.State { return set.State(secrets) }, watch.PhaseForbidden))
	var forbidden *watch.ForbiddenError
	if err := set.State(secrets).Err; !errors.As(err, &forbidden) || forbidden.Impersonation || forbidden.Namespace != f.namespace ||
		!slices.Equal(forbidden.Verbs, []string{"list", "watch"}) {
		t.Errorf("error %v: %+v", err, forbidden)
	}
	f.recorder.Reset()
	time.Sleep(3 * time.Second)
	if n := len(f.recorder.Requests()) + len(f.recorder.Watches()); n > 8 {
		t.Errorf("%d requests in 3 s for a watch that is forbidden", n)
	}
	grant("secrets", "secrets")
	set.Retry()
	testkit.Eventually(t, timeout, "Secrets are watched", phase(func() watch.State { return set.State(secrets) }, watch.PhaseSynced))
}

func TestMissingKindAppears(t *testing.T) {
	f := newFixture(t)
	group := testkit.Group(t)
	things := program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"}, Resource: "things", Namespaced: true}
	set := f.set(f.admin)
	set.Ensure(nil, nil, []watch.Interest{f.interest(things)})
	testkit.Eventually(t, timeout, "not found", phase(func() watch.State { return set.State(things) }, watch.PhaseNotFound))
	crds := f.admin.Dynamic.Resource(runtimeschema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := testkit.Objects(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.%[1]s},
spec: {group: %[1]s, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, group))[0]
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = crds.Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}) })
	testkit.Eventually(t, timeout, "watched", phase(func() watch.State { return set.State(things) }, watch.PhaseSynced))
}

func TestExternals(t *testing.T) {
	f := newFixture(t)
	f.apply(f.child("one", "i1"))
	set := f.set(f.admin)
	one := watch.External{Kind: configMaps, Namespace: f.namespace, Name: "one", Fields: [][]string{{"data"}}}
	none := watch.External{Kind: configMaps, Namespace: f.namespace, Name: "none"}
	list := watch.External{Kind: configMaps, Namespace: f.namespace, Labels: map[string]string{v1alpha1.LabelInstance: "i1"}}
	r1, r2 := types.NamespacedName{Namespace: "n", Name: "r1"}, types.NamespacedName{Namespace: "n", Name: "r2"}
	set.WatchExternals(r1, []watch.External{one, none, list})
	set.WatchExternals(r2, []watch.External{one})
	for _, ref := range []watch.External{one, none, list} {
		testkit.Eventually(t, timeout, "synced", phase(func() watch.State { _, s := set.External(ref); return s }, watch.PhaseSynced))
	}
	for i, want := range []int{1, 0, 1} {
		if got, _ := set.External([]watch.External{one, none, list}[i]); len(got) != want {
			t.Errorf("external %d: %d objects, want %d", i, len(got), want)
		}
	}
	if n := len(f.recorder.Watches()); n != 3 {
		t.Errorf("%d watches, want 3", n)
	}
	changed := f.child("one", "i1")
	changed.Object["data"] = map[string]any{"x": "2"}
	f.apply(changed)
	testkit.Eventually(t, timeout, "both readers are told", func() error {
		if !f.events.find(func(e watch.Event) bool {
			return e.Role == watch.RoleExternal && len(e.Readers) == 2 && e.New != nil && e.Old != nil
		}) {
			return errors.New("no event")
		}
		return nil
	})
	set.WatchExternals(r1, nil)
	if _, s := set.External(one); s.Phase != watch.PhaseSynced {
		t.Error("an external that r2 reads has stopped")
	}
	if _, s := set.External(none); s.Phase != "" {
		t.Error("an external that nobody reads goes on")
	}
}

// Stop leaves no goroutine behind, whatever the state of the watches.
func TestStop(t *testing.T) {
	f := newFixture(t)
	missing := program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "Thing"}, Resource: "things"}
	pending := program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "Other"}, Pending: true}
	before := 0
	for round := range 3 {
		set := watch.NewSet(watch.Options{Client: f.admin.Dynamic})
		instances := watch.Interest{Kind: configMaps, Namespaces: []string{f.namespace}}
		set.Ensure(&instances, nil, []watch.Interest{f.interest(configMaps), f.interest(secrets), f.interest(missing), f.interest(pending)})
		set.WatchExternals(types.NamespacedName{Name: "r"}, []watch.External{{Kind: secrets, Namespace: f.namespace, Name: "x"}})
		if round > 0 { // not at once: stop while it starts, too
			testkit.Eventually(t, timeout, "synced", phase(func() watch.State { return set.State(configMaps) }, watch.PhaseSynced))
		}
		set.Stop()
		if round == 0 {
			time.Sleep(200 * time.Millisecond)
			before = runtime.NumGoroutine()
		}
	}
	testkit.Eventually(t, 5*time.Second, "no goroutine is left", func() error {
		if n := runtime.NumGoroutine(); n > before {
			buf := make([]byte, 1<<16)
			return fmt.Errorf("%d goroutines, %d before\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
		return nil
	})
}
