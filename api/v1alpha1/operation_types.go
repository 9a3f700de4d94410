package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// Duration is a span of time such as 90s, 1h30m or 30d; ms, s, m, h and d are the units.
//
// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h|d))+$`
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=32
type Duration string

// OperationKind names the kind of operation objects.
type OperationKind struct {
	// group of the kind. Default, and only choice beside crd: the group of the declared kind. Required beside target: a group of
	// your own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// kind is the name of the kind. Default: the instance's kind with Operation behind it.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// plural is the name in URLs. Default: the kind in lower case with s behind it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Plural string `json:"plural,omitempty"`
	// shortNames are short forms for kubectl.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=63
	ShortNames []string `json:"shortNames,omitempty"`
}

// Operation is a named procedure. It runs when one of its triggers fires, or when somebody creates an operation object.
type Operation struct {
	// name of the operation.
	// +required
	Name Name `json:"name,omitempty"`
	// description is a sentence for people; it is shown in the schema of the operation kind.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// triggers say when the operation runs by itself. Without any it runs on demand only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Triggers []Trigger `json:"triggers,omitempty"`
	// parameters is the schema of what a run may be told; the API server checks it.
	// +optional
	Parameters *OperationParameters `json:"parameters,omitempty"`
	// timeout is how long a run may take from its start. Default: 1h.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
	// onFailure says what a failed run of event: Delete means for the instance. Fail (the default) holds it until the run is
	// retried or the instance is let go by annotation; Continue lets it go.
	// +optional
	OnFailure OperationFailure `json:"onFailure,omitempty"`
	// concurrency says what happens when the operation is to run while a run of it for the same instance has not ended. Forbid
	// (the default): a schedule, interval, condition or watch lets it pass, all others wait for their turn. Replace: the older
	// run is cancelled. Allow: both run.
	// +optional
	Concurrency Concurrency `json:"concurrency,omitempty"`
	// exclusive lets no other run for the same instance go on beside it.
	// +optional
	Exclusive *bool `json:"exclusive,omitempty"`
	// priority says which of the runs that wait for their turn begins first: the highest. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`
	// steps are done one after the other.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Steps []Step `json:"steps,omitempty"`
	// output is what a run yields, with ${…} in any string; computed when it has succeeded.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Output *runtime.RawExtension `json:"output,omitempty"`
	// columns are fields of output that `kubectl get` shows.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=63
	Columns []string `json:"columns,omitempty"`
	// retain says which ended runs are kept. Default: the last 3 that succeeded and the last 3 that did not. The newest success
	// is always kept.
	// +optional
	Retain *Retention `json:"retain,omitempty"`
	// onRemove are steps that are done before the record of a run that succeeded goes: they remove what it has made.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	OnRemove []CleanupStep `json:"onRemove,omitempty"`
	// stale is how old the last success may be. An older one, or none since the instance was made, sets the condition
	// OperationStale and a metric.
	// +optional
	Stale Duration `json:"stale,omitempty"`
}

// OperationParameters is the schema of parameters.
type OperationParameters struct {
	// openAPIV3Schema is the schema, an object, as in a CustomResourceDefinition.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	OpenAPIV3Schema runtime.RawExtension `json:"openAPIV3Schema,omitzero"`
}

// OperationFailure says what a failed Delete run means for the instance.
//
// +kubebuilder:validation:Enum=Fail;Continue
type OperationFailure string

// What a failed Delete run means for the instance.
const (
	OperationFailureFail     OperationFailure = "Fail"
	OperationFailureContinue OperationFailure = "Continue"
)

// Concurrency says how runs of one operation for one instance stand to each other.
//
// +kubebuilder:validation:Enum=Forbid;Replace;Allow
type Concurrency string

// How runs of one operation for one instance stand to each other.
const (
	ConcurrencyForbid  Concurrency = "Forbid"
	ConcurrencyReplace Concurrency = "Replace"
	ConcurrencyAllow   Concurrency = "Allow"
)

