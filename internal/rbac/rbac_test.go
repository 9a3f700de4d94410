package rbac

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/testkit/golden"
)

func kind(group, version, k, resource string, namespaced bool) program.Kind {
	return program.Kind{
		GroupVersionKind: runtimeschema.GroupVersionKind{Group: group, Version: version, Kind: k},
		Resource:         resource, Namespaced: namespaced,
	}
}

func raw(s string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(s)} }

// build makes a program with the given resources and externals around a declared kind.
func build(def v1alpha1.OperatorDefinitionSpec, nodes ...*program.Node) *program.Program {
	def.ServiceAccount = &v1alpha1.ServiceAccountReference{Namespace: "webapps-system", Name: "webapps"}
	p := &program.Program{
		Name: "webapps.example.com", Definition: &def,
		Instance:    kind("example.com", "v1", "WebApp", "webapps", true),
		WriteStatus: true, HoldFinalizer: true, Nodes: nodes,
	}
	for _, x := range def.External {
		p.Externals = append(p.Externals, program.External{Name: string(x.Name), Kind: kind("", "v1", "Secret", "secrets", true)})
	}
	return p
}

func node(name string, kinds ...program.Kind) *program.Node {
	return &program.Node{Name: name, Kinds: kinds, DeletionPolicy: v1alpha1.DeletionPolicyDelete}
}

var (
	configMaps   = kind("", "v1", "ConfigMap", "configmaps", true)
	deployments  = kind("apps", "v1", "Deployment", "deployments", true)
	claims       = kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true)
	clusterRoles = kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false)
	roles        = kind("rbac.authorization.k8s.io", "v1", "Role", "roles", true)
	bindings     = kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true)
	pending      = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}, Pending: true}
)

func plain(name string) v1alpha1.Resource {
	return v1alpha1.Resource{Name: v1alpha1.Name(name), Template: raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}
}

func TestRights(t *testing.T) {
	retained := node("data", claims)
	retained.DeletionPolicy = v1alpha1.DeletionPolicyRetain
	target := build(v1alpha1.OperatorDefinitionSpec{Resources: []v1alpha1.Resource{plain("config")}}, node("config", configMaps))
	target.Instance, target.WriteStatus, target.HoldFinalizer = kind("", "v1", "Namespace", "namespaces", false), false, false

	cases := map[string]*program.Program{
		"cluster-wide": build(v1alpha1.OperatorDefinitionSpec{
			Resources: []v1alpha1.Resource{plain("config"), plain("workload"), plain("data"), plain("certificate")},
			External: []v1alpha1.External{
				{Name: "tls", Ref: &v1alpha1.ExternalReference{Name: "${self.spec.tls}"}},
				{Name: "license", Ref: &v1alpha1.ExternalReference{Name: "license", Namespace: "shared"}},
			},
		}, node("config", configMaps), node("workload", deployments), retained, node("certificate", pending)),
		"namespaces": build(v1alpha1.OperatorDefinitionSpec{
			Namespaces: &v1alpha1.NamespaceScope{Names: []string{"team-a", "team-b"}},
			Resources: []v1alpha1.Resource{
				plain("config"),
				{Name: "elsewhere", Template: raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"audit"}}`)},
				{Name: "somewhere", Template: raw(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"${self.spec.ns}"}}`)},
				{Name: "beside", Template: raw(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"${ self.metadata.namespace }"}}`)},
			},
		}, node("config", configMaps), node("elsewhere", configMaps), node("somewhere", deployments), node("beside", deployments)),
		"target": target,
		"escalation": build(v1alpha1.OperatorDefinitionSpec{Resources: []v1alpha1.Resource{
			{Name: "role", Template: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"a"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`)},
			{Name: "clusterRole", Template: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"},"rules":"${self.spec.rules}"}`)},
			{Name: "binding", Template: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"a"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`)},
			{Name: "any", Template: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"${role.metadata.name}"}}`)},
		}}, node("role", roles), node("clusterRole", clusterRoles), node("binding", bindings), node("any", bindings)),
		"kustomization": build(v1alpha1.OperatorDefinitionSpec{
			Namespaces: &v1alpha1.NamespaceScope{Names: []string{"team-a"}},
			Resources: []v1alpha1.Resource{{Name: "base", Kustomization: &v1alpha1.Kustomization{Files: map[string]string{
				"kustomization.yaml": "namespace: monitoring\nresources: [a.yaml]\n",
				"a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
			}}}},
		}, node("base", configMaps, deployments)),
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := For(p).YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".yaml", got)
			again, err := For(p).YAML()
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != string(got) {
				t.Error("the same program yields other bytes")
			}
		})
	}
}

func TestExplain(t *testing.T) {
	p := For(build(v1alpha1.OperatorDefinitionSpec{
		Namespaces: &v1alpha1.NamespaceScope{Names: []string{"team-a"}},
		Resources:  []v1alpha1.Resource{plain("config")},
		External:   []v1alpha1.External{{Name: "license", Ref: &v1alpha1.ExternalReference{Name: "license", Namespace: "shared"}}},
	}, node("config", configMaps)))
	cases := []struct {
		name    string
		request Request
		want    Holder
		text    string
	}{
		{"a child", Request{Verb: "patch", Resource: "configmaps", Namespace: "team-a", Name: "x"},
			Holder{Kind: "Role", Namespace: "team-a", Name: "libretto:webapps.example.com", Needed: true}, `patch configmaps "x" in namespace "team-a"`},
		{"the status", Request{Verb: "patch", Group: "example.com", Resource: "webapps", Subresource: "status", Namespace: "team-a"},
			Holder{Kind: "Role", Namespace: "team-a", Name: "libretto:webapps.example.com", Needed: true}, `patch webapps.example.com/status in namespace "team-a"`},
		{"a named external", Request{Verb: "get", Resource: "secrets", Namespace: "shared", Name: "license"},
			Holder{Kind: "Role", Namespace: "shared", Name: "libretto:webapps.example.com", Needed: true}, `get secrets "license" in namespace "shared"`},
		{"another external", Request{Verb: "get", Resource: "secrets", Namespace: "shared", Name: "other"},
			Holder{Kind: "Role", Namespace: "shared", Name: "libretto:webapps.example.com"}, `get secrets "other" in namespace "shared"`},
		{"not needed", Request{Verb: "delete", Resource: "nodes"},
			Holder{Kind: "ClusterRole", Name: "libretto:webapps.example.com"}, "delete nodes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, p.Explain(c.request)); diff != "" {
				t.Error(diff)
			}
			if got := c.request.String(); got != c.text {
				t.Errorf("got %s, want %s", got, c.text)
			}
		})
	}
	for _, r := range p.Requests() {
		if !p.Explain(r).Needed {
			t.Errorf("%s is listed and not explained", r)
		}
	}
}
