package identity

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/version"
)

// Factory makes clients. Its clients share connections, and one RESTMapper: what kinds there are is the same for all.
type Factory struct {
	base   *rest.Config
	mapper meta.RESTMapper
}

// NewFactory returns a Factory that starts from base, a configuration for the identity of Libretto itself. A transport
// wrapper of base (rest.Config.Wrap) sees every request of every client: metrics and tests count there.
func NewFactory(base *rest.Config) (*Factory, error) {
	cfg := rest.CopyConfig(base)
	// The API server's own priority and fairness shares the load; a limit here would let definitions wait for each other.
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	if cfg.UserAgent == "" {
		cfg.UserAgent = "libretto/" + version.Get().Version
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of the API server: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot make a RESTMapper: %w", err)
	}
	return &Factory{base: cfg, mapper: mapper}, nil
}

// Client acts for one definition.
type Client struct {
	// Config is what the client was made from, for clients of other sorts.
	Config *rest.Config
	// HTTP is the client's HTTP client.
	HTTP *http.Client
	// Dynamic reads, watches and writes objects of any kind.
	Dynamic dynamic.Interface
	// Mapper finds the resource of a kind. It asks the API server when it does not know a kind; a broken aggregated API does
	// not hurt the others. Its error for a kind that does not exist is meta.IsNoMatchError.
	Mapper meta.RESTMapper
	// User is the name of the user that is impersonated; empty: nobody, the client acts as Libretto.
	User string
}

// UserName returns the user name of a ServiceAccount.
func UserName(sa v1alpha1.ServiceAccountReference) string {
	return "system:serviceaccount:" + sa.Namespace + ":" + sa.Name
}

// For returns a client that impersonates the ServiceAccount; with nil, one that acts as the Factory's base.
func (f *Factory) For(sa *v1alpha1.ServiceAccountReference) (*Client, error) {
	cfg := rest.CopyConfig(f.base)
	out := &Client{Config: cfg, Mapper: f.mapper}
	if sa != nil {
		if sa.Namespace == "" || sa.Name == "" {
			return nil, fmt.Errorf("serviceAccount needs a namespace and a name, found %q and %q", sa.Namespace, sa.Name)
		}
		out.User = UserName(*sa)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: out.User}
	}
	var err error
	if out.HTTP, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	if out.Dynamic, err = dynamic.NewForConfigAndClient(cfg, out.HTTP); err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	return out, nil
}
