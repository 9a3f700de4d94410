package olm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// explainedSuggestions are those that stay; docs/reference/olm.md tells why.
var explainedSuggestions = []string{
	// A revision is an immutable record: there is nothing about it to observe.
	"operatorrevisions.libretto.dev does not have status spec",
}

// scorecard runs all tests of the bundle in pods where Libretto is installed: those of operator-sdk and our own. Each one passes, and
// suggests nothing that is not explained.
func scorecard(t *testing.T, m *lifecycleManager) {
	applyText(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: scorecard, namespace: libretto-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scorecard}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: scorecard, namespace: libretto-system}]
`)
	sdk := os.Getenv("SDK_BIN")
	version, err := command(t.Context(), nil, sdk, "version")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ = strings.Cut(version, `version: "`)
	version, _, _ = strings.Cut(version, `"`)
	out, err := command(t.Context(), nil, sdk, "scorecard", filepath.Join(m.dir, "0.1.0", "bundle"), "--namespace", namespace,
		"--service-account", "scorecard", "--wait-time", "500s", "--output", "json", "--pod-security", "restricted",
		"--untar-image", "quay.io/operator-framework/scorecard-untar:"+version, "--storage-image", "quay.io/operator-framework/scorecard-storage:"+version)
	if err != nil && out == "" {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Status struct {
				Results []struct {
					Name, State, Log    string
					Errors, Suggestions []string
				} `json:"results"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("scorecard printed no JSON: %v\n%s", err, out)
	}
	passed := 0
	for _, item := range list.Items {
		for _, r := range item.Status.Results {
			m.log(t, "scorecard %s: %s", r.Name, r.State)
			if r.State == "pass" {
				passed++
			} else {
				t.Errorf("%s: %s\n%s\n%s", r.Name, r.State, strings.Join(r.Errors, "\n"), r.Log)
			}
			for _, s := range r.Suggestions {
				if !isAmong(s, explainedSuggestions) {
					t.Errorf("%s suggests: %s", r.Name, s)
				}
			}
		}
	}
	if want := len(tests(t)); passed != want {
		t.Errorf("%d tests passed, of %d", passed, want)
	}
}

// tests are those that the bundle's configuration of scorecard names.
func tests(t *testing.T) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(string(read(t, filepath.Join(root, "bundle/tests/scorecard/config.yaml")))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "test: "); ok {
			all = append(all, name)
		}
	}
	return all
}

func isAmong(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
