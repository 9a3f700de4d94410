package compile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// operationKind makes the kind of operation objects: its CustomResourceDefinition holds the parameters of each operation, so that
// the API server checks them.
func (c *compiler) operationKind() {
	if c.program.Instance.Kind == "" {
		return // said already
	}
	names := c.operationNames()
	if names.group == "" {
		return // said already
	}
	scope := apiextensionsv1.ClusterScoped
	if c.program.Instance.Namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	group := names.group
	version := c.program.Instance.Version
	if c.program.CRD == nil {
		version = "v1"
	}
	spec, params := c.operationSpec()
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        names.plural + "." + group,
			Labels:      map[string]string{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(c.program.Name)},
			Annotations: map[string]string{v1alpha1.AnnotationDefinition: c.program.Name},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: names.kind, Plural: names.plural, Singular: strings.ToLower(names.kind), ListKind: names.kind + "List", ShortNames: names.short,
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props{
					Type:        "object",
					Description: fmt.Sprintf("%s is one run of an operation for one %s.", names.kind, c.program.Instance.Kind),
					Required:    []string{"spec"},
					Properties: map[string]props{
						"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"}, "spec": *spec, "status": runStatusSchema(),
					},
				}},
				AdditionalPrinterColumns: c.operationColumns(),
				SelectableFields:         []apiextensionsv1.SelectableField{{JSONPath: ".spec.target"}, {JSONPath: ".spec.operation"}},
			}},
		},
	}
	c.program.OperationKind = &program.OperationKinds{
		Kind: program.Kind{
			GroupVersionKind: runtimeschema.GroupVersionKind{Group: group, Version: version, Kind: names.kind}, Resource: names.plural,
			Namespaced: c.program.Instance.Namespaced,
		},
		CRD: crd,
	}
	c.checkOperationKind(crd, params)
	c.operationParams(crd, params)
	if c.program.Instance.Pending { // whether its objects stand in namespaces is not known yet
		c.program.OperationKind.CRD, c.program.OperationKind.Kind.Pending = nil, true
	}
}

type operationNames struct {
	group, kind, plural string
	short               []string
}

func (c *compiler) operationNames() operationNames {
	in := c.spec.OperationKind
	if in == nil {
		in = &v1alpha1.OperationKind{}
	}
	out := operationNames{group: c.program.Instance.Group, short: in.ShortNames}
	out.kind = cmp.Or(in.Kind, c.program.Instance.Kind+"Operation")
	out.plural = cmp.Or(in.Plural, strings.ToLower(out.kind)+"s")
	switch {
	case c.program.CRD == nil && in.Group == "":
		c.add(diag.Diagnostic{Path: "spec.operationKind", Message: "operation objects of a target need a group of your own", Hint: "add operationKind: {group: example.com}"})
	case c.program.CRD != nil && in.Group != "" && in.Group != out.group:
		c.add(diag.Diagnostic{Path: "spec.operationKind.group", Message: "operation objects stand in the group of the declared kind", Expected: fmt.Sprintf("%q", out.group), Found: fmt.Sprintf("%q", in.Group), Hint: "remove the line"})
	case in.Group != "":
		out.group = in.Group
	}
	if c.program.CRD != nil && (out.kind == c.program.Instance.Kind || out.plural == c.program.Instance.Resource) {
		c.add(diag.Diagnostic{Path: "spec.operationKind", Message: "the kind of operation objects has the name of the declared kind", Hint: "choose another"})
	}
	return out
}

