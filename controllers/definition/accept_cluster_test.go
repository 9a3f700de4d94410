package definition_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/testkit"
)

func TestDefinitionIsPutToWork(t *testing.T) {
	w := newWorld(t)
	name := w.apply(w.web(testkit.Unique("web"), configMap))
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)

	if got := w.revisions(name); len(got) != 1 || got[0] != def.Status.Revision || !strings.HasPrefix(got[0], name+"-") {
		t.Errorf("revisions %v, at work %s", got, def.Status.Revision)
	}
	if def.Status.Kind != "Web.v1."+w.group {
		t.Errorf("kind %s", def.Status.Kind)
	}
	if k := def.Status.ManagedKinds; len(k) != 1 || k[0].APIVersion != "v1" || k[0].Kind != "ConfigMap" {
		t.Errorf("managed kinds %v", k)
	}
	spec, ok := w.engine.spec(name)
	if !ok || spec.Revision != def.Status.Revision || spec.UID != def.UID || len(spec.ManagedKinds) != 1 || spec.ServiceAccount.Name != "acting" {
		t.Errorf("the engine got %+v", spec)
	}
	if c, err := w.crd(); err != nil || c.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID(name) {
		t.Errorf("the CRD: %v", err)
	}
	if meta.FindStatusCondition(def.Status.Conditions, v1alpha1.ConditionReconciling) != nil || meta.FindStatusCondition(def.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		t.Errorf("conditions %v", def.Status.Conditions)
	}
	time.Sleep(time.Second) // what is still under way
	w.recorder.ExpectSilence(t, 3*time.Second)

	w.engine.set(name, engine.State{Synced: true, Total: 3, Ready: 2, Stalled: 1})
	testkit.Eventually(t, patience, "the instances are counted", func() error {
		def, err := w.get(name)
		if err == nil && (def.Status.Instances == nil || *def.Status.Instances.Total != 3 || *def.Status.Instances.Ready != 2 || *def.Status.Instances.Stalled != 1) {
			err = fmt.Errorf("%+v", def.Status.Instances)
		}
		return err
	})
}

func TestWritesOfANewDefinition(t *testing.T) {
	w := newWorld(t)
	w.recorder.Reset()
	name := w.apply(w.web(testkit.Unique("web"), configMap))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	time.Sleep(time.Second)
	got := testkit.Counts(w.recorder.Writes())
	for write, most := range map[string]int{
		"patch operatordefinitions.libretto.dev": 1, "create operatorrevisions.libretto.dev": 1,
		"apply customresourcedefinitions.apiextensions.k8s.io": 1, "patch operatordefinitions.libretto.dev/status": 3,
	} {
		if got[write] > most {
			t.Errorf("%s: %d, at most %d wanted; all: %v", write, got[write], most, got)
		}
	}
}

func TestBadGenerationChangesNothing(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap)
	name := w.apply(doc)
	good := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady).Status.Revision

	w.objects.Apply(t, "", strings.ReplaceAll(doc, "self.spec.text", "self.spec.txet"))
	check := func() {
		t.Helper()
		def := w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonCompileFailed)
		c := meta.FindStatusCondition(def.Status.Conditions, v1alpha1.ConditionAccepted)
		if !strings.Contains(c.Message, "spec.resources[0].template.data.text") || !strings.Contains(c.Message, good+" stays at work") {
			t.Errorf("message %s", c.Message)
		}
		w.until(name, v1alpha1.ConditionServed, metav1.ConditionTrue, v1alpha1.ReasonServed)
		w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCompileFailed)
		if spec, _ := w.engine.spec(name); spec.Revision != good || def.Status.Revision != good {
			t.Errorf("at work %s, status %s, want %s", spec.Revision, def.Status.Revision, good)
		}
	}
	check()
	w.stop()
	w.start()
	testkit.Eventually(t, patience, "the last good revision is at work after a restart", func() error {
		if spec, ok := w.engine.spec(name); !ok || spec.Revision != good {
			return fmt.Errorf("at work: %q", spec.Revision)
		}
		return nil
	})
	check()

	w.objects.Apply(t, "", strings.ReplaceAll(doc, "data: {text", "data: {more: x, text"))
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if def.Status.Revision == good || len(w.revisions(name)) != 2 {
		t.Errorf("revision %s of %v", def.Status.Revision, w.revisions(name))
	}
	w.objects.Apply(t, "", doc)
	testkit.Eventually(t, patience, "the first revision is at work again", func() error {
		def, err := w.get(name)
		if err == nil && def.Status.Revision != good {
			err = errors.New(def.Status.Revision)
		}
		return err
	})
	if len(w.revisions(name)) != 2 {
		t.Errorf("revisions %v", w.revisions(name))
	}
}

