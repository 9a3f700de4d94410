package instance_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/rbac"
	"github.com/libretto-dev/libretto/internal/testkit"
)

func TestCreateCostsChildrenPlusOne(t *testing.T) {
	w := newWorld(t, bundle)
	w.settle()
	w.recorder.Reset()
	w.bundle("one", "{}")
	w.ready("one")
	w.settle()
	if diff := cmp.Diff(map[string]int{
		"apply configmaps": 1, "apply secrets": 1, "apply services": 1, "patch bundles." + w.group + "/status": 1,
	}, testkit.Counts(w.recorder.Requests())); diff != "" {
		t.Errorf("requests of a create (-want +got):\n%s", diff)
	}
	w.eventuallyChildren("ConfigMap/one-config", "Secret/one-secret", "Service/one")

	obj, err := w.get("GROUP/v1", "Bundle", "one")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "status", "endpoint"); got != "one:80" {
		t.Errorf("status.endpoint %q", got)
	}
	if len(obj.GetFinalizers()) != 0 {
		t.Errorf("finalizers %v on an instance whose children the garbage collector removes", obj.GetFinalizers())
	}
	if msg := w.condition("GROUP/v1", "Bundle", "one", "Reachable", "True"); !strings.HasPrefix(msg, "at ") {
		t.Errorf("message of the author's condition: %q", msg)
	}
}

func TestUpdateWritesOnlyWhatChanged(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{shards: 2}")
	w.ready("one")
	w.settle()

	w.recorder.Reset()
	w.bundle("one", "{shards: 2, port: 8080}")
	w.ready("one")
	w.settle()
	w.recorder.ExpectWrites(t, map[string]int{"apply services": 1, "patch bundles." + w.group + "/status": 1})

	w.recorder.Reset()
	w.bundle("one", "{shards: 1, port: 8080, extra: true}") // one shard goes, one resource comes
	w.ready("one")
	w.eventuallyChildren("ConfigMap/one-config", "Secret/one-secret", "Service/one", "ConfigMap/one-shard-0", "ConfigMap/one-extra")
	w.settle()
	counts := testkit.Counts(w.recorder.Writes())
	if counts["apply configmaps"] != 1 || counts["delete configmaps"] != 1 || counts["apply services"] != 0 {
		t.Errorf("writes %v", counts)
	}
	w.bundle("one", "{extra: false}")
	w.eventuallyChildren("ConfigMap/one-config", "Secret/one-secret", "Service/one")
}

func TestConvergedIsSilent(t *testing.T) {
	w := newWorld(t, bundle)
	for i := range 100 {
		w.bundle(fmt.Sprintf("n%d", i), "{shards: 1}")
	}
	for i := range 100 {
		w.ready(fmt.Sprintf("n%d", i))
	}
	w.settle()
	before := len(w.notesWith(""))
	idle := 60 * time.Second
	if testing.Short() {
		idle = 5 * time.Second
	}
	w.recorder.ExpectSilence(t, idle)
	if after := len(w.notesWith("")); after != before {
		t.Errorf("%d events while nothing changed", after-before)
	}

	w.engine.StopAll()
	w.recorder.Reset()
	w.startEngine()
	testkit.Eventually(t, 20*time.Second, "the new engine has worked on all", func() error {
		if st, _ := w.engine.State(w.specs[0].Definition); st.Ready != 100 {
			return fmt.Errorf("%d ready", st.Ready)
		}
		return nil
	})
	w.settle()
	w.recorder.ExpectWrites(t, map[string]int{})
}

