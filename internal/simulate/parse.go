package simulate

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/load"
)

// Parse reads the tests in a file; other documents are passed over. A test with errors is left out.
func Parse(name string, data []byte) ([]*Test, diag.List) {
	values, faults := load.Values(string(data))
	lineOf := func(offset int) (line, column int) {
		before := string(data[:min(max(offset, 0), len(data))])
		return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
	}
	var list diag.List
	for _, d := range faults {
		d.File = name
		d.Line, d.Column = lineOf(d.Offset)
		list.Add(d)
	}
	var tests []*Test
	for _, v := range values {
		object, ok := v.Value.(map[string]any)
		if !ok || object["kind"] != Kind {
			continue
		}
		t := &Test{File: name}
		t.place = func(path string) int {
			line, _ := lineOf(v.Offset(path, 0))
			return line
		}
		t.Line = t.place("kind")
		problems := t.read(object)
		for _, d := range problems {
			d.File = name
			d.Line, d.Column = lineOf(v.Offset(d.Path, 0))
			list.Add(d)
		}
		if !problems.HasErrors() {
			tests = append(tests, t)
		}
	}
	return tests, list.Sort()
}

// read decodes and checks a test.
func (t *Test) read(object map[string]any) diag.List {
	var list diag.List
	data, err := json.Marshal(object)
	if err != nil {
		list.Errorf("", "cannot read the test: %s", err)
		return list
	}
	strict, err := kjson.UnmarshalStrict(data, &t.document)
	if err != nil {
		list.Add(decodeError(err))
		return list
	}
	for _, e := range strict {
		list.Add(unknownField(e))
	}
	if want := v1alpha1.GroupVersion.String(); t.APIVersion != want {
		list.Add(diag.Diagnostic{Path: "apiVersion", Message: "not a version of " + Kind, Expected: want, Found: t.APIVersion})
	}
	if t.Name == "" {
		list.Errorf("name", "the test has no name; say in a few words what is tested")
	}
	if t.Ready != "" && t.Ready != "all" {
		list.Add(diag.Diagnostic{Path: "ready", Message: "not a value", Expected: "all", Found: t.Ready})
	}
	if t.Time == "" {
		t.Time = "2026-01-01T00:00:00Z"
	}
	if t.begin, err = time.Parse(time.RFC3339, t.Time); err != nil {
		list.Add(diag.Diagnostic{Path: "time", Message: "not a time", Expected: "a time such as 2026-01-01T00:00:00Z", Found: t.Time})
	}
	t.begin = t.begin.UTC()
	for i := range t.Answers {
		list = append(list, t.Answers[i].check(diag.Index("answers", i))...)
	}
	if len(t.Steps) == 0 {
		list.Errorf("steps", "the test has no steps")
	}
	for i := range t.Steps {
		list = append(list, t.Steps[i].check(diag.Index("steps", i))...)
	}
	return list
}

func (a *Answer) check(path string) diag.List {
	var list diag.List
	if operation, step, ok := strings.Cut(a.Step, "/"); !ok || operation == "" || step == "" {
		list.Add(diag.Diagnostic{Path: path + ".step", Message: "not a step", Expected: "OPERATION/STEP", Found: a.Step})
	}
	a.after = duration(&list, path+".after", a.After)
	a.retryAfter = duration(&list, path+".retryAfter", a.RetryAfter)
	if a.Fail != "" && a.Unknown != "" {
		list.Errorf(path, "only one of fail and unknown can be set")
	}
	if a.Permanent && a.Fail == "" {
		list.Errorf(path+".permanent", "permanent goes with fail")
	}
	return list
}

