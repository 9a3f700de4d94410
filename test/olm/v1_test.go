package olm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// supportedByV1 are the kinds that operator-controller installs from a bundle, beside the ClusterServiceVersion itself.
var supportedByV1 = []string{
	"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service", "ServiceAccount", "Secret", "ConfigMap",
	"PrometheusRule", "ServiceMonitor", "PodDisruptionBudget", "PriorityClass", "VerticalPodAutoscaler", "ConsoleYAMLSample", "ConsoleQuickStart",
	"ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "NetworkPolicy",
}

// TestRulesOfV1 applies the rules by which operator-controller, that is OLM v1, takes or refuses a bundle.
func TestRulesOfV1(t *testing.T) {
	b := loadBundle(t)
	csv := b.CSV
	if !slices.ContainsFunc(csv.Spec.InstallModes, func(m v1alpha1.InstallMode) bool {
		return m.Type == v1alpha1.InstallModeTypeAllNamespaces && m.Supported
	}) {
		t.Error("AllNamespaces is not supported")
	}
	if len(csv.Spec.APIServiceDefinitions.Owned)+len(csv.Spec.APIServiceDefinitions.Required) > 0 {
		t.Error("there are APIServices")
	}
	if len(csv.Spec.CustomResourceDefinitions.Required) > 0 {
		t.Error("there are required kinds, which become a dependency")
	}
	noDependencies(t)
	deployments := map[string]bool{}
	for _, d := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		if deployments[d.Name] {
			t.Errorf("deployment %s is there twice", d.Name)
		}
		deployments[d.Name] = true
		if errs := validation.IsDNS1123Subdomain(d.Name); len(errs) > 0 {
			t.Errorf("deployment %s: %v", d.Name, errs)
		}
	}
	inBundle := map[string]bool{}
	for _, crd := range b.V1CRDs {
		if inBundle[crd.Name] {
			t.Errorf("kind %s is there twice", crd.Name)
		}
		inBundle[crd.Name] = true
	}
	owned := map[string]bool{}
	for _, o := range csv.Spec.CustomResourceDefinitions.Owned {
		owned[o.Name] = true
		if !inBundle[o.Name] {
			t.Errorf("kind %s is owned and not in the bundle", o.Name)
		}
	}
	webhooks(t, csv, deployments, owned)
	entries, err := filepath.Glob(filepath.Join(root, "bundle", "manifests", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range entries {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(read(t, file), &head); err != nil { // a folder cannot be read
			t.Errorf("%s: %v", file, err)
		}
		if head.Kind != "ClusterServiceVersion" && !slices.Contains(supportedByV1, head.Kind) {
			t.Errorf("%s: the kind %s is not supported", file, head.Kind)
		}
	}
}

func noDependencies(t *testing.T) {
	t.Helper()
	for _, name := range []string{"dependencies.yaml", "properties.yaml"} {
		if files, _ := filepath.Glob(filepath.Join(root, "bundle", "metadata", name)); len(files) > 0 {
			t.Errorf("bundle/metadata/%s may hold what OLM v1 refuses", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "catalog", "libretto", "v*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the catalogue has no bundles: %v", err)
	}
	for _, file := range files {
		var blob struct {
			Properties []struct {
				Type string `json:"type"`
			} `json:"properties"`
		}
		if err := yaml.Unmarshal(read(t, file), &blob); err != nil {
			t.Fatal(err)
		}
		for _, p := range blob.Properties {
			if p.Type == "olm.gvk.required" || p.Type == "olm.package.required" || p.Type == "olm.constraint" {
				t.Errorf("%s has the dependency %s", file, p.Type)
			}
		}
	}
}

func webhooks(t *testing.T, csv *v1alpha1.ClusterServiceVersion, deployments, owned map[string]bool) {
	t.Helper()
	names, converted := map[string]bool{}, map[string]bool{}
	for _, w := range csv.Spec.WebhookDefinitions {
		key := string(w.Type) + " " + w.GenerateName
		if names[key] {
			t.Errorf("webhook %s is there twice", key)
		}
		names[key] = true
		if errs := validation.IsDNS1123Subdomain(w.GenerateName); len(errs) > 0 {
			t.Errorf("webhook %s: %v", w.GenerateName, errs)
		}
		if !deployments[w.DeploymentName] {
			t.Errorf("webhook %s: there is no deployment %q", w.GenerateName, w.DeploymentName)
		}
		for _, crd := range w.ConversionCRDs {
			if !owned[crd] || converted[crd] {
				t.Errorf("webhook %s converts %s, which is not owned or converted by another one", w.GenerateName, crd)
			}
			converted[crd] = true
		}
		for _, r := range w.Rules {
			for _, group := range r.APIGroups {
				if group == "*" || group == "olm.operatorframework.io" || group == "operators.coreos.com" {
					t.Errorf("webhook %s: rules about the group %s are refused", w.GenerateName, group)
				}
			}
			for _, resource := range r.Resources {
				if resource == "*" || strings.HasSuffix(resource, "webhookconfigurations") {
					t.Errorf("webhook %s: rules about %s are refused", w.GenerateName, resource)
				}
			}
		}
		if w.Type == v1alpha1.ConversionWebhook && len(csv.Spec.InstallModes) > 0 {
			for _, m := range csv.Spec.InstallModes {
				if m.Supported && m.Type != v1alpha1.InstallModeTypeAllNamespaces {
					t.Errorf("with a conversion webhook %s cannot be supported", m.Type)
				}
			}
		}
	}
}
