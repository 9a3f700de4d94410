package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
)

// metadata checks the metadata of a template, but for types.
func (c *compiler) metadata(n *node, path string) {
	at := path + ".metadata"
	meta, isObject := n.object["metadata"].(map[string]any)
	if !isObject {
		if _, have := n.object["metadata"]; !have {
			c.add(diag.Diagnostic{Path: path, Message: "the object has no metadata.name", Hint: "add metadata: {name: \"${self.metadata.name}\"}"})
		}
		return
	}
	name, isText := meta["name"].(string)
	switch {
	case meta["generateName"] != nil:
		c.add(diag.Diagnostic{Path: at + ".generateName", Message: "a resource needs a fixed name: with generateName every look at it would make another object", Hint: "use name, with ${self.metadata.name} in it"})
	case meta["name"] == nil:
		c.add(diag.Diagnostic{Path: at, Message: "the object has no metadata.name", Hint: "add name: \"${self.metadata.name}\""})
	case isText && !strings.Contains(name, "${"):
		for _, fault := range pathvalidation.IsValidPathSegmentName(name) {
			c.add(diag.Diagnostic{Path: at + ".name", Message: "not a name: " + fault, Found: fmt.Sprintf("%q", name)})
		}
		if name == "" {
			c.errorf(at+".name", "the name is empty")
		}
	}
	c.namespace(n, meta, at)
	hints := map[string]string{
		"ownerReferences": "Libretto writes it: the instance owns the object wherever Kubernetes allows that",
	}
	for _, field := range []string{"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"} {
		if value, have := meta[field]; have && (value != nil || field != "creationTimestamp") {
			hint := hints[field]
			if hint == "" {
				hint = "remove it: the API server writes it"
			}
			c.add(diag.Diagnostic{Path: diag.Child(at, field), Message: fmt.Sprintf("metadata.%s cannot be set", field), Hint: hint})
		}
	}
}

func (c *compiler) namespace(n *node, meta map[string]any, at string) {
	if len(n.Kinds) != 1 || n.Kinds[0].Pending {
		return
	}
	kind, instance := n.Kinds[0], c.program.Instance
	namespace, have := meta["namespace"]
	switch {
	case !kind.Namespaced && have && namespace != nil:
		c.add(diag.Diagnostic{Path: at + ".namespace", Message: fmt.Sprintf("%s stands in no namespace", kind.Kind), Hint: "remove the line"})
	case kind.Namespaced && !have && !instance.Namespaced && !instance.Pending && instance.Kind != "":
		hint := "add namespace"
		if instance.Kind == "Namespace" && instance.Group == "" {
			hint = "add namespace: ${self.metadata.name}"
		}
		c.add(diag.Diagnostic{Path: at, Message: fmt.Sprintf("%s needs a namespace: instances of %s have none that it could be taken from", kind.Kind, instance.Kind), Hint: hint})
	}
	if text, ok := namespace.(string); ok && !strings.Contains(text, "${") && kind.Namespaced {
		for _, fault := range validation.IsDNS1123Label(text) {
			c.add(diag.Diagnostic{Path: at + ".namespace", Message: "not a namespace: " + fault, Found: fmt.Sprintf("%q", text)})
		}
	}
}

// fields lists what is known of a map of text: values of expressions are not.
func fields(p *program.Part) map[string]*string {
	out := map[string]*string{}
	if p == nil {
		return out
	}
	switch p.Kind {
	case program.PartStatic:
		object, _ := p.Static.(map[string]any)
		for name, value := range object {
			if text, ok := value.(string); ok {
				out[name] = &text
			} else {
				out[name] = nil
			}
		}
	case program.PartObject:
		for _, f := range p.Fields {
			out[f.Name] = nil
			if text, ok := f.Value.Static.(string); ok && f.Value.Kind == program.PartStatic {
				out[f.Name] = &text
			}
		}
	case program.PartExpr, program.PartText, program.PartList, program.PartDocument:
	}
	return out
}

func (c *compiler) labels(p *program.Part, path string) {
	values := fields(p)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := diag.Child(path, name)
		c.metadataKey(name, at, "label")
		if values[name] == nil {
			continue
		}
		for _, fault := range validation.IsValidLabelValue(*values[name]) {
			c.add(diag.Diagnostic{Path: at, Message: "not a value for a label: " + fault, Found: fmt.Sprintf("%q", *values[name])})
		}
	}
}

func (c *compiler) annotations(p *program.Part, path string) {
	values := fields(p)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.metadataKey(name, diag.Child(path, name), "annotation")
	}
}

func (c *compiler) metadataKey(name, path, what string) {
	for _, fault := range validation.IsQualifiedName(name) {
		c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("not a key for %s: %s", article(what), fault), Found: fmt.Sprintf("%q", name)})
	}
	if prefix, _, ok := strings.Cut(name, "/"); ok && (prefix == "libretto.dev" || strings.HasSuffix(prefix, ".libretto.dev")) {
		c.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("the %ss of libretto.dev are written by Libretto", what), Hint: "use a prefix of your own"})
	}
}

func article(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}
