package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/testkit"
)

const accountAPI = "billing.example.com/v1"

// accounts is the example webhook-logic at work, with a service behind it.
type accounts struct {
	operations
	service *billing
}

func runAccounts(t *testing.T) *accounts {
	t.Helper()
	c := runAlone(t, "webhook-logic")
	a := &accounts{c.operationsOf(t, accountAPI, "AccountOperation"), startBilling(t)}
	objects := strings.SplitN(example(t, "webhook-logic", "instance.yaml"), "\n---\n", 2)
	shared := strings.NewReplacer("http://billing.billing-system", a.service.URL, "change-me", "secret-token").Replace(objects[1])
	c.create(t, shared)
	return a
}

// register makes the Account of the example under a name and address of its own, and returns its UID: the reference.
func (a *accounts) register(t *testing.T, name, email string) string {
	t.Helper()
	text := strings.SplitN(example(t, "webhook-logic", "instance.yaml"), "\n---\n", 2)[0]
	a.create(t, strings.NewReplacer("name: acme", "name: "+name, "accounts@acme.example", email).Replace(text))
	obj, err := a.Get(t.Context(), accountAPI, "Account", a.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(obj.GetUID())
}

// registered waits until an Account knows its account, which has to be the only one that was made for it.
func (a *accounts) registered(t *testing.T, name, reference string) {
	t.Helper()
	a.only(t, name, "register", "Succeeded")
	a.waitReady(t, accountAPI, "Account", name)
	known := a.service.account(reference)
	if known == nil {
		t.Fatalf("the service has no account for %s; it has\n%s", name, a.service)
	}
	a.waitField(t, accountAPI, "Account", name, known.ID, "status", "account")
	if _, keys := a.service.count("POST", reference); keys != 1 {
		t.Errorf("the requests for %s carried %d idempotency keys, want one", name, keys)
	}
}

func (a *accounts) removed(t *testing.T, name, reference string) {
	t.Helper()
	a.waitGone(t, accountAPI, "Account", name)
	if left := a.service.account(reference); left != nil {
		t.Errorf("%s is gone, and the service still has %+v", name, *left)
	}
}

func TestWebhookLogic(t *testing.T) {
	t.Parallel()
	a := runAccounts(t)

	t.Run("create, through failures that pass", func(t *testing.T) {
		a.service.with(func() { a.service.faults["POST"] = []int{503, 503} })
		began := time.Now()
		reference := a.register(t, "acme", "accounts@acme.example")
		a.registered(t, "acme", reference)
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("registered after %v: Retry-After: 1 was not heeded twice", took)
		}
		if requests, _ := a.service.count("POST", reference); requests != 3 {
			t.Errorf("%d requests, want two that failed and one that did not", requests)
		}
	})
	t.Run("update, when the plan changes and not otherwise", func(t *testing.T) {
		a.patch(t, accountAPI, "Account", "acme", "test", `{"spec":{"email":"billing@acme.example"}}`)
		a.waitReady(t, accountAPI, "Account", "acme")
		if runs := a.of(t, "acme", "changePlan"); len(runs) != 0 {
			t.Fatalf("changePlan ran for another field: %v", names(runs))
		}
		a.service.with(func() { a.service.faults["PUT"] = []int{500} })
		a.patch(t, accountAPI, "Account", "acme", "test", `{"spec":{"plan":"business"}}`)
		a.waitField(t, accountAPI, "Account", "acme", "business", "status", "plan")
		a.only(t, "acme", "changePlan", "Succeeded")
		obj, err := a.Get(t.Context(), accountAPI, "Account", a.namespace, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if got := a.service.account(string(obj.GetUID())); got.Plan != "business" || fmt.Sprint(got.Was) != "[team]" {
			t.Errorf("the service has %+v, want plan business, changed once, from team", *got)
		}
	})
	t.Run("a failure that does not pass is not repeated, and can be retried when mended", func(t *testing.T) {
		reference := a.register(t, "double", "accounts@acme.example")
		failed := a.only(t, "double", "register", "Failed")
		testkit.Eventually(t, patience, "the Account says so", func() error {
			obj, err := a.Get(t.Context(), accountAPI, "Account", a.namespace, "double")
			if err == nil && (conditionStatus(obj, "Stalled") != "True" || !strings.Contains(conditionMessage(obj, "Ready"), "409")) {
				err = fmt.Errorf("conditions: %v", obj.Object["status"])
			}
			return err
		})
		testkit.Consistently(t, 2*time.Second, "no further request", func() error {
			if requests, _ := a.service.count("POST", reference); requests != 1 {
				return fmt.Errorf("%d requests", requests)
			}
			return nil
		})
		a.patch(t, accountAPI, "Account", "double", "test", `{"spec":{"email":"second@acme.example"}}`)
		a.patch(t, accountAPI, a.kind, failed.GetName(), "test", `{"spec":{"retry":{"id":"1"}}}`)
		testkit.Eventually(t, patience, "the retry succeeds", func() error {
			run, err := a.Get(t.Context(), accountAPI, a.kind, a.namespace, failed.GetName())
			if err == nil && field(run, "status", "state") != "Succeeded" {
				err = fmt.Errorf("status: %v", run.Object["status"])
			}
			return err
		})
		a.waitReady(t, accountAPI, "Account", "double")
	})
	t.Run("delete, through failures that pass", func(t *testing.T) {
		obj, err := a.Get(t.Context(), accountAPI, "Account", a.namespace, "acme")
		if err != nil {
			t.Fatal(err)
		}
		reference := string(obj.GetUID())
		a.service.with(func() { a.service.faults["DELETE"] = []int{503, 502} })
		a.remove(t, accountAPI, "Account", "acme")
		a.removed(t, "acme", reference)
		if requests, _ := a.service.count("DELETE", reference); requests != 3 {
			t.Errorf("%d requests, want two that failed and one that did not", requests)
		}
	})
	t.Run("delete, refused for good: it stays until it is let go", func(t *testing.T) {
		reference := a.register(t, "kept", "kept@acme.example")
		a.registered(t, "kept", reference)
		a.service.with(func() { a.service.faults["DELETE"] = []int{403} })
		a.remove(t, accountAPI, "Account", "kept")
		run := a.only(t, "kept", "remove", "Failed")
		testkit.Eventually(t, patience, "the Account says that it is stuck, and what to do", func() error {
			obj, err := a.Get(t.Context(), accountAPI, "Account", a.namespace, "kept")
			if err != nil {
				return err
			}
			if message := conditionMessage(obj, "Ready"); !strings.Contains(message, "retry") || !strings.Contains(message, "force-delete") {
				return fmt.Errorf("Ready says %q", message)
			}
			return nil
		})
		a.patch(t, accountAPI, a.kind, run.GetName(), "test", `{"spec":{"retry":{"id":"again"}}}`)
		a.removed(t, "kept", reference)
	})
}

func TestWebhookLogicSurvivesKills(t *testing.T) {
	t.Parallel()
	a := runAccounts(t)

	t.Run("killed while the service is at work on the request", func(t *testing.T) {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		a.service.with(func() { a.service.hold, a.service.held = hold, held })
		reference := a.register(t, "cut-off", "cut-off@acme.example")
		<-held
		a.kill(t)
		a.service.with(func() { a.service.hold = nil })
		close(hold)
		a.start(t)
		a.registered(t, "cut-off", reference)
	})
	t.Run("killed while it waits for the account to be ready", func(t *testing.T) {
		a.service.with(func() { a.service.polls = 5 })
		reference := a.register(t, "waiting", "waiting@acme.example")
		testkit.Eventually(t, patience, "the service is asked whether it is ready", func() error {
			var err error
			a.service.with(func() {
				if known := a.service.accounts[reference]; known == nil || known.pending > 3 {
					err = errNone
				}
			})
			return err
		})
		a.restart(t)
		a.registered(t, "waiting", reference)
		if requests, _ := a.service.count("POST", reference); requests != 1 {
			t.Errorf("%d requests, want one: what it had begun was known", requests)
		}
	})
	t.Run("killed again and again while many are made, changed and removed", func(t *testing.T) {
		a.service.with(func() { a.service.polls = 1; a.service.faults["POST"] = []int{503, 503, 503} })
		references := map[string]string{}
		for i := range 8 {
			name := fmt.Sprintf("many-%d", i)
			references[name] = a.register(t, name, name+"@acme.example")
			if i%2 == 1 {
				time.Sleep(300 * time.Millisecond)
				a.restart(t)
			}
		}
		for name, reference := range references {
			a.registered(t, name, reference)
			a.patch(t, accountAPI, "Account", name, "test", `{"spec":{"plan":"business"}}`)
		}
		a.restart(t)
		for name, reference := range references {
			a.waitField(t, accountAPI, "Account", name, "business", "status", "plan")
			if runs := a.of(t, name, "changePlan"); len(runs) != 1 {
				t.Errorf("changePlan ran %d times for %s: %v", len(runs), name, names(runs))
			}
			if got := a.service.account(reference); len(got.Was) == 0 || got.Was[0] != "team" {
				t.Errorf("the service has %+v for %s, want that it was team", *got, name)
			}
			a.remove(t, accountAPI, "Account", name)
		}
		time.Sleep(200 * time.Millisecond)
		a.restart(t)
		for name, reference := range references {
			a.removed(t, name, reference)
		}
	})
}

// conditionMessage returns the message of a condition.
func conditionMessage(obj *unstructured.Unstructured, conditionType string) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == conditionType {
			s, _ := m["message"].(string)
			return s
		}
	}
	return ""
}
