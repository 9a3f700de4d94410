package simulate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/load"
)

// Kind of the documents that are tests.
const Kind = "OperatorTest"

// Test is a test of a definition.
type Test struct {
	// File and Line say where the test begins.
	File string
	Line int
	document
	// begin is when the test begins.
	begin time.Time
	place func(path string) int
}

// document is a test as it is written.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name says what is tested, in a few words.
	Name string `json:"name"`
	// Definition is the file of the definition, relative to the test. Default: definition.yaml beside it, or above.
	Definition string `json:"definition"`
	// DefinitionName is the name of the definition, where the file holds several.
	DefinitionName string `json:"definitionName"`
	// CRDs are files with kinds of others that the definition uses, relative to the test.
	CRDs []string `json:"crds"`
	// Time at the begin of the test.
	Time string `json:"time"`
	// Ready, with all, makes each resource ready as soon as it is made.
	Ready string `json:"ready"`
	// Given are objects that are there at the begin.
	Given []v1alpha1.JSONObject `json:"given"`
	// Answers are what exec, http and job steps get.
	Answers []Answer `json:"answers"`
	Steps   []Step   `json:"steps"`
}

// Answer is what a step gets in place of what a pod, a service or a Job would say.
type Answer struct {
	// Step is OPERATION/STEP.
	Step string `json:"step"`
	// Instance limits the answer to runs for that instance, Params to runs with these parameters.
	Instance string              `json:"instance"`
	Params   v1alpha1.JSONObject `json:"params"`
	// Output is what comes back: the parsed JSON or text of an answer or of standard output, the result of a Job.
	Output *v1alpha1.JSONValue `json:"output"`
	// Result is set over what expressions see as result: status, headers, exitCode, …
	Result v1alpha1.JSONObject `json:"result"`
	// Fail is the message of a failure. Permanent: another attempt would be in vain.
	Fail      string `json:"fail"`
	Permanent bool   `json:"permanent"`
	// Unknown is the message of an end of which nobody knows whether there was an effect.
	Unknown string `json:"unknown"`
	// After is how long the answer takes. A restart before that cuts the step off.
	After string `json:"after"`
	// RetryAfter is the least pause before another attempt, after Fail.
	RetryAfter string `json:"retryAfter"`
	// Times is how often the answer is given. Default: once if there is another one behind it for the step, else always.
	Times int `json:"times"`

	after, retryAfter time.Duration
}

// Step is one thing that happens in a test, or what is expected.
type Step struct {
	Apply   *objects            `json:"apply"`
	Patch   v1alpha1.JSONObject `json:"patch"`
	Delete  *Reference          `json:"delete"`
	Start   *Start              `json:"start"`
	Cancel  *RunReference       `json:"cancel"`
	Retry   *Retry              `json:"retry"`
	Ready   *references         `json:"ready"`
	Advance string              `json:"advance"`
	Restart bool                `json:"restart"`
	Expect  *Expect             `json:"expect"`
	// Refused is what the message of the API server contains that refuses apply or start.
	Refused string `json:"refused"`

	advance time.Duration
}

// action is the name of what the step does.
func (s *Step) action() string {
	actions := s.actions()
	if len(actions) == 0 {
		return ""
	}
	return actions[0]
}

func (s *Step) actions() []string {
	var out []string
	add := func(set bool, name string) {
		if set {
			out = append(out, name)
		}
	}
	add(s.Apply != nil, "apply")
	add(s.Patch != nil, "patch")
	add(s.Delete != nil, "delete")
	add(s.Start != nil, "start")
	add(s.Cancel != nil, "cancel")
	add(s.Retry != nil, "retry")
	add(s.Ready != nil, "ready")
	add(s.Advance != "", "advance")
	add(s.Restart, "restart")
	add(s.Expect != nil, "expect")
	return out
}

// objects is an object or a list of objects.
type objects []v1alpha1.JSONObject

// UnmarshalJSON implements json.Unmarshaler.
func (o *objects) UnmarshalJSON(data []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(data)), "[") {
		var list []v1alpha1.JSONObject
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		*o = list
		return nil
	}
	var one v1alpha1.JSONObject
	if err := one.UnmarshalJSON(data); err != nil {
		return err
	}
	*o = objects{one}
	return nil
}

// references is a list of objects, or all resources.
type references struct {
	all  bool
	list []Reference
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *references) UnmarshalJSON(data []byte) error {
	switch text := strings.TrimSpace(string(data)); {
	case text == `"all"`:
		r.all = true
		return nil
	case strings.HasPrefix(text, "["):
		return kjson.UnmarshalCaseSensitivePreserveInts(data, &r.list)
	case strings.HasPrefix(text, "{"):
		r.list = make([]Reference, 1)
		return kjson.UnmarshalCaseSensitivePreserveInts(data, &r.list[0])
	}
	return fmt.Errorf("ready: expected all, or objects as {kind, name}")
}

// Reference names an object.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

func (r Reference) String() string {
	if r.Namespace != "" {
		return r.Kind + " " + r.Namespace + "/" + r.Name
	}
	return r.Kind + " " + r.Name
}

// Start makes an operation object.
type Start struct {
	Operation string `json:"operation"`
	// Instance may be left out if there is one.
	Instance string              `json:"instance"`
	Params   v1alpha1.JSONObject `json:"params"`
	// Name of the operation object. Default: the name of the operation, with a number.
	Name string `json:"name"`
}

// RunReference names a run: by its name, or the newest of an operation.
type RunReference struct {
	Operation string `json:"operation"`
	Name      string `json:"name"`
}

// Retry begins a run again.
type Retry struct {
	Operation string `json:"operation"`
	Name      string `json:"name"`
	From      string `json:"from"`
}

// Expect is what is expected.
type Expect struct {
	// Instance is the instance that ready, reason, message and status are about; it may be left out if there is one.
	Instance string `json:"instance"`
	Ready    *bool  `json:"ready"`
	Reason   string `json:"reason"`
	// Message is a part of the message of the condition Ready.
	Message string              `json:"message"`
	Status  v1alpha1.JSONObject `json:"status"`
	// Resources are parts of objects that are there, Absent objects that are not.
	Resources []v1alpha1.JSONObject `json:"resources"`
	Absent    []Reference           `json:"absent"`
	// Operations are the runs that there are of the operations named, oldest first. An empty list: there is none at all.
	Operations []ExpectRun `json:"operations"`
	// Events, Logs and Requests must have happened since the last expect that names some of theirs.
	Events   []ExpectEvent   `json:"events"`
	Logs     []string        `json:"logs"`
	Requests []ExpectRequest `json:"requests"`
}

// ExpectRun is a run that is expected.
type ExpectRun struct {
	Operation string `json:"operation"`
	Instance  string `json:"instance"`
	Name      string `json:"name"`
	// Runs is how many such runs there are. Default 1.
	Runs     *int                          `json:"runs"`
	State    string                        `json:"state"`
	Trigger  string                        `json:"trigger"`
	Step     string                        `json:"step"`
	Message  string                        `json:"message"`
	Params   v1alpha1.JSONObject           `json:"params"`
	Output   v1alpha1.JSONObject           `json:"output"`
	Steps    map[string]string             `json:"steps"`
	Attempts map[string]int                `json:"attempts"`
	Outputs  map[string]v1alpha1.JSONValue `json:"outputs"`
}

// ExpectEvent is an event that is expected.
type ExpectEvent struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ExpectRequest is something that an exec, http or job step asked for.
type ExpectRequest struct {
	Step    string              `json:"step"`
	Request v1alpha1.JSONObject `json:"request"`
}

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
