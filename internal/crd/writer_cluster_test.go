package crd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// cluster is a client of the cluster under test, with a Recorder of what the Writer sends.
type cluster struct {
	client.Client
	recorder *testkit.Recorder
	writer   *crd.Writer
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cfg := testkit.Config(t)
	s := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	recorder := testkit.NewRecorder()
	c, err := client.New(recorder.Wrap(cfg), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Client: c, recorder: recorder, writer: &crd.Writer{Reader: c, Writer: c}}
}

// want returns a CustomResourceDefinition of a group that no other test uses; it is deleted at the end.
func (c *cluster) want(t *testing.T, group, spec string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out := declare(t, spec)
	out.Name = "things." + group
	out.Spec.Group = group
	out.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Thing", Plural: "things", Singular: "thing", ListKind: "ThingList"}
	out.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	t.Cleanup(func() { _ = c.Delete(context.Background(), out.DeepCopy()) })
	return out
}

func (c *cluster) apply(t *testing.T, req crd.Request) (*crd.Result, error) {
	t.Helper()
	for {
		result, err := c.writer.Apply(t.Context(), req)
		if !apierrors.IsConflict(err) { // the API server writes the status meanwhile
			return result, err
		}
	}
}

func TestWriterWritesOnceAndRepairs(t *testing.T) {
	c := newCluster(t)
	want := c.want(t, testkit.Group(t), `{type: object, properties: {count: {type: integer, default: 3}, s: {type: string, enum: [a, b]}}}`)
	req := crd.Request{Want: want, Definition: "one"}
	result, err := c.apply(t, req)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Written || result.Live.UID == "" || result.Live.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID("one") {
		t.Errorf("first apply: written %v, %+v", result.Written, result.Live.ObjectMeta)
	}
	testkit.Eventually(t, 10*time.Second, "the kind is established", func() error {
		if result, err = c.apply(t, req); err != nil {
			return err
		}
		if ok, message := crd.Established(result.Live); !ok {
			return errors.New(message)
		}
		return nil
	})
	c.recorder.Reset()
	if result, err = c.apply(t, req); err != nil || result.Written {
		t.Fatalf("second apply: %+v, error %v", result, err)
	}
	c.recorder.ExpectWrites(t, map[string]int{})

	drift := result.Live.DeepCopy()
	drift.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["count"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	if err := c.Update(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if result, err = c.apply(t, req); err != nil || !result.Written {
		t.Fatalf("after drift: %+v, error %v", result, err)
	}
	if result.Live.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["count"].Default == nil {
		t.Error("the drift was not repaired")
	}
}

func TestWriterRespectsOwners(t *testing.T) {
	c := newCluster(t)
	want := c.want(t, testkit.Group(t), `{type: object}`)
	foreign := want.DeepCopy()
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	var conflict *crd.ConflictError
	if _, err := c.apply(t, crd.Request{Want: want, Definition: "one"}); !errors.As(err, &conflict) || !strings.Contains(conflict.Message, "libretto.dev/adopt=one") {
		t.Errorf("an existing one: %v", err)
	}
	annotate(t, c, want.Name, v1alpha1.AnnotationAdopt, "one")
	result, err := c.apply(t, crd.Request{Want: want, Definition: "one"})
	if err != nil || !result.Adopted || result.Live.Annotations[v1alpha1.AnnotationAdopted] != "true" {
		t.Fatalf("adoption: %+v, %v", result, err)
	}
	if _, err := c.apply(t, crd.Request{Want: want, Definition: "two"}); !errors.As(err, &conflict) || !strings.Contains(conflict.Message, "OperatorDefinition one") {
		t.Errorf("another definition's: %v", err)
	}
	if gone, err := c.writer.Delete(t.Context(), want.Name, "two"); err != nil || !gone {
		t.Errorf("deleting another definition's: gone %v, %v", gone, err)
	}
	// One that was taken over stays.
	testkit.Eventually(t, 10*time.Second, "an adopted one is let go", func() error { // the API server writes the status meanwhile
		gone, err := c.writer.Delete(t.Context(), want.Name, "one")
		if err == nil && !gone {
			err = errors.New("not yet")
		}
		return err
	})
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: want.Name}, live); err != nil || live.DeletionTimestamp != nil || live.Labels[v1alpha1.LabelDefinition] != "" {
		t.Errorf("the adopted one: %+v, %v", live.ObjectMeta, err)
	}
	// The same definition takes it again without being told.
	if result, err = c.apply(t, crd.Request{Want: want, Definition: "one"}); err != nil || !result.Adopted {
		t.Errorf("second adoption: %+v, %v", result, err)
	}
}