func TestDriftIsRepairedWithinASecond(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	w.settle()
	configs, err := w.kube.Resource("v1", "ConfigMap", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"changed": func() {
			_, err = configs.Patch(t.Context(), "one-config", types.MergePatchType, []byte(`{"data":{"message":"theirs"}}`),
				metav1.PatchOptions{FieldManager: "vandal"})
		},
		"deleted": func() { err = configs.Delete(t.Context(), "one-config", metav1.DeleteOptions{}) },
		"emptied": func() {
			_, err = configs.Patch(t.Context(), "one-config", types.JSONPatchType, []byte(`[{"op":"remove","path":"/data"}]`),
				metav1.PatchOptions{FieldManager: "vandal"})
		},
		"label taken off": func() {
			_, err = configs.Patch(t.Context(), "one-config", types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"libretto.dev/definition":null}}}`), metav1.PatchOptions{FieldManager: "vandal"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.settle()
			w.recorder.Reset()
			change()
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			testkit.Eventually(t, 5*time.Second, "the ConfigMap is as it should be", func() error {
				obj, err := configs.Get(t.Context(), "one-config", metav1.GetOptions{})
				if err != nil {
					return err
				}
				got, _, _ := unstructured.NestedString(obj.Object, "data", "message")
				if got != "hello" || obj.GetLabels()[v1alpha1.LabelDefinition] == "" {
					return fmt.Errorf("data %v, labels %v", obj.Object["data"], obj.GetLabels())
				}
				return nil
			})
			if d := time.Since(start); d > time.Second {
				t.Errorf("repaired after %s", d)
			}
			w.settle()
			if n := len(w.recorder.Writes()); n > 3 {
				t.Errorf("%d writes: %v", n, testkit.Counts(w.recorder.Writes()))
			}
		})
	}
	testkit.Eventually(t, 2*time.Second, "an event names the manager and the field", func() error {
		if len(w.notesWith("vandal")) == 0 {
			return fmt.Errorf("%v", w.notesWith(""))
		}
		return nil
	})
}

func TestFightIsBroken(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	configs, err := w.kube.Resource("v1", "ConfigMap", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for i := 0; ctx.Err() == nil && i < 400; i++ {
			_, _ = configs.Patch(ctx, "one-config", types.MergePatchType, fmt.Appendf(nil, `{"data":{"message":"theirs %d"}}`, i),
				metav1.PatchOptions{FieldManager: "rival"})
			time.Sleep(50 * time.Millisecond)
		}
	}()
	message := w.condition("GROUP/v1", "Bundle", "one", "Stalled", "True")
	if !strings.Contains(message, "rival") || !strings.Contains(message, "data.message") {
		t.Errorf("the condition does not name manager and field: %s", message)
	}
	w.recorder.Reset()
	time.Sleep(2 * time.Second)
	if n := testkit.Counts(w.recorder.Requests())["apply configmaps"]; n > 0 {
		t.Errorf("%d applies with the circuit open", n)
	}
}

func TestWhatIsNotOursIsNotTouched(t *testing.T) {
	w := newWorld(t, bundle)
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one-config}\ndata: {message: mine}\n")
	w.bundle("one", "{}")
	message := w.condition("GROUP/v1", "Bundle", "one", "Stalled", "True")
	if !strings.Contains(message, "one-config") || !strings.Contains(message, "adoption") {
		t.Errorf("message: %s", message)
	}
	obj, err := w.get("v1", "ConfigMap", "one-config")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "data", "message"); got != "mine" || obj.GetLabels()[v1alpha1.LabelInstance] != "" {
		t.Errorf("touched: %v %v", obj.Object["data"], obj.GetLabels())
	}
	if err := w.kube.Delete(t.Context(), "v1", "ConfigMap", w.namespace, "one-config"); err != nil {
		t.Fatal(err)
	}
	// It comes back by itself. How soon depends on how often it was looked at before: each look that fails doubles the pause.
	testkit.Eventually(t, time.Minute, "the instance is ready", func() error {
		obj, err := w.get("GROUP/v1", "Bundle", "one")
		if err == nil && conditionOf(obj.Object, "Ready")["status"] != "True" {
			err = fmt.Errorf("status %v", obj.Object["status"])
		}
		return err
	})
}

func TestTwoInstancesDoNotShareAChild(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(bundle, `"${self.metadata.name}-extra"`, `"shared"`))
	w.bundle("one", "{extra: true}")
	w.ready("one")
	w.bundle("two", "{extra: true}")
	message := w.condition("GROUP/v1", "Bundle", "two", "Stalled", "True")
	if !strings.Contains(message, "shared") || !strings.Contains(message, "one") {
		t.Errorf("message: %s", message)
	}
	w.settle()
	w.recorder.ExpectSilence(t, 2*time.Second)
}

func TestRevisionReplacesResources(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	w.revise(strings.NewReplacer("kind: Secret", "kind: ConfigMap", "stringData", "data").Replace(bundle))
	testkit.Eventually(t, 20*time.Second, "the Secret has gone", func() error {
		if got := strings.Join(w.children(), " "); strings.Contains(got, "Secret") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// ordered has a chain of dependsOn and a child in the cluster, so that it needs the finalizer.
const ordered = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: chains.GROUP}
spec:
  crd:
    group: GROUP
    names: {kind: Bundle}
    versions:
    - name: v1
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
  resources:
  - name: first
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}-first"}}
  - name: second
    dependsOn: [first]
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}-second", finalizers: ["example.com/hold"]}}
  - name: role
    dependsOn: [second]
    template: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "${self.metadata.namespace}-${self.metadata.name}"}}
  - name: kept
    deletionPolicy: Retain
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}-kept"}}
`

func TestDeletionInOrder(t *testing.T) {
	w := newWorld(t, ordered)
	w.bundle("one", "{}")
	w.ready("one")
	if err := w.kube.Delete(t.Context(), w.text("GROUP/v1"), "Bundle", w.namespace, "one"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, "the ClusterRole has gone first", func() error {
		_, err := w.get("rbac.authorization.k8s.io/v1", "ClusterRole", w.namespace+"-one")
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	message := w.condition("GROUP/v1", "Bundle", "one", "Ready", "False")
	testkit.Eventually(t, 10*time.Second, "the status says what holds the deletion", func() error {
		message = w.condition("GROUP/v1", "Bundle", "one", "Ready", "False")
		if !strings.Contains(message, "one-second") || !strings.Contains(message, "example.com/hold") {
			return fmt.Errorf("message: %s", message)
		}
		return nil
	})
	if _, err := w.get("v1", "ConfigMap", "one-first"); err != nil {
		t.Errorf("first went before second: %v", err)
	}
	configs, err := w.kube.Resource("v1", "ConfigMap", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Patch(t.Context(), "one-second", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, "the instance has gone", func() error {
		if _, err := w.get("GROUP/v1", "Bundle", "one"); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	if _, err := w.get("v1", "ConfigMap", "one-first"); err == nil {
		t.Error("first is left behind")
	}
	kept, err := w.get("v1", "ConfigMap", "one-kept")
	if err != nil {
		t.Fatalf("what was to be retained is gone: %v", err)
	}
	if kept.GetLabels()[v1alpha1.LabelInstance] != "" {
		t.Errorf("what is retained still carries our label: %v", kept.GetLabels())
	}
}

func TestNamespaceDeletedWithInstances(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(ordered, `, finalizers: ["example.com/hold"]`, ""))
	for i := range 5 {
		w.bundle(fmt.Sprintf("n%d", i), "{}")
	}
	for i := range 5 {
		w.ready(fmt.Sprintf("n%d", i))
	}
	if err := w.kube.Delete(t.Context(), "v1", "Namespace", "", w.namespace); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 60*time.Second, "the namespace has gone", func() error {
		ns, err := w.kube.Get(t.Context(), "v1", "Namespace", "", w.namespace)
		if err == nil {
			return fmt.Errorf("%v", ns.Object["status"])
		}
		return nil
	})
	list, err := w.kube.List(t.Context(), "rbac.authorization.k8s.io/v1", "ClusterRole", "", v1alpha1.LabelInstance)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if strings.HasPrefix(list[i].GetName(), w.namespace) {
			t.Errorf("left behind: %s", list[i].GetName())
		}
	}
}

func TestTargetWritesNothingToTheObject(t *testing.T) {
	w := newWorld(t, `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: attach.GROUP}
spec:
  target: {apiVersion: v1, kind: ConfigMap, selector: {matchLabels: {team: "NAMESPACE"}}, when: "self.data.mode == 'on'"}
  resources:
  - name: copy
    template: {apiVersion: v1, kind: Secret, metadata: {name: "${self.metadata.name}-copy"}, stringData: {mode: "${self.data.mode}"}}
`)
	object := func(team, mode string) {
		w.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: obj, labels: {team: %s}}\ndata: {mode: %q}\n", team, mode))
	}
	has := func(want bool) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, fmt.Sprintf("the copy is there: %v", want), func() error {
			if _, err := w.get("v1", "Secret", "obj-copy"); (err == nil) != want {
				return fmt.Errorf("%v", err)
			}
			return nil
		})
	}
	object(w.namespace, "on")
	has(true)
	obj, err := w.get("v1", "ConfigMap", "obj")
	if err != nil {
		t.Fatal(err)
	}
	if len(obj.GetFinalizers()) > 0 || len(obj.GetAnnotations()) > 0 || len(obj.GetManagedFields()) != 1 {
		t.Errorf("something was written to a foreign object: %v", obj.Object["metadata"])
	}
	object(w.namespace, "off") // when turns false
	has(false)
	object(w.namespace, "on")
	has(true)
	object("nobody", "on") // it leaves the selection
	has(false)
	object(w.namespace, "on")
	has(true)
	testkit.Eventually(t, 5*time.Second, "one instance is counted", func() error {
		if st, _ := w.engine.State(w.specs[0].Definition); st.Total != 1 || st.Ready != 1 {
			return fmt.Errorf("%d counted, %d ready", st.Total, st.Ready)
		}
		return nil
	})
}

