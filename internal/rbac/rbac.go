package rbac

import (
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/program"
)

// Permissions are the rights that a definition needs.
type Permissions struct {
	// Definition is the name of the definition.
	Definition string
	// ServiceAccount is the identity that needs the rights; zero when the definition names none.
	ServiceAccount v1alpha1.ServiceAccountReference
	// Scopes holds the rules: cluster-wide ones first, then those of single namespaces, by name. A scope is never empty.
	Scopes []Scope
	// Cleanup are the rights that Libretto itself needs to let go of an instance, or of an operation object, that is being deleted
	// when the ServiceAccount has lost its rights before it; none where neither is held.
	Cleanup []Rule
	// Notes say what the rules cannot tell, one sentence each.
	Notes []string
}

// Scope is a set of rules that hold cluster-wide (Namespace is empty) or in one namespace.
type Scope struct {
	Namespace string
	Rules     []Rule
}

// Rule is a rule of a Role, with the reasons for it.
type Rule struct {
	rbacv1.PolicyRule
	// Why names what needs the rule: the instances, resources, externals, operations and their steps.
	Why []string
}

// Name is the name of the Roles, ClusterRole and bindings of a definition.
func Name(definition string) string { return "libretto:" + definition }

// For returns the least rights that a Program needs.
func For(p *program.Program) *Permissions {
	b := &builder{program: p, rules: map[string]map[string]*Rule{}}
	if p.Definition.Namespaces != nil {
		b.namespaces = p.Definition.Namespaces.Names
	}
	b.instances()
	for i := range p.Externals {
		b.external(&p.Externals[i])
	}
	for _, n := range p.Nodes {
		b.node(n)
	}
	b.operations()
	out := &Permissions{Definition: p.Name, Scopes: b.scopes(), Notes: b.notes}
	if p.NeedsFinalizer() {
		out.Cleanup = append(out.Cleanup, b.cleanup(p.Instance,
			"for Libretto itself: to let go of an instance that is being deleted when the ServiceAccount has lost its rights before it"))
	}
	if p.OperationKind != nil && holdsRuns(p) {
		out.Cleanup = append(out.Cleanup, b.cleanup(p.OperationKind.Kind,
			"for Libretto itself: to let go of an operation that is being deleted when the ServiceAccount has lost its rights before it"))
	}
	if sa := p.Definition.ServiceAccount; sa != nil {
		out.ServiceAccount = *sa
	}
	return out
}

func (b *builder) cleanup(k program.Kind, why string) Rule {
	return Rule{
		PolicyRule: rbacv1.PolicyRule{APIGroups: []string{k.Group}, Resources: []string{b.resource(k)}, Verbs: []string{"get", "patch"}},
		Why:        []string{why},
	}
}

// builder collects rules.
type builder struct {
	program *program.Program
	// namespaces are those that the definition serves; nil: all.
	namespaces []string
	// rules by namespace ("" is cluster-wide) and by group, resource and resource names.
	rules map[string]map[string]*Rule
	notes []string
}

// right is what add takes: verbs on a resource.
type right struct {
	group, resource string
	names           []string
	verbs           []string
	why             string
}

// add adds a right in each of the namespaces; "" is cluster-wide.
func (b *builder) add(namespaces []string, r right) {
	for _, ns := range namespaces {
		byKey := b.rules[ns]
		if byKey == nil {
			byKey = map[string]*Rule{}
			b.rules[ns] = byKey
		}
		key := r.group + "\x00" + r.resource + "\x00" + strings.Join(r.names, ",")
		rule := byKey[key]
		if rule == nil {
			rule = &Rule{PolicyRule: rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, ResourceNames: r.names}}
			byKey[key] = rule
		}
		rule.Verbs = union(rule.Verbs, r.verbs)
		rule.Why = union(rule.Why, []string{r.why})
	}
}

func (b *builder) note(s string) { b.notes = union(b.notes, []string{s}) }

// served are the namespaces in which objects of the kind are touched when they lie beside the instance.
func (b *builder) served(k program.Kind) []string {
	if len(b.namespaces) == 0 || (!k.Namespaced && !k.Pending) {
		return []string{""}
	}
	return b.namespaces
}

// at returns where rights for an object of the kind are needed whose namespace is written as ns, perhaps with ${…}.
func (b *builder) at(k program.Kind, ns string) []string {
	switch {
	case !k.Namespaced && !k.Pending:
		return []string{""}
	case ns == "" || isInstanceNamespace(ns):
		return b.served(k)
	case len(b.namespaces) == 0 || strings.Contains(ns, "${"):
		return []string{""}
	}
	return []string{ns}
}

func isInstanceNamespace(s string) bool {
	inner, ok := strings.CutPrefix(s, "${")
	return ok && strings.TrimSpace(strings.TrimSuffix(inner, "}")) == "self.metadata.namespace"
}

func (b *builder) instances() {
	p, k := b.program, b.program.Instance
	where := b.served(k)
	resource := b.resource(k)
	b.add(where, right{group: k.Group, resource: resource, verbs: []string{"get", "list", "watch"}, why: "the instances"})
	if p.HoldFinalizer && (len(p.Nodes) > 0 || p.HasDelete()) {
		b.add(where, right{group: k.Group, resource: resource, verbs: []string{"patch"}, why: "the instances"})
	}
	if p.CRD != nil && p.Definition.WhenInstancesExist == v1alpha1.DefinitionDeletionDelete {
		b.add(where, right{group: k.Group, resource: resource, verbs: []string{"delete"}, why: "the instances, when the definition is deleted"})
	}
	if p.WriteStatus {
		b.add(where, right{group: k.Group, resource: resource + "/status", verbs: []string{"patch"}, why: "the status of the instances"})
	}
}

