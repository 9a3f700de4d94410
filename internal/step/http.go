package step

import (
	"context"

	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// http makes a request.
func (e *Executor) http(context.Context, Request, *program.HTTPAction) (operation.Result, error) {
	return operation.Result{}, permanent("http is not there yet")
}