func TestWriterRefusesBreakingChanges(t *testing.T) {
	c := newCluster(t)
	group := testkit.Group(t)
	old := c.want(t, group, `{type: object, properties: {a: {type: string}}}`)
	next := c.want(t, group, `{type: object}`)
	if _, err := c.apply(t, crd.Request{Want: old, Definition: "one"}); err != nil {
		t.Fatal(err)
	}
	yes := func(context.Context) (bool, error) { return true, nil }
	no := func(context.Context) (bool, error) { return false, nil }
	var breaking *crd.BreakingError
	if _, err := c.apply(t, crd.Request{Want: next, Definition: "one", HasObjects: yes}); !errors.As(err, &breaking) || breaking.Changes[0].Rule != crd.RuleFieldRemoved {
		t.Errorf("with objects: %v", err)
	}
	if _, err := c.apply(t, crd.Request{Want: next, Definition: "one", HasObjects: no}); err != nil {
		t.Errorf("without objects: %v", err)
	}
	if _, err := c.apply(t, crd.Request{Want: old, Definition: "one"}); err != nil {
		t.Errorf("back: %v", err)
	}
	result, err := c.apply(t, crd.Request{Want: next, Definition: "one", HasObjects: yes, AllowBreaking: true})
	if err != nil || len(result.Breaking) != 1 {
		t.Errorf("allowed: %+v, %v", result, err)
	}
	if gone, err := c.writer.Delete(t.Context(), old.Name, "one"); err != nil || gone {
		t.Errorf("deletion: gone %v, %v", gone, err)
	}
	testkit.Eventually(t, 10*time.Second, "it is gone", func() error {
		gone, err := c.writer.Delete(t.Context(), old.Name, "one")
		if err == nil && !gone {
			err = errors.New("not yet")
		}
		return err
	})
}

func annotate(t *testing.T, c client.Client, name, key, value string) {
	t.Helper()
	obj := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`))
	if err := c.Patch(t.Context(), obj, patch); err != nil {
		t.Fatal(err)
	}
}

func TestWriterKeepsVersionsThatAreStored(t *testing.T) {
	c := newCluster(t)
	first := c.want(t, testkit.Group(t), `{type: object, properties: {a: {type: string}}}`)
	if _, err := c.apply(t, crd.Request{Want: first, Definition: "one", KeepVersions: true}); err != nil {
		t.Fatal(err)
	}
	second := first.DeepCopy()
	second.Spec.Versions[0].Name = "v2"
	second.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["b"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	var got *crd.Result
	testkit.Eventually(t, 10*time.Second, "the API server has noted the stored version", func() error {
		var err error
		got, err = c.apply(t, crd.Request{Want: second, Definition: "one", KeepVersions: true})
		if err == nil && len(got.Live.Spec.Versions) != 2 {
			err = errors.New("it has not")
		}
		return err
	})
	kept := got.Live.Spec.Versions[1]
	if kept.Name != "v1" || kept.Storage || !kept.Served || len(kept.Schema.OpenAPIV3Schema.Properties) != 2 {
		t.Errorf("the version that was kept: %+v", kept)
	}
	again, err := c.apply(t, crd.Request{Want: second, Definition: "one", KeepVersions: true})
	if err != nil || again.Written {
		t.Errorf("written again: %v, %v", again, err)
	}
	if len(second.Spec.Versions) != 1 {
		t.Error("what was wanted has been changed")
	}
}

func TestWriterDryRunWritesNothing(t *testing.T) {
	c := newCluster(t)
	want := c.want(t, testkit.Group(t), `{type: object, properties: {a: {type: string}}}`)
	absent := func() error {
		return c.Get(t.Context(), client.ObjectKey{Name: want.Name}, &apiextensionsv1.CustomResourceDefinition{})
	}
	if _, err := c.apply(t, crd.Request{Want: want, Definition: "one", DryRun: true}); err != nil || !apierrors.IsNotFound(absent()) {
		t.Errorf("a dry run: %v; then %v", err, absent())
	}
	bad := want.DeepCopy()
	bad.Spec.Versions[0].Schema.OpenAPIV3Schema.Type = "wrong"
	if _, err := c.apply(t, crd.Request{Want: bad, Definition: "one", DryRun: true}); !apierrors.IsInvalid(err) {
		t.Errorf("a dry run of a bad one: %v", err)
	}
	if _, err := c.apply(t, crd.Request{Want: want, Definition: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.apply(t, crd.Request{Want: want, Definition: "two", DryRun: true}); !errors.As(err, new(*crd.ConflictError)) {
		t.Errorf("a dry run for another owner: %v", err)
	}
	owned, err := c.writer.Owned(t.Context(), "one")
	if err != nil || len(owned) == 0 || owned[len(owned)-1].Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID("one") {
		t.Errorf("what is owned: %d, %v", len(owned), err)
	}
}
