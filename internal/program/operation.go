package program

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/expr"
)

// Variables that the expressions of operations may use beside those of resources, by name.
const (
	// VarParams holds the parameters of the run.
	VarParams = "params"
	// VarSteps holds the steps that have ended: steps.NAME.output and steps.NAME.state.
	VarSteps = "steps"
	// VarOld holds what the run before saw of the instance: an optional, none but for event: Update.
	VarOld = "old"
	// VarTrigger is v1alpha1.RunTrigger.
	VarTrigger = "trigger"
	// VarRun tells of the run: run.name, run.namespace, run.uid, run.startTime (a time), and run.operation.
	VarRun = "run"
	// VarResult is what an action yielded, in the output of its step and in poll.
	VarResult = "result"
	// VarObject is the object of a wait step.
	VarObject = "object"
)

// Operation is a compiled operation.
type Operation struct {
	Name string
	// Index in Program.Operations.
	Index int
	// Hash identifies the operation: same text, same hash.
	Hash     string
	Triggers []*Trigger
	// HasParams tells whether the operation takes parameters.
	HasParams bool
	// Timeout of a run.
	Timeout     time.Duration
	OnFailure   v1alpha1.OperationFailure
	Concurrency v1alpha1.Concurrency
	Exclusive   bool
	Priority    int32
	Steps       []*Step
	// Output is nil for none.
	Output   *Template
	Retain   Retention
	OnRemove []*Step
	// Stale is 0 for none.
	Stale time.Duration
}

// On tells whether the operation has a trigger for the event.
func (o *Operation) On(event v1alpha1.EventTrigger) bool {
	for _, t := range o.Triggers {
		if t.Event == event {
			return true
		}
	}
	return false
}

