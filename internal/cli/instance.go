package cli

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/load"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/simulate"
)

// offlineUID is the UID of an instance that is in no cluster.
const offlineUID = "00000000-0000-0000-0000-000000000000"

// readInstance returns the one object of the program's kind in a file, as the API server would keep it: with the defaults,
// validated, in the version that expressions see.
func readInstance(ctx context.Context, p *program.Program, path, namespace string) (map[string]any, diag.List, error) {
	if err := exist(path); err != nil {
		return nil, nil, err
	}
	_, extras, problems := load.Load(path) //nolint:contextcheck // pure: nothing in it waits
	if problems.HasErrors() {
		return nil, problems, nil
	}
	found, err := pickInstance(p, extras, path)
	if err != nil {
		return nil, nil, err
	}
	o := found.Object.DeepCopy()
	if p.Instance.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	if !p.Instance.Namespaced {
		o.SetNamespace("")
	}
	list := admit(ctx, p, o)
	for i := range list {
		list[i].File = found.File
		if list[i].Line == 0 {
			list[i].Line = found.Line
		}
	}
	o.SetAPIVersion(p.Instance.GroupVersion().String())
	if o.GetUID() == "" {
		o.SetUID(offlineUID)
	}
	return o.Object, append(problems, list...), nil
}

// pickInstance finds the one object of the kind, in any version.
func pickInstance(p *program.Program, extras []load.Extra, path string) (*load.Extra, error) {
	var found []*load.Extra
	var kinds []string
	for i := range extras {
		gvk := extras[i].Object.GroupVersionKind()
		kinds = append(kinds, extras[i].Object.GetAPIVersion()+" "+gvk.Kind)
		if gvk.Group == p.Instance.Group && gvk.Kind == p.Instance.Kind {
			found = append(found, &extras[i])
		}
	}
	want := p.Instance.GroupVersion().String() + " " + p.Instance.Kind
	switch {
	case len(found) == 0 && len(kinds) == 0:
		return nil, fmt.Errorf("%s holds no object; an instance has the kind %s", path, want)
	case len(found) == 0:
		return nil, fmt.Errorf("%s holds no instance of the definition (%s), but %s", path, want, strings.Join(kinds, ", "))
	case len(found) > 1:
		return nil, usagef("%s holds %d objects of the kind %s: give a file with one", path, len(found), p.Instance.Kind)
	}
	return found[0], nil
}

// admit does to an instance what the API server would do: defaults, unknown fields, schema and CEL rules. A kind that is not
// declared by the definition is taken as it is.
func admit(ctx context.Context, p *program.Program, o *unstructured.Unstructured) diag.List {
	var list diag.List
	if o.GetName() == "" {
		list.Errorf("metadata.name", "an instance needs a name")
	}
	if p.CRD == nil {
		return list
	}
	return append(list, simulate.Admit(ctx, p.CRD, o, nil)...)
}

func normalize(o *unstructured.Unstructured) { simulate.Normalize(o) }
