package scaffold

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// runtimeObject is what lists hand out.
type runtimeObject = runtime.Object

// entry is a field of a printed object, with a comment above it.
type entry struct {
	key, comment string
	value        any
}

// ordered is an object whose fields are printed in order.
type ordered []entry

// toNode makes a YAML node of a JSON value; ordered keeps its order, maps are sorted with the usual first fields first.
func toNode(value any) *yaml.Node {
	switch v := value.(type) {
	case ordered:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, e := range v {
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: e.key, HeadComment: comment(e.comment)}
			n.Content = append(n.Content, key, toNode(e.value))
		}
		return n
	case []ordered:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, toNode(item))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		if len(v) == 0 {
			n.Style = yaml.FlowStyle
		}
		for _, k := range usualOrder(v) {
			n.Content = append(n.Content, stringNode(k), toNode(v[k]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if len(v) == 0 {
			n.Style = yaml.FlowStyle
		}
		for _, item := range v {
			n.Content = append(n.Content, toNode(item))
		}
		return n
	case string:
		return stringNode(v)
	}
	n := &yaml.Node{}
	if err := n.Encode(value); err != nil { // numbers, booleans, null: cannot happen
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	return n
}

func stringNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	switch {
	case strings.Contains(s, "\n"):
		n.Style = yaml.LiteralStyle
	case strings.Contains(s, "${"):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func comment(s string) string {
	if s == "" {
		return ""
	}
	return "# " + strings.ReplaceAll(s, "\n", "\n# ")
}

// usualOrder sorts the keys of an object as people write them.
func usualOrder(m map[string]any) []string {
	rank := func(k string) int {
		for i, first := range []string{"apiVersion", "kind", "type", "name", "metadata", "namespace", "image"} {
			if k == first {
				return i
			}
		}
		return 100
	}
	keys := sortedKeys(m)
	sort.SliceStable(keys, func(i, j int) bool { return rank(keys[i]) < rank(keys[j]) })
	return keys
}

func printYAML(head string, value any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(toNode(value)); err != nil {
		return nil, fmt.Errorf("cannot print YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("cannot print YAML: %w", err)
	}
	return b.Bytes(), nil
}

func printObject(o *unstructured.Unstructured) []byte {
	data, err := printYAML("", o.Object)
	if err != nil { // it was read from YAML: cannot happen
		return nil
	}
	return data
}

// definition prints the definition around resources.
func (c *conversion) definition(resources []ordered) ([]byte, error) {
	crd := ordered{{key: "group", value: c.Group}}
	if c.ClusterScoped {
		crd = append(crd, entry{key: "scope", value: "Cluster"})
	}
	crd = append(crd,
		entry{key: "names", value: ordered{{key: "kind", value: c.Kind}, {key: "plural", value: c.plural()}}},
		entry{key: "versions", value: []ordered{{
			{key: "name", value: c.Version},
			{key: "schema", value: ordered{{key: "openAPIV3Schema", value: ordered{
				{key: "type", value: "object"},
				{key: "properties", value: ordered{{key: "spec", value: c.specSchema()}}},
			}}}},
		}}})
	spec := ordered{
		{key: "crd", value: crd, comment: "The kind, in the words of a CustomResourceDefinition. Defaults are the values that were found."},
		{key: "serviceAccount", value: ordered{{key: "namespace", value: c.singular() + "-system"}, {key: "name", value: c.plural()}}, comment: "Who makes the resources in a cluster. `libretto run` acts as you instead."},
		{key: "resources", value: resources, comment: "The objects that a " + c.Kind + " stands for. Any string may hold ${…}, a CEL expression; self is the " + c.Kind + "."},
	}
	doc := ordered{
		{key: "apiVersion", value: "libretto.dev/v1alpha1"},
		{key: "kind", value: "OperatorDefinition"},
		{key: "metadata", value: ordered{{key: "name", value: c.definitionName()}}},
		{key: "spec", value: spec},
	}
	head, _, _ := strings.Cut(heading(c.Options), "apiVersion:")
	return printYAML(strings.TrimLeft(head, "\n"), doc)
}

// specSchema is the schema of spec: the knobs, and the fields that the author asked for.
func (c *conversion) specSchema() ordered { return objectSchema(append(c.knobSchema(), c.extra()...)) }

// knobSchema are the schemas of the knobs, with the values that were found as defaults.
func (c *conversion) knobSchema() ordered {
	props := ordered{}
	images := ordered{}
	for i := range c.knobs.images {
		x := &c.knobs.images[i]
		parts := ordered{{key: "repository", value: withDefault("string", x.repository)}}
		if x.tag != "" {
			parts = append(parts, entry{key: "tag", value: withDefault("string", x.tag)})
		}
		if x.digest != "" {
			parts = append(parts, entry{key: "digest", value: withDefault("string", x.digest)})
		}
		images = append(images, entry{key: x.key, value: objectSchema(parts)})
	}
	replicas := ordered{}
	for _, x := range c.knobs.replicas {
		replicas = append(replicas, entry{key: x.key, value: append(withDefault("integer", x.count), entry{key: "minimum", value: 0})})
	}
	hosts := ordered{}
	for _, x := range c.knobs.hosts {
		hosts = append(hosts, entry{key: x.key, value: withDefault("string", x.host)})
	}
	for _, group := range []struct {
		one, many string
		fields    ordered
	}{{"replicas", "replicas", replicas}, {"image", "images", images}, {"host", "hosts", hosts}} {
		switch len(group.fields) {
		case 0:
		case 1:
			props = append(props, entry{key: group.one, value: group.fields[0].value})
		default:
			props = append(props, entry{key: group.many, value: objectSchema(group.fields)})
		}
	}
	return props
}

// extra are the fields that the author asked for with --field.
func (c *conversion) extra() ordered {
	out := ordered{}
	for i := range c.Fields {
		var v map[string]any
		if yaml.Unmarshal([]byte(c.Fields[i].schema()), &v) == nil {
			out = append(out, entry{key: c.Fields[i].Name, value: v})
		}
	}
	return out
}

func withDefault(t string, value any) ordered {
	return ordered{{key: "type", value: t}, {key: "default", value: value}}
}

func objectSchema(props ordered) ordered {
	out := ordered{{key: "type", value: "object"}, {key: "default", value: map[string]any{}}}
	if len(props) > 0 {
		out = append(out, entry{key: "properties", value: props})
	}
	return out
}

// instance prints the instance for which the definition renders to what was found.
func (c *conversion) instance() ([]byte, error) {
	meta := ordered{{key: "name", value: c.instanceName()}}
	if !c.ClusterScoped {
		ns := c.namespace
		if ns == "" {
			ns = "default"
		}
		meta = append(meta, entry{key: "namespace", value: ns})
	}
	spec := map[string]any{}
	for i := range c.Fields {
		if c.Fields[i].Required {
			spec[c.Fields[i].Name] = c.Fields[i].sample(&c.Options)
		}
	}
	hint, err := c.knobHint()
	if err != nil {
		return nil, err
	}
	return printYAML("", ordered{
		{key: "apiVersion", value: c.Group + "/" + c.Version},
		{key: "kind", value: c.Kind},
		{key: "metadata", value: meta},
		{key: "spec", value: spec, comment: hint},
	})
}

// knobHint lists what may be set, as a comment in YAML.
func (c *conversion) knobHint() (string, error) {
	values := defaults(c.knobSchema())
	if len(values) == 0 {
		return "", nil
	}
	data, err := printYAML("", ordered{{key: "spec", value: values}})
	return "What may be set, with its default:\n" + strings.TrimSuffix(string(data), "\n"), err
}

// defaults turns the schemas of fields into an object that holds their defaults.
func defaults(fields ordered) ordered {
	out := ordered{}
	for _, f := range fields {
		schema, _ := f.value.(ordered)
		for _, e := range schema {
			below, isObject := e.value.(ordered)
			switch {
			case e.key == "properties" && isObject:
				out = append(out, entry{key: f.key, value: defaults(below)})
			case e.key == "default" && schema[0].value != "object":
				out = append(out, entry{key: f.key, value: e.value})
			}
		}
	}
	return out
}

// generatedName is a name with the hash that kustomize's generators put behind it.
var generatedName = regexp.MustCompile(`-[24-9bcdfghkmt]{10}$`)

// templates makes a resource of each object.
func (c *conversion) templates() error {
	objects := c.lift()
	names := c.resourceNames()
	if c.prefix == "" {
		c.note("the names of the objects have nothing in common, so they stay as they are: two instances in one namespace would want the same objects; put ${self.metadata.name} into the names, and into labels and selectors")
	}
	for _, o := range c.objects {
		if c.base && generatedName.MatchString(o.GetName()) && (o.GetKind() == "ConfigMap" || o.GetKind() == "Secret") {
			c.note("%s %s keeps the hash in its name that its generator gave it: a change of its content no longer rolls out pods", o.GetKind(), o.GetName())
		}
	}
	spaces := map[string]string{}
	for i, o := range objects {
		if o.GetKind() == "Namespace" && o.GroupVersionKind().Group == "" {
			spaces[o.GetName()] = names[i]
		}
	}
	var resources []ordered
	for i, o := range objects {
		r := ordered{{key: "name", value: names[i]}}
		switch {
		case o.GetKind() == "PersistentVolumeClaim":
			r = append(r, entry{key: "deletionPolicy", value: "Retain", comment: "Data outlives the instance. Delete would delete it, too."})
		case spaces[o.GetName()] == names[i] && o.GetKind() == "Namespace":
			r = append(r, entry{key: "deletionPolicy", value: "Retain", comment: "Deleting a Namespace deletes all that is in it."})
		}
		if space := spaces[o.GetNamespace()]; space != "" && space != names[i] {
			r = append(r, entry{key: "dependsOn", value: []any{space}})
		}
		resources = append(resources, append(r, entry{key: "template", value: o.Object}))
	}
	data, err := c.definition(resources)
	c.result.Files[DefinitionFile] = data
	return err
}
