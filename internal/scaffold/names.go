package scaffold

import (
	"regexp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// commonPrefix is what names have in common, in whole words between dashes: shop for shop, shop-web and shop-db.
func commonPrefix(names []string) string {
	var common []string
	for i, name := range names {
		words := strings.Split(name, "-")
		if i == 0 {
			common = words
			continue
		}
		n := 0
		for n < len(common) && n < len(words) && common[n] == words[n] {
			n++
		}
		common = common[:n]
	}
	return strings.Join(common, "-")
}

// lift makes the objects fit an instance of any name in any namespace: the common prefix of names becomes the name of the
// instance, the namespace that of the instance, and the knobs become fields of spec.
func (c *conversion) lift() []*unstructured.Unstructured {
	var names []string
	for _, o := range c.objects {
		if c.isNamespaced(o.GroupVersionKind()) {
			names = append(names, o.GetName())
		}
	}
	c.prefix = commonPrefix(names)
	l := &lifter{conversion: c, names: map[string]bool{}}
	for _, o := range c.objects {
		if c.fits(o.GetName()) {
			l.names[o.GetKind()+"/"+o.GetName()] = true
			if o.GetKind() == "Service" {
				l.services = append(l.services, o.GetName())
			}
		}
	}
	out := make([]*unstructured.Unstructured, 0, len(c.objects))
	for _, o := range c.objects {
		out = append(out, l.object(o))
	}
	return out
}

// fits tells whether a name begins with the common prefix.
func (c *conversion) fits(name string) bool {
	return c.prefix != "" && (name == c.prefix || strings.HasPrefix(name, c.prefix+"-"))
}

// rename puts the name of the instance in place of the prefix.
func (c *conversion) rename(name string) string {
	return "${self.metadata.name}" + strings.TrimPrefix(name, c.prefix)
}

type lifter struct {
	*conversion
	// names are KIND/NAME of the objects that are renamed.
	names    map[string]bool
	services []string
}

func (l *lifter) object(original *unstructured.Unstructured) *unstructured.Unstructured {
	o := original.DeepCopy()
	if content, ok := escape(o.Object).(map[string]any); ok {
		o.Object = content
	}
	visitImages(o.Object, func(image string) string {
		for i := range l.knobs.images {
			if escapeText(l.knobs.images[i].image) == image {
				return l.knobs.images[i].expression()
			}
		}
		return image
	})
	visitHosts(o, func(host string) string {
		for _, x := range l.knobs.hosts {
			if escapeText(x.host) == host {
				return "${" + x.path + "}"
			}
		}
		return host
	})
	for _, x := range l.knobs.replicas {
		if x.kind == o.GetKind() && x.name == o.GetName() {
			if spec, ok := o.Object["spec"].(map[string]any); ok {
				spec["replicas"] = "${" + x.path + "}"
			}
		}
	}
	l.references(o.Object, "", o.GetKind())
	l.metadata(o)
	return o
}

func (l *lifter) metadata(o *unstructured.Unstructured) {
	name := o.GetName()
	if l.names[o.GetKind()+"/"+name] {
		o.SetName(l.rename(name))
	}
	ns := o.GetNamespace()
	switch {
	case !l.isNamespaced(o.GroupVersionKind()):
		unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
	case l.ClusterScoped && ns == "":
		o.SetNamespace("default")
	case ns == l.namespace && !l.ClusterScoped:
		unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
	}
}

// references renames what refers to a renamed object, by the places where Kubernetes keeps references, and label values.
func (l *lifter) references(value any, parent, kind string) {
	switch v := value.(type) {
	case map[string]any:
		labels := parent == "labels" || parent == "matchLabels" || parent == "selector" && (kind == "Service" || kind == "ReplicationController")
		for _, key := range sortedKeys(v) {
			text, isText := v[key].(string)
			switch {
			case !isText:
				l.references(v[key], key, kind)
			case labels:
				if l.fits(text) {
					v[key] = l.rename(text)
				}
			case key == "namespace" && parent != "metadata" && text == l.namespace && text != "" && !l.ClusterScoped:
				v[key] = "${self.metadata.namespace}"
			default:
				v[key] = l.reference(v, parent, key, text)
			}
		}
	case []any:
		for i, item := range v {
			if text, ok := item.(string); ok {
				v[i] = l.address(text, false)
				continue
			}
			l.references(item, parent, kind)
		}
	}
}

func (l *lifter) reference(m map[string]any, parent, key, text string) string {
	kind := ""
	switch key {
	case "secretName":
		kind = "Secret"
	case "claimName":
		kind = "PersistentVolumeClaim"
	case "serviceAccountName", "serviceAccount":
		kind = "ServiceAccount"
	case "serviceName":
		kind = "Service"
	case "name":
		kind = referredKind(m, parent)
	}
	if kind != "" {
		if l.names[kind+"/"+text] {
			return l.rename(text)
		}
		return text
	}
	return l.address(text, key == "value")
}

// referredKind is the kind that the field name below parent refers to.
func referredKind(m map[string]any, parent string) string {
	switch parent {
	case "configMapRef", "configMapKeyRef", "configMap":
		return "ConfigMap"
	case "secretRef", "secretKeyRef", "secret", "imagePullSecrets":
		return "Secret"
	case "service", "backendRefs":
		return "Service"
	case "scaleTargetRef", "roleRef", "subjects":
		kind, _ := m["kind"].(string)
		return kind
	}
	return ""
}

// address renames Services where a text holds the address of one: after // or @, before a port or .svc, or, when whole is
// set, as all of the text.
func (l *lifter) address(text string, whole bool) string {
	for _, s := range l.services {
		if whole && text == s {
			return l.rename(s)
		}
		if !strings.Contains(text, s) {
			continue
		}
		name := regexp.QuoteMeta(s)
		for _, pattern := range []string{`(//|@)(` + name + `)([:/.]|$)`, `(^|[\s,="'])(` + name + `)(:[0-9]|\.svc|\.[a-z0-9-]+\.svc)`} {
			text = regexp.MustCompile(pattern).ReplaceAllStringFunc(text, func(match string) string {
				return strings.Replace(match, s, l.rename(s), 1)
			})
		}
	}
	for _, x := range l.knobs.hosts {
		if strings.Contains(text, x.host) {
			host := regexp.MustCompile(`(^|[^A-Za-z0-9.-])` + regexp.QuoteMeta(x.host) + `($|[^A-Za-z0-9.-])`)
			text = host.ReplaceAllString(text, "${1}$${"+x.path+"}${2}")
		}
	}
	if l.namespace != "" && !l.ClusterScoped {
		text = strings.ReplaceAll(text, "."+l.namespace+".svc", ".${self.metadata.namespace}.svc")
	}
	return text
}

// escape makes ${ literal in all strings.
func escape(value any) any {
	switch v := value.(type) {
	case string:
		return escapeText(v)
	case map[string]any:
		for k, item := range v {
			v[k] = escape(item)
		}
	case []any:
		for i, item := range v {
			v[i] = escape(item)
		}
	}
	return value
}

func escapeText(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// resourceNames gives each object a name for expressions: the kind where it is the only one, else name and kind.
func (c *conversion) resourceNames() []string {
	count := map[string]int{}
	for _, o := range c.objects {
		count[o.GetKind()]++
	}
	taken := map[string]bool{}
	out := make([]string, 0, len(c.objects))
	for _, o := range c.objects {
		kind := lowerFirst(o.GetKind())
		rest := o.GetName()
		if c.fits(rest) {
			rest = strings.TrimPrefix(strings.TrimPrefix(rest, c.prefix), "-")
		}
		name := kind
		if count[o.GetKind()] > 1 && rest != "" {
			name = camel(rest) + strings.ToUpper(kind[:1]) + kind[1:]
		}
		if isReserved(name) {
			name += "Object"
		}
		out = append(out, unique(taken, name))
	}
	return out
}

// lowerFirst turns ConfigMap into configMap and HTTPRoute into httpRoute.
func lowerFirst(kind string) string {
	runes := []rune(kind)
	for i := range runes {
		if i > 0 && i+1 < len(runes) && !unicode.IsUpper(runes[i+1]) {
			break
		}
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}

// isReserved tells whether a name means something in expressions already.
func isReserved(name string) bool {
	return contains(strings.Fields("self schema params steps old trigger item random hash json omit true false null in as break const continue else for function if import let loop package namespace return var void while"), name)
}
