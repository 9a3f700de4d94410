package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// Step is one step of an operation.
//
// +kubebuilder:validation:XValidation:rule="[has(self.apply), has(self.patch), has(self.delete), has(self.wait), has(self.exec), has(self.job), has(self.http), has(self.event), has(self.log), has(self.set), has(self.run)].filter(x, x).size() == 1",message="exactly one of apply, patch, delete, wait, exec, job, http, event, log, set and run must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || (has(self.onUnknown) && self.onUnknown == 'Verify')",message="verify belongs to onUnknown: Verify"
// +kubebuilder:validation:XValidation:rule="!has(self.onUnknown) || self.onUnknown != 'Verify' || has(self.verify)",message="onUnknown: Verify needs verify"
type Step struct {
	// name of the step. Later expressions read steps.NAME.output. Default: the name of the action, with a number if it is there
	// more than once.
	// +optional
	Name Name `json:"name,omitempty"`
	// when is a CEL expression: with false, the step is skipped.
	// +optional
	When Expression `json:"when,omitempty"`
	// forEach does the step once for each item of a list.
	// +optional
	ForEach *StepForEach `json:"forEach,omitempty"`
	// timeout of one attempt. Default: what is left of the operation's.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
	// retries is how often the step is tried again after an error that may pass. Default 3. An error that will not pass (a refused
	// request, a permanent exit code, an invalid object) ends the step at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries *int32 `json:"retries,omitempty"`
	// backoff is the pause between attempts.
	// +optional
	Backoff *Backoff `json:"backoff,omitempty"`
	// onFailure says what a failed step means. Fail (the default) ends the run. Continue goes on. Undo does the undo steps of
	// what was done, latest first, and then ends the run.
	// +optional
	OnFailure StepFailure `json:"onFailure,omitempty"`
	// onUnknown says what to do when nobody knows whether the step has had its effect: the engine was killed, or time ran out,
	// while a command or request was under way. Fail (the default for exec, for a JSON patch, and for http with a method that
	// may not be repeated) ends the run as Unknown. Retry does it again. Verify asks first. All other steps know by themselves.
	// +optional
	OnUnknown UnknownPolicy `json:"onUnknown,omitempty"`
	// verify tells whether the step has had its effect.
	// +optional
	Verify *Verify `json:"verify,omitempty"`
	// output is what the step yields, with ${…} in any string, which may use result. Default: what the action yields.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Output *runtime.RawExtension `json:"output,omitempty"`
	// undo are the steps that take the effect back.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Undo []CleanupStep `json:"undo,omitempty"`

	Action `json:",inline"`
}

// CleanupStep is a step that takes back what another one did, or removes what a run has made.
//
// +kubebuilder:validation:XValidation:rule="[has(self.apply), has(self.patch), has(self.delete), has(self.wait), has(self.exec), has(self.job), has(self.http), has(self.event), has(self.log), has(self.set), has(self.run)].filter(x, x).size() == 1",message="exactly one of apply, patch, delete, wait, exec, job, http, event, log, set and run must be set"
type CleanupStep struct {
	// name of the step. Default: the name of the action, with a number if it is there more than once.
	// +optional
	Name Name `json:"name,omitempty"`
	// when is a CEL expression: with false, the step is skipped.
	// +optional
	When Expression `json:"when,omitempty"`
	// timeout of one attempt.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
	// retries is how often the step is tried again after an error that may pass. Default 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries *int32 `json:"retries,omitempty"`
	// backoff is the pause between attempts.
	// +optional
	Backoff *Backoff `json:"backoff,omitempty"`
	// onUnknown says what to do when nobody knows whether the step has had its effect. Retry (the default: a step that takes
	// something back should bear being repeated) or Fail; Verify is not possible here.
	// +optional
	OnUnknown UnknownPolicy `json:"onUnknown,omitempty"`

	Action `json:",inline"`
}

// Action is what a step does.
type Action struct {
	// apply makes an object, or changes one, by server-side apply.
	// +optional
	Apply *ApplyAction `json:"apply,omitempty"`
	// patch changes an object that exists.
	// +optional
	Patch *PatchAction `json:"patch,omitempty"`
	// delete deletes an object and waits until it is gone. One that is not there counts as deleted.
	// +optional
	Delete *DeleteAction `json:"delete,omitempty"`
	// wait waits until an expression is true.
	// +optional
	Wait *WaitAction `json:"wait,omitempty"`
	// exec runs a command in a container of a pod.
	// +optional
	Exec *ExecAction `json:"exec,omitempty"`
	// job runs a Job to its end.
	// +optional
	Job *JobAction `json:"job,omitempty"`
	// http makes an HTTP request.
	// +optional
	HTTP *HTTPAction `json:"http,omitempty"`
	// event writes a Kubernetes event about the instance.
	// +optional
	Event *EventAction `json:"event,omitempty"`
	// log writes a line to the log of the engine; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Log string `json:"log,omitempty"`
	// set sets fields of the status of the instance, with ${…} in any string. Fields of status.fields cannot be set.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Set *runtime.RawExtension `json:"set,omitempty"`
	// run runs another operation of the same instance and waits for its end.
	// +optional
	Run *RunAction `json:"run,omitempty"`
}

