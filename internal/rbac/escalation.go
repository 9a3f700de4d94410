package rbac

import (
	"encoding/json"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// written is what rights can be read from in a template or a manifest.
type written struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Rules json.RawMessage `json:"rules"`
	// Namespace is that of a kustomization.yaml.
	Namespace string         `json:"namespace"`
	RoleRef   rbacv1.RoleRef `json:"roleRef"`
}

// objectsOf returns the objects as the author wrote them; what cannot be parsed (a file that is no manifest) is left out.
func objectsOf(spec *v1alpha1.Resource) []written {
	var out []written
	parse := func(data []byte) {
		var w written
		if yaml.Unmarshal(data, &w) == nil && (w.Kind != "" || w.Namespace != "") {
			out = append(out, w)
		}
	}
	if spec.Template != nil {
		parse(spec.Template.Raw)
	}
	if k := spec.Kustomization; k != nil {
		for _, name := range sortedKeys(k.Files) {
			if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
				for _, doc := range strings.Split("\n"+k.Files[name], "\n---") {
					parse([]byte(doc))
				}
			}
		}
	}
	return out
}

// writtenNamespaces returns the namespaces that the objects of a resource name; "" stands for that of the instance.
func writtenNamespaces(spec *v1alpha1.Resource) []string {
	out := []string{}
	for _, w := range objectsOf(spec) {
		if w.Namespace != "" {
			out = union(out, []string{w.Namespace})
		} else if w.Kind != "Kustomization" && w.Kind != "" {
			out = union(out, []string{w.Metadata.Namespace})
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// escalation adds what Kubernetes asks of somebody who makes Roles and bindings: to hold the rights himself, or the verbs
// escalate and bind. who is the resource or the step that makes the object.
func (b *builder) escalation(who string, w written) {
	if !strings.HasPrefix(w.APIVersion, rbacv1.GroupName+"/") {
		return
	}
	switch w.Kind {
	case "Role", "ClusterRole":
		b.granted(who, w)
	case "RoleBinding", "ClusterRoleBinding":
		b.bound(who, w)
	}
}

func (b *builder) granted(who string, w written) {
	var rules []rbacv1.PolicyRule
	if len(w.Rules) == 0 {
		return
	}
	if json.Unmarshal(w.Rules, &rules) != nil || strings.Contains(string(w.Rules), "${") {
		b.note(who + " makes a " + w.Kind + " whose rules are expressions: the ServiceAccount must hold every right in it, or the verb escalate on " + strings.ToLower(w.Kind) + "s")
		return
	}
	where := []string{""}
	if w.Kind == "Role" {
		where = b.at(program.Kind{Namespaced: true}, w.Metadata.Namespace)
	}
	why := "granted by " + who + ": nobody may grant more than he holds"
	for _, r := range rules {
		for _, g := range r.APIGroups {
			for _, res := range r.Resources {
				b.add(where, right{group: g, resource: res, names: r.ResourceNames, verbs: r.Verbs, why: why})
			}
		}
		if len(r.NonResourceURLs) > 0 {
			b.note(who + " grants rights on the URLs " + strings.Join(r.NonResourceURLs, ", ") + ": the ServiceAccount must hold them, or the verb escalate on clusterroles")
		}
	}
}

func (b *builder) bound(who string, w written) {
	if w.RoleRef.Name == "" {
		return
	}
	if strings.Contains(w.RoleRef.Name, "${") {
		b.note(who + " binds a " + w.RoleRef.Kind + " whose name is an expression: the ServiceAccount must hold every right in it, or the verb bind on " + strings.ToLower(w.RoleRef.Kind) + "s")
		return
	}
	where := []string{""}
	if w.Kind == "RoleBinding" {
		where = b.at(program.Kind{Namespaced: true}, w.Metadata.Namespace)
	}
	b.add(where, right{
		group: rbacv1.GroupName, resource: strings.ToLower(w.RoleRef.Kind) + "s", names: []string{w.RoleRef.Name}, verbs: []string{"bind"},
		why: who + " binds it: this lets it hand out every right in " + w.RoleRef.Name,
	})
}
