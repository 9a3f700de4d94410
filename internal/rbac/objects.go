package rbac

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// Objects returns the ServiceAccount, the ClusterRole and Roles, and their bindings, in the order in which they are applied.
func (p *Permissions) Objects() []runtime.Object {
	out := []runtime.Object{p.serviceAccount()}
	for _, s := range p.Scopes {
		role, binding := p.role(s)
		out = append(out, role, binding)
	}
	if len(p.Cleanup) > 0 {
		out = append(out, p.cleanup())
	}
	return out
}

// cleanup is a ClusterRole that is aggregated into Libretto's own.
func (p *Permissions) cleanup() *rbacv1.ClusterRole {
	meta := p.meta("", Name(p.Definition)+":cleanup")
	meta.Labels[v1alpha1.LabelAggregateToCleanup] = "true"
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: meta, Rules: policyRules(p.Cleanup),
	}
}

func (p *Permissions) serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: p.meta(p.ServiceAccount.Namespace, p.ServiceAccount.Name),
	}
}

func (p *Permissions) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{"app.kubernetes.io/managed-by": "libretto"},
		Annotations: map[string]string{v1alpha1.AnnotationDefinition: p.Definition},
	}
}

func policyRules(rules []Rule) []rbacv1.PolicyRule {
	out := make([]rbacv1.PolicyRule, 0, len(rules))
	for i := range rules {
		out = append(out, rules[i].PolicyRule)
	}
	return out
}

func (p *Permissions) role(s Scope) (role, binding runtime.Object) {
	rules := policyRules(s.Rules)
	meta := p.meta(s.Namespace, Name(p.Definition))
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.ServiceAccount.Namespace, Name: p.ServiceAccount.Name}}
	api := rbacv1.SchemeGroupVersion.String()
	if s.Namespace == "" {
		return &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: api, Kind: "ClusterRole"}, ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: metav1.TypeMeta{APIVersion: api, Kind: "ClusterRoleBinding"}, ObjectMeta: meta,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}, Subjects: subjects,
			}
	}
	return &rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: api, Kind: "Role"}, ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: api, Kind: "RoleBinding"}, ObjectMeta: meta,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: subjects,
		}
}

// YAML prints the objects as documents, each rule with a comment that says what needs it.
func (p *Permissions) YAML() ([]byte, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "# The least rights for definition %s.\n", p.Definition)
	if p.ServiceAccount.Namespace != "" {
		fmt.Fprintf(&out, "# Its namespace has to be there: kubectl create namespace %s\n", p.ServiceAccount.Namespace)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&out, "# Note: %s.\n", n)
	}
	scopes := p.Scopes
	for _, o := range p.Objects() {
		data, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("cannot print %T: %w", o, err)
		}
		text := string(data)
		switch role, _ := o.(*rbacv1.ClusterRole); {
		case role != nil && role.Labels[v1alpha1.LabelAggregateToCleanup] != "":
			text = commented(text, p.Cleanup)
		case isRole(o):
			text = commented(text, scopes[0].Rules)
			scopes = scopes[1:]
		}
		out.WriteString("---\n" + text)
	}
	return []byte(out.String()), nil
}

func isRole(o runtime.Object) bool {
	switch o.(type) {
	case *rbacv1.ClusterRole, *rbacv1.Role:
		return true
	}
	return false
}

// commented replaces the rules of a printed role, which stand last, by the same rules with comments.
func commented(text string, rules []Rule) string {
	head, _, found := strings.Cut(text, "\nrules:\n")
	if !found {
		return text
	}
	var out strings.Builder
	out.WriteString(head + "\nrules:\n")
	for i := range rules {
		for _, w := range rules[i].Why {
			out.WriteString("# " + w + "\n")
		}
		r := &rules[i]
		fmt.Fprintf(&out, "- apiGroups: %s\n  resources: %s\n", flow(r.APIGroups), flow(r.Resources))
		if len(r.ResourceNames) > 0 {
			fmt.Fprintf(&out, "  resourceNames: %s\n", flow(r.ResourceNames))
		}
		fmt.Fprintf(&out, "  verbs: %s\n", flow(r.Verbs))
	}
	return out.String()
}

// flow prints a list in one line.
func flow(list []string) string {
	quoted := make([]string, 0, len(list))
	for _, s := range list {
		quoted = append(quoted, strconv.Quote(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Request is a request that the API server refused, or might refuse.
type Request struct {
	Verb, Group, Resource, Subresource string
	Namespace, Name                    string
}

// String prints a request as an administrator reads it: patch deployments.apps "web" in namespace "shop".
func (r Request) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Name != "" {
		s += fmt.Sprintf(" %q", r.Name)
	}
	if r.Namespace != "" {
		s += fmt.Sprintf(" in namespace %q", r.Namespace)
	}
	return s
}

// Holder is the Role or ClusterRole that gives a right, as printed by Objects.
type Holder struct {
	// Kind is Role or ClusterRole.
	Kind, Namespace, Name string
	// Needed tells whether the definition's least rights contain the request; when not, the request is not one that the
	// compiled definition makes.
	Needed bool
}

// String prints KIND NAMESPACE/NAME.
func (h Holder) String() string {
	if h.Namespace == "" {
		return h.Kind + " " + h.Name
	}
	return h.Kind + " " + h.Namespace + "/" + h.Name
}

// Explain tells which Role of the definition gives, or would give, a right.
func (p *Permissions) Explain(r Request) Holder {
	for _, s := range p.Scopes {
		if (s.Namespace == "" || s.Namespace == r.Namespace) && s.allows(r) {
			return p.holder(s.Namespace, true)
		}
	}
	for _, s := range p.Scopes {
		if s.Namespace != "" && s.Namespace == r.Namespace {
			return p.holder(s.Namespace, false)
		}
	}
	return p.holder("", false)
}

func (p *Permissions) holder(namespace string, needed bool) Holder {
	h := Holder{Kind: "ClusterRole", Name: Name(p.Definition), Namespace: namespace, Needed: needed}
	if namespace != "" {
		h.Kind = "Role"
	}
	return h
}

func (s *Scope) allows(r Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	for i := range s.Rules {
		rule := &s.Rules[i]
		if matches(rule.APIGroups, r.Group) && matches(rule.Resources, resource) && matches(rule.Verbs, r.Verb) &&
			(len(rule.ResourceNames) == 0 || contains(rule.ResourceNames, r.Name)) {
			return true
		}
	}
	return false
}

func matches(list []string, s string) bool { return contains(list, s) || contains(list, "*") }

// Requests lists every request that the rules allow, one per verb and resource, for a check with SelfSubjectAccessReviews or
// SubjectAccessReviews. Rules with resource names yield one request per name.
func (p *Permissions) Requests() []Request {
	var out []Request
	for _, s := range p.Scopes {
		for i := range s.Rules {
			out = append(out, requests(s.Namespace, &s.Rules[i])...)
		}
	}
	return out
}

func requests(namespace string, rule *Rule) []Request {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []Request
	for _, g := range rule.APIGroups {
		for _, full := range rule.Resources {
			resource, sub, _ := strings.Cut(full, "/")
			for _, v := range rule.Verbs {
				for _, n := range names {
					out = append(out, Request{Verb: v, Group: g, Resource: resource, Subresource: sub, Namespace: namespace, Name: n})
				}
			}
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
