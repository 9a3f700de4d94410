package compile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// instance finds out what self is.
func (c *compiler) instance() {
	p := c.program
	switch {
	case c.spec.CRD != nil && len(c.spec.CRD.Versions) > 0:
		p.WriteStatus, p.HoldFinalizer = true, true
		c.declaredKind(c.spec.CRD)
	case c.spec.Target != nil:
		c.target(c.spec.Target)
	default:
		c.errorf("spec", "exactly one of spec.crd (a kind of your own) and spec.target (an existing kind) must be set")
	}
	env, err := expr.NewEnv([]expr.Variable{{Name: "self", Schema: c.self}}, expr.Options{})
	if err != nil {
		c.errorf("spec", "cannot compile expressions: %s", err)
		return
	}
	c.env = env
	c.vars = []expr.Variable{{Name: "self", Schema: c.self}}
	if t := c.spec.Target; t != nil && t.When != "" {
		p.Match = c.expression(string(t.When), "spec.target.when", env, expr.Bool)
	}
}

func (c *compiler) target(t *v1alpha1.Target) {
	p := c.program
	kind, known, ok := c.kind(t.APIVersion, t.Kind, "spec.target")
	if !ok {
		return
	}
	p.Instance, p.Selector = kind, t.Selector
	if t.Selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(t.Selector); err != nil {
			c.errorf("spec.target.selector", "not a selector: %s", err)
		}
	}
	for _, m := range t.Manage {
		switch m {
		case v1alpha1.TargetManagementStatus:
			p.WriteStatus = true
		case v1alpha1.TargetManagementFinalizer:
			p.HoldFinalizer = true
		}
	}
	if known != nil {
		c.self = known.Schema
		if p.WriteStatus && !known.HasStatus {
			c.add(diag.Diagnostic{Path: "spec.target.manage", Message: fmt.Sprintf("%s has no status", schema.KindString(known.GVK)), Hint: "remove Status"})
		}
	}
}

// declaredKind makes the CustomResourceDefinition but for the status fields that come from expressions.
func (c *compiler) declaredKind(spec *v1alpha1.CRDSpec) {
	kind := spec.Names.Kind
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Kind:       kind,
		Plural:     cmp.Or(spec.Names.Plural, strings.ToLower(kind)+"s"),
		Singular:   cmp.Or(spec.Names.Singular, strings.ToLower(kind)),
		ListKind:   cmp.Or(spec.Names.ListKind, kind+"List"),
		ShortNames: spec.Names.ShortNames,
		Categories: spec.Names.Categories,
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        names.Plural + "." + spec.Group,
			Labels:      map[string]string{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(c.program.Name)},
			Annotations: map[string]string{v1alpha1.AnnotationDefinition: c.program.Name},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: spec.Group, Names: names, Scope: apiextensionsv1.ResourceScope(spec.Scope)},
	}
	storage := 0
	for i := range spec.Versions {
		v := c.version(&spec.Versions[i], diag.Index("spec.crd.versions", i), len(spec.Versions) == 1)
		if v.Storage {
			storage = i
		}
		crd.Spec.Versions = append(crd.Spec.Versions, v)
	}
	c.program.CRD = crd
	c.program.Instance = program.Kind{
		GroupVersionKind: runtimeschema.GroupVersionKind{Group: spec.Group, Version: crd.Spec.Versions[storage].Name, Kind: kind},
		Resource:         names.Plural,
		Namespaced:       spec.Scope == v1alpha1.ResourceScopeNamespaced,
	}
	self, err := schema.FromCRDVersion(crd, crd.Spec.Versions[storage].Name)
	if err != nil {
		c.errorf(diag.Index("spec.crd.versions", storage)+".schema", "%s", err)
	}
	c.self = self
}