func (b *builder) external(x *program.External) {
	spec := b.externalSpec(x.Name)
	if spec == nil {
		return
	}
	r := right{group: x.Kind.Group, resource: b.resource(x.Kind), verbs: []string{"get", "list", "watch"}, why: "external " + x.Name}
	ns := ""
	if spec.Ref != nil {
		ns = spec.Ref.Namespace
		if !strings.Contains(spec.Ref.Name, "${") {
			r.names = []string{spec.Ref.Name}
		}
	} else if spec.Selector != nil {
		ns = spec.Selector.Namespace
	}
	where := b.at(x.Kind, ns)
	if x.Kind.Namespaced && ns != "" && !strings.Contains(ns, "${") {
		where = []string{ns} // a single object or list in one namespace is watched there alone
	}
	b.add(where, r)
}

func (b *builder) externalSpec(name string) *v1alpha1.External {
	for i := range b.program.Definition.External {
		if x := &b.program.Definition.External[i]; string(x.Name) == name {
			return x
		}
	}
	return nil
}

func (b *builder) resourceSpec(name string) *v1alpha1.Resource {
	for i := range b.program.Definition.Resources {
		if r := &b.program.Definition.Resources[i]; string(r.Name) == name {
			return r
		}
	}
	return nil
}

func (b *builder) node(n *program.Node) {
	spec := b.resourceSpec(n.Name)
	if spec == nil {
		return
	}
	verbs := []string{"get", "list", "watch", "create", "patch"}
	if n.DeletionPolicy != v1alpha1.DeletionPolicyRetain || n.UpdatePolicy == v1alpha1.UpdatePolicyRecreate {
		verbs = append(verbs, "delete")
	}
	spaces := writtenNamespaces(spec)
	for _, k := range n.Kinds {
		var where []string
		for _, ns := range spaces {
			if strings.Contains(ns, "${") && !isInstanceNamespace(ns) && len(b.namespaces) > 0 && k.Namespaced {
				b.note("the namespace of resource " + n.Name + " is an expression, so its rights are cluster-wide")
			}
			where = union(where, b.at(k, ns))
		}
		b.add(where, right{group: k.Group, resource: b.resource(k), verbs: verbs, why: "resource " + n.Name})
	}
	for _, w := range objectsOf(spec) {
		b.escalation("resource "+n.Name, w)
	}
}

// resource returns the plural of a kind; that of a pending kind is a guess, and a note says so.
func (b *builder) resource(k program.Kind) string {
	if k.Resource != "" {
		return k.Resource
	}
	guess := guessPlural(k.Kind)
	b.note("kind " + k.Kind + "." + k.Group + " is not known yet; its resource is taken to be " + guess)
	return guess
}

func guessPlural(kind string) string {
	s := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(s, "s"), strings.HasSuffix(s, "x"), strings.HasSuffix(s, "ch"):
		return s + "es"
	case strings.HasSuffix(s, "y"):
		return strings.TrimSuffix(s, "y") + "ies"
	}
	return s + "s"
}

// scopes sorts the rules and joins those that differ in the resource alone.
func (b *builder) scopes() []Scope {
	var out []Scope
	for ns, byKey := range b.rules {
		rules := make([]Rule, 0, len(byKey))
		for _, r := range byKey {
			r.Verbs = sortVerbs(r.Verbs)
			rules = append(rules, *r)
		}
		sort.Slice(rules, func(i, j int) bool { return ruleKey(&rules[i]) < ruleKey(&rules[j]) })
		out = append(out, Scope{Namespace: ns, Rules: join(rules)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Namespace < out[j].Namespace })
	return out
}

// join merges neighbours of the same group, verbs and names.
func join(rules []Rule) []Rule {
	var out []Rule
	index := map[string]int{}
	for _, r := range rules {
		key := strings.Join(r.APIGroups, ",") + "\x00" + strings.Join(r.NonResourceURLs, ",") + "\x00" + strings.Join(r.Verbs, ",") + "\x00" + strings.Join(r.ResourceNames, ",")
		i, ok := index[key]
		if !ok || strings.HasSuffix(r.Resources[0], "/status") {
			index[key] = len(out)
			out = append(out, r)
			continue
		}
		out[i].Resources = append(append([]string(nil), out[i].Resources...), r.Resources...)
		out[i].Why = union(out[i].Why, r.Why)
	}
	return out
}

func ruleKey(r *Rule) string {
	return strings.Join(r.APIGroups, ",") + "\x00" + strings.Join(r.Resources, ",") + "\x00" + strings.Join(r.ResourceNames, ",")
}

// union appends what is new, in order.
func union(a, b []string) []string {
	out := append([]string(nil), a...)
	for _, s := range b {
		if !contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// sortVerbs puts verbs in the usual order.
func sortVerbs(verbs []string) []string {
	const order = "get list watch create update patch delete"
	out := append([]string(nil), verbs...)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := strings.Index(order, out[i]), strings.Index(order, out[j])
		if a < 0 || b < 0 {
			return b < 0 && (a >= 0 || out[i] < out[j])
		}
		return a < b
	})
	return out
}