// Backoff is the pause between attempts: initial after the first one, twice as long after each further one, never above max.
type Backoff struct {
	// initial pause. Default 1s.
	// +optional
	Initial Duration `json:"initial,omitempty"`
	// max is the longest pause. Default 5m.
	// +optional
	Max Duration `json:"max,omitempty"`
}

// StepForEach repeats a step.
type StepForEach struct {
	// var is the name of the item in the expressions of the step.
	// +required
	Var Name `json:"var,omitempty"`
	// in is a CEL expression that yields a list, of at most 100 items.
	// +required
	In Expression `json:"in,omitempty"`
	// parallel is how many items are worked on at once. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Parallel *int32 `json:"parallel,omitempty"`
}

// StepFailure says what a failed step means for the run.
//
// +kubebuilder:validation:Enum=Fail;Continue;Undo
type StepFailure string

// What a failed step means for the run.
const (
	StepFailureFail     StepFailure = "Fail"
	StepFailureContinue StepFailure = "Continue"
	StepFailureUndo     StepFailure = "Undo"
)

// UnknownPolicy says what to do when nobody knows whether a step has had its effect.
//
// +kubebuilder:validation:Enum=Retry;Verify;Fail
type UnknownPolicy string

// What to do when nobody knows whether a step has had its effect.
const (
	UnknownPolicyRetry  UnknownPolicy = "Retry"
	UnknownPolicyVerify UnknownPolicy = "Verify"
	UnknownPolicyFail   UnknownPolicy = "Fail"
)

// Verify tells whether a step has had its effect: true, exit code 0: it has; false, another exit code: it has not, and is done again.
//
// +kubebuilder:validation:XValidation:rule="[has(self.condition), has(self.exec), has(self.http)].filter(x, x).size() == 1",message="exactly one of condition, exec and http must be set"
type Verify struct {
	// condition is a CEL expression that yields a boolean.
	// +optional
	Condition Expression `json:"condition,omitempty"`
	// exec runs a command.
	// +optional
	Exec *ExecAction `json:"exec,omitempty"`
	// http makes a request; a status of success says that the step has had its effect, 404 that it has not.
	// +optional
	HTTP *HTTPAction `json:"http,omitempty"`
}

// ObjectReference names an object: a resource of the definition, or any other. Its strings may contain ${…}, but for
// apiVersion and kind.
//
// +kubebuilder:validation:XValidation:rule="has(self.resource) ? !(has(self.apiVersion) || has(self.kind) || has(self.name) || has(self.namespace)) : (has(self.apiVersion) && has(self.kind) && has(self.name))",message="name either a resource of the definition, or apiVersion, kind and name"
type ObjectReference struct {
	// resource is the name of a resource of the definition that is one object.
	// +optional
	Resource Name `json:"resource,omitempty"`
	// apiVersion of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// name of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`
	// namespace of the object. Default: that of the instance.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`
}

