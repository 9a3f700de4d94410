package definition

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/registry"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=selfsubjectaccessreviews;subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=core,resources=serviceaccounts,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=libretto.dev,resources=operatordefinitions,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=libretto.dev,resources=operatordefinitions/finalizers,verbs=update
// +kubebuilder:rbac:groups=libretto.dev,resources=operatordefinitions/status,verbs=patch
// +kubebuilder:rbac:groups=libretto.dev,resources=operatorrevisions,verbs=get;list;watch;create;delete

// How long to wait where nothing tells that something has changed.
const (
	// retryRights is how often missing rights are looked for.
	retryRights = 30 * time.Second
	// retryAccount is how often a missing ServiceAccount, or the right to impersonate it, is looked for.
	retryAccount = 3 * time.Second
	// retryKinds is how often a kind is looked for that no CustomResourceDefinition announces: one of an aggregated API.
	retryKinds = 5 * time.Minute
	// retryBlocked is how often a deletion that is blocked by instances looks again, if nothing wakes it before.
	retryBlocked = 30 * time.Second
	// retryDraining is how often a deletion that waits for instances looks again, if nothing wakes it before.
	retryDraining = 5 * time.Second
	// countInterval is how often the counts of instances are written to the status at most.
	countInterval = 5 * time.Second
	// settle is how long changes of the Engine's State are gathered.
	settle = 250 * time.Millisecond
)

// Clients returns what acts for a ServiceAccount; nil: for Libretto itself.
type Clients func(sa *v1alpha1.ServiceAccountReference) (dynamic.Interface, meta.RESTMapper, error)

// Reconciler reconciles OperatorDefinitions. All fields but Clock must be set.
type Reconciler struct {
	// Client reads definitions, revisions and metadata of CustomResourceDefinitions from a cache and writes as Libretto.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// CRDs writes CustomResourceDefinitions.
	CRDs *crd.Writer
	// Compiler compiles.
	Compiler *Compiler
	// Registry gets the Programs at work.
	Registry *registry.Registry
	// Engine works on the instances.
	Engine Engine
	// Clients make the clients by which a deletion finds instances and children.
	Clients Clients
	// Events gets events about definitions.
	Events events.EventRecorder
	// Metrics gets numbers.
	Metrics *Metrics
	// Elected is closed when this replica may write.
	Elected <-chan struct{}
	// Clock tells the time; nil: the real one.
	Clock clock.PassiveClock

	memories memories
}

// SetupWithManager registers the Reconciler. Its name is a label of metrics.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	woken := make(chan event.TypedGenericEvent[string], 1024)
	r.Engine.OnChange(func(definition string) {
		select {
		case woken <- event.TypedGenericEvent[string]{Object: definition}:
		default: // the channel is full of wakes; State is looked at again when the counts are next written
		}
	})
	elected := manager.RunnableFunc(func(ctx context.Context) error { return r.wakeAll(ctx, woken) })
	if err := mgr.Add(elected); err != nil {
		return fmt.Errorf("cannot add what wakes definitions after the election: %w", err)
	}
	crdMeta := &metav1.PartialObjectMetadata{}
	crdMeta.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	everyReplica := false
	return ctrl.NewControllerManagedBy(mgr).
		Named("definition").
		For(&v1alpha1.OperatorDefinition{}, builder.WithPredicates(ownChanges())).
		Owns(&v1alpha1.OperatorRevision{}, builder.WithPredicates(deletionsOnly())).
		WatchesMetadata(crdMeta, handler.EnqueueRequestsFromMapFunc(r.crdChanged)).
		WatchesRawSource(source.TypedChannel(woken, settleHandler())).
		WithOptions(controller.Options{
			NeedLeaderElection:      &everyReplica,
			MaxConcurrentReconciles: 4,
			ReconciliationTimeout:   2 * time.Minute,
		}).
		Complete(r)
}

