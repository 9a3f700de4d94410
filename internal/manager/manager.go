package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/controllers/definition"
	"github.com/libretto-dev/libretto/controllers/instance"
	"github.com/libretto-dev/libretto/controllers/operation"
	"github.com/libretto-dev/libretto/internal/crd"
	"github.com/libretto-dev/libretto/internal/discovery"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/registry"
	"github.com/libretto-dev/libretto/internal/runner"
	"github.com/libretto-dev/libretto/internal/webhook"
)

// Sorted rights of the manager itself; those of a controller stand beside the controller.
//
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=core,namespace=libretto-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=libretto-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=libretto-system,resources=leases,resourceNames=libretto.dev,verbs=get;update

// Run runs the manager until ctx ends, and then ends what is under way. An error tells that it could not start, or that it
// lost the election: the process must end then.
func Run(ctx context.Context, o Options) error {
	m, err := newManager(ctx, &o)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if m == nil {
		return nil // it was stopped while it started
	}
	err = m.mgr.Start(ctx)
	m.engine.StopAll() // also what a reconcile started while the manager was stopping
	if err != nil {
		return fmt.Errorf("cannot run: %w", err)
	}
	return nil
}

// instanceOf is a manager with what is wired into it.
type instanceOf struct {
	opts     *Options
	mgr      ctrl.Manager
	engine   *engine.Engine
	registry *registry.Registry
	compiler *definition.Compiler
	metrics  *definition.Metrics
	crds     *crd.Writer
	clients  definition.Clients
}

func newManager(ctx context.Context, o *Options) (*instanceOf, error) {
	signed, server, err := webhookServer(o)
	if err != nil {
		return nil, err
	}
	options, err := managerOptions(o, server)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(o.Config, options)
	if err != nil {
		return nil, fmt.Errorf("cannot make a manager: %w", err)
	}
	m := &instanceOf{opts: o, mgr: mgr, registry: registry.New()}
	if err := m.wire(); err != nil {
		return nil, err
	}
	if o.Definitions != nil {
		err = m.addFiles()
	} else {
		err = m.addDefinitions()
	}
	if err != nil {
		return nil, err
	}
	if err := m.addWebhook(ctx, signed, server != nil); err != nil {
		return nil, err
	}
	if err := m.addOLM(ctx); err != nil {
		return nil, err
	}
	if err := m.addProbes(server); err != nil {
		return nil, err
	}
	return m, nil
}

func managerOptions(o *Options, server ctrlwebhook.Server) (ctrl.Options, error) {
	selector, err := labels.Parse(o.DefinitionSelector)
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("cannot read the definition selector %q: %w", o.DefinitionSelector, err)
	}
	byObject := map[client.Object]cache.ByObject{}
	if o.Definitions == nil { // a cluster without Libretto does not serve the kind
		byObject[&v1alpha1.OperatorDefinition{}] = cache.ByObject{Label: selector}
	}
	namespace := o.LeaderElectionNamespace
	if namespace == "" {
		namespace = podNamespace()
	}
	if o.LeaderElection && namespace == "" {
		return ctrl.Options{}, errors.New("the namespace of the Lease is not known: set --leader-elect-namespace or POD_NAMESPACE, or --leader-elect=false for a single manager")
	}
	serving := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure, CertDir: o.MetricsCertDir, TLSOpts: []func(*tls.Config){noHTTP2}}
	if o.MetricsSecure {
		serving.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return ctrl.Options{
		Scheme: newScheme(), Logger: o.Logger, Metrics: serving,
		HealthProbeBindAddress: o.HealthAddress, PprofBindAddress: o.PprofAddress,
		WebhookServer: server,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         byObject,
		},
		LeaderElection:          o.LeaderElection,
		LeaderElectionID:        o.LeaderElectionID,
		LeaderElectionNamespace: namespace,
		// Nothing works any more when Start returns: engineStop is waited for before the Lease is given up.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 orNil(o.LeaseDuration), RenewDeadline: orNil(o.RenewDeadline), RetryPeriod: orNil(o.RetryPeriod),
		GracefulShutdownTimeout: &o.GracePeriod,
		Controller:              ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // a process may run several managers, one after the other
	}, nil
}

func orNil(d time.Duration) *time.Duration {
	if d <= 0 {
		return nil
	}
	return &d
}

