package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
)

func newOperation() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "operation",
		Aliases: []string{"op", "operations"},
		Short:   "Start, watch, cancel and retry operations",
		Long: `Start operations of the definitions that are at work in a cluster, and see how they go. It works for any definition,
with the rights of the user of the kubeconfig.

A run is an object, of the kind <Kind>Operation. RUN below is its name, or KIND/NAME. KIND is a kind, a plural or a
short name.`,
		Example: `  libretto operation start board/team backup --wait
  libretto operation list board/team
  libretto operation retry boardoperation/team-backup-x7k2p --from copy --wait`,
	}
	cmd.AddCommand(newOperationStart(), newOperationList(), newOperationDescribe(), newOperationRetry(), newOperationCancel(),
		newOperationPause(true), newOperationPause(false))
	return cmd
}

// operationOptions are those of all commands about operations.
type operationOptions struct {
	cluster   cluster
	namespace string
}

func (o *operationOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "`NAMESPACE` (default: that of the context)")
	o.cluster.flags(cmd)
}

// operationClient talks about operations with a cluster.
type operationClient struct {
	*operationOptions
	client dynamic.Interface
	kinds  []operationKind
	// given tells that the user named the namespace.
	given bool
}

// connect finds out what operations there are in the cluster.
func (o *operationOptions) connect(ctx context.Context) (*operationClient, error) {
	cfg, err := o.cluster.config()
	if err != nil {
		return nil, err
	}
	given := o.namespace != ""
	if !given {
		if o.namespace, _, err = o.cluster.loader().Namespace(); err != nil {
			return nil, fmt.Errorf("cannot read the namespace of the kubeconfig: %w", err)
		}
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	kinds, err := findOperationKinds(ctx, cfg, client)
	if err != nil {
		return nil, fmt.Errorf("cannot find out which operations the cluster at %s has: %w", cfg.Host, err)
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no definition with operations is at work in the cluster at %s", cfg.Host)
	}
	return &operationClient{operationOptions: o, client: client, kinds: kinds, given: given}, nil
}

// resource returns the client of a kind.
func (c *operationClient) resource(r servedKind) dynamic.ResourceInterface {
	if r.Namespaced {
		return c.client.Resource(r.GVR).Namespace(c.namespace)
	}
	return c.client.Resource(r.GVR)
}

// where says where objects of a kind are looked for.
func (c *operationClient) where(r servedKind) string {
	if r.Namespaced {
		return " in namespace " + c.namespace
	}
	return ""
}

// command is a command line about a run, as the user would have to write it.
func (c *operationClient) command(verb string, k *operationKind, name string) string {
	s := "libretto operation " + verb + " " + k.Runs.ref(name)
	if c.given && k.Runs.Namespaced {
		s += " -n " + c.namespace
	}
	if c.cluster.context != "" {
		s += " --context " + c.cluster.context
	}
	if c.cluster.kubeconfig != "" {
		s += " --kubeconfig " + c.cluster.kubeconfig
	}
	return s
}

// kind finds a kind by its name, plural or short name; run tells that it is a kind of operation objects.
func (c *operationClient) kind(name string) (k *operationKind, run bool, err error) {
	type match struct {
		kind *operationKind
		run  bool
	}
	var found []match
	for i := range c.kinds {
		k := &c.kinds[i]
		if k.Instances.is(name) {
			found = append(found, match{k, false})
		}
		if k.Runs.is(name) {
			found = append(found, match{k, true})
		}
	}
	switch len(found) {
	case 1:
		return found[0].kind, found[0].run, nil
	case 0:
		return nil, false, c.noKind(name)
	}
	names := make([]string, 0, len(found))
	for _, m := range found {
		r := m.kind.Instances
		if m.run {
			r = m.kind.Runs
		}
		names = append(names, r.GVR.Resource+"."+r.GVR.Group)
	}
	return nil, false, usagef("%q can be %s: say which", name, strings.Join(names, " or "))
}

func (c *operationClient) noKind(name string) error {
	var words, all []string
	for i := range c.kinds {
		k := &c.kinds[i]
		all = append(all, k.Instances.Kind)
		words = append(words, k.Instances.names()...)
		words = append(words, k.Runs.names()...)
	}
	hint := diag.DidYouMean(name, words)
	if hint == "" {
		hint = "kinds with operations are " + strings.Join(all, ", ")
	}
	return fmt.Errorf("there is no kind %q with operations; %s", name, hint)
}

// splitArgument reads KIND/NAME.
func splitArgument(arg string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(arg, "/")
	return kind, name, ok && kind != "" && name != "" && !strings.Contains(name, "/")
}

// operationRun is an operation object.
type operationRun struct {
	kind   *operationKind
	object *unstructured.Unstructured
	spec   v1alpha1.OperationRunSpec
	status v1alpha1.OperationRunStatus
}

func (r *operationRun) name() string { return r.object.GetName() }

// params are the parameters of the run.
func (r *operationRun) params() map[string]any {
	spec, _ := r.object.Object["spec"].(map[string]any)
	params, _ := spec[r.spec.Operation].(map[string]any)
	return params
}

func newOperationRun(k *operationKind, o *unstructured.Unstructured) (*operationRun, error) {
	r := &operationRun{kind: k, object: o}
	var content struct {
		Spec   v1alpha1.OperationRunSpec   `json:"spec"`
		Status v1alpha1.OperationRunStatus `json:"status"`
	}
	// Through JSON: outputs hold any value.
	data, err := o.MarshalJSON()
	if err == nil {
		err = utiljson.Unmarshal(data, &content)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", k.Runs.ref(o.GetName()), err)
	}
	r.spec, r.status = content.Spec, content.Status
	return r, nil
}

// run finds an operation object by KIND/NAME or NAME.
func (c *operationClient) run(ctx context.Context, arg string) (*operationRun, error) {
	kindName, name, ok := splitArgument(arg)
	if !ok {
		if strings.Contains(arg, "/") || arg == "" {
			return nil, usagef("%q is no run: give a NAME or KIND/NAME", arg)
		}
		return c.runByName(ctx, arg)
	}
	k, isRun, err := c.kind(kindName)
	if err != nil {
		return nil, err
	}
	if !isRun {
		return nil, usagef("%s is an instance; name one of its runs, see: libretto operation list %s", arg, arg)
	}
	return c.get(ctx, k, name)
}

func (c *operationClient) get(ctx context.Context, k *operationKind, name string) (*operationRun, error) {
	o, err := c.resource(k.Runs).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, c.noRun(ctx, k, name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", k.Runs.ref(name), err)
	}
	return newOperationRun(k, o)
}

// noRun says that there is no such run, and which one may be meant.
func (c *operationClient) noRun(ctx context.Context, k *operationKind, name string) error {
	hint := ""
	if list, err := c.resource(k.Runs).List(ctx, metav1.ListOptions{Limit: 500}); err == nil {
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		if hint = diag.DidYouMean(name, names); hint != "" {
			hint = "; " + hint
		}
	}
	return fmt.Errorf("there is no %s %s%s%s", k.Runs.Kind, name, c.where(k.Runs), hint)
}

// runByName looks for an operation object in all kinds.
func (c *operationClient) runByName(ctx context.Context, name string) (*operationRun, error) {
	var found []*operationRun
	var failures []error
	for i := range c.kinds {
		k := &c.kinds[i]
		o, err := c.resource(k.Runs).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			failures = append(failures, fmt.Errorf("cannot read %s: %w", k.Runs.ref(name), err))
		default:
			r, err := newOperationRun(k, o)
			if err != nil {
				return nil, err
			}
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		names := make([]string, 0, len(found))
		for _, r := range found {
			names = append(names, r.kind.Runs.ref(name))
		}
		return nil, usagef("there are %s: say which", strings.Join(names, " and "))
	case len(failures) > 0:
		return nil, errors.Join(failures...)
	}
	return nil, fmt.Errorf("there is no run %s in namespace %s; see: libretto operation list", name, c.namespace)
}

// completeKinds completes the first argument with kinds.
func (o *operationOptions) completeKinds(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := o.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for i := range c.kinds {
		out = append(out, strings.ToLower(c.kinds[i].Instances.Kind)+"/")
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
