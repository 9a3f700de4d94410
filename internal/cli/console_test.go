package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/program"
)

func ref(kind, namespace, name string) engine.Ref {
	return engine.Ref{Kind: program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Kind: kind}}, Namespace: namespace, Name: name}
}

func TestConsole(t *testing.T) {
	at := time.Date(2026, 1, 2, 23, 1, 2, 0, time.Local)
	shop := ref("WebApp", "default", "shop")
	cases := []struct {
		event engine.Event
		want  string
	}{
		{engine.Event{Action: engine.ActionCreated, Instance: shop, Resource: "workload", Object: ref("Deployment", "default", "shop")},
			"23:01:02  WebApp default/shop           created Deployment shop"},
		{engine.Event{Action: engine.ActionRepaired, Instance: shop, Resource: "workload", Object: ref("Deployment", "default", "shop"), Message: "spec.replicas was changed by kubectl-edit"},
			"23:01:02  WebApp default/shop           repaired Deployment shop: spec.replicas was changed by kubectl-edit"},
		{engine.Event{Action: engine.ActionDeleted, Instance: shop, Resource: "role", Object: ref("ClusterRole", "", "shop")},
			"23:01:02  WebApp default/shop           deleted ClusterRole shop"},
		{engine.Event{Action: engine.ActionCreated, Instance: shop, Object: ref("ConfigMap", "audit", "shop")},
			"23:01:02  WebApp default/shop           created ConfigMap audit/shop"},
		{engine.Event{Action: engine.ActionReady, Instance: shop}, "23:01:02  WebApp default/shop           ready"},
		{engine.Event{Action: engine.ActionStarted, Instance: shop, Operation: "backup", Run: "shop-backup-1", Message: "by Create"},
			"23:01:02  WebApp default/shop           started backup: by Create"},
		{engine.Event{Action: engine.ActionStep, Instance: shop, Operation: "backup", Run: "shop-backup-1", Step: "pack", Message: "in 3s"},
			"23:01:02  WebApp default/shop           step backup/pack: in 3s"},
		{engine.Event{Action: engine.ActionLog, Instance: shop, Operation: "backup", Run: "shop-backup-1", Step: "say", Message: "hello"},
			"23:01:02  WebApp default/shop           log backup/say: hello"},
		{engine.Event{Action: engine.ActionOperationFailed, Instance: shop, Operation: "backup", Run: "shop-backup-1", Message: "step pack: no"},
			"23:01:02  WebApp default/shop           operation failed backup: step pack: no; see: libretto operation describe shop-backup-1 -n default"},
		{engine.Event{Action: engine.ActionServing, Definition: "webapps.example.com"}, "23:01:02  webapps.example.com  serving"},
	}
	for _, c := range cases {
		var out, errOut bytes.Buffer
		console := newConsole(&out, &errOut)
		c.event.Time = at
		console.event(c.event)
		console.close()
		if got := strings.TrimSuffix(out.String(), "\n"); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
		if errOut.Len() > 0 {
			t.Error(errOut.String())
		}
	}
}

func TestSettled(t *testing.T) {
	instance := func(name string, a engine.Action) engine.Event {
		return engine.Event{Definition: "d", Action: a, Instance: ref("WebApp", "default", name)}
	}
	serving := engine.Event{Definition: "d", Action: engine.ActionServing}
	cases := []struct {
		name   string
		events []engine.Event
		done   bool
		failed bool
	}{
		{"nothing yet", nil, false, false},
		{"serving, no instances", []engine.Event{serving}, true, false},
		{"seen", []engine.Event{serving, instance("a", engine.ActionCreated)}, false, false},
		{"ready", []engine.Event{serving, instance("a", engine.ActionCreated), instance("a", engine.ActionReady)}, true, false},
		{"one waits", []engine.Event{serving, instance("a", engine.ActionReady), instance("b", engine.ActionWaiting)}, false, false},
		{"one failed", []engine.Event{serving, instance("a", engine.ActionReady), instance("b", engine.ActionFailed)}, true, true},
		{"a run failed that the instance does not need", []engine.Event{serving, instance("a", engine.ActionReady), instance("a", engine.ActionStarted), instance("a", engine.ActionOperationFailed)}, true, false},
		{"gone", []engine.Event{serving, instance("a", engine.ActionWaiting), instance("a", engine.ActionGone)}, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			console := newConsole(&bytes.Buffer{}, &bytes.Buffer{})
			defer console.close()
			for _, e := range c.events {
				console.remember(e)
			}
			console.last = console.last.Add(-2 * settleTime)
			o, done := console.settled([]string{"d"})
			if done != c.done || (len(o.failed) > 0) != c.failed {
				t.Errorf("got %+v, done %t", o, done)
			}
		})
	}
}
