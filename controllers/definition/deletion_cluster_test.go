package definition_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// instance creates an instance with the finalizers.
func (w *world) instance(name string, finalizers ...string) {
	w.t.Helper()
	list := `["` + strings.Join(finalizers, `","`) + `"]`
	if len(finalizers) == 0 {
		list = "[]"
	}
	w.objects.Apply(w.t, w.namespace, fmt.Sprintf(`{apiVersion: %s/v1, kind: Web, metadata: {name: %s, finalizers: %s}, spec: {text: a}}`, w.group, name, list))
}

func TestDeletionIsBlockedByInstances(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap)
	name := w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.instance("one")
	// It does not matter that the document is broken.
	w.objects.Apply(t, "", strings.ReplaceAll(doc, "self.spec.text", "self.spec.txet"))
	w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonCompileFailed)
	w.delete(name)
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstancesExist)
	message := meta.FindStatusCondition(def.Status.Conditions, v1alpha1.ConditionStalled).Message
	if want := "1 instances exist: " + w.namespace + "/one"; !strings.HasPrefix(message, want) {
		t.Errorf("message %q, want %q", message, want)
	}
	if _, ok := w.engine.spec(name); !ok {
		t.Error("the engine has stopped, though instances exist")
	}
	time.Sleep(time.Second)
	w.recorder.ExpectSilence(t, 3*time.Second)

	if err := w.objects.Delete(t.Context(), w.group+"/v1", "Web", w.namespace, "one"); err != nil {
		t.Fatal(err)
	}
	w.engine.set(name, w.engine.state) // as the engine does when an instance goes
	w.untilGone(name)
	testkit.Eventually(t, patience, "the CRD is gone", func() error {
		if _, err := w.crd(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	if _, ok := w.engine.spec(name); ok {
		t.Error("the engine goes on")
	}
	testkit.Eventually(t, patience, "the revisions are collected", func() error {
		if got := w.revisions(name); len(got) != 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func TestDeletionDeletesInstances(t *testing.T) {
	w := newWorld(t)
	name := w.apply(w.web(testkit.Unique("web"), configMap+"  whenInstancesExist: Delete\n"))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.instance("one")
	w.instance("two", "example.com/hold")
	w.delete(name)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeletingInstances)
	if spec, _ := w.engine.spec(name); !spec.Draining {
		t.Error("the engine does not know that it is draining")
	}
	w.instance("two")
	w.untilGone(name)
}

func TestDeletionOrphansInstances(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap+"  whenInstancesExist: Orphan\n")
	name := w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.instance("one", v1alpha1.FinalizerInstance, "example.com/hold")
	w.delete(name)
	w.untilGone(name)
	u, err := w.objects.Get(t.Context(), w.group+"/v1", "Web", w.namespace, "one")
	if err != nil || !u.GetDeletionTimestamp().IsZero() {
		t.Fatalf("the instance: %v, %v", u, err)
	}
	if got := u.GetFinalizers(); len(got) != 1 || got[0] != "example.com/hold" {
		t.Errorf("finalizers %v", got)
	}
	c, err := w.crd()
	if err != nil || c.Labels[v1alpha1.LabelDefinition] != "" {
		t.Fatalf("the CRD: %v", err)
	}
	// The same definition takes up where it was.
	w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.instance("one")
}

// The kind goes with the definition. What the garbage collector has not collected by then, it never would: the kind of the
// owner is gone.
func TestDeletionSweepsChildrenBeforeTheKindGoes(t *testing.T) {
	w := newWorld(t)
	name := w.apply(w.web(testkit.Unique("web"), configMap))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.objects.Apply(t, w.namespace, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: left
  labels: {libretto.dev/definition: %s}
  ownerReferences: [{apiVersion: %s/v1, kind: Web, name: gone, uid: 6f5ba2b5-2f0b-4f4e-9d7e-0d8f0d7d1c11, controller: true}]
`, v1alpha1.DefinitionID(name), w.group))
	w.delete(name)
	w.untilGone(name)
	if _, err := w.objects.Get(t.Context(), "v1", "ConfigMap", w.namespace, "left"); !apierrors.IsNotFound(err) {
		t.Errorf("the object is left behind: %v", err)
	}
}

func TestDeletionOfATargetSweepsChildren(t *testing.T) {
	w := newWorld(t)
	name := w.apply(fmt.Sprintf(`
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {labels: {test: %[2]s}, name: %[1]s}
spec:
  serviceAccount: {namespace: %[2]s, name: acting}
  target: {apiVersion: v1, kind: Namespace, selector: {matchLabels: {x: %[1]s}}, manage: [Finalizer]}
  whenInstancesExist: Delete
  resources:
  - name: config
    template: {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: "${self.metadata.name}"}}
`, testkit.Unique("team"), w.namespace))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	child := func(n, wave, policy string) {
		w.objects.Apply(t, w.namespace, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s
  labels: {libretto.dev/definition: %s}
  annotations: {libretto.dev/wave: %q, libretto.dev/deletion-policy: %q}`, n, v1alpha1.DefinitionID(name), wave, policy))
	}
	child("a", "0", "Delete")
	child("b", "1", "Delete")
	child("kept", "0", "Retain")
	w.objects.Apply(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, finalizers: [%q, example.com/hold]}}`, w.namespace, v1alpha1.TargetFinalizer(name)))
	w.delete(name)
	w.untilGone(name)
	list, err := w.objects.List(t.Context(), "v1", "ConfigMap", w.namespace, v1alpha1.LabelDefinition)
	if err != nil || len(list) != 1 || list[0].GetName() != "kept" {
		t.Errorf("children left: %v, %v", list, err)
	}
	ns, err := w.objects.Get(t.Context(), "v1", "Namespace", "", w.namespace)
	if err != nil || !ns.GetDeletionTimestamp().IsZero() || strings.Contains(strings.Join(ns.GetFinalizers(), " "), "libretto.dev") {
		t.Errorf("the namespace: %v, %v", ns.GetFinalizers(), err)
	}
	w.objects.Apply(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, finalizers: []}}`, w.namespace))
}

