package olm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"
)

// submission is what hack/release-bundle.sh laid out.
func submission(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LIBRETTO_TEST_SUBMISSION")
	if dir == "" {
		t.Skip("hack/test-bundle.sh lays out a submission and runs this")
	}
	return dir
}

// versions are the directories of bundles of an operator.
func versions(t *testing.T, operator string) map[string]*manifests.Bundle {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(operator, "*", "manifests"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no bundle: %v", err)
	}
	all := map[string]*manifests.Bundle{}
	for _, f := range files {
		b, err := manifests.GetBundleFromDir(filepath.Dir(f))
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(filepath.Dir(f))] = b
	}
	return all
}

// TestSubmissionBundles are the static checks that pipelines of community-operators make on a bundle.
func TestSubmissionBundles(t *testing.T) {
	operator := filepath.Join(submission(t), "operators", "libretto")
	all := versions(t, operator)
	for version, b := range all {
		csv := b.CSV
		if version != csv.Spec.Version.String() {
			t.Errorf("the directory is %s, the version %s", version, csv.Spec.Version)
		}
		if b.Package != filepath.Base(operator) || csv.Name != b.Package+".v"+version {
			t.Errorf("the directory is %s, the package %s, the ClusterServiceVersion %s", filepath.Base(operator), b.Package, csv.Name)
		}
		if csv.Spec.Replaces != "" {
			_, before, _ := strings.Cut(csv.Spec.Replaces, ".v")
			if csv.Spec.Replaces == csv.Name || before == "" {
				t.Errorf("%s replaces %s", csv.Name, csv.Spec.Replaces)
			}
		}
		for _, o := range b.Objects {
			if o.GetKind() == "NetworkPolicy" {
				t.Errorf("%s: NetworkPolicy %s is refused by pipelines", csv.Name, o.GetName())
			}
		}
		requiredFields(t, csv)
		byDigest(t, csv)
	}
}

func requiredFields(t *testing.T, csv *v1alpha1.ClusterServiceVersion) {
	t.Helper()
	for name, f := range map[string][2]string{
		"displayName":   {csv.Spec.DisplayName, `^.{3,50}$`},
		"description":   {csv.Spec.Description, `(?s)^.{20,}$`},
		"version":       {csv.Spec.Version.String(), `^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`},
		"provider.name": {csv.Spec.Provider.Name, `^.{3,}$`},
		"capabilities":  {csv.Annotations["capabilities"], `^(Basic Install|Seamless Upgrades|Full Lifecycle|Deep Insights|Auto Pilot)$`},
		"categories":    {csv.Annotations["categories"], `^.+$`},
		"image":         {csv.Annotations["containerImage"], `^([^/]+/)+[^/:]+:.+$`},
		"createdAt":     {csv.Annotations["createdAt"], `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`},
		"repository":    {csv.Annotations["repository"], `^https://.+$`},
		"support":       {csv.Annotations["support"], `^.{3,}$`},
		"summary":       {csv.Annotations["description"], `^.{10,}$`},
	} {
		if !regexp.MustCompile(f[1]).MatchString(f[0]) {
			t.Errorf("%s: %s %q does not match %s", csv.Name, name, f[0], f[1])
		}
	}
	if len(csv.Spec.Icon) != 1 || csv.Spec.Icon[0].MediaType != "image/svg+xml" || csv.Spec.Icon[0].Data == "" {
		t.Errorf("%s: there must be one icon", csv.Name)
	}
	for _, m := range csv.Spec.Maintainers {
		if m.Name == "" || !strings.Contains(m.Email, "@") {
			t.Errorf("%s: maintainer %v", csv.Name, m)
		}
	}
	for _, l := range csv.Spec.Links {
		if l.Name == "" || !strings.HasPrefix(l.URL, "https://") {
			t.Errorf("%s: link %v", csv.Name, l)
		}
	}
	if len(csv.Spec.Maintainers) == 0 || len(csv.Spec.Links) == 0 || len(csv.Spec.Keywords) == 0 {
		t.Errorf("%s: maintainers, links or keywords are missing", csv.Name)
	}
}

