package crd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/libretto-dev/libretto/api/v1alpha1"
)

// Writer applies CustomResourceDefinitions. It is safe for concurrent use.
type Writer struct {
	// Reader reads live: the cache holds metadata of CustomResourceDefinitions alone.
	Reader client.Reader
	// Writer acts as Libretto itself.
	Writer client.Writer
}

// Request asks for a CustomResourceDefinition.
type Request struct {
	// Want is what compile made. It is not changed.
	Want *apiextensionsv1.CustomResourceDefinition
	// Definition is the name of the owner.
	Definition string
	// AllowBreaking lets breaking changes through.
	AllowBreaking bool
	// HasObjects tells whether objects of the kind are stored; it is asked only about a breaking change. An error counts as
	// yes. Nil: yes.
	HasObjects func(context.Context) (bool, error)
	// Annotations are put on it beside Libretto's own.
	Annotations map[string]string
	// KeepVersions keeps versions in which objects are stored and that Want does not have, with the schema that Want stores:
	// the API server lets none of them go.
	KeepVersions bool
	// Instead says what to do instead of a breaking change; empty: to add a version.
	Instead string
	// DryRun asks for the answer alone: nothing is written.
	DryRun bool
}

// Result is what Apply found and did.
type Result struct {
	// Live is the CustomResourceDefinition as the API server has it.
	Live *apiextensionsv1.CustomResourceDefinition
	// Written tells whether it was written, Adopted whether it was taken over thereby.
	Written, Adopted bool
	// Breaking are the breaking changes that were let through.
	Breaking []Change
}

// ConflictError says that the CustomResourceDefinition is not the definition's.
type ConflictError struct{ Message string }

func (e *ConflictError) Error() string { return e.Message }

// BreakingError says that stored objects may not stand the change.
type BreakingError struct {
	Name    string
	Changes []Change
	// Instead says what to do instead; empty: to add a version.
	Instead string
}

func (e *BreakingError) Error() string {
	const most = 10
	lines := make([]string, 0, most+1)
	for i, c := range e.Changes {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(e.Changes)-most))
			break
		}
		lines = append(lines, c.String())
	}
	instead := e.Instead
	if instead == "" {
		instead = "add a new version instead"
	}
	return fmt.Sprintf("objects of %s are stored that may not stand the new schema: %s; %s, or annotate the definition with %s: \"true\"",
		e.Name, strings.Join(lines, "; "), instead, v1alpha1.AnnotationAllowBreaking)
}

// Apply writes the CustomResourceDefinition when it differs. Errors: *ConflictError, *BreakingError, or the API server's.
func (w *Writer) Apply(ctx context.Context, req Request) (*Result, error) {
	name := req.Want.Name
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Reader.Get(ctx, client.ObjectKey{Name: name}, live); apierrors.IsNotFound(err) {
		live = nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", name, err)
	}
	if req.KeepVersions && live != nil {
		req.Want = withStored(req.Want, live)
	}
	desired, err := desiredObject(req)
	if err != nil {
		return nil, err
	}
	var opts []client.ApplyOption
	if req.DryRun {
		opts = append(opts, client.DryRunAll)
	}
	if live == nil {
		// Without force: one that somebody else makes right now is a conflict, and is looked at by the next try.
		out, err := w.apply(ctx, desired, opts...)
		if err != nil {
			return nil, err
		}
		return &Result{Live: out, Written: true}, nil
	}
	adopt, err := mayOwn(live, req.Definition)
	if err != nil {
		return nil, err
	}
	if !adopt && same(desired, live) {
		return &Result{Live: live}, nil
	}
	var breaking []Change
	if live.Annotations[v1alpha1.AnnotationDesired] != desired.GetAnnotations()[v1alpha1.AnnotationDesired] {
		breaking = Breaking(live, req.Want) // otherwise somebody else has changed it, and it is changed back
	}
	if len(breaking) > 0 && !req.AllowBreaking && stored(ctx, req.HasObjects) {
		return nil, &BreakingError{Name: name, Changes: breaking, Instead: req.Instead}
	}
	desired.SetUID(live.UID)
	desired.SetResourceVersion(live.ResourceVersion)
	if _, ok := live.Annotations[v1alpha1.AnnotationAdopted]; adopt || ok {
		a := desired.GetAnnotations()
		a[v1alpha1.AnnotationAdopted] = "true"
		desired.SetAnnotations(a)
	}
	out, err := w.apply(ctx, desired, append(opts, client.ForceOwnership)...)
	if err != nil {
		return nil, err
	}
	return &Result{Live: out, Written: out.ResourceVersion != live.ResourceVersion, Adopted: adopt, Breaking: breaking}, nil
}

