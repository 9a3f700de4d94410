package v1alpha1

// Conditions of definitions and instances follow kstatus:
//
//	Ready         True: everything is as wanted; False or Unknown: reason and message say what is not
//	├─ Reconciling  present (True) only while Libretto is at work or waits for something that comes by itself
//	└─ Stalled      present (True) only while somebody has to act; message says who and what
//
// A definition has two more, always present:
//
//	Accepted      the newest generation compiles and is (or will be) the revision at work
//	Served        the CRD is established, the watches run, instances are worked on
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	ConditionAccepted    = "Accepted"
	ConditionServed      = "Served"
	// ConditionOperationStale is on instances with an operation that has a stale bound: True while a last success is too old.
	ConditionOperationStale = "OperationStale"
)

// Reasons on definitions.
const (
	// ReasonReady: all is well.
	ReasonReady = "Ready"
	// ReasonAccepted: the newest generation is the revision at work.
	ReasonAccepted = "Accepted"
	// ReasonServed: instances are worked on.
	ReasonServed = "Served"
	// ReasonBreakingChange: the new schema refuses, or loses, what is stored already; the last accepted revision stays at work.
	ReasonBreakingChange = "BreakingChange"
	// ReasonReconcileFailed: requests to the API server fail again and again; Libretto keeps trying.
	ReasonReconcileFailed = "ReconcileFailed"
	// ReasonDeletingInstances: the definition is being deleted, and its instances before it.
	ReasonDeletingInstances = "DeletingInstances"
	// ReasonCRDRejected: the API server does not take the CRD; the message is its own.
	ReasonCRDRejected = "CRDRejected"
	// ReasonCompileFailed: the document has errors; the last accepted revision stays at work.
	ReasonCompileFailed = "CompileFailed"
	// ReasonKindsPending: it reads or makes kinds that the cluster does not have yet.
	ReasonKindsPending = "KindsPending"
	// ReasonCRDConflict: the CRD belongs to another definition or to somebody else.
	ReasonCRDConflict = "CRDConflict"
	// ReasonCRDNotEstablished: the API server has not established the CRD.
	ReasonCRDNotEstablished = "CRDNotEstablished"
	// ReasonServiceAccountMissing: no serviceAccount is named, or it does not exist.
	ReasonServiceAccountMissing = "ServiceAccountMissing"
	// ReasonImpersonationDenied: Libretto, or the author, may not act as the ServiceAccount.
	ReasonImpersonationDenied = "ImpersonationDenied"
	// ReasonForbidden: the ServiceAccount lacks a right; the message names verb, resource and Role.
	ReasonForbidden = "Forbidden"
	// ReasonKindNotFound: a kind that a watch needs is gone.
	ReasonKindNotFound = "KindNotFound"
	// ReasonQuarantined: working on its instances panicked; nothing is done until the definition changes.
	ReasonQuarantined = "Quarantined"
	// ReasonInstancesExist: the definition is being deleted, and instances of it exist.
	ReasonInstancesExist = "InstancesExist"
	// ReasonStarting: the watches are being started.
	ReasonStarting = "Starting"
)

// Reasons on instances, beside ReasonReady, ReasonForbidden and ReasonKindNotFound.
const (
	// ReasonProgressing: resources are being made or are not ready yet.
	ReasonProgressing = "Progressing"
	// ReasonWaiting: a resource waits for a value or for another resource.
	ReasonWaiting = "Waiting"
	// ReasonEvaluationFailed: an expression failed on this instance.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonApplyFailed: the API server did not take a resource.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonAdmissionDenied: an admission webhook or policy, or a quota, refused a resource.
	ReasonAdmissionDenied = "AdmissionDenied"
	// ReasonInvalid: the API server finds a resource invalid.
	ReasonInvalid = "Invalid"
	// ReasonImmutable: a change touches a field that cannot change.
	ReasonImmutable = "Immutable"
	// ReasonConflict: a resource exists already and is not ours to take.
	ReasonConflict = "Conflict"
	// ReasonFighting: somebody else keeps changing a resource; Libretto has stopped changing it back.
	ReasonFighting = "Fighting"
	// ReasonDeleting: the instance is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonAbandoned: an event's reason: objects of a deleted instance were left behind.
	ReasonAbandoned = "Abandoned"
	// ReasonDriftRepaired: an event's reason: somebody changed a resource, and it was changed back.
	ReasonDriftRepaired = "DriftRepaired"
	// ReasonOperationFailed: an operation that belongs to the life of the instance (Create, Update, Delete, Resume) has failed, or
	// nobody knows whether a step had its effect; the message says what to do.
	ReasonOperationFailed = "OperationFailed"
	// ReasonOperationSkipped: an event's reason: an operation, or a step of it, cannot be done any more.
	ReasonOperationSkipped = "OperationSkipped"
	// ReasonStale and ReasonFresh are those of the condition OperationStale.
	ReasonStale = "Stale"
	ReasonFresh = "Fresh"
	// ReasonNamespaceNotServed: the labels of the namespace do not match namespaces.selector of the definition.
	ReasonNamespaceNotServed = "NamespaceNotServed"
	// ReasonRecreated: an event's reason: a resource was deleted to be made anew.
	ReasonRecreated = "Recreated"
)
