package olm

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// EnvName is the variable in which OLM tells a Deployment the name of its OperatorCondition.
	EnvName = "OPERATOR_CONDITION_NAME"

	// Upgradeable is the type of the condition that OLM looks at before it replaces a version.
	Upgradeable = "Upgradeable"
	// ReasonOperationsRunning and ReasonIdle are its reasons.
	ReasonOperationsRunning = "OperationsRunning"
	ReasonIdle              = "Idle"

	interval = 2 * time.Second
)

var conditionKind = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}

// Gate keeps the condition Upgradeable of the OperatorCondition: False while runs of operations are under way.
type Gate struct {
	// Client reads and writes the OperatorCondition; OLM gives the right to.
	Client client.Client
	// Condition is the OperatorCondition.
	Condition types.NamespacedName
	// Running returns how many runs are under way, and whether that is known.
	Running func() (int, bool)
	Logger  logr.Logger
	Clock   clock.WithTicker

	// told is the status that was written or found last.
	told metav1.ConditionStatus
}

// ConditionName is the name of the OperatorCondition of this process; empty without OLM.
func ConditionName() string { return os.Getenv(EnvName) }

// Start implements manager.Runnable.
func (g *Gate) Start(ctx context.Context) error {
	ticker := g.Clock.NewTicker(interval)
	defer ticker.Stop()
	failing := false
	for {
		err := g.sync(ctx)
		switch {
		case err == nil:
			failing = false
		case meta.IsNoMatchError(err):
			g.Logger.Info("Upgrades are not held: the cluster has no OperatorConditions")
			return nil
		case !failing && ctx.Err() == nil:
			failing = true // once, not every two seconds
			g.Logger.Error(err, "Cannot tell OLM whether an upgrade may go on", "operatorCondition", g.Condition.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the one that works knows what runs.
func (*Gate) NeedLeaderElection() bool { return true }

func (g *Gate) sync(ctx context.Context) error {
	running, known := g.Running()
	if !known {
		return nil
	}
	want := metav1.Condition{Type: Upgradeable, Status: metav1.ConditionTrue, Reason: ReasonIdle, Message: "no run of an operation is under way"}
	if running > 0 {
		want.Status, want.Reason = metav1.ConditionFalse, ReasonOperationsRunning
		want.Message = "runs of operations are under way; the upgrade goes on when they have ended"
	}
	if g.told == want.Status {
		return nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(conditionKind)
	if err := g.Client.Get(ctx, g.Condition, object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // OLM has not made it yet, or is removing it
		}
		return fmt.Errorf("cannot get OperatorCondition %s: %w", g.Condition, err)
	}
	changed, err := g.set(object, want)
	if err != nil {
		return fmt.Errorf("cannot read OperatorCondition %s: %w", g.Condition, err)
	}
	if changed {
		if err := g.Client.Update(ctx, object); err != nil {
			if apierrors.IsConflict(err) {
				return nil // it is read again in a moment
			}
			return fmt.Errorf("cannot update OperatorCondition %s: %w", g.Condition, err)
		}
		g.Logger.Info("Told OLM whether an upgrade may go on", "upgradeable", want.Status, "reason", want.Reason)
	}
	g.told = want.Status
	return nil
}

// set puts the condition into spec.conditions, and tells whether it changed.
func (g *Gate) set(object *unstructured.Unstructured, want metav1.Condition) (bool, error) {
	var content struct {
		Spec struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &content); err != nil {
		return false, err
	}
	want.LastTransitionTime = metav1.NewTime(g.Clock.Now())
	if !meta.SetStatusCondition(&content.Spec.Conditions, want) {
		return false, nil
	}
	conditions := make([]any, len(content.Spec.Conditions))
	for i := range content.Spec.Conditions {
		c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&content.Spec.Conditions[i])
		if err != nil {
			return false, err
		}
		conditions[i] = c
	}
	return true, unstructured.SetNestedSlice(object.Object, conditions, "spec", "conditions")
}
