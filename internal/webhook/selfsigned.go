package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=libretto-validating-webhook-configuration,verbs=get;patch
// +kubebuilder:rbac:groups=core,namespace=libretto-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups=core,namespace=libretto-system,resources=secrets,resourceNames=libretto-webhook-certificate,verbs=get;update

// SecretName is the name of the Secret in which replicas share a certificate.
const SecretName = "libretto-webhook-certificate"

// How often the certificate and the configuration are looked at.
const (
	checkEvery = 12 * time.Hour
	retryEvery = 5 * time.Second
)

// SelfSigned keeps a certificate of its own making, and the ValidatingWebhookConfiguration that trusts it. It is a Runnable
// of a manager, on every replica.
type SelfSigned struct {
	// Client reads and writes live, as Libretto.
	Client client.Client
	// Hosts are the names and addresses by which the API server reaches the webhook.
	Hosts []string
	// Secret holds the certificate, for several replicas; an empty name keeps it in memory.
	Secret types.NamespacedName
	// Configuration is the name of the ValidatingWebhookConfiguration.
	Configuration string
	// URL is where the API server sends definitions, when not to a Service. The configuration is then made when it is not
	// there, and deleted when the manager stops: nobody would answer.
	URL string
	// Selector limits the definitions that are sent there; nil: all.
	Selector *metav1.LabelSelector
	// Clock tells the time; nil: the real one.
	Clock clock.WithTicker

	current atomic.Pointer[tls.Certificate]
	ca      atomic.Pointer[[]byte]
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*SelfSigned) NeedLeaderElection() bool { return false }

// GetCertificate is for tls.Config.
func (c *SelfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := c.current.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("there is no certificate yet")
}

func (c *SelfSigned) now() time.Time {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c.Clock.Now()
}

// Prepare makes or reads the certificate. It is called before Start, so that the server never runs without one.
func (c *SelfSigned) Prepare(ctx context.Context) error {
	p, err := c.load(ctx)
	if err != nil {
		return err
	}
	cert, err := p.check(c.Hosts, c.now())
	if err != nil {
		return err
	}
	c.current.Store(cert)
	c.ca.Store(&p.ca)
	return nil
}

// load returns a pair that is good: that of memory, of the Secret, or a new one.
func (c *SelfSigned) load(ctx context.Context) (*pair, error) {
	if c.Secret.Name == "" {
		return newPair(c.Hosts, c.now())
	}
	secret := &corev1.Secret{}
	err := c.Client.Get(ctx, c.Secret, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot read Secret %s: %w", c.Secret, err)
	}
	there := err == nil
	if there {
		p := &pair{ca: secret.Data["ca.crt"], cert: secret.Data[corev1.TLSCertKey], key: secret.Data[corev1.TLSPrivateKeyKey]}
		if _, err := p.check(c.Hosts, c.now()); err == nil {
			return p, nil
		}
	}
	p, err := newPair(c.Hosts, c.now())
	if err != nil {
		return nil, err
	}
	secret.Name, secret.Namespace = c.Secret.Name, c.Secret.Namespace
	secret.Data = map[string][]byte{"ca.crt": p.ca, corev1.TLSCertKey: p.cert, corev1.TLSPrivateKeyKey: p.key}
	if there {
		err = c.Client.Update(ctx, secret)
	} else {
		secret.Type = corev1.SecretTypeTLS
		err = c.Client.Create(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write Secret %s: %w", c.Secret, err)
	}
	return p, nil
}

// Start implements manager.Runnable.
func (c *SelfSigned) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("webhook")
	c.now()
	for {
		wait := checkEvery
		if err := c.refresh(ctx); err != nil {
			log.Error(err, "Cannot prepare the webhook", "retryAfter", retryEvery)
			wait = retryEvery
		}
		select {
		case <-ctx.Done():
			return c.cleanUp(ctx)
		case <-c.Clock.After(wait):
		}
	}
}

// refresh renews the certificate when it is due, and writes the authority into the configuration.
func (c *SelfSigned) refresh(ctx context.Context) error {
	cert := c.current.Load()
	if c.Secret.Name != "" || cert == nil || cert.Leaf.NotAfter.Before(c.now().Add(renewBefore)) {
		if err := c.Prepare(ctx); err != nil {
			return err
		}
	}
	return c.configure(ctx)
}

// configure writes the authority into the configuration when it is another one.
func (c *SelfSigned) configure(ctx context.Context) error {
	ca := *c.ca.Load()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Client.Get(ctx, types.NamespacedName{Name: c.Configuration}, conf)
	if apierrors.IsNotFound(err) && c.URL != "" {
		if err := c.Client.Create(ctx, c.configuration(ca)); err != nil {
			return fmt.Errorf("cannot create ValidatingWebhookConfiguration %s: %w", c.Configuration, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read ValidatingWebhookConfiguration %s: %w", c.Configuration, err)
	}
	before, changed := conf.DeepCopy(), false
	url := c.URL + Path
	for i := range conf.Webhooks {
		cc := &conf.Webhooks[i].ClientConfig
		if !bytes.Equal(cc.CABundle, ca) {
			cc.CABundle, changed = ca, true
		}
		if c.URL != "" && (cc.URL == nil || *cc.URL != url) {
			cc.URL, cc.Service, changed = &url, nil, true
		}
	}
	if !changed {
		return nil
	}
	if err := c.Client.Patch(ctx, conf, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot write ValidatingWebhookConfiguration %s: %w", c.Configuration, err)
	}
	return nil
}

// configuration is that of a manager that runs outside the cluster.
func (c *SelfSigned) configuration(ca []byte) *admissionregistrationv1.ValidatingWebhookConfiguration {
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	url, timeout := c.URL+Path, int32(10)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: c.Configuration},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "operatordefinitions.libretto.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			ObjectSelector:          c.Selector,
			FailurePolicy:           &fail,
			SideEffects:             &none,
			TimeoutSeconds:          &timeout,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{v1alpha1.GroupVersion.Version},
					Resources: []string{"operatordefinitions"},
				},
			}},
		}},
	}
}

// cleanUp deletes the configuration of a manager outside the cluster: without it, no definition could be written any more.
func (c *SelfSigned) cleanUp(ended context.Context) error {
	if c.URL == "" {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), patience)
	defer cancel()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: c.Configuration}}
	if err := c.Client.Delete(ctx, conf); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete ValidatingWebhookConfiguration %s: %w", c.Configuration, err)
	}
	return nil
}