// noHTTP2 turns HTTP/2 off: its streams can be reset faster than a server can clean up.
func noHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one name: cannot happen with these
		}
	}
	return s
}

// wire makes what definitions from the API and from files share.
func (m *instanceOf) wire() error {
	o, cfg := m.opts, m.mgr.GetConfig()
	metrics.RegisterRESTClientMetrics(metrics.MetricRequestLatency, metrics.MetricRequestRetry)
	var err error
	if m.metrics, err = definition.NewMetrics(metrics.Registry); err != nil {
		return err
	}
	for _, c := range engine.Collectors() {
		if err := metrics.Registry.Register(c); err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			return fmt.Errorf("cannot register a metric: %w", err)
		}
	}
	identities, err := identity.NewFactory(cfg)
	if err != nil {
		return err
	}
	m.clients = func(sa *v1alpha1.ServiceAccountReference) (dynamic.Interface, meta.RESTMapper, error) {
		c, err := identities.For(sa)
		if err != nil {
			return nil, nil, err
		}
		return c.Dynamic, c.Mapper, nil
	}
	live, err := discovery.NewSource(cfg)
	if err != nil {
		return err
	}
	m.compiler = &definition.Compiler{Registry: m.registry, Live: live.Catalog, Beside: o.Catalog, Metrics: m.metrics}
	m.crds = &crd.Writer{Reader: m.mgr.GetAPIReader(), Writer: m.mgr.GetClient()}
	spaces := &namespaces{informers: m.mgr.GetCache()}
	denied, err := o.deniedNetworks()
	if err != nil {
		return err
	}
	m.engine, err = engine.New(engine.Options{
		Identities: identities, Registry: m.registry, Observer: o.Observer,
		NewReconciler: func(r *engine.Run) reconcile.TypedReconciler[engine.Request] {
			return instance.New(r, runner.NewDoer(r, denied))
		},
		NewOperations: func(r *engine.Run) reconcile.TypedReconciler[engine.Request] {
			return operation.New(r, runner.NewDoer(r, denied))
		},
		Recorder: m.mgr.GetEventRecorder("libretto"), Elected: m.mgr.Elected(), NamespaceLabels: spaces.labels,
		Workers: o.Workers, Logger: o.Logger,
	})
	if err != nil {
		return fmt.Errorf("cannot make the engine: %w", err)
	}
	spaces.changed = m.engine.NamespaceChanged
	if err := m.mgr.Add(&engineStop{engine: m.engine}); err != nil {
		return fmt.Errorf("cannot add the engine: %w", err)
	}
	return nil
}

// engineStop ends the engine's work before the manager gives up its Lease.
type engineStop struct{ engine *engine.Engine }

// Start implements manager.Runnable.
func (s *engineStop) Start(ctx context.Context) error {
	<-ctx.Done()
	s.engine.StopAll()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*engineStop) NeedLeaderElection() bool { return false }

func (m *instanceOf) addDefinitions() error {
	r := &definition.Reconciler{
		Client: m.mgr.GetClient(), Reader: m.mgr.GetAPIReader(), CRDs: m.crds, Compiler: m.compiler, Registry: m.registry,
		Engine: m.engine, Clients: m.clients, Events: m.mgr.GetEventRecorder("libretto"), Metrics: m.metrics, Elected: m.mgr.Elected(),
	}
	if err := r.SetupWithManager(m.mgr); err != nil {
		return fmt.Errorf("cannot set up the definition controller: %w", err)
	}
	return nil
}

func (m *instanceOf) addFiles() error {
	f := &definition.Files{
		Definitions: m.opts.Definitions, ActAsSelf: m.opts.ActAsSelf, Compiler: m.compiler, CRDs: m.crds, Registry: m.registry,
		Engine: m.engine, Metrics: m.metrics, Report: m.opts.Report,
	}
	if err := m.mgr.Add(f); err != nil {
		return fmt.Errorf("cannot add the definitions: %w", err)
	}
	return nil
}