// operationSpec is the schema of spec, and the schemas of the parameters in it, by operation.
func (c *compiler) operationSpec() (*props, map[string]*props) {
	params := map[string]*props{}
	operations := make([]string, 0, len(c.spec.Operations))
	spec := &props{
		Type: "object", Required: []string{"operation", "target"},
		Properties: map[string]props{
			"target": described(props{Type: "string", MinLength: ptr.To[int64](1), MaxLength: ptr.To[int64](253)}, "target is the name of the "+c.program.Instance.Kind+", in the namespace of the operation object."),
			"cancel": described(props{Type: "boolean"}, "cancel ends the run; it cannot be taken back."),
			"paused": described(props{Type: "boolean"}, "paused keeps the run from beginning another step or attempt."),
			"retry": described(props{Type: "object", Required: []string{"id"}, Properties: map[string]props{
				"id":   described(props{Type: "string", MinLength: ptr.To[int64](1), MaxLength: ptr.To[int64](63)}, "id is any text: a new one begins a run again, once, that has ended and did not succeed."),
				"from": described(text(63), "from is the name of the step to begin with. Default: the first one that did not succeed."),
			}}, "retry begins the run again."),
			"trigger": runTriggerSchema(),
		},
		XValidations: apiextensionsv1.ValidationRules{
			{Rule: "self.target == oldSelf.target", Message: "target cannot change; make another object", FieldPath: ".target"},
			{Rule: "self.operation == oldSelf.operation", Message: "operation cannot change; make another object", FieldPath: ".operation"},
			{Rule: "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)", Message: "cancel cannot be taken back; make another object", FieldPath: ".cancel"},
			{Rule: "has(self.trigger) == has(oldSelf.trigger)", Message: "trigger is written by Libretto, and cannot change; make another object", FieldPath: ".trigger"},
		},
	}
	for i := range c.spec.Operations {
		op := &c.spec.Operations[i]
		name := string(op.Name)
		operations = append(operations, name)
		if op.Parameters == nil || !isName(name) || slices.Contains(reservedOperations, name) {
			continue
		}
		p := c.readSchema(op.Parameters.OpenAPIV3Schema.Raw, diag.Index("spec.operations", i)+".parameters.openAPIV3Schema")
		if p.Type = cmp.Or(p.Type, "object"); p.Type != "object" {
			c.add(diag.Diagnostic{Path: diag.Index("spec.operations", i) + ".parameters.openAPIV3Schema.type", Message: "parameters have names: the schema is that of an object", Expected: "object", Found: p.Type,
				Hint: "put it below properties"})
			continue
		}
		if p.Description == "" {
			p.Description = "the parameters of operation " + name
		}
		params[name] = p
		spec.Properties[name] = *p
		spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{
			Rule: fmt.Sprintf("!has(self.%s) || self.operation == '%s'", name, name), FieldPath: "." + name,
			Message: fmt.Sprintf("%s holds the parameters of operation %s, and operation is another one", name, name),
		}, apiextensionsv1.ValidationRule{
			Rule:    fmt.Sprintf("has(self.%s) == has(oldSelf.%s)", name, name),
			Message: "parameters cannot change; make another object", FieldPath: "." + name,
		})
		if len(p.Required) > 0 {
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{
				Rule:    fmt.Sprintf("self.operation != '%s' || has(self.%s)", name, name),
				Message: fmt.Sprintf("spec.%s is missing: operation %s requires %s", name, name, strings.Join(p.Required, ", ")), FieldPath: "." + name,
			})
		}
	}
	description := "operation is the name of the operation."
	for i := range c.spec.Operations {
		if d := c.spec.Operations[i].Description; d != "" {
			description += fmt.Sprintf(" %s: %s", c.spec.Operations[i].Name, d)
		}
	}
	spec.Properties["operation"] = described(props{Type: "string", Enum: enum(operations...)}, description)
	return spec, params
}

// checkOperationKind checks the kind as the API server does, and forbids changes of parameters where that does not cost too much.
func (c *compiler) checkOperationKind(crd *apiextensionsv1.CustomResourceDefinition, params map[string]*props) {
	careful := crd.DeepCopy()
	spec := careful.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for name := range params {
		p := spec.Properties[name]
		p.XValidations = append(slices.Clone(p.XValidations), apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "parameters cannot change; make another object"})
		spec.Properties[name] = p
	}
	if len(validateKind(careful)) == 0 {
		*crd = *careful
		return
	}
	for _, fault := range validateKind(crd) {
		d := diag.FromField(fault)
		d.Path = c.operationKindPath(d.Path)
		if d.Hint == "" {
			d.Hint = schemaHint(d.Message)
		}
		c.add(d)
	}
}

// operationKindPath translates a path in the CustomResourceDefinition of operation objects to one in the definition.
func (c *compiler) operationKindPath(path string) string {
	steps := diag.Split(path)
	for k := range steps {
		// … properties spec properties NAME …
		if k < 3 || steps[k-3].Name != "properties" || steps[k-2].Name != "spec" || steps[k-1].Name != "properties" {
			continue
		}
		for i := range c.spec.Operations {
			if string(c.spec.Operations[i].Name) == steps[k].Name {
				at := diag.Index("spec.operations", i) + ".parameters.openAPIV3Schema"
				if rest := diag.Join(steps[k+1:]); rest != "" {
					at += "." + rest
				}
				return diag.Normalize(at)
			}
		}
	}
	return "spec.operationKind"
}

func validateKind(crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	checked := crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(checked)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&checked.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(checked, internal, nil); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return slices.DeleteFunc(crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal), func(f *field.Error) bool {
		return strings.HasPrefix(f.Field, "status.") || strings.Contains(f.Detail, "api-approved.kubernetes.io")
	})
}

// operationParams keeps the schemas of the parameters for expressions.
func (c *compiler) operationParams(crd *apiextensionsv1.CustomResourceDefinition, params map[string]*props) {
	c.paramSchemas = map[string]*schema.Schema{}
	root, err := schema.FromCRDVersion(crd, crd.Spec.Versions[0].Name)
	if err != nil {
		if !c.list.HasErrors() {
			c.errorf("spec.operationKind", "%s", err)
		}
		return
	}
	spec, _ := root.Field("spec")
	for name := range params {
		c.paramSchemas[name], _ = spec.Field(name)
	}
}

// ownColumns are the columns of all operation objects, in lower case.
var ownColumns = []string{"name", "namespace", "target", "operation", "state", "step", "progress", "message", "duration", "age"}