// ownChanges lets through what Reconcile reads of a definition: spec, deletion, annotations, finalizers, and the status that
// it must see before it goes on.
func ownChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*v1alpha1.OperatorDefinition)
		next, ok2 := e.ObjectNew.(*v1alpha1.OperatorDefinition)
		if !ok1 || !ok2 {
			return true
		}
		return old.Generation != next.Generation || old.DeletionTimestamp.IsZero() != next.DeletionTimestamp.IsZero() ||
			old.Annotations[v1alpha1.AnnotationAllowBreaking] != next.Annotations[v1alpha1.AnnotationAllowBreaking] ||
			len(old.Finalizers) != len(next.Finalizers) ||
			old.Status.Revision != next.Status.Revision || len(old.Status.ManagedKinds) != len(next.Status.ManagedKinds)
	}}
}

func deletionsOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
	}
}

// settleHandler enqueues a definition a little later, so that many changes make one reconcile.
func settleHandler() handler.TypedEventHandler[string, reconcile.Request] {
	return handler.TypedFuncs[string, reconcile.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[string], q queue) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: e.Object}}, settle)
		},
	}
}

// wakeAll wakes every definition; it runs when the replica is elected: what was only compiled so far is now written.
func (r *Reconciler) wakeAll(ctx context.Context, woken chan<- event.TypedGenericEvent[string]) error {
	list := &v1alpha1.OperatorDefinitionList{}
	if err := r.Client.List(ctx, list); err != nil {
		return fmt.Errorf("cannot list OperatorDefinitions: %w", err)
	}
	for i := range list.Items {
		select {
		case woken <- event.TypedGenericEvent[string]{Object: list.Items[i].Name}:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// leading tells whether this replica may write.
func (r *Reconciler) leading() bool {
	select {
	case <-r.Elected:
		return true
	default:
		return false
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	def := &v1alpha1.OperatorDefinition{}
	if err := r.Client.Get(ctx, req.NamespacedName, def); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("cannot read OperatorDefinition: %w", err)
	}
	s := newScope(def.DeepCopy(), r.memories.of(def))
	if !r.leading() {
		return ctrl.Result{}, r.standby(ctx, s)
	}
	defer func() { result, err = r.finish(ctx, s, err) }()

	if !def.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.delete(ctx, s)
	}
	if !controllerutil.ContainsFinalizer(def, v1alpha1.FinalizerDefinition) {
		return ctrl.Result{}, r.addFinalizer(ctx, s)
	}
	for _, phase := range []func(context.Context, *scope) error{
		r.compile, r.customResourceDefinitions, r.fallBack, r.revision, r.managedKinds, r.access, r.serve, r.formerOperations,
	} {
		if err := phase(ctx, s); err != nil || s.done {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// forget drops all that is kept for a definition that is gone.
func (r *Reconciler) forget(name string) {
	r.Engine.Stop(name)
	r.Registry.Delete(name)
	r.memories.drop(name)
	r.Metrics.forget(name)
}

// addFinalizer adds the finalizer; the change wakes the definition again.
func (r *Reconciler) addFinalizer(ctx context.Context, s *scope) error {
	s.done, s.silent = true, true
	before := s.def.DeepCopy()
	controllerutil.AddFinalizer(s.def, v1alpha1.FinalizerDefinition)
	if err := r.Client.Patch(ctx, s.def, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot add the finalizer: %w", err)
	}
	return nil
}

// crdChanged tells which definitions a change of a CustomResourceDefinition concerns: its owner, and those that use or wait
// for kinds of its group.
func (r *Reconciler) crdChanged(_ context.Context, obj client.Object) []reconcile.Request {
	names := r.memories.groupChanged(groupOf(obj.GetName()))
	if owner := obj.GetAnnotations()[v1alpha1.AnnotationDefinition]; owner != "" {
		names[owner] = true
	}
	if next := obj.GetAnnotations()[v1alpha1.AnnotationAdopt]; next != "" {
		names[next] = true
	}
	for name := range r.memories.waitingFor(obj.GetName()) {
		names[name] = true
	}
	out := make([]reconcile.Request, 0, len(names))
	for name := range names {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return out
}

// outcome turns an error into what the queue does: a conflict is tried again without a word.
func outcome(err error, after time.Duration) (ctrl.Result, error) {
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	case errors.Is(err, context.Canceled):
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}