// Trigger says when an operation runs by itself.
//
// +kubebuilder:validation:XValidation:rule="[has(self.event), has(self.schedule), has(self.every), has(self.condition), has(self.watch)].filter(x, x).size() == 1",message="exactly one of event, schedule, every, condition and watch must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.fields) || (has(self.event) && self.event == 'Update')",message="fields belongs to event: Update"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !(has(self.timeZone) || has(self.missed) || has(self.startingDeadline))",message="timeZone, missed and startingDeadline belong to schedule"
// +kubebuilder:validation:XValidation:rule="has(self.every) || !(has(self.idle) || has(self.initialDelay) || has(self.jitter))",message="idle, initialDelay and jitter belong to every"
// +kubebuilder:validation:XValidation:rule="has(self.condition) || !(has(self.for) || has(self.until) || has(self.cooldown))",message="for, until and cooldown belong to condition"
type Trigger struct {
	// event fires on a change of the instance itself. Create: once, when the instance is new. Update: when its spec (or what
	// fields names) is not what the last run saw; quick edits make one run. Delete: before what it stands for is removed.
	// Resume: once for each start of the engine, for an instance that was there before.
	// +optional
	Event EventTrigger `json:"event,omitempty"`
	// fields limits event: Update to changes of these paths, such as spec.replicas or metadata.labels.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	Fields []string `json:"fields,omitempty"`
	// schedule fires at times given as in cron: five fields, or six with seconds in front, or @daily and the like. May be
	// an expression in ${…}; empty suspends it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Schedule *string `json:"schedule,omitempty"`
	// timeZone of the schedule, such as Europe/Berlin. May be an expression in ${…}. Default UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	TimeZone string `json:"timeZone,omitempty"`
	// missed says what happens to times that passed while no engine ran. Skip (the default): nothing; they are counted in an
	// event. Once: one run makes up for all of them.
	// +optional
	Missed MissedPolicy `json:"missed,omitempty"`
	// startingDeadline is how late a run may still begin; a time that is further in the past counts as missed. Default 1m.
	// +optional
	StartingDeadline Duration `json:"startingDeadline,omitempty"`
	// every fires at an interval, measured from the end of the last run. May be an expression in ${…}; empty suspends it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Every *string `json:"every,omitempty"`
	// idle lets every fire only when the spec of the instance has not changed for so long.
	// +optional
	Idle Duration `json:"idle,omitempty"`
	// initialDelay is how long after the creation of the instance every fires first. Default: the interval.
	// +optional
	InitialDelay Duration `json:"initialDelay,omitempty"`
	// jitter delays each firing by up to so much, evenly spread over the instances.
	// +optional
	Jitter Duration `json:"jitter,omitempty"`
	// condition fires when a CEL expression has become true. It fires again only after it was false (or until was true).
	// +optional
	Condition Expression `json:"condition,omitempty"`
	// for is how long the condition must hold without a break before it fires.
	// +optional
	For Duration `json:"for,omitempty"`
	// until is a CEL expression that re-arms a condition that has fired. Default: the condition is false. With a bound
	// apart from that of the condition it keeps a value that swings around one bound from firing again and again.
	// +optional
	Until Expression `json:"until,omitempty"`
	// cooldown is how long after the end of the last run the condition does not fire.
	// +optional
	Cooldown Duration `json:"cooldown,omitempty"`
	// watch fires when another object changes.
	// +optional
	Watch *WatchTrigger `json:"watch,omitempty"`
	// when is a CEL expression: with false, the trigger lets this one pass. It sees self, resources, external objects and, for an
	// Update, old.
	// +optional
	When Expression `json:"when,omitempty"`
	// params are the parameters of the run, with ${…} in any string.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Params *runtime.RawExtension `json:"params,omitempty"`
}

// EventTrigger is a change of the instance.
//
// +kubebuilder:validation:Enum=Create;Update;Delete;Resume
type EventTrigger string

// Changes of the instance.
const (
	EventTriggerCreate EventTrigger = "Create"
	EventTriggerUpdate EventTrigger = "Update"
	EventTriggerDelete EventTrigger = "Delete"
	EventTriggerResume EventTrigger = "Resume"
)

// MissedPolicy says what happens to times of a schedule that passed while no engine ran.
//
// +kubebuilder:validation:Enum=Skip;Once
type MissedPolicy string

// What happens to times that were missed.
const (
	MissedPolicySkip MissedPolicy = "Skip"
	MissedPolicyOnce MissedPolicy = "Once"
)

// WatchTrigger fires when an object, or one of a list, is not as it was when the trigger fired last.
//
// +kubebuilder:validation:XValidation:rule="has(self.external) != has(self.resource)",message="exactly one of external and resource must be set"
type WatchTrigger struct {
	// external names an external object, or list of objects, of the definition.
	// +optional
	External Name `json:"external,omitempty"`
	// resource names a resource of the definition.
	// +optional
	Resource Name `json:"resource,omitempty"`
	// fields are the paths whose change counts. Default: all but metadata and status.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	Fields []string `json:"fields,omitempty"`
}

// Retention says which ended runs of an operation are kept for an instance. A run is kept if any of the rules keeps it.
type Retention struct {
	// last is how many of the newest successes are kept. Default 3, or 1 when another rule is set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Last *int32 `json:"last,omitempty"`
	// daily is for how many days the newest success of the day is kept, by UTC.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Daily *int32 `json:"daily,omitempty"`
	// weekly is for how many weeks (from Monday) the newest success of the week is kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weekly *int32 `json:"weekly,omitempty"`
	// monthly is for how many months the newest success of the month is kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Monthly *int32 `json:"monthly,omitempty"`
	// within keeps each success that ended so lately.
	// +optional
	Within Duration `json:"within,omitempty"`
	// failed is how many of the newest runs are kept that did not succeed. Default 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Failed *int32 `json:"failed,omitempty"`
}