// webhookServer returns the server of the webhook, or nil when there is none to serve, and what keeps its certificate, if
// that is of our own making.
func webhookServer(o *Options) (*webhook.SelfSigned, ctrlwebhook.Server, error) {
	options := ctrlwebhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, CertDir: o.WebhookCertDir, TLSOpts: []func(*tls.Config){noHTTP2}}
	switch {
	case o.Definitions != nil, o.Webhook == WebhookOff, o.Webhook == "":
		return nil, nil, nil
	case o.Webhook == WebhookAuto:
		dir := o.WebhookCertDir
		if dir == "" {
			dir = filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs")
		}
		if !exists(filepath.Join(dir, "tls.crt")) {
			o.Logger.Info("Serving no webhook: there is no certificate", "directory", dir)
			return nil, nil, nil
		}
		return nil, ctrlwebhook.NewServer(options), nil
	case o.Webhook != WebhookSelfSigned:
		return nil, nil, fmt.Errorf("unknown webhook mode %q: choose %s, %s or %s", o.Webhook, WebhookAuto, WebhookSelfSigned, WebhookOff)
	}
	signed, err := selfSigned(o)
	if err != nil {
		return nil, nil, err
	}
	options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = signed.GetCertificate })
	return signed, ctrlwebhook.NewServer(options), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func selfSigned(o *Options) (*webhook.SelfSigned, error) {
	signed := &webhook.SelfSigned{Configuration: o.WebhookConfiguration}
	if o.WebhookURL != "" {
		u, err := url.Parse(o.WebhookURL)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return nil, fmt.Errorf("the webhook's URL must be https://HOST:PORT, found %q", o.WebhookURL)
		}
		if signed.Selector, err = metav1.ParseToLabelSelector(o.DefinitionSelector); err != nil {
			return nil, fmt.Errorf("cannot read the definition selector %q: %w", o.DefinitionSelector, err)
		}
		signed.URL, signed.Hosts = strings.TrimSuffix(o.WebhookURL, "/"), []string{u.Hostname()}
		return signed, nil
	}
	namespace := o.WebhookNamespace
	if namespace == "" {
		namespace = podNamespace()
	}
	if namespace == "" {
		return nil, errors.New("the namespace of the webhook's Service is not known: set --webhook-namespace, or --webhook-url when the manager runs outside the cluster")
	}
	host := o.WebhookService + "." + namespace + ".svc"
	signed.Hosts = []string{host}
	signed.Secret = types.NamespacedName{Namespace: namespace, Name: webhook.SecretName}
	return signed, nil
}

// podNamespace is the namespace of the pod that the process runs in, or what POD_NAMESPACE says; empty if neither is known.
func podNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (m *instanceOf) addWebhook(ctx context.Context, signed *webhook.SelfSigned, serve bool) error {
	if !serve {
		return nil
	}
	if signed != nil {
		own, err := client.New(rest.CopyConfig(m.mgr.GetConfig()), client.Options{Scheme: m.mgr.GetScheme(), Mapper: m.mgr.GetRESTMapper()})
		if err != nil {
			return fmt.Errorf("cannot make a client: %w", err)
		}
		signed.Client = own
		if err := signed.Prepare(ctx); err != nil {
			return err
		}
		if err := m.mgr.Add(signed); err != nil {
			return fmt.Errorf("cannot add what keeps the webhook's certificate: %w", err)
		}
	}
	v := &webhook.Validator{Compile: m.compiler.Compile, MayImpersonate: definition.MayImpersonate, Client: m.mgr.GetClient()}
	return v.SetupWithManager(m.mgr)
}

func (m *instanceOf) addProbes(server ctrlwebhook.Server) error {
	if err := m.mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("cannot add a health check: %w", err)
	}
	ready := &started{}
	if err := m.mgr.Add(ready); err != nil {
		return fmt.Errorf("cannot add a readiness check: %w", err)
	}
	if err := m.mgr.AddReadyzCheck("caches", ready.check); err != nil {
		return fmt.Errorf("cannot add a readiness check: %w", err)
	}
	if server == nil {
		return nil
	}
	if err := m.mgr.AddReadyzCheck("webhook", server.StartedChecker()); err != nil {
		return fmt.Errorf("cannot add a readiness check: %w", err)
	}
	return nil
}

// DefaultWebhookURL is the URL of a webhook that listens on a loopback address.
func DefaultWebhookURL(host string, port int) string {
	return "https://" + net.JoinHostPort(host, fmt.Sprint(port))
}