// ApplyAction applies an object. It stays when the record of the run goes.
type ApplyAction struct {
	// deletionPolicy says what happens to the object when the instance goes. Delete (the default): the instance owns it where the
	// garbage collector reaches, and it goes too. Retain: it has no owner and stays, as a backup should.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// template is the object, with ${…} in any string.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// PatchAction patches an object.
//
// +kubebuilder:validation:XValidation:rule="has(self.merge) != has(self.json)",message="exactly one of merge and json must be set"
type PatchAction struct {
	// object to patch.
	// +required
	Object ObjectReference `json:"object,omitzero"`
	// merge is a JSON merge patch (RFC 7386), with ${…} in any string.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Merge *runtime.RawExtension `json:"merge,omitempty"`
	// json is a JSON patch (RFC 6902). It is made on the object as it was read, so that none is done twice.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	JSON []JSONPatchOperation `json:"json,omitempty"`
	// subresource to patch: status or scale.
	// +optional
	// +kubebuilder:validation:Enum=status;scale
	Subresource string `json:"subresource,omitempty"`
}

// JSONPatchOperation is one operation of a JSON patch.
type JSONPatchOperation struct {
	// op is what to do.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace;move;copy;test
	Op string `json:"op,omitempty"`
	// path to change, as a JSON pointer; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`
	// from is the path to move or copy from.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from,omitempty"`
	// value to add, replace or test, with ${…} in any string.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// DeleteAction deletes an object.
type DeleteAction struct {
	// object to delete.
	// +required
	Object ObjectReference `json:"object,omitzero"`
	// propagation says what happens to what the object owns. Default Background.
	// +optional
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	Propagation string `json:"propagation,omitempty"`
}

// WaitAction waits.
//
// +kubebuilder:validation:XValidation:rule="has(self.until) != has(self.duration)",message="exactly one of until and duration must be set"
type WaitAction struct {
	// until is a CEL expression that yields a boolean. It sees the object, if one is named, by the name object.
	// +optional
	Until Expression `json:"until,omitempty"`
	// duration just waits.
	// +optional
	Duration Duration `json:"duration,omitempty"`
	// object to read, beside the resources and external objects of the definition.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`
}

// ExecAction runs a command in a container.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod) != has(self.selector)",message="exactly one of pod and selector must be set"
type ExecAction struct {
	// pod is the name of the pod; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Pod string `json:"pod,omitempty"`
	// selector selects pods by label; values may contain ${…}. The first one that is ready, by name, is taken.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=20
	Selector map[string]string `json:"selector,omitempty"`
	// container of the pod. Default: the first one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`
	// command with its arguments; they may contain ${…}. No shell is in between.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=8192
	Command []string `json:"command,omitempty"`
	// stdin is what the command reads; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Stdin string `json:"stdin,omitempty"`
	// parse says how standard output is read: Text (the default) or JSON.
	// +optional
	Parse ParseFormat `json:"parse,omitempty"`
	// permanentExitCodes are the exit codes after which another attempt is in vain. All others but 0 may pass; 126 and 127
	// (the command cannot be run) never do.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	PermanentExitCodes []int32 `json:"permanentExitCodes,omitempty"`
}

// ParseFormat says how an output is read.
//
// +kubebuilder:validation:Enum=Text;JSON
type ParseFormat string

// How an output is read.
const (
	ParseFormatText ParseFormat = "Text"
	ParseFormatJSON ParseFormat = "JSON"
)

// JobAction runs a Job. Its result is what its container writes to the termination message, or the last line of its log, if
// that is a JSON object.
type JobAction struct {
	// template is the Job: metadata (optional) and spec, as in a CronJob's jobTemplate, with ${…} in any string. The name is
	// made by Libretto.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// HTTPAction makes an HTTP request. It carries the header Idempotency-Key, which is the same for all attempts of the step.
type HTTPAction struct {
	// url to request; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	URL string `json:"url,omitempty"`
	// method of the request. Default GET, or POST with a body.
	// +optional
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE
	Method string `json:"method,omitempty"`
	// headers of the request; values may contain ${…}.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	Headers map[string]string `json:"headers,omitempty"`
	// body of the request, with ${…} in any string. Text is sent as it is, anything else as JSON.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Body *runtime.RawExtension `json:"body,omitempty"`
	// auth takes credentials from a Secret.
	// +optional
	Auth *HTTPAuth `json:"auth,omitempty"`
	// tls says whom to trust.
	// +optional
	TLS *HTTPTLS `json:"tls,omitempty"`
	// success are the statuses that mean success. Default: 200 to 299. Of the others, 408, 425, 429 and 500 to 599 may pass
	// (Retry-After is honoured); the rest does not.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Success []int32 `json:"success,omitempty"`
	// poll waits for work that the request has only begun: after a success it asks again and again.
	// +optional
	Poll *HTTPPoll `json:"poll,omitempty"`
}

// HTTPAuth takes credentials from a Secret in the namespace of the instance.
//
// +kubebuilder:validation:XValidation:rule="has(self.bearer) != has(self.basic)",message="exactly one of bearer and basic must be set"
type HTTPAuth struct {
	// bearer sends a token.
	// +optional
	Bearer *SecretKey `json:"bearer,omitempty"`
	// basic sends the keys username and password of a Secret.
	// +optional
	Basic *SecretReference `json:"basic,omitempty"`
}

// HTTPTLS says whom to trust.
type HTTPTLS struct {
	// ca is the key of a Secret with certificates in PEM. Default: those that the engine's machine trusts.
	// +optional
	CA *SecretKey `json:"ca,omitempty"`
	// clientCertificate is a Secret of type kubernetes.io/tls.
	// +optional
	ClientCertificate *SecretReference `json:"clientCertificate,omitempty"`
	// serverName that the certificate must have. Default: the host of the URL.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}

// SecretReference names a Secret in the namespace of the instance.
type SecretReference struct {
	// secret is the name; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Secret string `json:"secret,omitempty"`
}

// SecretKey names a key of a Secret in the namespace of the instance.
type SecretKey struct {
	// secret is the name; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Secret string `json:"secret,omitempty"`
	// key in the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// HTTPPoll asks until the work is done.
type HTTPPoll struct {
	// url to ask; may contain ${…} and use result. Default: the header Location of the answer.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	URL string `json:"url,omitempty"`
	// every is how often. Default 5s, or what Retry-After says.
	// +optional
	Every Duration `json:"every,omitempty"`
	// until is a CEL expression over result, the answer, that tells that the work is done. Default: the status is not 202.
	// +optional
	Until Expression `json:"until,omitempty"`
	// failed is a CEL expression over result that tells that the work has failed for good.
	// +optional
	Failed Expression `json:"failed,omitempty"`
}

// EventAction writes a Kubernetes event.
type EventAction struct {
	// type of the event. Default Normal.
	// +optional
	// +kubebuilder:validation:Enum=Normal;Warning
	Type string `json:"type,omitempty"`
	// reason is a CamelCase word; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// message is text for people; may contain ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// RunAction runs another operation.
type RunAction struct {
	// operation is the name of another operation of the definition.
	// +required
	Operation Name `json:"operation,omitempty"`
	// params are its parameters, with ${…} in any string.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Params *runtime.RawExtension `json:"params,omitempty"`
}
