package step

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// Limits of what is kept of what a step yields.
const (
	// MaxOutput is the size of the output of a step, as JSON, in bytes.
	MaxOutput = 8 * 1024
	// MaxRead is how much of an answer, a log or standard output is read, in bytes.
	MaxRead = 1024 * 1024
)

// Options of an Executor.
type Options struct {
	// Client acts for the definition.
	Client *identity.Client
	// Live reads an object of a kind that is watched; nil: not there, or not watched. It is asked before the API server, but nothing
	// is done, and no wait ends, on its word alone: it may lag.
	Live func(kind program.Kind, namespace, name string) *unstructured.Unstructured
	// Wrote is told of objects as the API server answered a write, so that the next step sees it although the watch lags. It may keep
	// the object. Nil: nobody wants to know.
	Wrote func(kind program.Kind, object *unstructured.Unstructured)
	// DenyHTTP are networks that http steps may not reach: in a cluster, those of the engine itself.
	DenyHTTP []netip.Prefix
	// Log gets the lines of log steps.
	Log func(Request, string)
	// Now tells the time; nil: the real one.
	Now func() time.Time
}

// Request is an attempt to make, or to look at again (Start.Resume).
type Request struct {
	Program *program.Program
	// Instance is the object for which the operation runs. It must not be changed.
	Instance *unstructured.Unstructured
	Run      *operation.Run
	Start    operation.Start
	// Eval computes expressions with what is known now. It may be called from one goroutine.
	Eval operation.Evaluator
}

// Doer does what steps say. Do returns when the attempt is done, has to be looked at again (operation.Waiting), or ctx ends: then the
// outcome is what is known. It is safe for concurrent use.
//
// Of an attempt that verifies, Succeeded says that the attempt before had its effect. Failed or FailedForGood with a Result says that
// the command or server has answered (exitCode, status); without a Result, nobody has been asked.
type Doer interface {
	Do(ctx context.Context, req Request) operation.Result
}