func TestForbiddenNeitherBlocksNorLoops(t *testing.T) {
	w := newWorld(t, bundle, strings.NewReplacer("bundles.GROUP", "poor.GROUP", "kind: Bundle", "kind: Poor").Replace(bundle)+
		"  serviceAccount: {namespace: NAMESPACE, name: poor}\n")
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: poor}\n")
	w.apply("apiVersion: GROUP/v1\nkind: Poor\nmetadata: {name: two}\nspec: {}\n")
	start := time.Now()
	w.bundle("one", "{}")
	w.ready("one")
	t.Logf("the healthy one is ready after %s", time.Since(start))
	testkit.Eventually(t, 10*time.Second, "the state names the forbidden kinds", func() error {
		st, _ := w.engine.State(w.specs[1].Definition)
		for _, s := range st.Watches {
			if !s.Forbidden {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	w.recorder.Reset()
	time.Sleep(3 * time.Second)
	if n := len(w.recorder.Requests()); n > 20 {
		t.Errorf("%d requests in 3 s of a definition without rights: %v", n, testkit.Counts(w.recorder.Requests()))
	}
	for _, r := range w.recorder.Requests() {
		if r.User == "" && strings.Contains(r.Resource, "poor") {
			t.Errorf("a request without impersonation: %v", r)
		}
	}
	// Rights for the instances, but not for Secrets: the rest is made, the condition names what is missing.
	w.apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "NAMESPACE-poor"}
rules:
- {apiGroups: [GROUP], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps, services], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "NAMESPACE-poor"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "NAMESPACE-poor"}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: poor}]
`)
	t.Cleanup(func() {
		_ = w.kube.Delete(context.Background(), "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", w.namespace+"-poor")
		_ = w.kube.Delete(context.Background(), "rbac.authorization.k8s.io/v1", "ClusterRole", "", w.namespace+"-poor")
	})
	w.engine.Retry()
	testkit.Eventually(t, 60*time.Second, "the condition names verb, resource, ServiceAccount and Role", func() error {
		message := w.condition("GROUP/v1", "Poor", "two", "Stalled", "True")
		for _, part := range []string{"watch secrets", "ServiceAccount " + w.namespace + "/poor", "libretto:poor." + w.group} {
			if !strings.Contains(message, part) {
				return fmt.Errorf("no %q in: %s", part, message)
			}
		}
		return nil
	})
	if _, err := w.get("v1", "ConfigMap", "two-config"); err != nil {
		t.Errorf("what is allowed was not made: %v", err)
	}
}

func TestEventsOnTransitionsAlone(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	w.bundle("one", "{message: other}")
	w.ready("one")
	w.settle()
	if got := w.notesWith(""); len(got) != 1 || !strings.Contains(got[0], "Normal Ready") {
		t.Errorf("events: %v", got)
	}
	if n := w.actions(engine.ActionCreated); n != 3 {
		t.Errorf("%d objects told as created", n)
	}
}

// The ServiceAccount loses its rights before its instance is deleted, as in a namespace that is deleted: the deletion ends all
// the same.
func TestDeletionEndsWithoutRights(t *testing.T) {
	w := newWorld(t, strings.NewReplacer("chains.GROUP", "short.GROUP", `, finalizers: ["example.com/hold"]`, "").Replace(ordered)+
		"  serviceAccount: {namespace: NAMESPACE, name: short}\n")
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: short}\n")
	for _, o := range rbac.For(w.specs[0].Program).Objects() {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{Object: content}
		if _, err := w.kube.TryApply(t.Context(), "", obj); err != nil {
			t.Fatal(err)
		}
		if obj.GetNamespace() == "" {
			t.Cleanup(func() { _ = w.kube.Delete(context.Background(), obj.GetAPIVersion(), obj.GetKind(), "", obj.GetName()) })
		}
	}
	w.bundle("one", "{}")
	w.ready("one")
	name := rbac.Name(w.specs[0].Definition)
	if err := w.kube.Delete(t.Context(), "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", name); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.Delete(t.Context(), w.text("GROUP/v1"), "Bundle", w.namespace, "one"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, "an event names the missing right", func() error {
		st, _ := w.engine.State(w.specs[0].Definition)
		for _, d := range st.Denied {
			if d.Verb == "delete" && d.Resource == "clusterroles" {
				return nil
			}
		}
		return fmt.Errorf("%+v", st)
	})
	w.clock.Step(6 * time.Minute)
	w.engine.Retry()
	testkit.Eventually(t, 45*time.Second, "the instance has gone", func() error {
		if _, err := w.get("GROUP/v1", "Bundle", "one"); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	if notes := w.notesWith("Abandoned"); len(notes) != 1 || !strings.Contains(notes[0], "ClusterRole") {
		t.Errorf("what was left behind is not named: %v", w.notesWith(""))
	}
	if err := w.kube.Delete(t.Context(), "rbac.authorization.k8s.io/v1", "ClusterRole", "", w.namespace+"-one"); err != nil {
		t.Errorf("the ClusterRole was not left behind: %v", err)
	}
}

func TestForcedDeletion(t *testing.T) {
	w := newWorld(t, ordered)
	w.bundle("one", "{}")
	w.ready("one")
	if err := w.kube.Delete(t.Context(), w.text("GROUP/v1"), "Bundle", w.namespace, "one"); err != nil {
		t.Fatal(err)
	}
	w.condition("GROUP/v1", "Bundle", "one", "Ready", "False")
	w.apply("apiVersion: GROUP/v1\nkind: Bundle\nmetadata: {name: one, annotations: {libretto.dev/force-delete: \"true\"}}\n")
	testkit.Eventually(t, 10*time.Second, "the instance has gone", func() error {
		if _, err := w.get("GROUP/v1", "Bundle", "one"); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	if notes := w.notesWith("Abandoned"); len(notes) != 1 || !strings.Contains(notes[0], "one-second") {
		t.Errorf("what was left behind is not named: %v", w.notesWith(""))
	}
	configs, err := w.kube.Resource("v1", "ConfigMap", w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Patch(t.Context(), "one-second", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A right that was missing and is given is used at once, not when the next retry is due.
func TestGivenRightIsUsedAtOnce(t *testing.T) {
	w := newWorld(t, strings.NewReplacer("bundles.GROUP", "late.GROUP").Replace(bundle)+"  serviceAccount: {namespace: NAMESPACE, name: late}\n")
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: late}\n")
	role := func(verbs string) {
		w.apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "NAMESPACE-late"}
rules:
- {apiGroups: [GROUP], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps, secrets, services], verbs: [` + verbs + `]}
`)
	}
	role("get, list, watch")
	w.apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "NAMESPACE-late"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "NAMESPACE-late"}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: late}]
