package step

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
)

// setTries is how often a change of the status is tried while the engine writes the status, too.
const setTries = 5

// set writes fields of the status of the instance, on the very state that was read. Null removes a field.
func (e *Executor) set(ctx context.Context, req Request) (operation.Result, error) {
	value, err := req.Eval.Template(req.Start.Action.Set, req.Start.Vars)
	if err != nil {
		return operation.Result{}, err
	}
	fields, err := plainObject(value)
	if err != nil {
		return operation.Result{}, err
	}
	t := apply.Target{Kind: req.Program.Instance, Namespace: req.Instance.GetNamespace(), Name: req.Instance.GetName()}
	if t.Kind, err = e.served(t.Kind); err != nil {
		return operation.Result{}, err
	}
	for range setTries {
		var stale *apply.StaleError
		if err = e.setOnce(ctx, req, t, fields); !errors.As(err, &stale) {
			break
		}
	}
	if err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Outcome: operation.Succeeded}, nil
}

func (e *Executor) setOnce(ctx context.Context, req Request, t apply.Target, fields map[string]any) error {
	live, err := e.get(ctx, t)
	if err != nil {
		return err
	}
	if live == nil || live.GetUID() != req.Instance.GetUID() {
		return permanent("%s is gone", t)
	}
	status, _ := live.Object["status"].(map[string]any)
	if holds(status, fields) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion()}, "status": fields})
	if err != nil {
		return permanent("set cannot be written as JSON: %v", err)
	}
	out, err := e.resource(t).Patch(ctx, t.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: v1alpha1.FieldManagerStatus}, "status")
	if err != nil {
		return e.writer.Explain(err, "patch", t)
	}
	e.wrote(t.Kind, out)
	return nil
}

// holds tells whether a merge patch would change nothing.
func holds(old, patch map[string]any) bool {
	for name, v := range patch {
		before, there := old[name]
		sub, isObject := v.(map[string]any)
		oldSub, wasObject := before.(map[string]any)
		switch {
		case v == nil:
			if there {
				return false
			}
		case isObject && wasObject:
			if !holds(oldSub, sub) {
				return false
			}
		case !there || !equality.Semantic.DeepEqual(before, v):
			return false
		}
	}
	return true
}

// plainObject returns a copy of an object with the types that objects of the API server have.
func plainObject(value any) (map[string]any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, permanent("the value cannot be written as JSON: %v", err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, permanent("the value is no object")
	}
	return out, nil
}