func (s *Step) check(path string) diag.List {
	var list diag.List
	switch actions := s.actions(); {
	case len(actions) == 0:
		list.Errorf(path, "the step does nothing; set one of apply, patch, delete, start, cancel, retry, ready, advance, restart and expect")
	case len(actions) > 1:
		list.Errorf(path, "the step does %s: make it several steps", strings.Join(actions, " and "))
	}
	s.advance = duration(&list, path+".advance", s.Advance)
	if s.Refused != "" && s.Apply == nil && s.Start == nil && s.Patch == nil {
		list.Errorf(path+".refused", "refused goes with apply, patch or start")
	}
	if s.Patch != nil {
		if o := named(s.Patch); o.GetKind() == "" || o.GetName() == "" {
			list.Errorf(path+".patch", "it is not said which object; set kind and metadata.name, or kind and name")
		}
	}
	if s.Start != nil && s.Start.Operation == "" {
		list.Errorf(path+".start", "operation is missing")
	}
	if s.Cancel != nil && s.Cancel.Operation == "" && s.Cancel.Name == "" {
		list.Errorf(path+".cancel", "say which run: operation (the newest one) or name")
	}
	if s.Retry != nil && s.Retry.Operation == "" && s.Retry.Name == "" {
		list.Errorf(path+".retry", "say which run: operation (the newest one) or name")
	}
	if s.Expect != nil {
		for i, r := range s.Expect.Absent {
			if r.Kind == "" || r.Name == "" {
				list.Errorf(diag.Index(path+".expect.absent", i), "an object is named by kind and name")
			}
		}
		for i, r := range s.Expect.Operations {
			if r.Operation == "" {
				list.Errorf(diag.Index(path+".expect.operations", i), "operation is missing")
			}
		}
	}
	return list
}

// duration reads a Duration as definitions write it.
func duration(list *diag.List, path, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, ok := parseDuration(text)
	if !ok {
		list.Add(diag.Diagnostic{Path: path, Message: "not a span of time", Expected: "90s, 1h30m or 30d", Found: text})
	}
	return d
}

var (
	durationPattern = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d))+$`)
	durationPart    = regexp.MustCompile(`([0-9]+)(ms|s|m|h|d)`)
)

func parseDuration(text string) (time.Duration, bool) {
	if !durationPattern.MatchString(text) {
		return 0, false
	}
	var total time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		number, unit := part[1], part[2]
		if unit == "d" {
			days, err := time.ParseDuration(number + "h")
			if err != nil {
				return 0, false
			}
			total += 24 * days
			continue
		}
		d, err := time.ParseDuration(part[0])
		if err != nil {
			return 0, false
		}
		total += d
	}
	return total, true
}

var (
	unknownPattern = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)
	typePattern    = regexp.MustCompile(`cannot unmarshal (\S+) into Go (?:struct field \S*?\.(\S+)|value) of type (\S+)`)
)

func unknownField(err error) diag.Diagnostic {
	m := unknownPattern.FindStringSubmatch(err.Error())
	if m == nil {
		return diag.Diagnostic{Message: err.Error()}
	}
	path := diag.Normalize(m[2])
	d := diag.Diagnostic{Path: path, Message: "there is no such field in a test"}
	steps := diag.Split(path)
	if len(steps) > 0 {
		names := fieldsAt(reflect.TypeFor[document](), steps[:len(steps)-1])
		d.Hint = diag.DidYouMean(steps[len(steps)-1].Name, names)
		if d.Hint == "" && len(names) > 0 {
			d.Expected = diag.OneOf(names, 20)
		}
	}
	return d
}

// fieldsAt lists the fields of what stands at a path of a type.
func fieldsAt(t reflect.Type, path []diag.Step) []string {
	for _, step := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case step.IsIndex && t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
			t = t.Elem()
			continue
		case t.Kind() != reflect.Struct:
			return nil
		}
		found := false
		for i := range t.NumField() {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == step.Name {
				t, found = t.Field(i).Type, true
				break
			}
		}
		if !found {
			return nil
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func decodeError(err error) diag.Diagnostic {
	m := typePattern.FindStringSubmatch(err.Error())
	if m == nil {
		return diag.Diagnostic{Message: "cannot read the test: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	return diag.Diagnostic{Path: m[2], Message: "the value has the wrong type", Expected: typeName(m[3]), Found: m[1]}
}

func typeName(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasSuffix(goType, "string"):
		return "text"
	case strings.HasSuffix(goType, "bool"):
		return "true or false"
	case strings.HasSuffix(goType, "int"):
		return "a whole number"
	}
	return "an object"
}
