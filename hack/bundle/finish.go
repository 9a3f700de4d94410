package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// finish does what operator-sdk does not, so that the same sources make the same bytes: the date, the images, the icon, the
// predecessor; and it takes out what OLM does itself.
func finish(l *ledger, config, dir, image string) error {
	newest := l.newest()
	if image == "" {
		image = l.Image + ":v" + newest.Version
	}
	date, err := created(newest)
	if err != nil {
		return err
	}
	svg, err := os.ReadFile(filepath.Join(config, "icon.svg"))
	if err != nil {
		return fmt.Errorf("cannot read the icon: %w", err)
	}
	manifests := filepath.Join(dir, "manifests")
	file := csvFile(l, dir)
	csv, err := readCSV(file)
	if err != nil {
		return err
	}

	annotations := csv.GetAnnotations()
	annotations["createdAt"] = date
	annotations["containerImage"] = image
	csv.SetAnnotations(annotations)
	unstructured.RemoveNestedField(csv.Object, "metadata", "namespace") // where it is installed says OLM
	set := func(value any, path ...string) {
		if err == nil {
			err = unstructured.SetNestedField(csv.Object, value, append([]string{"spec"}, path...)...)
		}
	}
	set([]any{map[string]any{"base64data": base64.StdEncoding.EncodeToString(svg), "mediatype": "image/svg+xml"}}, "icon")
	set([]any{map[string]any{"name": "manager", "image": image}}, "relatedImages")
	if replaces := l.replaces(); replaces != "" {
		set(replaces, "replaces")
	}
	if err == nil {
		err = setImage(csv, image)
	}
	for _, kind := range []string{"clusterPermissions", "permissions"} {
		if err == nil {
			err = dropRules(csv, kind)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot finish %s: %w", file, err)
	}
	data, err := yaml.Marshal(csv.Object)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", file, err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return err
	}
	if err := exchange(config, manifests); err != nil {
		return err
	}
	if err := dropStatus(manifests); err != nil {
		return err
	}
	return setScorecardImage(dir, l.Image+"-scorecard:v", newest.Version)
}

// dropStatus takes what is not for a manifest out of all but the ClusterServiceVersion: the empty status that operator-sdk writes.
func dropStatus(manifests string) error {
	files, err := filepath.Glob(filepath.Join(manifests, "*_*.yaml"))
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		var object map[string]any
		if err := yaml.Unmarshal(data, &object); err != nil {
			return fmt.Errorf("cannot read %s: %w", f, err)
		}
		delete(object, "status")
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
		if data, err = yaml.Marshal(object); err != nil {
			return fmt.Errorf("cannot write %s: %w", f, err)
		}
		if err := os.WriteFile(f, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func csvFile(l *ledger, dir string) string {
	return filepath.Join(dir, "manifests", l.Package+".clusterserviceversion.yaml")
}

func readCSV(file string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the ClusterServiceVersion: %w", err)
	}
	csv := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &csv.Object); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return csv, nil
}

// printExamples prints the examples of a bundle, as JSON.
func printExamples(l *ledger, dir string) error {
	csv, err := readCSV(csvFile(l, dir))
	if err != nil {
		return err
	}
	fmt.Println(csv.GetAnnotations()["alm-examples"])
	return nil
}

// created is the date of a release, or that of SOURCE_DATE_EPOCH.
func created(r release) (string, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return r.Date, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}

// install applies a function to each element of a list below spec.install.spec.
func install(csv *unstructured.Unstructured, list string, change func(map[string]any) error) error {
	path := []string{"spec", "install", "spec", list}
	items, _, err := unstructured.NestedSlice(csv.Object, path...)
	if err != nil || len(items) == 0 {
		return err
	}
	for _, item := range items {
		if err := change(item.(map[string]any)); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(csv.Object, items, path...)
}

func setImage(csv *unstructured.Unstructured, image string) error {
	return install(csv, "deployments", func(d map[string]any) error {
		path := []string{"spec", "template", "spec", "containers"}
		containers, _, err := unstructured.NestedSlice(d, path...)
		if err != nil {
			return err
		}
		for _, c := range containers {
			c.(map[string]any)["image"] = image
		}
		return unstructured.SetNestedSlice(d, containers, path...)
	})
}

// dropRules takes out the rights by which the manager keeps a certificate of its own: OLM does that.
func dropRules(csv *unstructured.Unstructured, kind string) error {
	return install(csv, kind, func(p map[string]any) error {
		rules, _, err := unstructured.NestedSlice(p, "rules")
		if err != nil {
			return err
		}
		rules = slices.DeleteFunc(rules, func(r any) bool {
			rule := r.(map[string]any)
			return contains(rule["apiGroups"], "admissionregistration.k8s.io") || contains(rule["resources"], "secrets")
		})
		return unstructured.SetNestedSlice(p, rules, "rules")
	})
}

func contains(list any, word string) bool {
	items, _ := list.([]any)
	return slices.Contains(items, any(word))
}

// exchange takes the Service of the webhook out of the manifests, since OLM makes one, and puts what goes into the bundle as it
// is in.
func exchange(config, manifests string) error {
	if err := os.Remove(filepath.Join(manifests, "libretto-webhook-service_v1_service.yaml")); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(config, "rbac", "*.yaml"))
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		name := "libretto-" + strings.TrimSuffix(filepath.Base(f), ".yaml") + ".yaml"
		if err := os.WriteFile(filepath.Join(manifests, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// setScorecardImage makes the tests of a release those that were built with it.
func setScorecardImage(dir, image, version string) error {
	file := filepath.Join(dir, "tests", "scorecard", "config.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the configuration of scorecard: %w", err)
	}
	if !strings.Contains(string(data), image+"0.0.0") {
		return fmt.Errorf("%s does not name the image %s0.0.0", file, image)
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(data), image+"0.0.0", image+version)), 0o644)
}
