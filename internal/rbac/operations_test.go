package rbac

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

func static(value any) *program.Template { return program.StaticTemplate(value) }

// dynamic is text with an expression in it.
func dynamic(before string) *program.Template {
	return &program.Template{Root: &program.Part{Kind: program.PartText, Segments: []program.Segment{{Text: before + "${"}, {Text: "params.x}"}}}}
}

// operated makes a program with one operation of the given steps.
func operated(def v1alpha1.OperatorDefinitionSpec, op *program.Operation, nodes ...*program.Node) *program.Program {
	p := build(def, nodes...)
	p.Operations = []*program.Operation{op}
	p.OperationKind = &program.OperationKinds{Kind: kind("example.com", "v1", "WebAppOperation", "webappoperations", true)}
	return p
}

func step(name string, a program.Action) *program.Step { return &program.Step{Name: name, Action: a} }

// allActions has a step for each action.
func allActions() *program.Operation {
	config := node("config", configMaps)
	secret := func(name string) *program.SecretKey { return &program.SecretKey{Secret: static(name), Key: "k"} }
	return &program.Operation{Name: "all", Steps: []*program.Step{
		step("apply", program.Action{Apply: &program.ApplyAction{Kind: claims, Template: static(map[string]any{"metadata": map[string]any{"name": "a"}})}}),
		step("audit", program.Action{Apply: &program.ApplyAction{Kind: configMaps, Template: static(map[string]any{"metadata": map[string]any{"name": "a", "namespace": "audit"}})}}),
		step("patchResource", program.Action{Patch: &program.PatchAction{Object: program.ObjectReference{Node: config}, Merge: static(map[string]any{})}}),
		step("scale", program.Action{Patch: &program.PatchAction{
			Object: program.ObjectReference{Kind: deployments, Name: dynamic("web-")}, Merge: static(map[string]any{}), Subresource: "scale",
		}}),
		step("delete", program.Action{Delete: &program.DeleteAction{Object: program.ObjectReference{Kind: claims, Name: static("old"), Namespace: static("archive")}}}),
		step("wait", program.Action{Wait: &program.WaitAction{Object: &program.ObjectReference{Kind: deployments, Name: static("web")}}}),
		{
			Name: "exec", Action: program.Action{Exec: &program.ExecAction{Pod: dynamic("web-")}},
			Verify: &program.Verify{HTTP: &program.HTTPAction{Method: "GET", Bearer: secret("probe")}},
			Undo:   []*program.Step{step("undoExec", program.Action{Exec: &program.ExecAction{Selector: static(map[string]any{"a": "b"})}})},
		},
		step("job", program.Action{Job: &program.JobAction{Template: static(map[string]any{"spec": map[string]any{}})}}),
		step("http", program.Action{HTTP: &program.HTTPAction{
			Method: "POST", Basic: static("login"), CA: secret("ca"), ClientCertificate: dynamic("client-"),
		}}),
		step("event", program.Action{Event: &program.EventAction{Reason: static("Done")}}),
		step("log", program.Action{Log: static("x")}),
		step("set", program.Action{Set: static(map[string]any{"a": "b"})}),
		step("run", program.Action{Run: &program.RunAction{Operation: "other"}}),
	}, OnRemove: []*program.Step{step("forget", program.Action{Delete: &program.DeleteAction{Object: program.ObjectReference{Kind: claims, Name: dynamic("c-")}}})}}
}

