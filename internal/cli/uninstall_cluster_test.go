package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/config/crd"
	"github.com/libretto-dev/libretto/internal/testkit"
)

const uninstalled = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: notes.GROUP, labels: {uninstall: GROUP}}
spec:
  crd: {group: GROUP, names: {kind: Note}, versions: [{name: v1, schema: {openAPIV3Schema: {type: object}}}]}
  serviceAccount: {namespace: default, name: notes}
`

// The whole of it, with an engine that takes its finalizers off, is in test/olm.
func TestUninstall(t *testing.T) {
	cfg := testkit.Config(t)
	testkit.NewClient(t, cfg).Apply(t, "", string(crd.OperatorDefinitions))
	group := testkit.Group(t)
	testkit.Eventually(t, 30*time.Second, "a definition", func() error {
		_, err := testkit.NewClient(t, cfg).TryApply(t.Context(), "", testkit.Objects(t, strings.ReplaceAll(uninstalled, "GROUP", group))[0])
		return err
	})
	kit := testkit.NewClient(t, cfg)
	save := filepath.Join(t.TempDir(), "definitions.yaml")
	args := []string{"uninstall", "--kubeconfig", testkit.Kubeconfig(t), "--definition-selector", "uninstall=" + group, "--save", save}

	got := libretto(t, "", args...)
	if got.code != ExitOK || !strings.Contains(got.out, "notes."+group+": 0 instances, which stay") || !strings.Contains(got.out, "--yes does it") {
		t.Fatalf("without --yes: %s", got)
	}
	if got = libretto(t, "", append(args, "--yes", "--instances", "Burn")...); got.code != ExitUsage {
		t.Fatalf("an unknown policy: %s", got)
	}
	if _, err := kit.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", "notes."+group); err != nil {
		t.Fatalf("nothing was to change: %v", err)
	}

	// Nobody takes the finalizer off: it is told, and what is waited for.
	object, err := kit.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", "notes."+group)
	if err != nil {
		t.Fatal(err)
	}
	object.SetFinalizers([]string{"example.com/held"})
	object.SetManagedFields(nil)
	if _, err := kit.TryApply(t.Context(), "", object); err != nil {
		t.Fatal(err)
	}
	if got = libretto(t, "", append(args, "--yes", "--timeout", "2s")...); got.code != ExitFailure || !strings.Contains(got.err, "is Libretto at work") {
		t.Fatalf("held: %s", got)
	}
	held, err := kit.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", "notes."+group)
	if err != nil {
		t.Fatal(err)
	}
	if policy, _, _ := unstructured.NestedString(held.Object, "spec", "whenInstancesExist"); policy != "Orphan" || held.GetDeletionTimestamp() == nil {
		t.Errorf("the policy is %q, deleted at %v", policy, held.GetDeletionTimestamp())
	}
	resource, err := kit.Resource("libretto.dev/v1alpha1", "OperatorDefinition", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resource.Patch(t.Context(), "notes."+group, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got = libretto(t, "", append(args, "--yes")...); got.code != ExitOK || !strings.Contains(got.out, "can be removed now") {
		t.Fatalf("let go: %s", got)
	}
	if _, err := kit.Get(t.Context(), "libretto.dev/v1alpha1", "OperatorDefinition", "", "notes."+group); !apierrors.IsNotFound(err) {
		t.Errorf("the definition is there yet: %v", err)
	}
	saved, err := os.ReadFile(save)
	if err != nil || !strings.Contains(string(saved), "name: notes."+group) || strings.Contains(string(saved), "resourceVersion") {
		t.Errorf("saved: %v\n%s", err, saved)
	}
}