// byDigest: what is needed where there is no internet.
func byDigest(t *testing.T, csv *v1alpha1.ClusterServiceVersion) {
	t.Helper()
	digest := regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	if csv.Annotations["features.operators.openshift.io/disconnected"] != "true" {
		t.Errorf("%s does not say that it works disconnected", csv.Name)
	}
	related := map[string]bool{}
	for _, r := range csv.Spec.RelatedImages {
		if !digest.MatchString(r.Image) || related[r.Image] || r.Name == "" {
			t.Errorf("%s: related image %s %s is not by digest, nameless or there twice", csv.Name, r.Name, r.Image)
		}
		related[r.Image] = true
	}
	for _, d := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, c := range d.Spec.Template.Spec.Containers {
			if !related[c.Image] {
				t.Errorf("%s: image %s is not among the related ones", csv.Name, c.Image)
			}
		}
	}
}

// TestSubmissionCatalog are the checks of ci.yaml, the template and the rendered catalogue.
func TestSubmissionCatalog(t *testing.T) {
	dir := submission(t)
	operator := filepath.Join(dir, "operators", "libretto")
	var ci struct {
		Reviewers    []string `json:"reviewers"`
		AddReviewers bool     `json:"addReviewers"`
		UpdateGraph  string   `json:"updateGraph"`
		FBC          struct {
			Enabled        bool `json:"enabled"`
			CatalogMapping []struct {
				TemplateName string   `json:"template_name"`
				CatalogNames []string `json:"catalog_names"`
				Type         string   `json:"type"`
			} `json:"catalog_mapping"`
		} `json:"fbc"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(operator, "ci.yaml")), &ci); err != nil {
		t.Fatal(err)
	}
	if len(ci.Reviewers) == 0 || (ci.UpdateGraph != "replaces-mode" && ci.UpdateGraph != "semver-mode") || !ci.FBC.Enabled || len(ci.FBC.CatalogMapping) == 0 {
		t.Errorf("ci.yaml: %+v", ci)
	}
	mapped := map[string]bool{}
	for _, m := range ci.FBC.CatalogMapping {
		if m.Type != "olm.template.basic" {
			t.Errorf("the type of template %s is %s", m.TemplateName, m.Type)
		}
		for _, name := range m.CatalogNames {
			if mapped[name] || name != "latest" {
				t.Errorf("catalogue %s is mapped twice, or is not known to community-operators", name)
			}
			mapped[name] = true
		}
		template(t, filepath.Join(operator, "catalog-templates", m.TemplateName), versions(t, operator))
	}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "catalogs", "latest", "libretto", "catalog.yaml")))) {
		if strings.Contains(line, "olm.bundle.object") {
			t.Error("the catalogue carries manifests, which catalogues for later versions must not")
		}
	}
}

// template: no bundle dangles, and all come from where the pipeline puts them.
func template(t *testing.T, file string, bundles map[string]*manifests.Bundle) {
	t.Helper()
	var content struct {
		Schema  string `json:"schema"`
		Entries []struct {
			Schema  string `json:"schema"`
			Image   string `json:"image"`
			Entries []struct {
				Name string `json:"name"`
			} `json:"entries"`
		} `json:"entries"`
	}
	if err := yaml.Unmarshal(read(t, file), &content); err != nil {
		t.Fatal(err)
	}
	if content.Schema != "olm.template.basic" {
		t.Errorf("%s: schema %s", file, content.Schema)
	}
	var images, entries []string
	for _, e := range content.Entries {
		if e.Schema == "olm.bundle" {
			images = append(images, e.Image)
		}
		for _, c := range e.Entries {
			entries = append(entries, c.Name)
		}
	}
	for version, b := range bundles {
		if !slices.Contains(images, "quay.io/operatorhubio/libretto:v"+version) || !slices.Contains(entries, b.CSV.Name) {
			t.Errorf("%s: version %s dangles", file, version)
		}
	}
}