func (c *compiler) version(in *v1alpha1.CRDVersion, path string, only bool) apiextensionsv1.CustomResourceDefinitionVersion {
	out := apiextensionsv1.CustomResourceDefinitionVersion{
		Name:    in.Name,
		Served:  in.Served == nil || *in.Served,
		Storage: only || in.Storage != nil && *in.Storage,
		Schema:  &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: c.rootSchema(in.Schema, path+".schema.openAPIV3Schema")},
		Subresources: &apiextensionsv1.CustomResourceSubresources{
			Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		},
	}
	if only && in.Storage != nil && !*in.Storage {
		c.add(diag.Diagnostic{Path: path + ".storage", Message: "the only version must be the stored one", Hint: "remove the line"})
	}
	if in.Deprecated != nil {
		out.Deprecated = *in.Deprecated
	}
	if in.DeprecationWarning != "" {
		out.DeprecationWarning = &in.DeprecationWarning
	}
	for _, f := range in.SelectableFields {
		out.SelectableFields = append(out.SelectableFields, apiextensionsv1.SelectableField{JSONPath: f.JSONPath})
	}
	if in.Subresources != nil && in.Subresources.Scale != nil {
		s := in.Subresources.Scale
		out.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: s.SpecReplicasPath, StatusReplicasPath: s.StatusReplicasPath}
		if s.LabelSelectorPath != "" {
			out.Subresources.Scale.LabelSelectorPath = &s.LabelSelectorPath
		}
	}
	out.AdditionalPrinterColumns = columns(in.AdditionalPrinterColumns)
	return out
}

// columns are the author's columns, then how the instance stands, then its age.
func columns(in []v1alpha1.PrinterColumn) []apiextensionsv1.CustomResourceColumnDefinition {
	var out []apiextensionsv1.CustomResourceColumnDefinition
	have := map[string]bool{}
	for _, col := range in {
		have[strings.ToLower(col.Name)] = true
		o := apiextensionsv1.CustomResourceColumnDefinition{Name: col.Name, Type: col.Type, JSONPath: col.JSONPath, Format: col.Format, Description: col.Description}
		if col.Priority != nil {
			o.Priority = *col.Priority
		}
		out = append(out, o)
	}
	for _, o := range []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Ready", Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].status`},
		{Name: "Reason", Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].reason`, Priority: 1},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	} {
		if !have[strings.ToLower(o.Name)] {
			out = append(out, o)
		}
	}
	return out
}

// rootSchema reads the author's schema and adds what every object has.
func (c *compiler) rootSchema(in *v1alpha1.CRDSchema, path string) *apiextensionsv1.JSONSchemaProps {
	root := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	if in != nil && len(in.OpenAPIV3Schema.Raw) > 0 {
		root = c.readSchema(in.OpenAPIV3Schema.Raw, path)
	}
	if root.Type == "" {
		root.Type = "object"
	}
	if root.Properties == nil {
		root.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if _, have := root.Properties[name]; !have {
			root.Properties[name] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
	}
	if _, have := root.Properties["metadata"]; !have {
		root.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	c.addStatus(root, path)
	return root
}

// readSchema reads a schema strictly: a word that is not one of OpenAPI's is an error.
func (c *compiler) readSchema(raw []byte, path string) *apiextensionsv1.JSONSchemaProps {
	value, err := decodeJSON(raw)
	if err != nil {
		c.errorf(path, "cannot read it as JSON: %s", err)
		return &apiextensionsv1.JSONSchemaProps{}
	}
	c.schemaWords(value, path)
	root := &apiextensionsv1.JSONSchemaProps{}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(root); err != nil {
		c.add(diag.Diagnostic{Path: path, Message: "not a schema: " + strings.TrimPrefix(err.Error(), "json: ")})
		return &apiextensionsv1.JSONSchemaProps{}
	}
	return root
}

// addStatus adds Libretto's fields to the author's status.
func (c *compiler) addStatus(root *apiextensionsv1.JSONSchemaProps, path string) {
	status, have := root.Properties["status"]
	if !have {
		status = apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	if status.Type == "" {
		status.Type = "object"
	}
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for name, p := range status.Properties {
		properties[name] = p
	}
	for name, ours := range c.ourStatus() {
		if _, taken := properties[name]; taken {
			at := diag.Child(path+".properties.status.properties", name)
			if name == "conditions" || name == "observedGeneration" {
				// Pasted from a CustomResourceDefinition that follows the conventions: what they mean is the same.
				c.add(diag.Diagnostic{Severity: diag.Warning, Path: at, Message: fmt.Sprintf("status.%s is written by Libretto, with a schema of its own", name), Hint: "remove it from the schema"})
			} else {
				c.add(diag.Diagnostic{Path: at, Message: fmt.Sprintf("status.%s is written by Libretto", name),
					Hint: "conditions, observedGeneration, revision, resources and inventory are taken; give your field another name"})
			}
		}
		properties[name] = ours
	}
	status.Properties = properties
	root.Properties["status"] = status
}
