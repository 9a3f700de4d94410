package manager_test

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
