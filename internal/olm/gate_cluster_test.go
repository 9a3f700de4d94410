package olm

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/internal/testkit"
)

const operatorConditions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: operatorconditions.operators.coreos.com, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: operators.coreos.com
  names: {kind: OperatorCondition, plural: operatorconditions}
  scope: Namespaced
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestGate(t *testing.T) {
	recorder := testkit.NewRecorder()
	cfg := recorder.Wrap(testkit.Config(t))
	kit := testkit.NewClient(t, testkit.Config(t))
	kit.Apply(t, "", operatorConditions)
	namespace := testkit.Namespace(t, testkit.Config(t))
	testkit.Eventually(t, 30*time.Second, "an OperatorCondition", func() error {
		_, err := kit.TryApply(t.Context(), namespace, testkit.Objects(t, "{apiVersion: operators.coreos.com/v2, kind: OperatorCondition, metadata: {name: libretto.v1}}")[0])
		return err
	})
	own, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var running atomic.Int32
	running.Store(-1) // not known yet
	g := &Gate{
		Client: own, Condition: types.NamespacedName{Namespace: namespace, Name: "libretto.v1"}, Logger: logr.Discard(), Clock: clock.RealClock{},
		Running: func() (int, bool) { n := running.Load(); return int(n), n >= 0 },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Start(ctx) }()

	upgradeable := func(want string) {
		t.Helper()
		testkit.Eventually(t, 15*time.Second, "Upgradeable is "+want, func() error {
			object, err := kit.Get(t.Context(), "operators.coreos.com/v2", "OperatorCondition", namespace, "libretto.v1")
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "spec", "conditions")
			if len(conditions) != 1 || conditions[0].(map[string]any)["status"] != want {
				return fmt.Errorf("found %v", conditions)
			}
			return nil
		})
	}
	running.Store(2)
	upgradeable("False")
	running.Store(1)
	recorder.ExpectSilence(t, 3*interval) // as before
	running.Store(0)
	upgradeable("True")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
