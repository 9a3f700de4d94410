package simulate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
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
