package compile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
)

// status compiles what the status of an instance shows.
func (c *compiler) status() {
	s := c.spec.Status
	if s == nil {
		return
	}
	if s.Fields != nil && len(s.Fields.Raw) > 0 {
		c.statusFields()
	}
	seen := map[string]bool{}
	for i, cond := range s.Conditions {
		path := diag.Index("spec.status.conditions", i)
		switch {
		case cond.Type == "Ready" || cond.Type == "Reconciling" || cond.Type == "Stalled":
			c.add(diag.Diagnostic{Path: path + ".type", Message: "Ready, Reconciling and Stalled are written by Libretto; choose another type", Found: fmt.Sprintf("%q", cond.Type)})
		case seen[cond.Type]:
			c.add(diag.Diagnostic{Path: path + ".type", Message: "the condition is there twice", Found: cond.Type})
		}
		seen[cond.Type] = true
		out := program.Condition{Type: cond.Type, Status: c.expressionRead(string(cond.Status), path+".status")}
		if cond.Reason != "" {
			out.Reason = c.textRead(cond.Reason, path+".reason")
		}
		if cond.Message != "" {
			out.Message = c.textRead(cond.Message, path+".message")
		}
		c.program.Conditions = append(c.program.Conditions, out)
	}
}

func (c *compiler) textRead(value, path string) *program.Template {
	t := c.text(value, path, c.env)
	for _, use := range t.Uses {
		c.read(use.Expr)
	}
	return t
}

func (c *compiler) statusFields() {
	const path = "spec.status.fields"
	object, ok := c.object(c.spec.Status.Fields, path)
	if !ok {
		return
	}
	ours := c.ourStatus()
	declared, _ := c.self.Field("status")
	t := &templater{c: c, env: c.env, root: path}
	root := &program.Part{Kind: program.PartObject}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if _, taken := ours[name]; taken && c.program.CRD != nil {
			c.add(diag.Diagnostic{Path: diag.Child(path, name), Message: fmt.Sprintf("status.%s is written by Libretto", name),
				Hint: "conditions, observedGeneration, revision, resources and inventory are taken; give your field another name"})
			continue
		}
		if strings.Contains(name, "${") {
			c.errorf(diag.Child(path, name), "a key cannot hold ${…}")
			continue
		}
		field, known := declared.Field(name)
		if c.program.CRD == nil && !known {
			t.unknownField(name, name, declared)
		}
		part := t.part(object[name], field, name)
		root.Fields = append(root.Fields, program.Field{Name: name, Value: part})
		if c.program.CRD != nil && (!known || !slices.Contains(declared.Fields(), name)) {
			c.inferStatus(name, infer(part))
		}
	}
	for _, use := range t.uses {
		c.read(use.Expr)
	}
	c.program.StatusFields = &program.Template{Root: root, Uses: t.uses}
}

// inferStatus adds a field to the status of every version: expressions see one version, and all are written alike.
func (c *compiler) inferStatus(name string, p *props) {
	for i := range c.program.CRD.Spec.Versions {
		root := c.program.CRD.Spec.Versions[i].Schema.OpenAPIV3Schema
		status := root.Properties["status"]
		if _, have := status.Properties[name]; have {
			continue
		}
		if status.Properties == nil {
			status.Properties = map[string]props{}
		}
		status.Properties[name] = *p
		root.Properties["status"] = status
	}
}

// infer is the schema of what a part yields.
func infer(p *program.Part) *props {
	switch p.Kind {
	case program.PartExpr:
		return bare(p.Expr.Schema().ToJSONSchemaProps())
	case program.PartText, program.PartDocument:
		return &props{Type: "string"}
	case program.PartObject:
		out := &props{Type: "object", Properties: map[string]props{}}
		for _, f := range p.Fields {
			out.Properties[f.Name] = *infer(f.Value)
		}
		return out
	case program.PartList:
		return listOf(slices.Collect(func(yield func(*props) bool) {
			for _, item := range p.Items {
				if !yield(infer(item)) {
					return
				}
			}
		}))
	case program.PartStatic:
	}
	return inferValue(p.Static)
}

func inferValue(value any) *props {
	switch v := value.(type) {
	case string:
		return &props{Type: "string"}
	case bool:
		return &props{Type: "boolean"}
	case int64:
		return &props{Type: "integer", Format: "int64"}
	case float64:
		return &props{Type: "number"}
	case map[string]any:
		out := &props{Type: "object", Properties: map[string]props{}}
		for name, field := range v {
			out.Properties[name] = *inferValue(field)
		}
		return out
	case []any:
		var items []*props
		for _, item := range v {
			items = append(items, inferValue(item))
		}
		return listOf(items)
	}
	return &props{XPreserveUnknownFields: ptr.To(true)}
}

func listOf(items []*props) *props {
	item := &props{XPreserveUnknownFields: ptr.To(true)}
	if len(items) > 0 {
		item = items[0]
		for _, other := range items[1:] {
			if !reflect.DeepEqual(item, other) {
				item = &props{XPreserveUnknownFields: ptr.To(true)}
				break
			}
		}
	}
	return &props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: item}, XListType: ptr.To("atomic")}
}

// bare removes what describes the value where it was read but need not hold where it is shown.
func bare(p *props) *props {
	p.Required, p.Pattern, p.Enum = nil, "", nil
	p.XValidations, p.Default = nil, nil
	if p.Items != nil && p.Items.Schema != nil {
		bare(p.Items.Schema)
	}
	for name, field := range p.Properties {
		p.Properties[name] = *bare(&field)
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		bare(p.AdditionalProperties.Schema)
	}
	return p
}
