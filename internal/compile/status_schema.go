package compile

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

type props = apiextensionsv1.JSONSchemaProps

// ourStatus is the schema of the fields of the status that Libretto writes to instances of the definition.
func (c *compiler) ourStatus() map[string]props {
	ours := instanceStatusSchema()
	if len(c.spec.Operations) > 0 {
		maps.Copy(ours, operationStatusSchema())
	}
	return ours
}

// instanceStatusSchema is the schema of v1alpha1.InstanceStatus: the fields of the status that Libretto writes.
func instanceStatusSchema() map[string]props {
	return map[string]props{
		"conditions": listMap("conditions: Ready, Reconciling, Stalled, and the author's.", 32, []string{"type"}, props{
			Type:     "object",
			Required: []string{"lastTransitionTime", "message", "reason", "status", "type"},
			Properties: map[string]props{
				"lastTransitionTime": {Type: "string", Format: "date-time"},
				"message":            text(32768),
				"observedGeneration": {Type: "integer", Format: "int64", Minimum: ptr.To(0.0)},
				"reason":             pattern(1024, `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`),
				"status":             {Type: "string", Enum: enum("True", "False", "Unknown")},
				"type":               pattern(316, `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`),
			},
		}),
		"observedGeneration": {Type: "integer", Format: "int64", Minimum: ptr.To(0.0),
			Description: "observedGeneration is the generation that the status is about."},
		"revision": described(text(253), "revision is the name of the OperatorRevision that the instance follows."),
		"resources": listMap("resources tells how each resource of the definition stands, in the order of creation.", 100, []string{"name"}, props{
			Type:     "object",
			Required: []string{"name", "state"},
			Properties: map[string]props{
				"name":    text(63),
				"state":   {Type: "string", Enum: enum("Ready", "Progressing", "Waiting", "Excluded", "Failed", "Deleting")},
				"ready":   text(32),
				"message": text(4096),
			},
		}),
		"inventory": {
			Type: "array", MaxItems: ptr.To[int64](2000), XListType: ptr.To("atomic"),
			Description: "inventory lists the objects that the instance has made, in the order of creation.",
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{
				Type:     "object",
				Required: []string{"apiVersion", "kind", "names", "resource", "wave"},
				Properties: map[string]props{
					"resource":   text(63),
					"apiVersion": text(317),
					"kind":       text(63),
					"namespace":  text(63),
					"names": {Type: "array", MaxItems: ptr.To[int64](5000), XListType: ptr.To("atomic"),
						Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: ptr.To(text(253))}},
					"wave":           {Type: "integer", Format: "int32", Minimum: ptr.To(0.0)},
					"deletionPolicy": {Type: "string", Enum: enum("Delete", "Retain")},
				},
			}},
		},
	}
}

func text(maxLength int64) props { return props{Type: "string", MaxLength: ptr.To(maxLength)} }

func pattern(maxLength int64, pattern string) props {
	p := text(maxLength)
	p.MinLength, p.Pattern = ptr.To[int64](1), pattern
	return p
}

func described(p props, description string) props {
	p.Description = description
	return p
}

func listMap(description string, maxItems int64, keys []string, item props) props {
	return props{
		Type: "array", Description: description, MaxItems: ptr.To(maxItems), XListType: ptr.To("map"), XListMapKeys: keys,
		Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item},
	}
}

func enum(values ...string) []apiextensionsv1.JSON {
	var out []apiextensionsv1.JSON
	for _, v := range values {
		out = append(out, apiextensionsv1.JSON{Raw: []byte(`"` + v + `"`)})
	}
	return out
}
