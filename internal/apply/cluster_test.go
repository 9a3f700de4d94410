package apply_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/render"
	"github.com/libretto-dev/libretto/internal/testkit"
	"github.com/libretto-dev/libretto/internal/watch"
)

// fixture is a namespace of a real API server and a writer to it.
type fixture struct {
	t         *testing.T
	namespace string
	recorder  *testkit.Recorder
	writer    *apply.Writer
	dynamic   dynamic.Interface // the administrator's
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	cfg := testkit.Config(t)
	f := &fixture{t: t, namespace: testkit.Namespace(t, cfg), recorder: testkit.NewRecorder()}
	f.writer = f.as(nil)
	var err error
	if f.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) as(sa *v1alpha1.ServiceAccountReference) *apply.Writer {
	f.t.Helper()
	factory, err := identity.NewFactory(f.recorder.Wrap(testkit.Config(f.t)))
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := factory.For(sa)
	if err != nil {
		f.t.Fatal(err)
	}
	return apply.NewWriter(client)
}

var kinds = map[string]program.Kind{
	"ConfigMap":   {GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true},
	"Secret":      {GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets", Namespaced: true},
	"Service":     {GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services", Namespaced: true},
	"Namespace":   {GroupVersionKind: runtimeschema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Resource: "namespaces"},
	"Deployment":  {GroupVersionKind: runtimeschema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true},
	"StatefulSet": {GroupVersionKind: runtimeschema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, Resource: "statefulsets", Namespaced: true},
	"Thing":       {GroupVersionKind: runtimeschema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "Thing"}, Resource: "things", Namespaced: true},
}

const instanceUID = "11111111-2222-3333-4444-555555555555"

// desired makes an object as render does.
func (f *fixture) desired(text string) render.Object {
	f.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		f.t.Fatal(err)
	}
	if data[0] == '{' {
		if err := obj.UnmarshalJSON(data); err != nil {
			f.t.Fatal(err)
		}
	}
	kind := kinds[obj.GetKind()]
	if kind.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(f.namespace)
	}
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1alpha1.LabelDefinition], labels[v1alpha1.LabelInstance] = "hash", instanceUID
	obj.SetLabels(labels)
	hash := hashOf(text)
	annotations[v1alpha1.AnnotationDesired] = hash
	obj.SetAnnotations(annotations)
	return render.Object{Unstructured: obj, Kind: kind, Hash: hash}
}

func hashOf(s string) string {
	var h uint32 = 2166136261
	for _, c := range []byte(s) {
		h = (h ^ uint32(c)) * 16777619
	}
	return time.Unix(int64(h), 0).UTC().Format("20060102150405")
}

func (f *fixture) resource(kind program.Kind, namespace string) dynamic.ResourceInterface {
	if !kind.Namespaced {
		return f.dynamic.Resource(kind.GVR())
	}
	return f.dynamic.Resource(kind.GVR()).Namespace(namespace)
}

// live reads an object as the Set would have it.
func (f *fixture) live(o render.Object) *watch.Object {
	f.t.Helper()
	got, err := f.resource(o.Kind, o.GetNamespace()).Get(f.t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return watch.NewObject(o.Kind, got)
}

// mustApply applies and expects the action.
func (f *fixture) mustApply(req apply.Request, want apply.Action) apply.Outcome {
	f.t.Helper()
	out, err := f.writer.Apply(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("Apply: %v", err)
	}
	if out.Action != want {
		f.t.Fatalf("action %s, want %s; fields %v", out.Action, want, out.Fields)
	}
	return out
}

// patch changes an object as another manager does.
func (f *fixture) patch(o render.Object, sort types.PatchType, manager, patch string) {
	f.t.Helper()
	opts := metav1.PatchOptions{FieldManager: manager}
	if sort == types.ApplyPatchType {
		force := true
		opts.Force = &force
	}
	data, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.resource(o.Kind, o.GetNamespace()).Patch(context.Background(), o.GetName(), sort, data, opts); err != nil {
		f.t.Fatal(err)
	}
}

// create makes an object that is not Libretto's.
func (f *fixture) create(kind program.Kind, text string) *unstructured.Unstructured {
	f.t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		f.t.Fatal(err)
	}
	if kind.Namespaced {
		obj.SetNamespace(f.namespace)
	}
	out, err := f.resource(kind, f.namespace).Create(context.Background(), obj, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}
