package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/schema"
)

// servedKind is a kind as the API server serves it.
type servedKind struct {
	GVR        runtimeschema.GroupVersionResource
	Kind       string
	Singular   string
	ShortNames []string
	Namespaced bool
}

// names are the words for the kind.
func (s servedKind) names() []string {
	out := []string{s.GVR.Resource, strings.ToLower(s.Kind)}
	if s.Singular != "" && s.Singular != out[1] {
		out = append(out, s.Singular)
	}
	return append(out, s.ShortNames...)
}

// is tells whether a word, perhaps with the group behind it, means the kind.
func (s servedKind) is(word string) bool {
	word = strings.ToLower(word)
	if slices.Contains(s.names(), word) {
		return true
	}
	for _, group := range []string{s.GVR.Group, s.GVR.Version + "." + s.GVR.Group} {
		if name, ok := strings.CutSuffix(word, "."+strings.ToLower(group)); ok && slices.Contains(s.names(), name) {
			return true
		}
	}
	return false
}

// ref is KIND/NAME.
func (s servedKind) ref(name string) string { return strings.ToLower(s.Kind) + "/" + name }

// operationKind is the kind of operation objects of a definition.
type operationKind struct {
	Definition string
	Instances  servedKind
	Runs       servedKind
	// Spec is the schema of the spec of operation objects.
	Spec apiextensionsv1.JSONSchemaProps
}

// operations are the names of the operations, in order of the definition.
func (k *operationKind) operations() []string {
	var out []string
	for _, v := range k.Spec.Properties["operation"].Enum {
		var name string
		if json.Unmarshal(v.Raw, &name) == nil {
			out = append(out, name)
		}
	}
	return out
}

// params is the schema of an operation's parameters; false: it has none.
func (k *operationKind) params(operation string) (*apiextensionsv1.JSONSchemaProps, bool) {
	p, ok := k.Spec.Properties[operation]
	return &p, ok
}

// findOperationKinds reads the kinds of operations from the CustomResourceDefinitions that Libretto has made. A user who may not
// read those finds them by what every user may read: discovery and OpenAPI.
func findOperationKinds(ctx context.Context, cfg *rest.Config, client dynamic.Interface) ([]operationKind, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	list, err := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelDefinition})
	if apierrors.IsForbidden(err) {
		return kindsByDiscovery(ctx, disco)
	}
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(list.Items))
	for i := range list.Items {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, crd); err != nil {
			return nil, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", list.Items[i].GetName(), err)
		}
		crds = append(crds, crd)
	}
	return kindsOf(ctx, crds, disco)
}

// kindsOf pairs the kinds of operation objects with those of their instances.
func kindsOf(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition, disco discovery.DiscoveryInterfaceWithContext) ([]operationKind, error) {
	var out []operationKind
	var served []servedKind // asked for when an instance's kind is not one of the definitions' own
	for _, crd := range crds {
		runs, spec, ok := operationsIn(crd)
		if !ok {
			continue
		}
		k := operationKind{Definition: crd.Annotations[v1alpha1.AnnotationDefinition], Runs: runs, Spec: spec}
		if instances, ok := instancesOf(crd, crds); ok {
			k.Instances = instances
			out = append(out, k)
			continue
		}
		if served == nil {
			var err error
			if served, err = servedKinds(ctx, disco); err != nil {
				return nil, err
			}
		}
		of := crd.Annotations[v1alpha1.AnnotationOperationsOf]
		if i := slices.IndexFunc(served, func(s servedKind) bool {
			return strings.TrimSuffix(s.GVR.GroupResource().String(), ".") == strings.TrimSuffix(of, ".")
		}); i >= 0 {
			k.Instances = served[i]
			out = append(out, k)
		}
	}
	sortKinds(out)
	return out, nil
}

func sortKinds(kinds []operationKind) {
	slices.SortFunc(kinds, func(a, b operationKind) int {
		return cmp.Or(cmp.Compare(a.Instances.Kind, b.Instances.Kind), cmp.Compare(a.Runs.GVR.String(), b.Runs.GVR.String()))
	})
}

// instancesOf finds the kind of the instances among the kinds that definitions declare.
func instancesOf(runs *apiextensionsv1.CustomResourceDefinition, crds []*apiextensionsv1.CustomResourceDefinition) (servedKind, bool) {
	of := runs.Annotations[v1alpha1.AnnotationOperationsOf]
	for _, crd := range crds {
		if of != "" && crd.Name == of {
			return servedBy(crd), true
		}
		if of == "" && crd.Name != runs.Name && crd.Labels[v1alpha1.LabelDefinition] == runs.Labels[v1alpha1.LabelDefinition] {
			if _, _, isRuns := operationsIn(crd); !isRuns {
				return servedBy(crd), true
			}
		}
	}
	return servedKind{}, false
}