`)
	t.Cleanup(func() {
		for _, kind := range []string{"ClusterRoleBinding", "ClusterRole"} {
			_ = w.kube.Delete(context.Background(), "rbac.authorization.k8s.io/v1", kind, "", w.namespace+"-late")
		}
	})
	w.engine.Retry()
	w.bundle("one", "{}")
	testkit.Eventually(t, 60*time.Second, "the missing right is named", func() error {
		if message := w.condition("GROUP/v1", "Bundle", "one", "Stalled", "True"); !strings.Contains(message, "may not create") && !strings.Contains(message, "may not patch") {
			return fmt.Errorf("%s", message)
		}
		return nil
	})
	failures := func() int {
		st, _ := w.engine.State(w.specs[0].Definition)
		return len(st.Denied)
	}
	if failures() == 0 {
		t.Error("the state does not tell what was denied")
	}
	role("\"*\"")
	time.Sleep(time.Second) // the API server reads rights from a cache
	w.engine.Retry()
	start := time.Now()
	w.ready("one")
	t.Logf("ready %s after the right was given", time.Since(start))
}

// An object of a target leaves the selection while no engine runs: what was made for it goes when one does.
func TestTargetLeavesWhileNoEngineRuns(t *testing.T) {
	w := newWorld(t, `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: attach.GROUP}
