package operation

// Reasons of runs.
const (
	// ReasonWaitsForTurn: another run of the instance goes first.
	ReasonWaitsForTurn = "WaitsForTurn"
	// ReasonTargetNotFound: there is no such instance, yet.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonPaused: spec.paused is true.
	ReasonPaused = "Paused"
	// ReasonWaitsForValue: an expression reads a value that is not there yet.
	ReasonWaitsForValue = "WaitsForValue"
	// ReasonSucceeded: all steps are done.
	ReasonSucceeded = "Succeeded"
	// ReasonStepFailed: a step failed.
	ReasonStepFailed = "StepFailed"
	// ReasonOutcomeUnknown: nobody knows whether a step had its effect.
	ReasonOutcomeUnknown = "OutcomeUnknown"
	// ReasonUndoFailed: a step failed, and so did one that was to undo what was done.
	ReasonUndoFailed = "UndoFailed"
	// ReasonOutputFailed: the output could not be computed.
	ReasonOutputFailed = "OutputFailed"
	// ReasonTooLarge: what the steps yield is more than an object can hold.
	ReasonTooLarge = "TooLarge"
	// ReasonTimeout: the time of the operation is over.
	ReasonTimeout = "Timeout"
	// ReasonCancelled: spec.cancel, a newer run in its place, or the deletion of the instance.
	ReasonCancelled = "Cancelled"
	// ReasonDefinitionChanged: the operation is not any more the one that the run began with.
	ReasonDefinitionChanged = "DefinitionChanged"
	// ReasonImpossible: there is no such instance or operation.
	ReasonImpossible = "Impossible"
	// ReasonRemovalFailed: a step of onRemove failed; it is tried again.
	ReasonRemovalFailed = "RemovalFailed"
)