func TestRightsOfOperations(t *testing.T) {
	config := node("config", configMaps)
	scoped := v1alpha1.OperatorDefinitionSpec{
		Namespaces: &v1alpha1.NamespaceScope{Names: []string{"team-a"}}, Resources: []v1alpha1.Resource{plain("config")},
	}
	target := operated(v1alpha1.OperatorDefinitionSpec{}, &program.Operation{
		Name: "greet", Triggers: []*program.Trigger{{Event: v1alpha1.EventTriggerDelete}},
		Steps: []*program.Step{step("event", program.Action{Event: &program.EventAction{}})},
	})
	target.Instance, target.WriteStatus = kind("", "v1", "Namespace", "namespaces", false), false
	target.OperationKind.Kind = kind("ops.example.com", "v1", "NamespaceOperation", "namespaceoperations", false)

	cases := map[string]*program.Program{
		"operations":            operated(v1alpha1.OperatorDefinitionSpec{Resources: []v1alpha1.Resource{plain("config")}}, allActions(), config),
		"operations-namespaces": operated(scoped, allActions(), config),
		"operations-target":     target,
		"operations-escalation": operated(scoped, &program.Operation{Name: "grant", Steps: []*program.Step{
			step("role", program.Action{Apply: &program.ApplyAction{Kind: roles, Template: static(map[string]any{
				"metadata": map[string]any{"name": "a"},
				"rules":    []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}}},
			})}}),
			step("binding", program.Action{Apply: &program.ApplyAction{Kind: bindings, Template: static(map[string]any{
				"metadata": map[string]any{"name": "a"}, "roleRef": map[string]any{"kind": "ClusterRole", "name": "view"},
			})}}),
			step("any", program.Action{Apply: &program.ApplyAction{Kind: clusterRoles, Template: &program.Template{Root: &program.Part{
				Kind: program.PartObject, Fields: []program.Field{{Name: "rules", Value: dynamic("").Root}},
			}}}}),
		}}),
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := For(p).YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".yaml", got)
		})
	}
}

// Each action needs exactly these rights beside those that every definition with operations needs.
func TestRightsOfActions(t *testing.T) {
	cases := map[string]struct {
		action program.Action
		want   []string
	}{
		"apply":  {program.Action{Apply: &program.ApplyAction{Kind: configMaps, Template: static(map[string]any{})}}, []string{"get configmaps", "list configmaps", "watch configmaps", "create configmaps", "patch configmaps"}},
		"patch":  {program.Action{Patch: &program.PatchAction{Object: program.ObjectReference{Kind: deployments, Name: static("a")}}}, []string{`get deployments.apps "a"`, `patch deployments.apps "a"`}},
		"status": {program.Action{Patch: &program.PatchAction{Object: program.ObjectReference{Kind: deployments, Name: dynamic("")}, Subresource: "status"}}, []string{"get deployments.apps", "patch deployments.apps/status"}},
		"delete": {program.Action{Delete: &program.DeleteAction{Object: program.ObjectReference{Kind: configMaps, Name: dynamic("")}}}, []string{"get configmaps", "delete configmaps"}},
		"wait":   {program.Action{Wait: &program.WaitAction{Object: &program.ObjectReference{Kind: configMaps, Name: dynamic("")}}}, []string{"get configmaps"}},
		"pause":  {program.Action{Wait: &program.WaitAction{Duration: 1}}, nil},
		"exec":   {program.Action{Exec: &program.ExecAction{Pod: static("a")}}, []string{"get pods", "get pods/exec", "create pods/exec"}},
		"select": {program.Action{Exec: &program.ExecAction{Selector: static(map[string]any{})}}, []string{"list pods", "get pods/exec", "create pods/exec"}},
		"job": {program.Action{Job: &program.JobAction{Template: static(map[string]any{})}}, []string{
			"list pods", "get pods/log", "get jobs.batch", "list jobs.batch", "watch jobs.batch", "create jobs.batch", "delete jobs.batch",
		}},
		"http":  {program.Action{HTTP: &program.HTTPAction{Bearer: &program.SecretKey{Secret: static("token")}}}, []string{`get secrets "token"`}},
		"plain": {program.Action{HTTP: &program.HTTPAction{}}, nil},
		"event": {program.Action{Event: &program.EventAction{}}, []string{"get events", "create events"}},
		"log":   {program.Action{Log: static("a")}, nil},
		"set":   {program.Action{Set: static(map[string]any{})}, nil},
		"run":   {program.Action{Run: &program.RunAction{}}, nil},
	}
	base := map[string]bool{}
	for _, r := range For(operated(v1alpha1.OperatorDefinitionSpec{}, &program.Operation{Name: "none"})).Requests() {
		base[r.String()] = true
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			p := For(operated(v1alpha1.OperatorDefinitionSpec{}, &program.Operation{Name: "op", Steps: []*program.Step{step("s", c.action)}}))
			for _, r := range p.Requests() {
				if !base[r.String()] {
					got = append(got, r.String())
				}
				if !p.Explain(r).Needed {
					t.Errorf("%s is listed and not explained", r)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