// withStored adds to what is wanted the versions in which objects are stored.
func withStored(want, live *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	version := func(of *apiextensionsv1.CustomResourceDefinition, is func(*apiextensionsv1.CustomResourceDefinitionVersion) bool) *apiextensionsv1.CustomResourceDefinitionVersion {
		for i := range of.Spec.Versions {
			if is(&of.Spec.Versions[i]) {
				return &of.Spec.Versions[i]
			}
		}
		return nil
	}
	storage := version(want, func(v *apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	out := want
	for _, name := range live.Status.StoredVersions {
		named := func(v *apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }
		was := version(live, named)
		if was == nil || storage == nil || version(want, named) != nil {
			continue
		}
		if out == want {
			out = want.DeepCopy()
		}
		kept := storage.DeepCopy()
		kept.Name, kept.Storage, kept.Served = name, false, was.Served
		out.Spec.Versions = append(out.Spec.Versions, *kept)
	}
	return out
}

func stored(ctx context.Context, has func(context.Context) (bool, error)) bool {
	if has == nil {
		return true
	}
	yes, err := has(ctx)
	return yes || err != nil
}

func (w *Writer) apply(ctx context.Context, desired *unstructured.Unstructured, opts ...client.ApplyOption) (*apiextensionsv1.CustomResourceDefinition, error) {
	opts = append(opts, client.FieldOwner(v1alpha1.FieldManager))
	if err := w.Writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), opts...); err != nil {
		return nil, fmt.Errorf("cannot apply CustomResourceDefinition %s: %w", desired.GetName(), err)
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, out); err != nil {
		return nil, fmt.Errorf("cannot read CustomResourceDefinition %s as applied: %w", desired.GetName(), err)
	}
	return out, nil
}

// mayOwn tells whether the definition may write the CustomResourceDefinition; adopt: it would take it over.
func mayOwn(live *apiextensionsv1.CustomResourceDefinition, definition string) (adopt bool, err error) {
	owner, labelled := live.Labels[v1alpha1.LabelDefinition]
	switch {
	case owner == v1alpha1.DefinitionID(definition):
		return false, nil
	case labelled:
		return false, &ConflictError{Message: fmt.Sprintf("CustomResourceDefinition %s belongs to OperatorDefinition %s; declare another kind, or delete that definition with whenInstancesExist: Orphan first",
			live.Name, nameOr(live.Annotations[v1alpha1.AnnotationDefinition], owner))}
	}
	if c := metav1.GetControllerOfNoCopy(live); c != nil {
		return false, &ConflictError{Message: fmt.Sprintf("CustomResourceDefinition %s belongs to %s %s; declare another kind, or remove the owner", live.Name, c.Kind, c.Name)}
	}
	if live.Annotations[v1alpha1.AnnotationAdopt] == definition {
		return true, nil
	}
	return false, &ConflictError{Message: fmt.Sprintf("CustomResourceDefinition %s exists already and was not made by Libretto; let the definition take it over with: kubectl annotate crd %s %s=%s",
		live.Name, live.Name, v1alpha1.AnnotationAdopt, definition)}
}

func nameOr(name, id string) string {
	if name == "" {
		return "with the id " + id
	}
	return name
}

// Release takes Libretto's marks off a CustomResourceDefinition, so that it stays and any owner may take it; the same
// definition takes it over again without being told. One that is not the definition's is left alone.
func (w *Writer) Release(ctx context.Context, name, definition string) error {
	live, err := w.owned(ctx, name, definition)
	if live == nil {
		return err
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": live.ResourceVersion,
		"labels":          map[string]any{v1alpha1.LabelDefinition: nil},
		"annotations": map[string]any{
			v1alpha1.AnnotationDefinition: nil, v1alpha1.AnnotationDesired: nil, v1alpha1.AnnotationManagedKinds: nil,
			v1alpha1.AnnotationOperationsOf: nil, v1alpha1.AnnotationAdopt: definition,
		},
	}}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("cannot make a patch: %w", err)
	}
	if err := w.Writer.Patch(ctx, live, client.RawPatch(types.MergePatchType, data), client.FieldOwner(v1alpha1.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release CustomResourceDefinition %s: %w", name, err)
	}
	return nil
}

// Delete deletes the CustomResourceDefinition of a definition; one that was taken over is released instead. It tells whether
// it is gone, or no longer the definition's.
func (w *Writer) Delete(ctx context.Context, name, definition string) (gone bool, err error) {
	live, err := w.owned(ctx, name, definition)
	switch {
	case err != nil:
		return false, err
	case live == nil:
		return true, nil
	case live.Annotations[v1alpha1.AnnotationAdopted] != "":
		err := w.Release(ctx, name, definition)
		return err == nil, err
	case !live.DeletionTimestamp.IsZero():
		return false, nil
	}
	err = w.Writer.Delete(ctx, live, client.Preconditions{UID: &live.UID})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot delete CustomResourceDefinition %s: %w", name, err)
	}
	return false, nil
}