func TestRevisionsArePruned(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap+"  revisionHistoryLimit: 2\n")
	name := w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	for i := range 4 {
		w.objects.Apply(t, "", strings.ReplaceAll(doc, "data: {text", fmt.Sprintf("data: {n: x%d, text", i)))
		w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
	testkit.Eventually(t, patience, "three revisions are left", func() error {
		if got := w.revisions(name); len(got) != 3 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func TestForeignCRDIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.objects.Apply(t, "", fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: webs.%s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Web, plural: webs, singular: web, listKind: WebList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]`, w.group))
	name := w.apply(w.web(testkit.Unique("web"), configMap))
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCRDConflict)
	if def.Status.Revision != "" || len(w.revisions(name)) != 0 {
		t.Errorf("revision %q, %v", def.Status.Revision, w.revisions(name))
	}
	w.objects.Apply(t, "", fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: webs.%s, annotations: {libretto.dev/adopt: %s}}, spec: {group: %[1]s, scope: Namespaced, names: {kind: Web, plural: webs, singular: web, listKind: WebList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, w.group, name))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)

	second := w.apply(w.web(testkit.Unique("second"), configMap))
	w.until(second, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCRDConflict)
	w.delete(second)
	w.untilGone(second)
	w.delete(name)
	w.untilGone(name)
	if _, err := w.crd(); err != nil {
		t.Errorf("the CRD that was taken over is gone: %v", err)
	}
}

func TestBreakingChangeIsRefused(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap)
	name := w.apply(doc)
	good := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady).Status.Revision
	w.objects.Apply(t, w.namespace, fmt.Sprintf(`{apiVersion: %s/v1, kind: Web, metadata: {name: one}, spec: {text: a, size: 1}}`, w.group))
	breaking := strings.ReplaceAll(doc, "size: {type: integer}", "size: {type: string}")
	w.objects.Apply(t, "", breaking)
	def := w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonBreakingChange)
	if def.Status.Revision != good {
		t.Errorf("at work %s, want %s", def.Status.Revision, good)
	}
	w.objects.Apply(t, "", strings.ReplaceAll(breaking, "metadata: {labels", `metadata: {annotations: {libretto.dev/allow-breaking-changes: "true"}, labels`))
	w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

func TestMissingRightsAreTold(t *testing.T) {
	w := newWorld(t)
	doc := strings.ReplaceAll(w.web(testkit.Unique("web"), configMap), "name: acting", "name: powerless")
	name := w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonServiceAccountMissing)
	if _, ok := w.engine.spec(name); !ok {
		t.Error("the engine was not started: a missing right blocks nothing")
	}
	w.objects.Apply(t, w.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: powerless}}`)
	// A change makes it look again at once.
	w.objects.Apply(t, "", strings.ReplaceAll(doc, "data: {text", "data: {more: x, text"))
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	message := meta.FindStatusCondition(def.Status.Conditions, v1alpha1.ConditionStalled).Message
	for _, part := range []string{"powerless", "create configmaps", "watch webs." + w.group, "ClusterRole libretto:" + name} {
		if !strings.Contains(message, part) {
			t.Errorf("the message lacks %q: %s", part, message)
		}
	}
}

func TestKindsThatAppear(t *testing.T) {
	w := newWorld(t)
	other := testkit.Group(t)
	name := w.apply(w.web(testkit.Unique("web"), fmt.Sprintf(`
  resources:
  - name: gadget
    template: {apiVersion: %s/v1, kind: Gadget, metadata: {name: "${self.metadata.name}"}, spec: {text: "${self.spec.text}"}}
`, other)))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindsPending)
	w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.objects.Apply(t, "", fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {text: {type: string}}}}}}}]`, other))
	t.Cleanup(func() {
		_ = w.objects.Delete(context.Background(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets."+other)
	})
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if e, _ := w.registry.Get(name); len(e.Program.PendingKinds) != 0 || e.Program.Nodes[0].Kinds[0].Resource != "gadgets" {
		t.Errorf("the Program was not compiled again: %+v", e.Program.Nodes[0].Kinds)
	}
	if _, err := w.objects.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets."+other); apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
