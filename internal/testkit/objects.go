package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// FieldManager owns the fields that Apply writes.
const FieldManager = "testkit"

// Client reads and writes objects of any kind, as a test does: whole objects, by kind and name.
type Client struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// NewClient returns a Client that acts as cfg says.
func NewClient(t testing.TB, cfg *rest.Config) *Client {
	t.Helper()
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatalf("cannot make a discovery client: %v", err)
	}
	return &Client{dynamic: dyn, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}
}

// Objects parses YAML documents.
func Objects(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("cannot parse YAML: %v\n%s", err, text)
		}
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}

// Apply applies the YAML documents with server-side apply and returns what the server answered. A namespaced object that
// names no namespace goes into namespace.
func (c *Client) Apply(t testing.TB, namespace, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, obj := range Objects(t, text) {
		got, err := c.TryApply(t.Context(), namespace, obj)
		if err != nil {
			t.Fatalf("cannot apply %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
		out = append(out, got)
	}
	return out
}

// TryApply is Apply for one object, for tests that expect an error.
func (c *Client) TryApply(ctx context.Context, namespace string, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj.GetNamespace() != "" {
		namespace = obj.GetNamespace()
	}
	ri, err := c.Resource(obj.GetAPIVersion(), obj.GetKind(), namespace)
	if err != nil {
		return nil, err
	}
	return ri.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
}

// Get returns an object, or the server's error.
func (c *Client) Get(ctx context.Context, apiVersion, kind, namespace, name string) (*unstructured.Unstructured, error) {
	ri, err := c.Resource(apiVersion, kind, namespace)
	if err != nil {
		return nil, err
	}
	return ri.Get(ctx, name, metav1.GetOptions{})
}

// List returns the objects of a kind in a namespace that have the labels; an empty selector selects all.
func (c *Client) List(ctx context.Context, apiVersion, kind, namespace, selector string) ([]unstructured.Unstructured, error) {
	ri, err := c.Resource(apiVersion, kind, namespace)
	if err != nil {
		return nil, err
	}
	list, err := ri.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Delete deletes an object in the background.
func (c *Client) Delete(ctx context.Context, apiVersion, kind, namespace, name string) error {
	ri, err := c.Resource(apiVersion, kind, namespace)
	if err != nil {
		return err
	}
	policy := metav1.DeletePropagationBackground
	return ri.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// Resource returns the client of a kind, in the namespace when the kind is namespaced.
func (c *Client) Resource(apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // the kind may be newer than what discovery remembers
		mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find kind %s of %s: %w", kind, apiVersion, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}
