package manager

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/schema"
)

// Options say how the manager runs.
type Options struct {
	// Config is the API server and Libretto's own identity.
	Config *rest.Config
	// Logger gets what developers read. Its zero value discards everything.
	Logger logr.Logger

	// Definitions come from files instead of the API: neither OperatorDefinitions nor OperatorRevisions are read or written,
	// there is no webhook, and a definition without a serviceAccount acts as Config does. Nil: definitions come from the API.
	Definitions []*v1alpha1.OperatorDefinition
	// DefinitionSelector limits the OperatorDefinitions that are worked on by label, for several installations in a cluster;
	// each needs a Lease of its own then. Empty: all.
	DefinitionSelector string
	// ActAsSelf makes definitions from files act as Config does, whatever serviceAccount they name.
	ActAsSelf bool
	// Catalog knows kinds beside Kubernetes' own and those of the cluster: CRDs that lie beside the files. It may be nil.
	Catalog schema.Catalog
	// Observer is told what the engine does. It may be nil.
	Observer engine.Observer
	// Report is told how a definition from a file stands, when that changes, in a line for people. It may be nil.
	Report func(definition, message string)

	// LeaderElection makes one of several replicas work; the others keep caches and Programs warm.
	LeaderElection bool
	// LeaderElectionNamespace is where the Lease is; empty: the namespace of the pod.
	LeaderElectionNamespace string
	// LeaderElectionID is the name of the Lease.
	LeaderElectionID string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of the election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// MetricsAddress is where metrics are served; "0": nowhere.
	MetricsAddress string
	// MetricsSecure serves them by HTTPS to those whom the API server lets read /metrics.
	MetricsSecure bool
	// MetricsCertDir holds tls.crt and tls.key for metrics; empty: a certificate signed by itself.
	MetricsCertDir string
	// HealthAddress is where /healthz and /readyz are served; "0": nowhere.
	HealthAddress string
	// PprofAddress is where profiles are served; empty: nowhere.
	PprofAddress string

	// Webhook says how the admission webhook is served.
	Webhook WebhookMode
	// WebhookHost and WebhookPort are where it listens; an empty host: all addresses.
	WebhookHost string
	WebhookPort int
	// WebhookCertDir holds tls.crt and tls.key; empty: controller-runtime's default directory.
	WebhookCertDir string
	// WebhookConfiguration is the name of the ValidatingWebhookConfiguration that WebhookSelfSigned keeps up to date.
	WebhookConfiguration string
	// WebhookURL is the base URL by which the API server reaches a manager that runs outside the cluster, such as
	// https://127.0.0.1:9443. WebhookSelfSigned then makes the configuration when there is none. Empty: by its Service.
	WebhookURL string
	// WebhookService and WebhookNamespace name the Service; an empty namespace: that of the pod.
	WebhookService, WebhookNamespace string

	// HTTPDeny are networks, as ADDRESS/BITS, that http steps of operations may not reach.
	HTTPDeny []string
	// Workers is how many instances of one definition are worked on at once.
	Workers int
	// GracePeriod is how long running work may take to end when the manager stops.
	GracePeriod time.Duration
}

// WebhookMode says how the admission webhook is served.
type WebhookMode string

// Modes of the webhook.
const (
	// WebhookAuto serves it when there is a certificate in WebhookCertDir.
	WebhookAuto WebhookMode = "auto"
	// WebhookSelfSigned makes a certificate authority and a certificate, keeps them in a Secret when it runs in a cluster,
	// and writes the authority into the ValidatingWebhookConfiguration.
	WebhookSelfSigned WebhookMode = "self-signed"
	// WebhookOff serves none.
	WebhookOff WebhookMode = "off"
)

// DefaultOptions are the options of a manager in a cluster.
func DefaultOptions() Options {
	return Options{
		LeaderElectionID: "libretto.dev",
		LeaseDuration:    15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		MetricsAddress: ":8443", MetricsSecure: true,
		HealthAddress: ":8081",
		Webhook:       WebhookAuto, WebhookPort: 9443,
		WebhookConfiguration: "libretto-validating-webhook-configuration",
		WebhookService:       "libretto-webhook-service",
		// What only the pod of the manager should reach: itself, and the metadata service of the node's cloud.
		HTTPDeny:    []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"},
		Workers:     16,
		GracePeriod: 30 * time.Second,
	}
}

func (o *Options) deniedNetworks() ([]netip.Prefix, error) {
	denied := make([]netip.Prefix, len(o.HTTPDeny))
	for i, text := range o.HTTPDeny {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--http-deny: %q is no network such as 10.0.0.0/8: %w", text, err)
		}
		denied[i] = prefix
	}
	return denied, nil
}

// AddFlags adds the flags of `libretto manager`, with the values of o as defaults.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.DefinitionSelector, "definition-selector", o.DefinitionSelector, "work on OperatorDefinitions with these labels alone; give each installation its own --leader-elect-id")
	f.BoolVar(&o.LeaderElection, "leader-elect", o.LeaderElection, "let one of several replicas work, the others stand by")
	f.StringVar(&o.LeaderElectionNamespace, "leader-elect-namespace", o.LeaderElectionNamespace, "namespace of the Lease (default: the pod's)")
	f.StringVar(&o.LeaderElectionID, "leader-elect-id", o.LeaderElectionID, "name of the Lease")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "how long a leader that went silent is waited for")
	f.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "how long a leader tries to renew before it stops")
	f.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "how long to wait between two tries")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, `address of /metrics; "0" serves none`)
	f.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "serve metrics by HTTPS, to those alone who may read /metrics")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", o.MetricsCertDir, "directory of tls.crt and tls.key for metrics (default: a certificate signed by itself)")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, `address of /healthz and /readyz; "0" serves none`)
	f.StringVar(&o.PprofAddress, "pprof-bind-address", o.PprofAddress, "address of profiles (default: none)")
	f.StringVar((*string)(&o.Webhook), "webhook", string(o.Webhook), "admission webhook: auto (when there is a certificate), self-signed or off")
	f.StringVar(&o.WebhookHost, "webhook-host", o.WebhookHost, "address that the webhook listens on (default: all)")
	f.IntVar(&o.WebhookPort, "webhook-port", o.WebhookPort, "port that the webhook listens on")
	f.StringVar(&o.WebhookCertDir, "webhook-cert-dir", o.WebhookCertDir, "directory of tls.crt and tls.key for the webhook")
	f.StringVar(&o.WebhookConfiguration, "webhook-configuration", o.WebhookConfiguration, "ValidatingWebhookConfiguration that self-signed keeps up to date")
	f.StringVar(&o.WebhookURL, "webhook-url", o.WebhookURL, "URL of a manager outside the cluster, such as https://127.0.0.1:9443; self-signed alone")
	f.StringVar(&o.WebhookService, "webhook-service", o.WebhookService, "Service by which the API server reaches the webhook")
	f.StringVar(&o.WebhookNamespace, "webhook-namespace", o.WebhookNamespace, "namespace of the Service (default: the pod's)")
	f.StringSliceVar(&o.HTTPDeny, "http-deny", o.HTTPDeny, "networks that http steps of operations may not reach, as `ADDRESS/BITS`")
	f.IntVar(&o.Workers, "workers", o.Workers, "how many instances of one definition are worked on at once")
	f.DurationVar(&o.GracePeriod, "grace-period", o.GracePeriod, "how long running work may take to end when the manager stops")
}
