package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/olm"
)

// startPatience is how long a manager that has begun to work waits for definitions that were at work before it.
const startPatience = time.Minute

// addOLM makes upgrades by OLM wait for runs of operations. Without OLM there is nothing to do.
func (m *instanceOf) addOLM(ctx context.Context) error {
	name, namespace := olm.ConditionName(), podNamespace()
	if name == "" || namespace == "" {
		return nil
	}
	runs := &runningOperations{manager: m, clock: clock.RealClock{}}
	gate := &olm.Gate{
		Client: m.mgr.GetClient(), Condition: types.NamespacedName{Namespace: namespace, Name: name},
		Running: func() (int, bool) { return runs.count(ctx) },
		Logger:  m.opts.Logger, Clock: clock.RealClock{},
	}
	if err := m.mgr.Add(gate); err != nil {
		return fmt.Errorf("cannot add what holds upgrades: %w", err)
	}
	return nil
}

// runningOperations counts the runs that are under way, for one goroutine.
type runningOperations struct {
	manager *instanceOf
	clock   clock.PassiveClock
	since   time.Time // when it was asked first
}

// count tells how many there are, and whether that is known: not before the definitions that have a revision at work are served.
func (r *runningOperations) count(ctx context.Context) (int, bool) {
	if r.since.IsZero() {
		r.since = r.clock.Now()
	}
	if r.clock.Since(r.since) < startPatience {
		var definitions v1alpha1.OperatorDefinitionList
		if err := r.manager.mgr.GetClient().List(ctx, &definitions); err != nil {
			return 0, false
		}
		for i := range definitions.Items {
			d := &definitions.Items[i]
			if _, served := r.manager.engine.State(d.Name); !served && d.Status.Revision != "" && d.DeletionTimestamp.IsZero() {
				return 0, false
			}
		}
	}
	return r.manager.engine.RunningOperations()
}
