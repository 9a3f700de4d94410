package load

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
)

const definitionKind = "OperatorDefinition"

// Document is a definition and the places of its fields.
type Document struct {
	// Definition is the definition, with the defaults of the API server.
	Definition *v1alpha1.OperatorDefinition
	// File is the name of the file, - for the standard input.
	File string
	// Positions are the places of the fields.
	Positions *Positions
}

// Extra is another object that was found beside definitions: a CustomResourceDefinition, an instance, any manifest.
type Extra struct {
	Object *unstructured.Unstructured
	File   string
	Line   int
}

// Parse reads the documents of one file. Kustomizations with a path are left alone: see Inline. A definition with errors is
// returned all the same when it can be read at all, so that more can be said about it.
func Parse(name string, data []byte) ([]*Document, []Extra, diag.List) {
	if len(data) > maxFile {
		return nil, nil, diag.List{{Severity: diag.Error, File: name, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has %d bytes", len(data)), Expected: fmt.Sprintf("at most %d", maxFile)}}
	}
	var docs []*Document
	var extras []Extra
	var list diag.List
	lines := bytes.Split(data, []byte("\n"))
	for _, c := range split(data) {
		p, faults := parse(name, c, lines)
		list = append(list, faults...)
		if p == nil {
			continue
		}
		object, ok := p.value.(map[string]any)
		if !ok {
			if !faults.HasErrors() {
				list.Add(diag.Diagnostic{File: name, Line: p.line, Column: 1, Message: "not a Kubernetes object", Expected: "an object with apiVersion and kind"})
			}
			continue
		}
		doc, extra, faults := identify(name, object, p)
		list = append(list, faults...)
		if doc != nil {
			docs = append(docs, doc)
		}
		extras = append(extras, extra...)
	}
	return docs, extras, list.Sort()
}

// identify finds out what an object is.
func identify(file string, object map[string]any, p *parsed) (*Document, []Extra, diag.List) {
	u := &unstructured.Unstructured{Object: object}
	doc := &Document{File: file, Positions: p.positions}
	group, version := v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.String()
	var list diag.List
	switch {
	case u.GetAPIVersion() == "" || u.GetKind() == "":
		list.Add(diag.Diagnostic{File: file, Line: p.line, Column: 1, Message: "not a Kubernetes object: apiVersion or kind is missing",
			Hint: fmt.Sprintf("a definition begins with apiVersion: %s and kind: %s", version, definitionKind)})
		return nil, nil, list
	case u.GetAPIVersion() == version && u.GetKind() == definitionKind:
		definition, faults := decode(object)
		doc.Definition = definition
		faults = doc.Locate(faults)
		if definition == nil {
			return nil, nil, faults
		}
		return doc, nil, faults
	case u.GetAPIVersion() == version:
		if _, near := diag.Nearest(u.GetKind(), []string{definitionKind}); near {
			list.Add(diag.Diagnostic{Path: "kind", Message: fmt.Sprintf("%s has no kind %s", version, u.GetKind()), Hint: diag.DidYouMean(u.GetKind(), []string{definitionKind})})
			return nil, nil, doc.Locate(list)
		}
	case u.GetKind() == definitionKind && u.GroupVersionKind().Group == group, u.GetKind() == definitionKind && u.GroupVersionKind().Group == "":
		list.Add(diag.Diagnostic{Path: "apiVersion", Message: "not a version of OperatorDefinition", Expected: version, Found: u.GetAPIVersion()})
		return nil, nil, doc.Locate(list)
	}
	return nil, []Extra{{Object: u, File: file, Line: p.line}}, nil
}

// decode checks an object against the rules of the API server and reads it.
func decode(object map[string]any) (*v1alpha1.OperatorDefinition, diag.List) {
	var list diag.List
	r, err := theRules()
	if err != nil {
		list.Errorf("", "%s", err)
		return nil, list
	}
	list = append(list, r.check(object)...)
	list = append(list, metadata(object)...)
	definition := &v1alpha1.OperatorDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, definition); err != nil {
		if !list.HasErrors() {
			list.Errorf("", "cannot read the definition: %s", err)
		}
		return nil, list
	}
	return definition, list
}

// metadata checks what the API server checks in the metadata of any object.
func metadata(object map[string]any) diag.List {
	var list diag.List
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" {
		list.Add(diag.Diagnostic{Path: "metadata.name", Message: "the definition has no name", Hint: "the usual name is the plural and the group of the kind, such as webapps.example.com"})
		return list
	}
	for _, fault := range validation.NameIsDNSSubdomain(name, false) {
		list.Add(diag.Diagnostic{Path: "metadata.name", Message: fault, Found: fmt.Sprintf("%q", name)})
	}
	if _, ok := meta["namespace"]; ok {
		list.Add(diag.Diagnostic{Path: "metadata.namespace", Message: "an OperatorDefinition stands in no namespace", Hint: "remove the line"})
	}
	return list
}
