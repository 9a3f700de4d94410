package diag_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libretto-dev/libretto/internal/diag"
)

func TestString(t *testing.T) {
	d := diag.Diagnostic{File: "a.yaml", Line: 12, Column: 9, Path: "spec.x", Message: "wrong\nindeed", Expected: "integer", Found: `"x"`, Hint: "leave it"}
	want := "a.yaml:12:9: spec.x: wrong\n  indeed\n  expected integer, found \"x\"\n  hint: leave it"
	if diff := cmp.Diff(want, d.String()); diff != "" {
		t.Error(diff)
	}
	if got := (diag.Diagnostic{Severity: diag.Warning, Line: 3, Message: "m"}).String(); got != "line 3, column 1: warning: m" {
		t.Error(got)
	}
}

func TestList(t *testing.T) {
	var l diag.List
	l.Add(diag.Diagnostic{Severity: diag.Warning, Path: "spec.resources[10]", Message: "w"})
	if l.Err() != nil || l.HasErrors() {
		t.Error("a warning is an error")
	}
	l.Errorf("spec.resources[10]", "e %d", 1)
	l.Errorf("spec.resources[9]", "e")
	l.Errorf("spec.resources[9]", "e")
	l = l.Sort()
	if len(l) != 3 || l[0].Path != "spec.resources[9]" {
		t.Errorf("%v", l)
	}
	var e *diag.Err
	if !errors.As(l.Err(), &e) || len(e.List) != 2 {
		t.Errorf("%v", l.Err())
	}
	var back []map[string]any
	if err := json.Unmarshal(l.JSON(), &back); err != nil || len(back) != 3 || string(diag.List(nil).JSON()) != "[]\n" {
		t.Errorf("%v %s", err, l.JSON())
	}
	if s := l.Summary(40); len(s) > 60 || !strings.Contains(s, "more") {
		t.Errorf("%q", s)
	}
}

func TestPaths(t *testing.T) {
	for in, want := range map[string]string{
		"spec.a[0].b":                      "spec.a[0].b",
		"metadata.labels[a.b/c]":           `metadata.labels["a.b/c"]`,
		`metadata.labels["a.b/c"].x`:       `metadata.labels["a.b/c"].x`,
		"spec.properties[name].type":       "spec.properties.name.type",
		`files["a \"quoted\" name.yaml"]`:  `files["a \"quoted\" name.yaml"]`,
		"x-kubernetes-validations[0].rule": "x-kubernetes-validations[0].rule",
		"":                                 "",
	} {
		if got := diag.Normalize(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := diag.Parent(`a.b["c.d"]`); got != "a.b" {
		t.Error(got)
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"replicas", "image", "imagePullPolicy", "ports"}
	for word, want := range map[string]string{"replcias": "replicas", "Image": "image", "port": "ports", "selector": "", "x": ""} {
		if got, _ := diag.Nearest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