// operationsIn reads a CustomResourceDefinition of operation objects; false: it is of another kind.
func operationsIn(crd *apiextensionsv1.CustomResourceDefinition) (servedKind, apiextensionsv1.JSONSchemaProps, bool) {
	s := servedBy(crd)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != s.GVR.Version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
		return s, spec, isOperationSpec(&spec)
	}
	return s, apiextensionsv1.JSONSchemaProps{}, false
}

func isOperationSpec(spec *apiextensionsv1.JSONSchemaProps) bool {
	_, target := spec.Properties["target"]
	operation, has := spec.Properties["operation"]
	_, retry := spec.Properties["retry"]
	return target && has && retry && len(operation.Enum) > 0
}

func servedBy(crd *apiextensionsv1.CustomResourceDefinition) servedKind {
	version := ""
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	return servedKind{
		GVR:  runtimeschema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural},
		Kind: crd.Spec.Names.Kind, Singular: crd.Spec.Names.Singular, ShortNames: crd.Spec.Names.ShortNames,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
}

// servedKinds lists all kinds of the API server, in the versions that it prefers. Groups that do not answer are left out.
func servedKinds(ctx context.Context, disco discovery.DiscoveryInterfaceWithContext) ([]servedKind, error) {
	lists, err := disco.ServerPreferredResourcesWithContext(ctx)
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return nil, fmt.Errorf("cannot list the kinds of the API server: %w", err)
	}
	var out []servedKind
	for _, list := range lists {
		gv, err := runtimeschema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if strings.Contains(r.Name, "/") {
				continue
			}
			out = append(out, servedKind{
				GVR: gv.WithResource(r.Name), Kind: r.Kind, Singular: r.SingularName, ShortNames: r.ShortNames, Namespaced: r.Namespaced,
			})
		}
	}
	return out, nil
}

// kindsByDiscovery finds kinds of operation objects by their schema, and their instances by name: those of the same group whose
// kind has Operation behind it. A definition that names its operation kind otherwise is not found so.
func kindsByDiscovery(ctx context.Context, disco *discovery.DiscoveryClient) ([]operationKind, error) {
	served, err := servedKinds(ctx, disco)
	if err != nil {
		return nil, err
	}
	paths, err := openapi.NewClientWithContext(disco.RESTClient()).PathsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the API groups: %w", err)
	}
	var out []operationKind
	for _, runs := range served {
		name, ok := strings.CutSuffix(runs.Kind, "Operation")
		if !ok || runs.GVR.Group == "" {
			continue
		}
		i := slices.IndexFunc(served, func(s servedKind) bool { return s.Kind == name && s.GVR.Group == runs.GVR.Group })
		document := paths["apis/"+runs.GVR.Group+"/"+runs.GVR.Version]
		if i < 0 || document == nil {
			continue
		}
		data, err := document.SchemaWithContext(ctx, runtime.ContentTypeJSON)
		if err != nil {
			return nil, fmt.Errorf("cannot read what %s looks like: %w", runs.Kind, err)
		}
		spec, err := specInOpenAPI(data, runs)
		if err != nil {
			return nil, err
		}
		if spec != nil && isOperationSpec(spec) {
			out = append(out, operationKind{Instances: served[i], Runs: runs, Spec: *spec})
		}
	}
	sortKinds(out)
	return out, nil
}

// specInOpenAPI finds the schema of the spec of a kind in an OpenAPI document.
func specInOpenAPI(data []byte, kind servedKind) (*apiextensionsv1.JSONSchemaProps, error) {
	_, schemas, err := schema.ParseOpenAPI(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read what %s looks like: %w", kind.Kind, err)
	}
	for _, raw := range schemas {
		var found struct {
			Kinds      []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			Properties struct {
				Spec *apiextensionsv1.JSONSchemaProps `json:"spec"`
			} `json:"properties"`
		}
		if json.Unmarshal(raw, &found) != nil {
			continue
		}
		if slices.Contains(found.Kinds, metav1.GroupVersionKind{Group: kind.GVR.Group, Version: kind.GVR.Version, Kind: kind.Kind}) {
			return found.Properties.Spec, nil
		}
	}
	return nil, nil
}
