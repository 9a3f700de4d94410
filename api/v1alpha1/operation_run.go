package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OperationRunSpec is the spec of an operation object: one run of an operation for one instance. Its kind is generated in the
// author's group; beside these fields it has one for the parameters of each operation, by the name of the operation.
//
// target, operation, trigger and the parameters cannot change.
type OperationRunSpec struct {
	// Target is the name of the instance, in the namespace of the operation object.
	Target string `json:"target"`
	// Operation is the name of the operation.
	Operation string `json:"operation"`
	// Cancel ends the run: steps under way are stopped. It cannot be taken back.
	Cancel bool `json:"cancel,omitempty"`
	// Paused keeps the run from beginning another step or attempt.
	Paused bool `json:"paused,omitempty"`
	// Retry begins an ended run again that did not succeed.
	Retry *RunRetry `json:"retry,omitempty"`
	// Trigger says what began the run. It is written by Libretto; a run that a user creates has none.
	Trigger *RunTrigger `json:"trigger,omitempty"`
}

// RunRetry begins a run again.
type RunRetry struct {
	// ID is any text: a new one begins the run again, once.
	ID string `json:"id"`
	// From is the name of the step to begin with. Default: the first one that did not succeed.
	From string `json:"from,omitempty"`
}

// TriggerType says what began a run.
type TriggerType string

// What begins a run.
const (
	TriggerTypeManual    TriggerType = "Manual"
	TriggerTypeCreate    TriggerType = "Create"
	TriggerTypeUpdate    TriggerType = "Update"
	TriggerTypeDelete    TriggerType = "Delete"
	TriggerTypeResume    TriggerType = "Resume"
	TriggerTypeSchedule  TriggerType = "Schedule"
	TriggerTypeEvery     TriggerType = "Every"
	TriggerTypeCondition TriggerType = "Condition"
	TriggerTypeWatch     TriggerType = "Watch"
	// TriggerTypeRun: a step of another run.
	TriggerTypeRun TriggerType = "Run"
)

// IsEvent tells whether the trigger is a change of the instance itself.
func (t TriggerType) IsEvent() bool {
	return t == TriggerTypeCreate || t == TriggerTypeUpdate || t == TriggerTypeDelete || t == TriggerTypeResume
}

// RunTrigger says what began a run. Expressions see it as trigger.
type RunTrigger struct {
	Type TriggerType `json:"type"`
	// Index of the trigger in the operation.
	Index int32 `json:"index,omitempty"`
	// Time that a schedule or interval meant; for others, when it fired.
	Time *metav1.Time `json:"time,omitempty"`
	// Generation of the instance.
	Generation int64 `json:"generation,omitempty"`
	// Revision of the definition.
	Revision string `json:"revision,omitempty"`
	// Old holds, of the instance as the run before saw it, what fields names and what expressions read of old. For Update.
	Old JSONObject `json:"old,omitempty"`
	// New holds the same paths as the trigger saw them. For Update, and for Create beside it.
	New JSONObject `json:"new,omitempty"`
	// Count tells one firing of the operation's Update, Condition and Watch triggers from the next, and Hash is what a watch saw:
	// with them, a firing is remembered though the engine was killed before it was written down.
	Count int64  `json:"count,omitempty"`
	Hash  string `json:"hash,omitempty"`
	// Fields are the paths that have changed, sorted, at most 20. For Update and Watch.
	Fields []string `json:"fields,omitempty"`
	// Object is the object that changed, for Watch of one object.
	Object *RunObject `json:"object,omitempty"`
	// Parent is the name of the operation object whose step began this run.
	Parent string `json:"parent,omitempty"`
}

// RunObject names an object.
type RunObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// RunState is how a run stands.
type RunState string

// States of a run.
const (
	// RunPending: it waits for its turn.
	RunPending RunState = "Pending"
	RunRunning RunState = "Running"
	// RunUndoing: a step failed whose failure is undone.
	RunUndoing   RunState = "Undoing"
	RunSucceeded RunState = "Succeeded"
	RunFailed    RunState = "Failed"
	RunCancelled RunState = "Cancelled"
	// RunUnknown: nobody knows whether a step has had its effect.
	RunUnknown RunState = "Unknown"
)

// Ended tells whether the run has come to its end.
func (s RunState) Ended() bool {
	switch s {
	case RunSucceeded, RunFailed, RunCancelled, RunUnknown:
		return true
	case RunPending, RunRunning, RunUndoing:
	}
	return false
}