func (c *compiler) operationColumns() []apiextensionsv1.CustomResourceColumnDefinition {
	columns := []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Target", Type: "string", JSONPath: ".spec.target"},
		{Name: "Operation", Type: "string", JSONPath: ".spec.operation"},
		{Name: "State", Type: "string", JSONPath: ".status.state"},
		{Name: "Step", Type: "string", JSONPath: ".status.step"},
	}
	columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{Name: "Progress", Type: "string", JSONPath: ".status.progress", Priority: 1})
	have := map[string]bool{}
	for i := range c.spec.Operations {
		for _, name := range c.spec.Operations[i].Columns {
			if key := strings.ToLower(name); !have[key] && isName(name) && !slices.Contains(ownColumns, key) {
				have[key] = true
				columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{
					Name: strings.ToUpper(name[:1]) + name[1:], Type: "string", JSONPath: ".status.output." + name,
				})
			}
		}
	}
	return append(columns,
		apiextensionsv1.CustomResourceColumnDefinition{Name: "Message", Type: "string", JSONPath: ".status.message", Priority: 1},
		apiextensionsv1.CustomResourceColumnDefinition{Name: "Duration", Type: "string", JSONPath: ".status.duration"},
		apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"})
}

// runTriggerSchema is the schema of v1alpha1.RunTrigger.
func runTriggerSchema() props {
	return described(props{Type: "object", Required: []string{"type"}, Properties: map[string]props{
		"type":       {Type: "string", Enum: enum("Manual", "Create", "Update", "Delete", "Resume", "Schedule", "Every", "Condition", "Watch", "Run")},
		"index":      {Type: "integer", Format: "int32"},
		"time":       {Type: "string", Format: "date-time"},
		"generation": {Type: "integer", Format: "int64"},
		"revision":   text(253),
		"old":        anyObject(),
		"new":        anyObject(),
		"count":      {Type: "integer", Format: "int64"},
		"hash":       text(64),
		"fields":     {Type: "array", MaxItems: ptr.To[int64](20), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: ptr.To(text(512))}, XListType: ptr.To("atomic")},
		"object": {Type: "object", Properties: map[string]props{
			"apiVersion": text(317), "kind": text(63), "namespace": text(63), "name": text(253), "uid": text(63),
		}},
		"parent": text(253),
	}, XValidations: apiextensionsv1.ValidationRules{{Rule: "self == oldSelf", Message: "trigger is written by Libretto, and cannot change; make another object"}}}, "trigger says what began the run. It is written by Libretto; a run that a user creates has none.")
}

func anyObject() props { return props{Type: "object", XPreserveUnknownFields: ptr.To(true)} }

// runStatusSchema is the schema of v1alpha1.OperationRunStatus.
func runStatusSchema() props {
	moment := props{Type: "string", Format: "date-time"}
	steps := props{Type: "array", MaxItems: ptr.To[int64](100), XListType: ptr.To("atomic"), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{
		Type: "object", Required: []string{"name", "state"}, XPreserveUnknownFields: ptr.To(true),
		Properties: map[string]props{"name": text(63), "state": text(32), "message": text(4096), "startTime": moment, "endTime": moment},
	}}}
	return props{Type: "object", Properties: map[string]props{
		"conditions":         instanceStatusSchema()["conditions"],
		"observedGeneration": {Type: "integer", Format: "int64"},
		"state":              {Type: "string", Enum: enum("Pending", "Running", "Undoing", "Succeeded", "Failed", "Cancelled", "Unknown")},
		"reason":             text(63), "message": text(4096), "step": text(63), "progress": text(32),
		"startTime": moment, "completionTime": moment, "duration": text(32),
		"revision": text(253), "program": text(64), "retry": text(63), "tries": {Type: "integer", Format: "int32"},
		"steps": steps, "removal": steps, "output": anyObject(),
	}}
}

// operationStatusSchema is the schema of what operations add to the status of an instance.
func operationStatusSchema() map[string]props {
	item := func(p props) *apiextensionsv1.JSONSchemaPropsOrArray {
		return &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &p}
	}
	moment := props{Type: "string", Format: "date-time"}
	return map[string]props{
		"operations": listMap("operations holds what the triggers of operations remember.", 50, []string{"name"}, props{
			Type: "object", Required: []string{"name"},
			Properties: map[string]props{
				"name": text(63), "since": moment, "generation": {Type: "integer", Format: "int64"}, "values": anyObject(), "count": {Type: "integer", Format: "int64"},
				"triggers": {Type: "array", MaxItems: ptr.To[int64](10), XListType: ptr.To("atomic"), Items: item(props{
					Type: "object", Properties: map[string]props{
						"index": {Type: "integer", Format: "int32"}, "type": text(32), "time": moment, "asked": moment, "fired": {Type: "boolean"}, "hash": text(64),
					},
				})},
			},
		}),
		"deletion": {Type: "array", MaxItems: ptr.To[int64](50), XListType: ptr.To("atomic"),
			Description: "deletion holds the runs of event: Delete in a namespace that is being deleted.",
			Items: item(props{Type: "object", Required: []string{"operation"}, Properties: map[string]props{
				"operation": text(63), "status": runStatusSchema(),
			}}),
		},
	}
}