// A definition for some namespaces needs rights in these alone, also for its own deletion; a namespace that is gone, with the
// Role in it, is no obstacle.
func TestDeletionWithRightsInNamespacesAlone(t *testing.T) {
	for _, policy := range []string{"Block", "Delete", "Orphan"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			gone := testkit.Namespace(t, testkit.Config(t))
			w.objects.Apply(t, w.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: narrow}}`)
			doc := strings.Replace(w.web(testkit.Unique("web"), configMap+"  whenInstancesExist: "+policy+"\n"), "name: acting}",
				"name: narrow}\n  namespaces: {names: ["+w.namespace+", "+gone+"]}", 1)
			for _, namespace := range []string{w.namespace, gone} {
				w.objects.Apply(t, namespace, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: ServiceAccount, namespace: %s, name: narrow}]`, w.namespace))
			}
			name := w.apply(doc)
			w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			w.instance("one", v1alpha1.FinalizerInstance)
			if err := w.objects.Delete(t.Context(), "v1", "Namespace", "", gone); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, patience, "the namespace is gone", func() error {
				if _, err := w.objects.Get(t.Context(), "v1", "Namespace", "", gone); !apierrors.IsNotFound(err) {
					return fmt.Errorf("error %w", err)
				}
				return nil
			})
			w.delete(name)
			if policy != "Orphan" {
				reason := map[string]string{"Block": v1alpha1.ReasonInstancesExist, "Delete": v1alpha1.ReasonDeletingInstances}[policy]
				w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
				w.instance("one") // without the finalizer, as when the engine has done its part
				_ = w.objects.Delete(t.Context(), w.group+"/v1", "Web", w.namespace, "one")
				w.engine.set(name, w.engine.state)
			}
			w.untilGone(name)
		})
	}
}
