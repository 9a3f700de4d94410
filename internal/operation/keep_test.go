package operation

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

func endedRun(name string, state v1alpha1.RunState, at string) *Run {
	t, err := time.Parse("2006-01-02 15:04", at)
	if err != nil {
		panic(err)
	}
	r := &Run{Name: name, Created: t, Spec: v1alpha1.OperationRunSpec{Operation: "op"}}
	r.Status.State, r.Status.CompletionTime = state, &metav1.MicroTime{Time: t}
	return r
}

func TestKeep(t *testing.T) {
	const good, bad = v1alpha1.RunSucceeded, v1alpha1.RunFailed
	now := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC) // a Tuesday
	days := []*Run{
		endedRun("a", good, "2026-03-09 20:00"), endedRun("b", good, "2026-03-09 08:00"), endedRun("c", good, "2026-03-08 20:00"),
		endedRun("d", good, "2026-03-02 20:00"), endedRun("e", good, "2026-02-20 20:00"), endedRun("f", bad, "2026-03-09 21:00"),
		endedRun("g", bad, "2026-03-01 20:00"),
	}
	going := endedRun("going", v1alpha1.RunRunning, "2020-01-01 00:00")
	leaving := endedRun("leaving", good, "2026-03-09 23:00")
	leaving.Deleting = true
	child := endedRun("child", good, "2026-03-09 23:58")
	child.Spec.Trigger = &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeRun, Parent: "p"}
	for name, tc := range map[string]struct {
		runs  []*Run
		rules program.Retention
		want  string
	}{
		"last":                             {days, program.Retention{Last: 2, Failed: 1}, "c d e g"},
		"the newest success, and the last": {days, program.Retention{}, "b c d e g"},
		"daily":                            {days, program.Retention{Last: 1, Daily: 3, Failed: 3}, "b e"},
		"weekly":                           {days, program.Retention{Last: 1, Weekly: 2, Failed: 3}, "b d e"},
		"monthly":                          {days, program.Retention{Last: 1, Monthly: 2, Failed: 3}, "b c d"},
		"within":                           {days, program.Retention{Last: 1, Within: 24 * time.Hour, Failed: 3}, "c d e"},
		"what has not ended":               {[]*Run{going}, program.Retention{}, ""},
		"what goes already counts not":     {[]*Run{leaving, days[0]}, program.Retention{Last: 1}, ""},
		"a child until its step read it":   {[]*Run{child, days[0], days[1]}, program.Retention{Last: 1}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(Keep(now, tc.runs, tc.rules), " "); got != tc.want {
				t.Errorf("removed %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStale(t *testing.T) {
	op := &program.Operation{Name: "op", Stale: time.Hour}
	success := endedRun("a", v1alpha1.RunSucceeded, "2026-03-10 00:00")
	at := success.Status.CompletionTime.Time
	if stale, last := Stale(at.Add(time.Hour), op, time.Time{}, []*Run{success}); stale || !last.Equal(at) {
		t.Error(stale, last)
	}
	if stale, _ := Stale(at.Add(time.Hour+1), op, time.Time{}, []*Run{success}); !stale {
		t.Error("not stale")
	}
	if stale, last := Stale(at, op, at.Add(-2*time.Hour), nil); !stale || !last.IsZero() {
		t.Error(stale, last)
	}
}

func TestObject(t *testing.T) {
	p := &program.Program{Name: "shops", OperationKind: &program.OperationKinds{}}
	p.OperationKind.Kind.Group, p.OperationKind.Kind.Version, p.OperationKind.Kind.Kind = "example.com", "v1", "ShopOperation"
	op := &program.Operation{Name: "backup", HasParams: true}
	instance := InstanceOf(map[string]any{"apiVersion": "example.com/v1", "kind": "Shop", "metadata": map[string]any{"name": "shop", "namespace": "ns", "uid": "u"}})
	trigger := &v1alpha1.RunTrigger{Type: v1alpha1.TriggerTypeDelete, Index: 1, Old: v1alpha1.JSONObject{"spec": map[string]any{"n": int64(1)}}}
	object := NewObject(p, instance, op, trigger, map[string]any{"comment": "x"}, "shop-backup-1")
	run, err := Parse(object)
	if err != nil {
		t.Fatal(err)
	}
	if run.Spec.Target != "shop" || run.Params["comment"] != "x" || run.Namespace != "ns" || !reflect.DeepEqual(run.Spec.Trigger, trigger) ||
		!reflect.DeepEqual(run.Finalizers, []string{v1alpha1.FinalizerRun}) {
		t.Errorf("%+v", run)
	}
	vars := Vars(op, run)
	if vars["old"] == nil || vars["params"].(map[string]any)["comment"] != "x" || vars["trigger"].(map[string]any)["type"] != "Delete" {
		t.Errorf("%+v", vars)
	}
	plain := NewObject(p, instance, op, nil, nil, "x")
	if meta := plain["metadata"].(map[string]any); meta["finalizers"] != nil || plain["spec"].(map[string]any)["trigger"] != nil {
		t.Errorf("%+v", plain)
	}
}

func TestNameFor(t *testing.T) {
	a, b := NameFor("shop", "backUp", "1"), NameFor("shop", "backUp", "2")
	if a == b || a != NameFor("shop", "backUp", "1") || !strings.HasPrefix(a, "shop-backup-") {
		t.Error(a, b)
	}
	if long := NameFor(strings.Repeat("x.", 126)+"x", "backup", "1"); len(long) > maxName || strings.Contains(long, ".-") {
		t.Error(long)
	}
}