// Step finds a step by name; nil: there is none.
func (o *Operation) Step(name string) *Step {
	for _, s := range o.Steps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Retention is v1alpha1.Retention with its defaults.
type Retention struct {
	Last, Daily, Weekly, Monthly, Failed int
	Within                               time.Duration
}

// Trigger is a compiled trigger. Exactly one of Event, Schedule, Every, Condition, Watch is set.
type Trigger struct {
	// Index in Operation.Triggers.
	Index int
	Type  v1alpha1.TriggerType
	// When is nil for always.
	When *expr.Expr
	// Params is nil for none.
	Params *Template

	Event v1alpha1.EventTrigger
	// Fields of an Update are the paths that count: field names from the root of the instance. None: spec, or, for a kind
	// without one, all but metadata and status.
	Fields [][]string
	// OldFields are the paths that expressions read of old, in the whole operation. They are remembered beside Fields.
	OldFields [][]string

	// Schedule and TimeZone yield text; TimeZone is nil for UTC. They may use self and variables that need no more.
	Schedule, TimeZone *Template
	Missed             v1alpha1.MissedPolicy
	StartingDeadline   time.Duration

	// Every yields text.
	Every                      *Template
	Idle, InitialDelay, Jitter time.Duration

	Condition, Until *expr.Expr
	For, Cooldown    time.Duration

	Watch *WatchTrigger
}

// WatchTrigger is a compiled v1alpha1.WatchTrigger.
type WatchTrigger struct {
	// External or Resource is the name of what is watched: a variable of expressions too.
	External, Resource string
	// List: the variable is a list of objects.
	List bool
	// Fields are the paths that count; none: all but metadata and status.
	Fields [][]string
}

// Variable is the name of the variable that holds what is watched.
func (w *WatchTrigger) Variable() string {
	if w.External != "" {
		return w.External
	}
	return w.Resource
}

// Step is a compiled step, or a cleanup step.
type Step struct {
	Name string
	When *expr.Expr
	// ForEach is nil for a step that is done once.
	ForEach  *ForEach
	Parallel int
	// Timeout is 0 for none of its own.
	Timeout        time.Duration
	Retries        int
	BackoffInitial time.Duration
	BackoffMax     time.Duration
	OnFailure      v1alpha1.StepFailure
	OnUnknown      v1alpha1.UnknownPolicy
	Verify         *Verify
	Output         *Template
	Undo           []*Step
	// Action is exactly one action.
	Action Action
}

// Action holds exactly one action.
type Action struct {
	Apply  *ApplyAction
	Patch  *PatchAction
	Delete *DeleteAction
	Wait   *WaitAction
	Exec   *ExecAction
	Job    *JobAction
	HTTP   *HTTPAction
	Event  *EventAction
	// Log yields text.
	Log *Template
	// Set yields an object: fields of the status.
	Set *Template
	Run *RunAction
}

// Name of the action as the document writes it.
func (a *Action) Name() string {
	switch {
	case a.Apply != nil:
		return "apply"
	case a.Patch != nil:
		return "patch"
	case a.Delete != nil:
		return "delete"
	case a.Wait != nil:
		return "wait"
	case a.Exec != nil:
		return "exec"
	case a.Job != nil:
		return "job"
	case a.HTTP != nil:
		return "http"
	case a.Event != nil:
		return "event"
	case a.Log != nil:
		return "log"
	case a.Set != nil:
		return "set"
	case a.Run != nil:
		return "run"
	}
	return ""
}

// Knows tells whether the action can find out by itself whether it has had its effect, so that beginning it again after a crash
// is safe: all but exec, http (but for methods that may be repeated) and JSON patches.
func (a *Action) Knows() bool {
	switch {
	case a.Exec != nil:
		return false
	case a.HTTP != nil:
		switch a.HTTP.Method {
		case "GET", "HEAD", "PUT", "DELETE": // RFC 9110, section 9.2.2
			return true
		}
		return false
	case a.Patch != nil:
		return a.Patch.JSON == nil
	}
	return true
}

// NeedsCreate tells whether the action creates objects, which a namespace that is being deleted does not take.
func (a *Action) NeedsCreate() bool {
	return a.Apply != nil || a.Job != nil || a.Event != nil || a.Run != nil
}

// Verify tells whether a step has had its effect: exactly one is set.
type Verify struct {
	Condition *expr.Expr
	Exec      *ExecAction
	HTTP      *HTTPAction
}

// ObjectReference names an object.
type ObjectReference struct {
	// Node is set for a resource of the definition; all else is empty then.
	Node *Node
	Kind Kind
	// Name and Namespace yield text; Namespace is nil for that of the instance.
	Name, Namespace *Template
}

// ApplyAction applies an object.
type ApplyAction struct {
	Kind     Kind
	Template *Template
	// Retain: the instance does not own it, and it stays when the instance goes.
	Retain bool
}

// PatchAction patches an object: Merge or JSON is set. JSON yields a list of operations.
type PatchAction struct {
	Object      ObjectReference
	Merge, JSON *Template
	Subresource string
}

// DeleteAction deletes an object.
type DeleteAction struct {
	Object      ObjectReference
	Propagation string
}

// WaitAction waits: Until or Duration is set.
type WaitAction struct {
	Until    *expr.Expr
	Duration time.Duration
	Object   *ObjectReference
}

// ExecAction runs a command: Pod or Selector is set.
type ExecAction struct {
	Pod *Template
	// Selector yields an object of labels.
	Selector  *Template
	Container string
	// Command yields a list of text.
	Command            *Template
	Stdin              *Template
	Parse              v1alpha1.ParseFormat
	PermanentExitCodes []int32
}

// JobAction runs a Job. Template yields its metadata and spec.
type JobAction struct {
	Template *Template
}

// HTTPAction makes a request.
type HTTPAction struct {
	// Method is never empty.
	Method string
	URL    *Template
	// Headers yields an object of text; Body any value; both may be nil.
	Headers, Body *Template
	Bearer        *SecretKey
	// Basic and ClientCertificate yield names of Secrets.
	Basic, ClientCertificate *Template
	CA                       *SecretKey
	ServerName               string
	Success                  []int32
	Poll                     *HTTPPoll
}

// SecretKey names a key of a Secret; Secret yields the name.
type SecretKey struct {
	Secret *Template
	Key    string
}

// HTTPPoll asks until the work is done.
type HTTPPoll struct {
	// URL is nil for the header Location.
	URL           *Template
	Every         time.Duration
	Until, Failed *expr.Expr
}

// EventAction writes an event.
type EventAction struct {
	Type            string
	Reason, Message *Template
}

// RunAction runs another operation.
type RunAction struct {
	Operation string
	Params    *Template
}

// OperationKinds is what a Program has of the kind of operation objects.
type OperationKinds struct {
	// Kind of operation objects.
	Kind Kind
	// CRD of the kind.
	CRD *apiextensionsv1.CustomResourceDefinition
}

// Operation finds an operation by name; nil: there is none.
func (p *Program) Operation(name string) *Operation {
	for _, o := range p.Operations {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// HasDelete tells whether an operation has to run before an instance goes.
func (p *Program) HasDelete() bool {
	for _, o := range p.Operations {
		if o.On(v1alpha1.EventTriggerDelete) {
			return true
		}
	}
	return false
}

// StepKinds lists the kinds of which steps may make objects, each once.
func (p *Program) StepKinds() []Kind {
	var kinds []Kind
	seen := map[Kind]bool{}
	p.VisitActions(func(_ *Operation, _ *Step, a *Action) {
		var k Kind
		switch {
		case a.Apply != nil:
			k = a.Apply.Kind
		case a.Job != nil:
			k = JobKind
		default:
			return
		}
		if !seen[k] {
			seen[k] = true
			kinds = append(kinds, k)
		}
	})
	return kinds
}

// JobKind is the kind of Jobs.
var JobKind = Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Resource: "jobs", Namespaced: true}

// VisitActions visits the actions of all steps, undo steps and steps of onRemove. What verify does is not among them.
func (p *Program) VisitActions(f func(*Operation, *Step, *Action)) {
	for _, o := range p.Operations {
		for _, list := range [][]*Step{o.Steps, o.OnRemove} {
			for _, s := range list {
				f(o, s, &s.Action)
				for _, u := range s.Undo {
					f(o, u, &u.Action)
				}
			}
		}
	}
}
