package step

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// delete deletes an object and waits until it is gone. The UID of what is deleted is persisted first (Result.Ref): another object
// by the same name that comes later is left alone, whatever happens in between.
func (e *Executor) delete(ctx context.Context, req Request, a *program.DeleteAction) (operation.Result, error) {
	t, err := e.resolve(req, &a.Object)
	var missing *apply.KindMissingError
	if errors.As(err, &missing) {
		return operation.Result{Outcome: operation.Succeeded}, nil
	}
	if err != nil {
		return operation.Result{}, err
	}
	live, err := e.get(ctx, t)
	switch uid := types.UID(req.Start.Attempt.Ref); {
	case errors.As(err, &missing):
		return operation.Result{Outcome: operation.Succeeded}, nil
	case err != nil:
		return operation.Result{}, e.lookAgain(req, err)
	case live == nil, uid != "" && live.GetUID() != uid:
		return operation.Result{Outcome: operation.Succeeded}, nil
	case uid == "":
		if err := ofInstance(req, &a.Object, t, live); err != nil {
			return operation.Result{}, err
		}
		return operation.Result{Outcome: operation.Waiting, Ref: string(live.GetUID()), Again: time.Millisecond, Message: "deleting " + t.String()}, nil
	case live.GetDeletionTimestamp() == nil:
		err := e.writer.Delete(ctx, apply.Deletion{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: uid,
			Propagation: metav1.DeletionPropagation(a.Propagation)})
		if err != nil {
			return operation.Result{}, e.lookAgain(req, err)
		}
		return operation.Result{Outcome: operation.Waiting, Again: e.again(req) / 10, Message: "deleting " + t.String()}, nil
	}
	deleting := &apply.DeletingError{Target: t, Finalizers: live.GetFinalizers()}
	return operation.Result{Outcome: operation.Waiting, Again: e.again(req), Message: deleting.Error()}, nil
}

// lookAgain makes an attempt that has begun wait when the API server cannot be asked.
func (e *Executor) lookAgain(req Request, err error) error {
	var transient *apply.TransientError
	if !errors.As(err, &transient) {
		return err
	}
	return &waitError{again: max(e.again(req), transient.After), message: err.Error()}
}

// waitError makes an attempt wait.
type waitError struct {
	again   time.Duration
	message string
}

// Error implements error.
func (w *waitError) Error() string { return w.message }