// OperationRunStatus is the status of an operation object.
type OperationRunStatus struct {
	// Conditions: Succeeded is True, False or, while the run has not ended, Unknown.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the status is about.
	ObservedGeneration int64    `json:"observedGeneration,omitempty"`
	State              RunState `json:"state,omitempty"`
	// Reason is a word for why the run is not on its way, or how it ended: see the Reason constants.
	Reason string `json:"reason,omitempty"`
	// Message says what it waits for, or what went wrong and what to do.
	Message string `json:"message,omitempty"`
	// Step is the step under way, or the one at which the run ended.
	Step string `json:"step,omitempty"`
	// Progress counts the steps that are done, as DONE/TOTAL.
	Progress string `json:"progress,omitempty"`
	// StartTime and CompletionTime of the run; those of the last try, when it was retried.
	StartTime      *metav1.MicroTime `json:"startTime,omitempty"`
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`
	// Duration from start to completion, for people.
	Duration string `json:"duration,omitempty"`
	// Revision is the revision of the definition that the run follows, and Program a hash of the operation in it.
	Revision string `json:"revision,omitempty"`
	Program  string `json:"program,omitempty"`
	// Retry is the ID of the last spec.retry that was obeyed; Tries counts the times that the run was begun.
	Retry string `json:"retry,omitempty"`
	Tries int32  `json:"tries,omitempty"`
	// Steps in the order of the operation, up to the one under way.
	Steps []StepStatus `json:"steps,omitempty"`
	// Output is what the run yields.
	Output JSONObject `json:"output,omitempty"`
	// Removal holds the steps of onRemove.
	Removal []StepStatus `json:"removal,omitempty"`
}

// StepState is how a step, an item of one or an attempt stands.
type StepState string

// States of a step.
const (
	StepPending   StepState = "Pending"
	StepRunning   StepState = "Running"
	StepSucceeded StepState = "Succeeded"
	StepFailed    StepState = "Failed"
	// StepSkipped: when is false.
	StepSkipped   StepState = "Skipped"
	StepCancelled StepState = "Cancelled"
	StepUnknown   StepState = "Unknown"
	// StepUndone: it had succeeded, and its undo steps too.
	StepUndone StepState = "Undone"
)

// Ended tells whether the step has come to its end.
func (s StepState) Ended() bool {
	switch s {
	case StepSucceeded, StepFailed, StepSkipped, StepCancelled, StepUnknown, StepUndone:
		return true
	case StepPending, StepRunning, "":
	}
	return false
}

// StepStatus tells how a step stands. A step with forEach has Items, and its attempts are with them.
type StepStatus struct {
	Name  string    `json:"name"`
	State StepState `json:"state"`
	// Message says what it waits for or what went wrong.
	Message   string            `json:"message,omitempty"`
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`
	EndTime   *metav1.MicroTime `json:"endTime,omitempty"`
	// Output is what the step yields; with forEach, the list of what the items yield.
	Output *JSONValue `json:"output,omitempty"`
	// Attempts, the oldest first; of many, the last ones.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Items of forEach, as they were when the step began.
	Items []ItemStatus `json:"items,omitempty"`
	// Undo holds the undo steps.
	Undo []StepStatus `json:"undo,omitempty"`
	// Try of the run in which the step was begun whose outcome is not known, when a later one begins it again: it keeps the
	// idempotency key of that one.
	Try int32 `json:"try,omitempty"`
}

// ItemStatus tells how one item of a step with forEach stands.
type ItemStatus struct {
	Value    *JSONValue `json:"value,omitempty"`
	State    StepState  `json:"state"`
	Message  string     `json:"message,omitempty"`
	Output   *JSONValue `json:"output,omitempty"`
	Attempts []Attempt  `json:"attempts,omitempty"`
	// Undo holds the undo steps of the item.
	Undo []StepStatus `json:"undo,omitempty"`
	// Try as in StepStatus.
	Try int32 `json:"try,omitempty"`
}

// Attempt is one attempt of a step. It is persisted before it acts.
type Attempt struct {
	// ID is unique: made of the run's UID, the step, the item and the number.
	ID string `json:"id"`
	// Number counts from 1.
	Number int32 `json:"number"`
	// Engine identifies the process that was to begin it.
	Engine string `json:"engine,omitempty"`
	// Verify: it asks whether the attempt before had its effect.
	Verify    bool              `json:"verify,omitempty"`
	State     StepState         `json:"state"`
	StartTime metav1.MicroTime  `json:"startTime"`
	EndTime   *metav1.MicroTime `json:"endTime,omitempty"`
	Message   string            `json:"message,omitempty"`
	// Ref is what the action needs to find again what it has begun, such as the URL to poll.
	Ref string `json:"ref,omitempty"`
	// RetryTime is when the next attempt begins.
	RetryTime *metav1.MicroTime `json:"retryTime,omitempty"`
}

// OperationMemory is what the triggers of one operation remember of an instance. It is part of the status of the instance.
type OperationMemory struct {
	// Name of the operation.
	Name string `json:"name"`
	// Since is when the operation was first seen with the instance.
	Since metav1.Time `json:"since"`
	// Generation is that of the instance when an event fired last or was taken as the starting point.
	Generation int64 `json:"generation,omitempty"`
	// Values holds, of the instance at that time, what fields names and what expressions read of old.
	Values JSONObject `json:"values,omitempty"`
	// Count of the firings of Update, Condition and Watch triggers.
	Count int64 `json:"count,omitempty"`
	// Triggers, for those that remember something of their own.
	Triggers []TriggerMemory `json:"triggers,omitempty"`
}

// TriggerMemory is what one trigger remembers.
type TriggerMemory struct {
	// Index and Type of the trigger in the operation.
	Index int32       `json:"index"`
	Type  TriggerType `json:"type,omitempty"`
	// Time: for a schedule, the last time that was dealt with; for a condition, since when it has been true.
	Time *metav1.Time `json:"time,omitempty"`
	// Fired: a condition has fired and is not armed again.
	Fired bool `json:"fired,omitempty"`
	// Hash of what an Update or a watch saw last, of a schedule and its zone, or of a spec that is idle.
	Hash string `json:"hash,omitempty"`
	// Asked is when an interval was due and when said no.
	Asked *metav1.Time `json:"asked,omitempty"`
}
