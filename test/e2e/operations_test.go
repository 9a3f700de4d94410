package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// operations is what a test asks of one kind of operation objects.
type operations struct {
	*cluster
	apiVersion, kind string
}

// operationsOf returns the operations of a kind. When the test fails, it logs those that there are.
func (c *cluster) operationsOf(t *testing.T, apiVersion, kind string) operations {
	t.Helper()
	o := operations{c, apiVersion, kind}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		all, err := o.List(context.Background(), apiVersion, kind, c.namespace, "")
		if err != nil {
			t.Logf("cannot list %s: %v", kind, err)
		}
		for i := range all {
			t.Logf("%s %s: finalizers %v, spec %v, status %v", kind, all[i].GetName(), all[i].GetFinalizers(), all[i].Object["spec"], all[i].Object["status"])
		}
	})
	return o
}

// of lists the runs of an operation for an instance, by the time of their creation.
func (o operations) of(t *testing.T, target, operation string) []unstructured.Unstructured {
	t.Helper()
	runs, err := o.tryOf(t, target, operation)
	if err != nil {
		t.Fatalf("cannot list %s: %v", o.kind, err)
	}
	return runs
}

func (o operations) tryOf(t *testing.T, target, operation string) ([]unstructured.Unstructured, error) {
	t.Helper()
	all, err := o.List(t.Context(), o.apiVersion, o.kind, o.namespace, "")
	if err != nil {
		return nil, err
	}
	runs := slices.DeleteFunc(all, func(u unstructured.Unstructured) bool {
		return field(&u, "spec", "target") != target || field(&u, "spec", "operation") != operation
	})
	slices.SortFunc(runs, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	return runs, nil
}

// begin makes an operation object, as a user does, and returns its name.
func (o operations) begin(t *testing.T, target, operation string, params map[string]any) string {
	t.Helper()
	name := testkit.Unique(target + "-" + operation)
	spec := map[string]any{"target": target, "operation": operation}
	if params != nil {
		spec[operation] = params
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": o.apiVersion, "kind": o.kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	testkit.Eventually(t, patience, "kind "+o.kind+" is served", func() error {
		_, err := o.TryApply(t.Context(), o.namespace, obj)
		return err
	})
	return name
}

// ended waits until a run has come to its end, which has to be the state.
func (o operations) ended(t *testing.T, name, state string) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	testkit.Eventually(t, 2*patience, fmt.Sprintf("%s %s has ended", o.kind, name), func() error {
		var err error
		if got, err = o.Get(t.Context(), o.apiVersion, o.kind, o.namespace, name); err != nil {
			return err
		}
		switch s := field(got, "status", "state"); s {
		case "Succeeded", "Failed", "Cancelled", "Unknown":
			if s != state {
				t.Fatalf("%s %s is %s, want %s; status: %v", o.kind, name, s, state, got.Object["status"])
			}
			return nil
		}
		return fmt.Errorf("status: %v", got.Object["status"])
	})
	return got
}

// only waits until there is one run of an operation for an instance, and it has ended in the state.
func (o operations) only(t *testing.T, target, operation, state string) *unstructured.Unstructured {
	t.Helper()
	var name string
	testkit.Eventually(t, patience, "operation "+operation+" of "+target+" begins", func() error {
		runs, err := o.tryOf(t, target, operation)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return errNone
		}
		name = runs[0].GetName()
		return nil
	})
	got := o.ended(t, name, state)
	if runs := o.of(t, target, operation); len(runs) != 1 {
		t.Fatalf("operation %s ran %d times for %s, want once: %v", operation, len(runs), target, names(runs))
	}
	return got
}

// field returns the text at a path, empty when there is none.
func field(obj *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(obj.Object, path...)
	return s
}

func names(objects []unstructured.Unstructured) []string {
	var all []string
	for i := range objects {
		all = append(all, objects[i].GetName())
	}
	return all
}

// notes returns what the events with a reason say about the objects of a name.
func (c *cluster) notes(t *testing.T, reason, name string) ([]string, error) {
	t.Helper()
	events, err := c.clientset.EventsV1().Events(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var notes []string
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason != reason || e.Regarding.Name != name {
			continue
		}
		times := 1
		if e.Series != nil {
			times = int(e.Series.Count)
		}
		for range times {
			notes = append(notes, e.Note)
		}
	}
	return notes, nil
}

// waitEvent waits for an event that contains the text, and fails if it was written more than once.
func (c *cluster) waitEvent(t *testing.T, reason, name, text string) {
	t.Helper()
	testkit.Eventually(t, patience, "event "+reason+" of "+name, func() error {
		notes, err := c.notes(t, reason, name)
		if err != nil {
			return err
		}
		switch {
		case len(notes) == 0:
			return errNone
		case len(notes) > 1:
			t.Fatalf("event %s of %s was written %d times: %q", reason, name, len(notes), notes)
		case !strings.Contains(notes[0], text):
			return fmt.Errorf("it says %q, want %q in it", notes[0], text)
		}
		return nil
	})
}

func TestHello(t *testing.T) {
	t.Parallel()
	const api, kind, name = "terry.com/v1", "HelloOperator", "my-helloworld"
	c := runWithoutPods(t, "hello")
	ops := c.operationsOf(t, api, "HelloOperatorOperation")
	c.create(t, example(t, "hello", "instance.yaml"))
	c.waitReady(t, api, kind, name)
	ops.only(t, name, "created", "Succeeded")
	c.waitEvent(t, "Created", name, "A handler is called with body: {")
	c.waitEvent(t, "Created", name, `"name":"my-helloworld"`)
	testkit.Eventually(t, patience, "the log says it, too", func() error {
		if !strings.Contains(c.log.String(), "A handler is called with body: {") {
			return errNone
		}
		return nil
	})

	c.restart(t)
	c.patch(t, api, kind, name, "test", `{"spec":{"greeting":"hi"}}`)
	run := ops.only(t, name, "updated", "Succeeded")
	if got := field(run, "spec", "trigger", "type"); got != "Update" {
		t.Errorf("spec.trigger.type is %q, want Update", got)
	}
	c.waitEvent(t, "Updated", name, `with spec: {"greeting":"hi"}, which was {}`)
	testkit.Consistently(t, 2*time.Second, "neither a restart nor an update is a creation", func() error {
		if runs := ops.of(t, name, "created"); len(runs) != 1 {
			return fmt.Errorf("operation created ran %d times: %v", len(runs), names(runs))
		}
		notes, err := c.notes(t, "Created", name)
		if err == nil && len(notes) != 1 {
			err = fmt.Errorf("event Created was written %d times", len(notes))
		}
		return err
	})

	c.remove(t, api, kind, name)
	c.waitGone(t, api, kind, name)
	c.waitEvent(t, "Deleted", name, "A handler is called, for my-helloworld is going")
	testkit.Eventually(t, patience, "the runs go with the object", func() error {
		left, err := c.List(t.Context(), api, "HelloOperatorOperation", c.namespace, "")
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(names(left), ", "))
		}
		return err
	})
}
