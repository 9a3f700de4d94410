package definition_test

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/controllers/definition"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// fromFile puts a definition to work as a file, until the test is satisfied with what the engine gets.
func (w *world) fromFile(doc string, satisfied func(engine.Spec) error) {
	w.t.Helper()
	def := &v1alpha1.OperatorDefinition{}
	if err := yaml.Unmarshal([]byte(doc), def); err != nil {
		w.t.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		w.t.Fatal(err)
	}
	c, err := client.New(testkit.Config(w.t), client.Options{Scheme: s})
	if err != nil {
		w.t.Fatal(err)
	}
	e := &fakeEngine{specs: map[string]engine.Spec{}, state: engine.State{Synced: true}}
	r := registry.New()
	var said string
	f := &definition.Files{
		Definitions: []*v1alpha1.OperatorDefinition{def}, ActAsSelf: true, Compiler: &definition.Compiler{Registry: r},
		CRDs: &crd.Writer{Reader: c, Writer: c}, Registry: r, Engine: e, Report: func(_, message string) { said = message },
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	testkit.Eventually(w.t, patience, "the definition is put to work", func() error {
		spec, ok := e.spec(def.Name)
		if !ok {
			return fmt.Errorf("it is not")
		}
		return satisfied(spec)
	})
	cancel()
	if err := <-done; err != nil {
		w.t.Errorf("%v, after it said %q", err, said)
	}
}

func kindNames(spec engine.Spec) string {
	out := ""
	for _, k := range spec.ManagedKinds {
		out += k.Kind + " "
	}
	return out
}

// A definition from a file declares both kinds, and remembers what it may have made; it deletes no kind.
func TestFilesDeclareOperationKinds(t *testing.T) {
	w := newWorld(t)
	name := testkit.Unique("web")
	w.operated(w.web(name, configMap)) // cleans up what is declared
	w.until(name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	w.stop()
	managed := func(want string) func(engine.Spec) error {
		return func(s engine.Spec) error {
			if got := kindNames(s); got != want {
				return fmt.Errorf("managed kinds %s, want %s", got, want)
			}
			return nil
		}
	}
	w.fromFile(w.web(name, configMap+backup("a: {type: string}")), managed("ConfigMap Job "))
	c, err := w.operationCRD()
	if err != nil || c.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID(name) || c.Annotations[v1alpha1.AnnotationManagedKinds] != "" {
		t.Fatalf("the CRD of operations: %v", err)
	}
	w.operation("running", "")
	w.fromFile(w.web(name, configMap+backup("")), managed("ConfigMap Job "))
	w.fromFile(w.web(name, configMap), managed("ConfigMap Job "))
	if c, err := w.operationCRD(); err != nil || !c.DeletionTimestamp.IsZero() {
		t.Errorf("the CRD of operations does not stay: %v", err)
	}
}
