package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/scaffold"
)

// compare renders what init --from wrote and says how it differs from the manifests it was made of.
func (o *initOptions) compare(cmd *cobra.Command, definition, instance string) error {
	src := source{}
	if dir := filepath.Join(o.dir, scaffold.CRDDir); isDir(dir) {
		src.crds = []string{dir}
	}
	d, err := src.one(cmd, definition)
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: what was written has these errors; mend them there\n", cmd.CommandPath())
		return err
	}
	r := renderOptions{source: src, namespace: "default", plain: true}
	got, err := r.render(cmd, d.Program, instance)
	if err != nil {
		return err
	}
	want, err := scaffold.Manifests(o.from)
	if err != nil {
		return err
	}
	differences := differ(got, want)
	made := 0
	for i := range got.resources {
		made += len(got.resources[i].objects)
	}
	if len(differences) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "checked: the instance renders to the same %s\n", count(made, "object"))
		return nil
	}
	for _, line := range differences {
		fmt.Fprintln(cmd.OutOrStdout(), "differs: "+line)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// differ lists what is not the same. Namespaces and CustomResourceDefinitions are left out of a definition on purpose, and an
// object without a namespace lives in that of the instance.
func differ(got *rendered, want []*unstructured.Unstructured) []string {
	found := map[string]*unstructured.Unstructured{}
	for i := range got.resources {
		if got.resources[i].remark != "" {
			continue
		}
		for _, o := range got.resources[i].objects {
			found[identify(o)] = o
		}
	}
	var out []string
	for _, w := range want {
		if w.GetKind() == "CustomResourceDefinition" {
			continue
		}
		g := found[identify(w)]
		if g == nil {
			if w.GetKind() != "Namespace" {
				out = append(out, identify(w)+" is not made")
			}
			continue
		}
		delete(found, identify(w))
		if w.GetNamespace() == "" && g.GetNamespace() != "" {
			w = w.DeepCopy()
			w.SetNamespace(g.GetNamespace())
		}
		if path := firstDifference("", w.Object, g.Object); path != "" {
			out = append(out, identify(w)+" at "+path)
		}
	}
	for name := range found {
		out = append(out, name+" is made, and was not there")
	}
	slices.Sort(out)
	return out
}

func identify(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + " " + o.GetName()
}

// firstDifference returns the path of the first field that differs.
func firstDifference(path string, a, b any) string {
	am, aIsMap := a.(map[string]any)
	bm, bIsMap := b.(map[string]any)
	if aIsMap && bIsMap {
		keys := map[string]bool{}
		for k := range am {
			keys[k] = true
		}
		for k := range bm {
			keys[k] = true
		}
		names := make([]string, 0, len(keys))
		for k := range keys {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			if d := firstDifference(path+"."+k, am[k], bm[k]); d != "" {
				return d
			}
		}
		return ""
	}
	al, aIsList := a.([]any)
	bl, bIsList := b.([]any)
	if aIsList && bIsList && len(al) == len(bl) {
		for i := range al {
			if d := firstDifference(fmt.Sprintf("%s[%d]", path, i), al[i], bl[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if text(a) == text(b) {
		return ""
	}
	return strings.TrimPrefix(path, ".") + ": " + text(a) + " became " + text(b)
}

// text prints a value as JSON, for a message.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
