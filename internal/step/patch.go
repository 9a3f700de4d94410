package step

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// fieldManagerPatch owns the fields that patch steps write. It is not that of children, so that a step that changes what a resource
// of the definition says is told as drift, by its name.
const fieldManagerPatch = "libretto-operation"

// patch changes an object that exists. A merge patch can be repeated. A JSON patch is made on the object as it was read.
func (e *Executor) patch(ctx context.Context, req Request, a *program.PatchAction) (operation.Result, error) {
	if a.JSON != nil && req.Start.Resume {
		return operation.Result{}, unknown("the JSON patch was under way when the engine ended: nobody knows whether it took effect")
	}
	t, err := e.resolve(req, &a.Object)
	if err != nil {
		return operation.Result{}, err
	}
	body, err := req.Eval.Template(orNil(a.Merge, a.JSON), req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	live, err := e.get(ctx, t)
	if err != nil && a.JSON != nil {
		return operation.Result{}, beforehand(err)
	}
	if err != nil {
		return operation.Result{}, err
	}
	if live == nil {
		return operation.Result{}, temporary("%s is not there", t)
	}
	if err := ofInstance(req, &a.Object, t, live); err != nil {
		return operation.Result{}, err
	}
	sort, data := types.MergePatchType, []byte(nil)
	if a.JSON != nil {
		sort = types.JSONPatchType
		data, err = jsonPatch(body, live.GetResourceVersion())
	} else {
		data, err = mergePatch(body, live.GetUID(), a.Subresource)
	}
	if err != nil {
		return operation.Result{}, err
	}
	var subresources []string
	if a.Subresource != "" {
		subresources = append(subresources, a.Subresource)
	}
	out, err := e.resource(t).Patch(ctx, t.Name, sort, data, metav1.PatchOptions{FieldManager: fieldManagerPatch}, subresources...)
	if err != nil {
		return operation.Result{}, patchError(e.writer.Explain(err, "patch", t), a.JSON != nil)
	}
	if a.Subresource != "scale" {
		e.wrote(t.Kind, out)
	}
	return succeeded(identityOf(t, out)), nil
}

func orNil(a, b *program.Template) *program.Template {
	if a != nil {
		return a
	}
	return b
}

// beforehand is an error of a request that only reads: it leaves nothing open.
func beforehand(err error) error {
	var lost *apply.TransientError
	if errors.As(err, &lost) {
		return &failure{outcome: operation.Failed, message: err.Error(), after: lost.After}
	}
	return err
}

// patchError says of a JSON patch whose answer was lost that nobody knows.
func patchError(err error, once bool) error {
	var lost *apply.TransientError
	if !once || !errors.As(err, &lost) || !lost.Unknown {
		return err
	}
	if notSent(err) {
		return beforehand(err)
	}
	return unknown("%v", err)
}

func mergePatch(body any, uid types.UID, subresource string) ([]byte, error) {
	object, ok := body.(map[string]any)
	if !ok {
		return nil, permanent("merge yields no object")
	}
	if subresource == "" {
		object = maps.Clone(object)
		authors, _ := object["metadata"].(map[string]any)
		metadata := maps.Clone(authors)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["uid"] = string(uid)
		object["metadata"] = metadata
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, permanent("merge cannot be written as JSON: %v", err)
	}
	return data, nil
}

func jsonPatch(body any, version string) ([]byte, error) {
	operations, ok := body.([]any)
	if !ok {
		return nil, permanent("json yields no list")
	}
	all := append([]any{map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": version}}, operations...)
	data, err := json.Marshal(all)
	if err != nil {
		return nil, permanent("json cannot be written as JSON: %v", err)
	}
	return data, nil
}
