package definition_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// backup is an operation with the parameters, given as the properties of a schema.
func backup(parameters string) string {
	return `
  operations:
  - name: backup
    parameters: {openAPIV3Schema: {type: object, properties: {` + parameters + `}}}
    steps:
    - job: {template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}
`
}

// operated applies a document with operations.
func (w *world) operated(doc string) string {
	w.t.Helper()
	w.t.Cleanup(func() {
		list, _ := w.objects.List(context.Background(), w.group+"/v1", "WebOperation", "", "")
		for _, o := range list {
			w.finalizers(o.GetName(), nil)
		}
		_ = w.objects.Delete(context.Background(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "weboperations."+w.group)
	})
	return w.apply(doc)
}

func (w *world) operationCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	u, err := w.objects.Get(w.t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "weboperations."+w.group)
	if err != nil {
		return nil, err
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

func (w *world) operationCRDGone() {
	w.t.Helper()
	testkit.Eventually(w.t, patience, "the CRD of operations is gone", func() error {
		if _, err := w.operationCRD(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
}

// operation makes an operation object with the finalizers, in a state; none: nobody has looked at it.
func (w *world) operation(name, state string, finalizers ...string) {
	w.t.Helper()
	list := `["` + strings.Join(finalizers, `","`) + `"]`
	if len(finalizers) == 0 {
		list = "[]"
	}
	testkit.Eventually(w.t, patience, "operation objects can be made", func() error {
		_, err := w.objects.List(w.t.Context(), w.group+"/v1", "WebOperation", "", "")
		return err
	})
	w.objects.Apply(w.t, w.namespace, fmt.Sprintf(`
apiVersion: %s/v1
kind: WebOperation
metadata: {name: %s, finalizers: %s}
spec: {target: one, operation: backup}`, w.group, name, list))
	if state != "" {
		w.patchOperation(w.client.Status(), name, `{"status":{"state":"`+state+`"}}`)
	}
}

func (w *world) finalizers(name string, finalizers []string) {
	patch := `{"metadata":{"finalizers":null}}`
	if len(finalizers) > 0 {
		patch = `{"metadata":{"finalizers":["` + strings.Join(finalizers, `","`) + `"]}}`
	}
	_ = w.client.Patch(context.Background(), w.operationObject(name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

type patcher interface {
	Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error
}

func (w *world) patchOperation(to patcher, name, patch string) {
	w.t.Helper()
	if err := to.Patch(w.t.Context(), w.operationObject(name), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) operationObject(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(w.group + "/v1")
	u.SetKind("WebOperation")
	u.SetNamespace(w.namespace)
	u.SetName(name)
	return u
}

func message(def *v1alpha1.OperatorDefinition, kind string) string {
	if c := meta.FindStatusCondition(def.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

func TestOperationKindIsKeptUpToDate(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap+backup("comment: {type: string}"))
	name := w.operated(doc)
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	c, err := w.operationCRD()
	if err != nil || c.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID(name) || c.Annotations[v1alpha1.AnnotationOperationsOf] != "webs."+w.group {
		t.Fatalf("the CRD of operations: %v, %v", c, err)
	}
	var made []string
	for _, k := range def.Status.ManagedKinds {
		made = append(made, k.Kind)
	}
	if !slices.Equal(made, []string{"ConfigMap", "Job"}) {
		t.Errorf("managed kinds %v", made)
	}
	time.Sleep(time.Second)
	w.recorder.ExpectSilence(t, 3*time.Second)

	w.objects.Apply(t, "", strings.Replace(doc, "comment:", "urgent: {type: boolean}, comment:", 1))
	testkit.Eventually(t, patience, "the new parameter is in the schema", func() error {
		c, err := w.operationCRD()
		if err == nil && !strings.Contains(fmt.Sprint(c.Spec.Versions[0].Schema.OpenAPIV3Schema), "urgent") {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)

	before, err := w.operationCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Delete(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", before.Name); err != nil {
		t.Fatal(err)
	}
	// The API server takes its time to let go of a CustomResourceDefinition.
	testkit.Eventually(t, 4*patience, "it is made anew", func() error {
		c, err := w.operationCRD()
		if err == nil && c.UID == before.UID {
			err = fmt.Errorf("it is the old one")
		}
		return err
	})
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestWritesOfANewDefinitionWithOperations(t *testing.T) {
	w := newWorld(t)
	w.recorder.Reset()
	name := w.operated(w.web(testkit.Unique("web"), configMap+backup("")))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	time.Sleep(time.Second)
	// One of the three is a dry run.
	if got := testkit.Counts(w.recorder.Writes())["apply customresourcedefinitions.apiextensions.k8s.io"]; got > 3 {
		t.Errorf("%d writes of CustomResourceDefinitions; all: %v", got, testkit.Counts(w.recorder.Writes()))
	}
}

// A kind of operations that is somebody else's keeps the whole definition from being accepted, and nothing is half written.
func TestOperationKindOfSomebodyElse(t *testing.T) {
	w := newWorld(t)
	foreign := fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: weboperations.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: WebOperation, plural: weboperations, singular: weboperation, listKind: WebOperationList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`, w.group)
	w.objects.Apply(t, "", foreign)
	name := w.operated(w.web(testkit.Unique("web"), configMap+backup("")))
	w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonCRDConflict)
	if _, err := w.crd(); !apierrors.IsNotFound(err) {
		t.Errorf("the CRD of instances was written: %v", err)
	}
	time.Sleep(time.Second)
	w.recorder.ExpectSilence(t, 3*time.Second)
	w.objects.Apply(t, "", strings.Replace(foreign, "metadata: {", fmt.Sprintf("metadata: {annotations: {%s: %s}, ", v1alpha1.AnnotationAdopt, name), 1))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if c, err := w.operationCRD(); err != nil || c.Annotations[v1alpha1.AnnotationAdopted] == "" {
		t.Errorf("it was not taken over: %v", err)
	}
}

func TestBreakingChangeWaitsForOperationsUnderWay(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap+backup("comment: {type: string}"))
	name := w.operated(doc)
	good := w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady).Status.Revision
	w.operation("ended", "Succeeded")
	w.operation("running", "Running")
	w.objects.Apply(t, "", strings.NewReplacer("comment: {type: string}", "size: {type: integer}", "size: {type: integer}", "size: {type: integer}, extra: {type: string}").Replace(doc))
	def := w.until(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonBreakingChange)
	if def.Status.Revision != good || !strings.Contains(message(def, v1alpha1.ConditionAccepted), "wait until the operations that are under way have ended") {
		t.Errorf("revision %s, message %q", def.Status.Revision, message(def, v1alpha1.ConditionAccepted))
	}
	if c, err := w.crd(); err != nil || strings.Contains(fmt.Sprint(c.Spec.Versions[0].Schema.OpenAPIV3Schema), "extra") {
		t.Errorf("half of the change was written: %v", err)
	}
	w.patchOperation(w.client.Status(), "running", `{"status":{"state":"Failed"}}`)
	w.engine.set(name, w.engine.state)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	c, err := w.crd()
	if err != nil || !strings.Contains(fmt.Sprint(c.Spec.Versions[0].Schema.OpenAPIV3Schema), "extra") {
		t.Errorf("the change was not written: %v", err)
	}
}

// The kind stays while there are records of what was done, and goes with the last one.
func TestFormerOperationKind(t *testing.T) {
	w := newWorld(t)
	with, without := w.web(testkit.Unique("web"), configMap+backup("")), ""
	without, _, _ = strings.Cut(with, "\n  operations:")
	name := w.operated(with)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.operation("record", "Succeeded", v1alpha1.FinalizerRun)
	w.objects.Apply(t, "", without)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	testkit.Eventually(t, patience, "an event says that the kind stays", func() error {
		list, err := w.objects.List(t.Context(), "events.k8s.io/v1", "Event", "default", "")
		if err != nil {
			return err
		}
		for _, e := range list {
			of, _, _ := unstructured.NestedString(e.Object, "regarding", "name")
			if reason, _, _ := unstructured.NestedString(e.Object, "reason"); of == name && reason == "OperationsRemain" {
				return nil
			}
		}
		return fmt.Errorf("none of %d events", len(list))
	})
	c, err := w.operationCRD()
	if err != nil || !c.DeletionTimestamp.IsZero() {
		t.Fatalf("the CRD of operations: %v", err)
	}
	if err := w.objects.Delete(t.Context(), w.group+"/v1", "WebOperation", w.namespace, "record"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start() // a restart looks at once
	w.operationCRDGone()
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestDeletionTakesOperationsAlong(t *testing.T) {
	for _, policy := range []string{"Block", "Delete"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			name := w.operated(w.web(testkit.Unique("web"), configMap+backup("")+"  whenInstancesExist: "+policy+"\n"))
			w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			w.instance("one", "example.com/hold") // as one whose operation of event: Delete goes on
			w.operation("record", "Succeeded", v1alpha1.FinalizerRun)
			w.delete(name)
			reason := map[string]string{"Block": v1alpha1.ReasonInstancesExist, "Delete": v1alpha1.ReasonDeletingInstances}[policy]
			w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
			if _, ok := w.engine.spec(name); !ok {
				t.Error("the engine has stopped, and with it the operations that run before instances go")
			}
			if c, err := w.operationCRD(); err != nil || !c.DeletionTimestamp.IsZero() {
				t.Errorf("the CRD of operations goes before the instances: %v", err)
			}
			w.instance("one")
			_ = w.objects.Delete(t.Context(), w.group+"/v1", "Web", w.namespace, "one")
			w.engine.set(name, w.engine.state)
			w.untilGone(name)
			w.operationCRDGone()
		})
	}
}

func TestDeletionOrphansOperations(t *testing.T) {
	w := newWorld(t)
	doc := w.web(testkit.Unique("web"), configMap+backup("")+"  whenInstancesExist: Orphan\n")
	name := w.operated(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.operation("record", "Succeeded", v1alpha1.FinalizerRun, "example.com/hold")
	w.delete(name)
	w.untilGone(name)
	u, err := w.objects.Get(t.Context(), w.group+"/v1", "WebOperation", w.namespace, "record")
	if err != nil || !slices.Equal(u.GetFinalizers(), []string{"example.com/hold"}) {
		t.Errorf("the operation: %v, %v", u.GetFinalizers(), err)
	}
	c, err := w.operationCRD()
	if err != nil || c.Labels[v1alpha1.LabelDefinition] != "" || c.Annotations[v1alpha1.AnnotationOperationsOf] != "" {
		t.Errorf("the CRD of operations: %v", err)
	}
	w.apply(doc)
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// Objects of a target stay, and so does what steps have made for them; operations under way hold the definition back.
func TestDeletionOfATargetWithOperations(t *testing.T) {
	w := newWorld(t)
	name := w.operated(fmt.Sprintf(`
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {labels: {test: %[2]s}, name: %[1]s}
spec:
  serviceAccount: {namespace: %[2]s, name: acting}
  target: {apiVersion: apps/v1, kind: Deployment, selector: {matchLabels: {x: %[1]s}}}
  operationKind: {group: %[3]s, kind: WebOperation}
`, testkit.Unique("team"), w.namespace, w.group) + backup(""))
	w.until(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.operation("running", "Running", v1alpha1.FinalizerRun)
	job := func(n, owner string) {
		w.objects.Apply(t, w.namespace, fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata:
  name: %s
  labels: {libretto.dev/definition: %s, libretto.dev/run: some}
  ownerReferences: [%s]
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}`, n, v1alpha1.DefinitionID(name), owner))
	}
	u, err := w.objects.Get(t.Context(), w.group+"/v1", "WebOperation", w.namespace, "running")
	if err != nil {
		t.Fatal(err)
	}
	job("owned", fmt.Sprintf(`{apiVersion: %s/v1, kind: WebOperation, name: running, uid: %s}`, w.group, u.GetUID()))
	job("free", "")
	w.delete(name)
	def := w.until(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstancesExist)
	if got := message(def, v1alpha1.ConditionStalled); !strings.HasPrefix(got, "1 objects that the definition made exist: WebOperation "+w.namespace+"/running") {
		t.Errorf("message %q", got)
	}
	w.patchOperation(w.client.Status(), "running", `{"status":{"state":"Succeeded"}}`)
	w.engine.set(name, w.engine.state)
	w.untilGone(name)
	w.operationCRDGone()
	testkit.Eventually(t, patience, "what belonged to the operation is gone", func() error {
		if _, err := w.objects.Get(t.Context(), "batch/v1", "Job", w.namespace, "owned"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	if _, err := w.objects.Get(t.Context(), "batch/v1", "Job", w.namespace, "free"); err != nil {
		t.Errorf("what nothing owns: %v", err)
	}
}
