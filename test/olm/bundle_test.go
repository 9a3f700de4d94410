package olm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	validationerrors "github.com/operator-framework/api/pkg/validation/errors"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// explained are the warnings that stay, and why: docs/reference/olm.md tells it to those who read a report.
var explained = []string{
	"CSV contains permissions to create CRD", // declaring kinds is what Libretto does
}

func loadBundle(t *testing.T) *manifests.Bundle {
	t.Helper()
	b, err := manifests.GetBundleFromDir(filepath.Join(root, "bundle"))
	if err != nil {
		t.Fatalf("cannot load the bundle: %v", err)
	}
	return b
}

func TestValidators(t *testing.T) {
	b := loadBundle(t)
	// All but those that ask a registry or are about other things: PackageManifest, OperatorGroup, Community, MultipleArchitectures.
	validators := map[string]interfaces.Validator{
		"csv": validation.ClusterServiceVersionValidator, "crd": validation.CustomResourceDefinitionValidator,
		"bundle": validation.BundleValidator, "operatorhub": validation.OperatorHubV2Validator,
		"categories": validation.StandardCategoriesValidator, "capabilities": validation.StandardCapabilitiesValidator,
		"objects": validation.ObjectValidator, "deprecated": validation.AlphaDeprecatedAPIsValidator,
		"good practices": validation.GoodPracticesValidator,
	}
	objects := []any{b, b.CSV, map[string]string{"k8s-version": b.CSV.Spec.MinKubeVersion[:strings.LastIndex(b.CSV.Spec.MinKubeVersion, ".")]}}
	for _, o := range b.V1CRDs {
		objects = append(objects, o)
	}
	for _, o := range b.Objects {
		objects = append(objects, o)
	}
	for name, v := range validators {
		for _, result := range v.Validate(objects...) {
			for _, e := range slices.Concat(result.Errors, result.Warnings) {
				if !isExplained(e) {
					t.Errorf("%s: %v", name, e)
				}
			}
		}
	}
}

func isExplained(e validationerrors.Error) bool {
	return slices.ContainsFunc(explained, func(text string) bool { return strings.Contains(e.Detail, text) })
}

// TestStrictKeys finds what the loaders overlook: keys that do not exist or are written in another case, null, and quotes that a
// word processor made.
func TestStrictKeys(t *testing.T) {
	dir := filepath.Join(root, "bundle", "manifests")
	data := read(t, filepath.Join(dir, "libretto.clusterserviceversion.yaml"))
	var csv v1alpha1.ClusterServiceVersion
	if err := yaml.UnmarshalStrict(data, &csv, func(d *json.Decoder) *json.Decoder { d.DisallowUnknownFields(); return d }); err != nil {
		t.Error(err)
	}
	var written map[string]any
	if err := yaml.Unmarshal(data, &written); err != nil {
		t.Fatal(err)
	}
	known, err := json.Marshal(csv)
	if err != nil {
		t.Fatal(err)
	}
	var understood map[string]any
	if err := json.Unmarshal(known, &understood); err != nil {
		t.Fatal(err)
	}
	sameKeys(t, "", written, understood)
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, f := range files {
		text := string(read(t, f))
		if strings.ContainsAny(text, "“”‘’") {
			t.Errorf("%s has typographic quotes", f)
		}
		var object any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		noNulls(t, filepath.Base(f), object)
	}
}

// sameKeys tells which keys are written and were not understood. encoding/json takes keys in any case.
func sameKeys(t *testing.T, path string, written, understood any) {
	t.Helper()
	switch w := written.(type) {
	case map[string]any:
		u, _ := understood.(map[string]any)
		for k, v := range w {
			next, ok := u[k]
			if !ok && !isEmpty(v) {
				t.Errorf("the key %s.%s is not known", path, k)
				continue
			}
			sameKeys(t, path+"."+k, v, next)
		}
	case []any:
		u, _ := understood.([]any)
		for i, v := range w {
			if i < len(u) {
				sameKeys(t, path, v, u[i])
			}
		}
	}
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case bool:
		return !v
	case string:
		return v == ""
	}
	return v == nil
}

func noNulls(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		t.Errorf("%s is null", path)
	case map[string]any:
		for k, item := range v {
			noNulls(t, path+"."+k, item)
		}
	case []any:
		for _, item := range v {
			noNulls(t, path+"[]", item)
		}
	}
}

