package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/yaml"
)

// patience is how long all of a test may take.
const patience = 100 * time.Second

// tests are the tests by name.
var tests = map[string]func(context.Context, *suite) error{
	"installed":                installed,
	"definition-works":         definitionWorks,
	"examples-valid":           examplesValid,
	"conditions":               conditions,
	"metrics":                  metricsServed,
	"upgrade-keeps-instances":  upgradeKeepsInstances,
	"deletion-leaves-nothing":  deletionLeavesNothing,
	"restricted-pod-security":  restrictedPodSecurity,
	"unprivileged-definitions": unprivilegedDefinitions,
}

// suite is what a test has.
type suite struct {
	client    client.Client
	config    *rest.Config
	namespace string // where Libretto is installed
	bundle    string // the directory of the bundle
	log       *strings.Builder
	name      string // of the test, as a word of names
}

// status is a TestStatus of scorecard.operatorframework.io/v1alpha3.
type status struct {
	Results []result `json:"results"`
}

type result struct {
	Name   string   `json:"name"`
	Log    string   `json:"log,omitempty"`
	State  string   `json:"state"`
	Errors []string `json:"errors,omitempty"`
}

func main() {
	if len(os.Args) != 2 || tests[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: libretto-scorecard", strings.Join(slices.Sorted(maps.Keys(tests)), "|"))
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(ctrl.SetupSignalHandler(), patience)
	defer cancel()
	var log strings.Builder
	r := result{Name: os.Args[1], State: "pass"}
	if err := run(ctx, r.Name, &log); err != nil {
		r.State, r.Errors = "fail", []string{err.Error()}
	}
	r.Log = log.String()
	if err := json.NewEncoder(os.Stdout).Encode(status{Results: []result{r}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func run(ctx context.Context, name string, log *strings.Builder) error {
	cfg, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("cannot reach a cluster: %w", err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	s := &suite{client: c, config: cfg, namespace: os.Getenv("SCORECARD_NAMESPACE"), bundle: "/bundle", log: log, name: name}
	if dir := os.Getenv("BUNDLE"); dir != "" {
		s.bundle = dir
	}
	return tests[name](ctx, s)
}

// csv is the bundle's ClusterServiceVersion.
func (s *suite) csv() (*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(s.bundle, "manifests", "*.clusterserviceversion.yaml"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("the bundle has %d ClusterServiceVersions, not one", len(files))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("cannot read the ClusterServiceVersion: %w", err)
	}
	csv := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &csv.Object); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", files[0], err)
	}
	return csv, nil
}

// deployments are those of the ClusterServiceVersion, by name.
func (s *suite) deployments() (map[string]map[string]any, error) {
	csv, err := s.csv()
	if err != nil {
		return nil, err
	}
	list, _, err := unstructured.NestedSlice(csv.Object, "spec", "install", "spec", "deployments")
	if err != nil || len(list) == 0 {
		return nil, fmt.Errorf("the ClusterServiceVersion has no deployments: %w", err)
	}
	all := map[string]map[string]any{}
	for _, d := range list {
		d := d.(map[string]any)
		all[d["name"].(string)] = d["spec"].(map[string]any)
	}
	return all, nil
}

func (s *suite) get(ctx context.Context, apiVersion, kind, namespace, name string) (*unstructured.Unstructured, error) {
	u := object(apiVersion, kind)
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u); err != nil {
		return nil, fmt.Errorf("cannot get %s %s: %w", kind, name, err)
	}
	return u, nil
}

func (s *suite) list(ctx context.Context, apiVersion, kind string, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(apiVersion)
	l.SetKind(kind + "List")
	if err := s.client.List(ctx, l, opts...); err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", kind, err)
	}
	return l.Items, nil
}

// apply writes the objects of a text in which NAME stands for a word of the test's own.
func (s *suite) apply(ctx context.Context, text string) error {
	for _, doc := range strings.Split(strings.ReplaceAll(text, "NAME", s.word()), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return fmt.Errorf("cannot read a manifest of the test: %w", err)
		}
		err := eventually(ctx, func() error {
			return s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("libretto-scorecard"), client.ForceOwnership)
		})
		if err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

// word is a name for the objects of the test.
func (s *suite) word() string { return "scorecard-" + strings.ReplaceAll(s.name, "_", "-") }

func object(apiVersion, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u
}

// eventually calls f until it succeeds or ctx ends.
func eventually(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(300 * time.Millisecond):
		}
	}
}