// Annotations returns the annotations of the CustomResourceDefinition of a definition; none when it is not there or not the
// definition's.
func (w *Writer) Annotations(ctx context.Context, name, definition string) (map[string]string, error) {
	live, err := w.owned(ctx, name, definition)
	if live == nil {
		return nil, err
	}
	return live.Annotations, nil
}

// Owned lists the CustomResourceDefinitions of a definition.
func (w *Writer) Owned(ctx context.Context, definition string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := w.Reader.List(ctx, list, client.MatchingLabels{v1alpha1.LabelDefinition: v1alpha1.DefinitionID(definition)}); err != nil {
		return nil, fmt.Errorf("cannot list CustomResourceDefinitions: %w", err)
	}
	return list.Items, nil
}

// owned reads the CustomResourceDefinition; nil when it is not there or not the definition's.
func (w *Writer) owned(ctx context.Context, name, definition string) (*apiextensionsv1.CustomResourceDefinition, error) {
	live := &apiextensionsv1.CustomResourceDefinition{}
	err := w.Reader.Get(ctx, client.ObjectKey{Name: name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", name, err)
	case live.Labels[v1alpha1.LabelDefinition] != v1alpha1.DefinitionID(definition):
		return nil, nil
	}
	return live, nil
}

// Established tells whether the API server serves the kind, and if not, why.
func Established(live *apiextensionsv1.CustomResourceDefinition) (ok bool, message string) {
	message = "the API server has not established the CustomResourceDefinition yet"
	for _, c := range live.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			ok = true
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			where := "spec.crd.names"
			if live.Annotations[v1alpha1.AnnotationOperationsOf] != "" {
				where = "spec.operationKind"
			}
			return false, fmt.Sprintf("the API server does not take the names of the kind: %s; choose others in %s", c.Message, where)
		case c.Type == apiextensionsv1.Terminating && c.Status == apiextensionsv1.ConditionTrue:
			return false, "the CustomResourceDefinition is being deleted; it is made anew when it is gone"
		}
	}
	if ok {
		message = ""
	}
	return ok, message
}

// desiredObject returns what is applied: nothing that the author or Libretto does not mean to own.
func desiredObject(req Request) (*unstructured.Unstructured, error) {
	spec, err := toMap(req.Want.Spec)
	if err != nil {
		return nil, fmt.Errorf("cannot print CustomResourceDefinition %s: %w", req.Want.Name, err)
	}
	labels := map[string]string{}
	for k, v := range req.Want.Labels {
		labels[k] = v
	}
	labels[v1alpha1.LabelDefinition] = v1alpha1.DefinitionID(req.Definition)
	annotations := map[string]string{}
	for k, v := range req.Want.Annotations {
		annotations[k] = v
	}
	for k, v := range req.Annotations {
		annotations[k] = v
	}
	annotations[v1alpha1.AnnotationDefinition] = req.Definition
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	u.SetKind("CustomResourceDefinition")
	u.SetName(req.Want.Name)
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("cannot print CustomResourceDefinition %s: %w", req.Want.Name, err)
	}
	sum := sha256.Sum256(data)
	annotations[v1alpha1.AnnotationDesired] = hex.EncodeToString(sum[:8])
	u.SetAnnotations(annotations)
	return u, nil
}

// same tells whether an apply would change nothing: the marks are there, the versions are what is wanted to the last field,
// and the rest contains what is wanted (the API server fills in names and the conversion).
func same(desired *unstructured.Unstructured, live *apiextensionsv1.CustomResourceDefinition) bool {
	for k, v := range desired.GetAnnotations() {
		if live.Annotations[k] != v {
			return false
		}
	}
	for k, v := range desired.GetLabels() {
		if live.Labels[k] != v {
			return false
		}
	}
	have, err := toMap(live.Spec)
	if err != nil {
		return false
	}
	want, _, err := unstructured.NestedMap(desired.Object, "spec")
	if err != nil {
		return false
	}
	return reflect.DeepEqual(want["versions"], have["versions"]) && contains(have, want)
}

// contains tells whether have has all that want has.
func contains(have, want any) bool {
	m, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, want)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return len(m) == 0
	}
	for k, v := range m {
		if !contains(h[k], v) {
			return false
		}
	}
	return true
}

// toMap turns a value into plain JSON, with numbers as unstructured objects have them.
func toMap(v any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	u := map[string]any{}
	if err := utiljson.Unmarshal(data, &u); err != nil {
		return nil, err
	}
	return u, nil
}