spec:
  target: {apiVersion: v1, kind: ConfigMap, selector: {matchLabels: {team: "NAMESPACE"}}}
  resources:
  - name: copy
    template: {apiVersion: v1, kind: Secret, metadata: {name: "${self.metadata.name}-copy"}, stringData: {a: b}}
`)
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: obj, labels: {team: NAMESPACE}}\n")
	w.eventuallyChildren("Secret/obj-copy")
	w.engine.StopAll()
	w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: obj, labels: {team: nobody}}\n")
	w.startEngine()
	w.eventuallyChildren()
}

// What reads an excluded resource with ? goes on without it, and a status field that read it goes.
func TestExcludedIsAbsentToReaders(t *testing.T) {
	w := newWorld(t, strings.Replace(bundle, "  status:\n", `  - name: reader
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}-reader"}
      data: {extra: "${extra.?metadata.?name.orValue('none')}"}
  status:
`, 1)+`    - {type: Extra, status: has(extra.metadata), message: "it is there or not"}
`)
	reader := func(want string) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, "the reader says "+want, func() error {
			obj, err := w.get("v1", "ConfigMap", "one-reader")
			if err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(obj.Object, "data", "extra"); got != want {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	w.bundle("one", "{}")
	w.ready("one")
	reader("none")
	w.condition("GROUP/v1", "Bundle", "one", "Extra", "False")
	w.bundle("one", "{extra: true}")
	reader("one-extra")
	w.condition("GROUP/v1", "Bundle", "one", "Extra", "True")
	w.bundle("one", "{extra: false}")
	w.ready("one")
	reader("none")
	w.condition("GROUP/v1", "Bundle", "one", "Extra", "False")
}

func TestStatusFieldsGoWithWhatTheyRead(t *testing.T) {
	w := newWorld(t, strings.Replace(bundle, `    fields: {endpoint: "${service.metadata.name}:${self.spec.port}"}`,
		`    fields: {name: "${extra.metadata.name}", choice: "${self.spec.extra ? 'yes' : omit()}"}`, 1))
	fields := func(want bool) {
		t.Helper()
		w.ready("one")
		obj, err := w.get("GROUP/v1", "Bundle", "one")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"name", "choice"} {
			if _, has, _ := unstructured.NestedString(obj.Object, "status", f); has != want {
				t.Errorf("status.%s is there: %v, want %v", f, has, want)
			}
		}
	}
	w.bundle("one", "{}")
	fields(false)
	w.bundle("one", "{extra: true}")
	fields(true)
	w.bundle("one", "{extra: false}")
	fields(false)
}

func TestDeletedChildIsToldAsSuch(t *testing.T) {
	w := newWorld(t, bundle)
	w.bundle("one", "{}")
	w.ready("one")
	if err := w.kube.Delete(t.Context(), "v1", "Secret", w.namespace, "one-secret"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, "an event tells that it had been deleted", func() error {
		if len(w.notesWith("Secret one-secret was made anew: somebody had deleted it")) != 1 {
			return fmt.Errorf("%v", w.notesWith(""))
		}
		return nil
	})
}

func TestNamespacesByLabel(t *testing.T) {
	served := map[string]string{}
	var mu sync.Mutex
	w := newWorld(t)
	w.namespaceLabels = func(string) (map[string]string, bool) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(served), true
	}
	w.declare(bundle + "  namespaces: {selector: {matchLabels: {serve: \"yes\"}}}\n")
	w.startEngine()
	w.bundle("one", "{}")
	if message := w.condition("GROUP/v1", "Bundle", "one", "Stalled", "True"); !strings.Contains(message, "namespaces.selector") {
		t.Errorf("message: %s", message)
	}
	if got := w.children(); len(got) > 0 {
		t.Errorf("made in a namespace that is not served: %v", got)
	}
	mu.Lock()
	served["serve"] = "yes"
	mu.Unlock()
	w.engine.NamespaceChanged(w.namespace)
	w.ready("one")
}