func TestAnnotations(t *testing.T) {
	a := loadBundle(t).CSV.Annotations
	for _, name := range []string{"disconnected", "fips-compliant", "proxy-aware", "tls-profiles", "token-auth-aws", "token-auth-azure", "token-auth-gcp"} {
		if v := a["features.operators.openshift.io/"+name]; v != "true" && v != "false" {
			t.Errorf("features.operators.openshift.io/%s must be true or false, found %q", name, v)
		}
	}
	for name, pattern := range map[string]string{
		"containerImage": `^([^/]+/)+[^/:@]+(:[^@]+)?(@sha256:[0-9a-f]{64})?$`,
		"createdAt":      `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`,
		"repository":     `^https://`,
		"support":        `^.{3,}$`,
		"description":    `^.{10,}\.$`,
		"operatorframework.io/suggested-namespace": `^libretto-system$`,
		"operators.operatorframework.io/builder":   `^operator-sdk-v`,
	} {
		if !regexp.MustCompile(pattern).MatchString(a[name]) {
			t.Errorf("annotation %s: %q does not match %s", name, a[name], pattern)
		}
	}
	for _, name := range []string{"alm-examples", "alm-examples-metadata", "operatorframework.io/suggested-namespace-template", "operators.operatorframework.io/internal-objects"} {
		var v any
		if err := json.Unmarshal([]byte(a[name]), &v); err != nil {
			t.Errorf("annotation %s is no JSON: %v", name, err)
		}
		noNulls(t, name, v)
	}
	if _, ok := a["olm.properties"]; ok {
		t.Error("olm.properties is deprecated")
	}
}

func TestMetadataAndDockerfileAgree(t *testing.T) {
	var file struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "bundle/metadata/annotations.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(root, "bundle.Dockerfile")))) {
		if label, ok := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); ok {
			k, v, _ := strings.Cut(label, "=")
			labels[k] = v
		}
	}
	for k, v := range file.Annotations {
		if labels[k] != v {
			t.Errorf("label %s is %q in bundle.Dockerfile and %q in annotations.yaml", k, labels[k], v)
		}
	}
	if len(labels) != len(file.Annotations) {
		t.Errorf("bundle.Dockerfile has %d labels, annotations.yaml %d", len(labels), len(file.Annotations))
	}
	pkg := file.Annotations["operators.operatorframework.io.bundle.package.v1"]
	csv := loadBundle(t).CSV
	if want := pkg + ".v" + csv.Spec.Version.String(); csv.Name != want || len(csv.Name) > 63 {
		t.Errorf("the ClusterServiceVersion is called %q, not %q", csv.Name, want)
	}
}

func TestPermissions(t *testing.T) {
	csv := loadBundle(t).CSV
	strategy := csv.Spec.InstallStrategy.StrategySpec
	for _, p := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		for _, r := range p.Rules {
			for _, verb := range r.Verbs {
				if verb == "*" || verb == "escalate" || verb == "bind" {
					t.Errorf("the verb %s, on %v", verb, r.Resources)
				}
			}
			if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
				t.Errorf("a wildcard in %v", r)
			}
			if slices.Contains(r.Resources, "secrets") || slices.Contains(r.APIGroups, "admissionregistration.k8s.io") {
				t.Errorf("OLM keeps the certificate of the webhook; the manager needs no %v", r)
			}
		}
	}
	explainedInDocs(t, slices.Concat(strategy.Permissions, strategy.ClusterPermissions))
}

// explainedInDocs tells which rights docs/reference/permissions.md does not name: each resource stands there in backquotes.
func explainedInDocs(t *testing.T, all []v1alpha1.StrategyDeploymentPermissions) {
	t.Helper()
	docs := string(read(t, filepath.Join(root, "docs/reference/permissions.md")))
	_, section, ok := strings.Cut(docs, "\n## What the bundle asks for\n")
	if !ok {
		t.Fatal("docs/reference/permissions.md has no section about the bundle")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, p := range all {
		for _, r := range p.Rules {
			for _, resource := range r.Resources {
				if !strings.Contains(section, rowOf(r, resource)) {
					t.Errorf("docs/reference/permissions.md has no row with %s", rowOf(r, resource))
				}
			}
		}
	}
}

func rowOf(r rbacv1.PolicyRule, resource string) string {
	if g := r.APIGroups[0]; g != "" {
		resource += "." + g
	}
	return "| `" + resource + "` | " + strings.Join(r.Verbs, ", ") + " |"
}

func TestPods(t *testing.T) {
	csv := loadBundle(t).CSV
	related := map[string]bool{}
	for _, r := range csv.Spec.RelatedImages {
		related[r.Image] = true
	}
	for _, d := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		pod := d.Spec.Template.Spec
		if sc := pod.SecurityContext; sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot || sc.RunAsUser != nil || sc.SeccompProfile == nil || sc.SeccompProfile.Type != "RuntimeDefault" {
			t.Errorf("%s: the pod's security context is not restricted, or names a user: %v", d.Name, sc)
		}
		if pod.TerminationGracePeriodSeconds == nil || pod.PriorityClassName != "" || pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: grace period, priority or host namespaces", d.Name)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: container %s does not request cpu and memory", d.Name, c.Name)
			}
			sc := c.SecurityContext
			if sc == nil || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem ||
				sc.Capabilities == nil || !slices.Contains(sc.Capabilities.Drop, "ALL") || sc.RunAsUser != nil {
				t.Errorf("%s: container %s is not restricted: %v", d.Name, c.Name, sc)
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil {
				t.Errorf("%s: container %s has no probes", d.Name, c.Name)
			}
			if !related[c.Image] {
				t.Errorf("%s: image %s is not among the related images", d.Name, c.Image)
			}
			if c.Image != csv.Annotations["containerImage"] {
				t.Errorf("%s: image %s is not the containerImage", d.Name, c.Image)
			}
		}
	}
}

