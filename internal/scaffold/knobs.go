package scaffold

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// knobs are the values of manifests that become fields of spec.
type knobs struct {
	images   []imageKnob
	replicas []replicasKnob
	hosts    []hostKnob
}

// imageKnob is an image that containers use.
type imageKnob struct {
	// key below spec.images; unused when there is a single image.
	key string
	// image as written; repository, tag and digest are its parts, tag and digest may be empty.
	image, repository, tag, digest string
	// path is spec.image or spec.images.KEY.
	path string
}

type replicasKnob struct {
	key, kind, name string
	count           int64
	path            string
}

type hostKnob struct {
	key, host, path string
}

func findKnobs(objects []*unstructured.Unstructured) knobs {
	var k knobs
	scaled := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() == "HorizontalPodAutoscaler" {
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "scaleTargetRef", "kind")
			name, _, _ := unstructured.NestedString(o.Object, "spec", "scaleTargetRef", "name")
			scaled[kind+"/"+name] = true
		}
	}
	for _, o := range objects {
		visitImages(o.Object, func(image string) string { k.addImage(image); return image })
		visitHosts(o, func(host string) string { k.addHost(host); return host })
		if !scaled[o.GetKind()+"/"+o.GetName()] {
			k.addReplicas(o)
		}
	}
	k.finish()
	return k
}

func (k *knobs) addImage(image string) {
	for _, x := range k.images {
		if x.image == image {
			return
		}
	}
	x := imageKnob{image: image}
	x.repository, x.tag, x.digest = splitImage(image)
	k.images = append(k.images, x)
}

func (k *knobs) addHost(host string) {
	for _, x := range k.hosts {
		if x.host == host {
			return
		}
	}
	k.hosts = append(k.hosts, hostKnob{host: host})
}

func (k *knobs) addReplicas(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet":
	default:
		return
	}
	count, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if found && err == nil {
		k.replicas = append(k.replicas, replicasKnob{kind: o.GetKind(), name: o.GetName(), count: count})
	}
}

// finish gives the knobs their keys and paths.
func (k *knobs) finish() {
	taken := map[string]bool{}
	for i := range k.images {
		x := &k.images[i]
		x.key = unique(taken, camel(x.repository[strings.LastIndexByte(x.repository, '/')+1:]))
		x.path = pathOf("image", "images", x.key, len(k.images))
	}
	taken = map[string]bool{}
	for i := range k.replicas {
		x := &k.replicas[i]
		x.key = unique(taken, camel(x.name))
		x.path = pathOf("replicas", "replicas", x.key, len(k.replicas))
	}
	taken = map[string]bool{}
	for i := range k.hosts {
		x := &k.hosts[i]
		x.key = unique(taken, camel(strings.Split(strings.TrimPrefix(x.host, "*."), ".")[0]))
		x.path = pathOf("host", "hosts", x.key, len(k.hosts))
	}
}

func pathOf(one, many, key string, n int) string {
	if n == 1 {
		return "self.spec." + one
	}
	return "self.spec." + many + "." + key
}

// unique adds a number to a key that is taken.
func unique(taken map[string]bool, key string) string {
	out := key
	for i := 2; taken[out]; i++ {
		out = fmt.Sprintf("%s%d", key, i)
	}
	taken[out] = true
	return out
}

// camel turns a name into a word for expressions: my-web.v2 becomes myWebV2.
func camel(s string) string {
	var b strings.Builder
	upper := false
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			if b.Len() == 0 && r >= '0' && r <= '9' {
				b.WriteByte('n')
			}
			c := string(r)
			if b.Len() == 0 {
				c = strings.ToLower(c)
			} else if upper {
				c = strings.ToUpper(c)
			}
			b.WriteString(c)
			upper = false
		default:
			upper = b.Len() > 0
		}
	}
	if b.Len() == 0 {
		return "item"
	}
	return b.String()
}

// splitImage takes ghcr.io/org/web:1.2 and ghcr.io/org/web@sha256:… apart.
func splitImage(image string) (repository, tag, digest string) {
	repository, digest, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i+1:]
	}
	return repository, tag, digest
}

// expression is the text that yields the image again: an image with its parts as ${…}.
func (x *imageKnob) expression() string {
	out := "${" + x.path + ".repository}"
	if x.tag != "" {
		out += ":${" + x.path + ".tag}"
	}
	if x.digest != "" {
		out += "@${" + x.path + ".digest}"
	}
	return out
}

// visitImages replaces the images of containers anywhere below value.
func visitImages(value any, replace func(string) string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if key == "containers" || key == "initContainers" {
				eachItem(v[key], func(c map[string]any) { replaceString(c, "image", replace) })
				continue
			}
			visitImages(v[key], replace)
		}
	case []any:
		for _, item := range v {
			visitImages(item, replace)
		}
	}
}

// visitHosts replaces the hosts of Ingresses, HTTPRoutes and their like.
func visitHosts(o *unstructured.Unstructured, replace func(string) string) {
	spec, _ := o.Object["spec"].(map[string]any)
	group := o.GroupVersionKind().Group
	switch {
	case o.GetKind() == "Ingress" && (group == "networking.k8s.io" || group == "extensions"):
		eachItem(spec["rules"], func(rule map[string]any) { replaceString(rule, "host", replace) })
		eachItem(spec["tls"], func(tls map[string]any) { replaceList(tls, "hosts", replace) })
	case group == "gateway.networking.k8s.io" && strings.HasSuffix(o.GetKind(), "Route"):
		replaceList(spec, "hostnames", replace)
	case group == "gateway.networking.k8s.io" && o.GetKind() == "Gateway":
		eachItem(spec["listeners"], func(l map[string]any) { replaceString(l, "hostname", replace) })
	case group == "route.openshift.io" && o.GetKind() == "Route":
		replaceString(spec, "host", replace)
	}
}

func eachItem(list any, do func(map[string]any)) {
	items, _ := list.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			do(m)
		}
	}
}

func replaceString(m map[string]any, key string, replace func(string) string) {
	if s, ok := m[key].(string); ok && s != "" {
		m[key] = replace(s)
	}
}

func replaceList(m map[string]any, key string, replace func(string) string) {
	items, _ := m[key].([]any)
	for i, item := range items {
		if s, ok := item.(string); ok {
			items[i] = replace(s)
		}
	}
}
