package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/diag"
)

// readParams puts the parameters of a run together: those of the file, and over them those of the command line, each with the type
// that the schema gives it. All that is wrong is said at once.
func readParams(k *operationKind, operation, file string, given []string, stdin io.Reader) (map[string]any, error) {
	s, has := k.params(operation)
	params := map[string]any{}
	if file != "" {
		data, err := readFileOr(file, stdin)
		if err != nil {
			return nil, fmt.Errorf("cannot read --params-file: %w", err)
		}
		if data, err = yaml.YAMLToJSON(data); err == nil {
			err = utiljson.Unmarshal(data, &params)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read --params-file %s: %w", file, err)
		}
	}
	if !has {
		if len(given) > 0 || len(params) > 0 {
			return nil, fmt.Errorf("operation %s takes no parameters", operation)
		}
		return nil, nil
	}
	var faults []string
	set := paramSetter{schema: s, params: params, done: map[string]bool{}}
	for _, p := range given {
		name, text, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usagef("-p %q is not KEY=VALUE", p)
		}
		if err := set.param(name, text); err != nil {
			faults = append(faults, err.Error())
		}
	}
	faults = append(faults, checkParams(s, params)...)
	if len(faults) > 0 {
		return nil, fmt.Errorf("operation %s: %s", operation, strings.Join(faults, "\n  "))
	}
	return params, nil
}

func readFileOr(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// paramSetter sets the parameters of the command line.
type paramSetter struct {
	schema *apiextensionsv1.JSONSchemaProps
	params map[string]any
	// done are those that have been set, and cannot be set again.
	done map[string]bool
}

// param sets a parameter: name may be a path into an object, as a.b. A parameter that is a list grows by each value.
func (ps *paramSetter) param(name, text string) error {
	s, params, rest, prefix := ps.schema, ps.params, name, ""
	for {
		first, tail, nested := strings.Cut(rest, ".")
		if _, exact := s.Properties[rest]; exact || !nested {
			first, nested = rest, false
		}
		p, known := property(s, first)
		if !known {
			return unknownParam(s, prefix, first)
		}
		if !nested {
			return ps.assign(params, p, first, name, text)
		}
		if p.Type != "object" {
			return fmt.Errorf("parameter %s is no object: %s cannot be set", prefix+first, name)
		}
		inner, _ := params[first].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			params[first] = inner
		}
		s, params, rest, prefix = p, inner, tail, prefix+first+"."
	}
}

// assign sets a field; path is its name with those of the objects that it is in.
func (ps *paramSetter) assign(params map[string]any, p *apiextensionsv1.JSONSchemaProps, field, path, text string) error {
	value, err := paramValue(p, text)
	if err != nil {
		return fmt.Errorf("parameter %s: %w", path, err)
	}
	if item, isItem := value.(listItem); isItem {
		list, _ := params[field].([]any)
		params[field] = append(list, item.value)
		return nil
	}
	if ps.done[path] {
		return fmt.Errorf("parameter %s is given twice", path)
	}
	ps.done[path] = true
	params[field] = value
	return nil
}

// listItem is a value that is added to a list.
type listItem struct{ value any }

// property returns the schema of a field; false: there can be none of that name.
func property(s *apiextensionsv1.JSONSchemaProps, name string) (*apiextensionsv1.JSONSchemaProps, bool) {
	if p, ok := s.Properties[name]; ok {
		return &p, true
	}
	if a := s.AdditionalProperties; a != nil && a.Allows {
		if a.Schema != nil {
			return a.Schema, true
		}
		return &apiextensionsv1.JSONSchemaProps{}, true
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		return &apiextensionsv1.JSONSchemaProps{}, true
	}
	return nil, false
}

// unknownParam says that there is no such parameter; prefix are the objects that it would be in.
func unknownParam(s *apiextensionsv1.JSONSchemaProps, prefix, name string) error {
	names := slices.Sorted(maps.Keys(s.Properties))
	name = prefix + name
	for i := range names {
		names[i] = prefix + names[i]
	}
	hint := diag.DidYouMean(name, names)
	if hint == "" {
		hint = "there is " + diag.OneOf(names, 10)
	}
	return fmt.Errorf("there is no parameter %q; %s", name, hint)
}

// paramValue reads a text as the type of the schema says.
func paramValue(s *apiextensionsv1.JSONSchemaProps, text string) (any, error) {
	switch {
	case s.XIntOrString:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		return text, nil
	case s.Type == "string":
		return text, nil
	case s.Type == "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no whole number", text)
		}
		return n, nil
	case s.Type == "number":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", text)
		}
		return n, nil
	case s.Type == "boolean":
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%q is neither true nor false", text)
	case s.Type == "array" && !strings.HasPrefix(strings.TrimSpace(text), "["):
		if s.Items == nil || s.Items.Schema == nil {
			return listItem{text}, nil
		}
		item, err := paramValue(s.Items.Schema, text)
		return listItem{item}, err
	}
	var value any
	err := utiljson.Unmarshal([]byte(text), &value)
	switch {
	case err != nil && s.Type == "": // of any type: text, if it is nothing else
		return text, nil
	case err != nil:
		return nil, fmt.Errorf("%q is no JSON: %w", text, err)
	}
	if _, isObject := value.(map[string]any); s.Type == "object" && !isObject {
		return nil, fmt.Errorf("%q is no JSON object", text)
	}
	return value, nil
}

// notAmong says that a text is none of the possible ones; empty: it is, or anything is possible.
func notAmong(p *apiextensionsv1.JSONSchemaProps, name string, value any) string {
	text, isText := value.(string)
	if !isText || len(p.Enum) == 0 {
		return ""
	}
	var words []string
	for _, e := range p.Enum {
		var word string
		if json.Unmarshal(e.Raw, &word) == nil {
			words = append(words, word)
		}
	}
	if slices.Contains(words, text) {
		return ""
	}
	fault := fmt.Sprintf("parameter %s: %q is not one of %s", name, text, strings.Join(words, ", "))
	if hint := diag.DidYouMean(text, words); hint != "" {
		fault += "; " + hint
	}
	return fault
}

// checkParams finds parameters that are missing or unknown, and values that are not among the possible ones. The API server
// checks all else.
func checkParams(s *apiextensionsv1.JSONSchemaProps, params map[string]any) []string {
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		p, known := property(s, name)
		if !known {
			faults = append(faults, unknownParam(s, "", name).Error())
			continue
		}
		if fault := notAmong(p, name, params[name]); fault != "" {
			faults = append(faults, fault)
		}
	}
	for _, name := range s.Required {
		p := s.Properties[name]
		if _, there := params[name]; !there && p.Default == nil {
			what := p.Type
			if what == "" {
				what = "value"
			}
			fault := fmt.Sprintf("the parameter %s is missing: -p %s=%s", name, name, strings.ToUpper(what))
			if p.Description != "" {
				fault += "  (" + p.Description + ")"
			}
			faults = append(faults, fault)
		}
	}
	return faults
}