func TestArchitectures(t *testing.T) {
	csv := loadBundle(t).CSV
	var labelled []string
	for k, v := range csv.Labels {
		if arch, ok := strings.CutPrefix(k, "operatorframework.io/arch."); ok && v == "supported" {
			labelled = append(labelled, arch)
		}
	}
	slices.Sort(labelled)
	var affine []string
	for _, term := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == "kubernetes.io/arch" {
				affine = slices.Sorted(slices.Values(e.Values))
			}
		}
	}
	built := regexp.MustCompile(`(?m)^architectures=\((.*)\)`).FindStringSubmatch(string(read(t, filepath.Join(root, "hack/image.sh"))))
	if built == nil {
		t.Fatal("hack/image.sh does not say for which architectures it builds")
	}
	images := slices.Sorted(slices.Values(strings.Fields(built[1])))
	if !slices.Equal(labelled, images) || !slices.Equal(affine, images) {
		t.Errorf("images are built for %v, the labels say %v and the affinity %v", images, labelled, affine)
	}
}

// TestDescriptors holds the descriptors against the schema: each field at the top of spec and status has one.
func TestDescriptors(t *testing.T) {
	b := loadBundle(t)
	for _, crd := range b.V1CRDs {
		for _, v := range crd.Spec.Versions {
			i := slices.IndexFunc(b.CSV.Spec.CustomResourceDefinitions.Owned, func(d v1alpha1.CRDDescription) bool {
				return d.Name == crd.Name && d.Version == v.Name
			})
			if i < 0 {
				t.Errorf("%s/%s is not owned", crd.Name, v.Name)
				continue
			}
			owned := b.CSV.Spec.CustomResourceDefinitions.Owned[i]
			if owned.DisplayName == "" || owned.Description == "" || len(owned.Resources) == 0 {
				t.Errorf("%s: displayName, description or resources are missing", crd.Name)
			}
			has := map[string]bool{}
			for _, d := range owned.SpecDescriptors {
				has["spec."+d.Path] = d.DisplayName != "" && d.Description != ""
			}
			for _, d := range owned.StatusDescriptors {
				has["status."+d.Path] = d.DisplayName != "" && d.Description != ""
			}
			fields := v.Schema.OpenAPIV3Schema.Properties
			for _, part := range []string{"spec", "status"} {
				for name := range fields[part].Properties {
					if !has[part+"."+name] {
						t.Errorf("%s: %s.%s has no descriptor with a name and a description", crd.Name, part, name)
					}
				}
			}
			for path := range has {
				at := fields
				for _, name := range strings.Split(path, ".") {
					p, ok := at[name]
					if !ok {
						t.Errorf("%s: the descriptor %s is about no field", crd.Name, path)
						break
					}
					at = p.Properties
				}
			}
		}
	}
}

// TestMinKubeVersion: no version is claimed that no test runs on.
func TestMinKubeVersion(t *testing.T) {
	v := loadBundle(t).CSV.Spec.MinKubeVersion
	tested := regexp.MustCompile(`k8s\.io/kubernetes v(\d+\.\d+)\.\d+`).FindStringSubmatch(string(read(t, filepath.Join(root, "hack/devcluster/go.mod"))))
	if tested == nil || !strings.HasPrefix(v, tested[1]+".") {
		t.Errorf("minKubeVersion is %s, and the tests run on %v", v, tested)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
