package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/engine"
	"github.com/libretto-dev/libretto/internal/inventory"
	"github.com/libretto-dev/libretto/internal/watch"
)

// prune removes what the instance has made and no longer wants, but only if every resource is resolved and applied, and
// every kind that may hold such objects can be seen.
func (s *scope) prune(ctx context.Context) error {
	if !s.walk.MayPrune() {
		return nil
	}
	var unwanted []inventory.Item
	for _, i := range s.made() {
		if !s.desired[i.Key] {
			unwanted = append(unwanted, i)
		}
	}
	return s.remove(ctx, unwanted)
}

// made returns the inventory: what is seen of the instance's children, and what its status lists of kinds that cannot be seen.
func (s *scope) made() []inventory.Item {
	var items []inventory.Item
	for _, o := range s.run.Set().ByInstance(s.obj.UID) {
		items = append(items, itemOf(o))
	}
	for _, i := range inventory.Items(s.was.Inventory) {
		if !s.visible(i) {
			items = append(items, i)
		}
	}
	return items
}

// visible tells whether the watch would show the object if it were there.
func (s *scope) visible(i inventory.Item) bool {
	kind, ok := s.run.Kind(i.GVK())
	if !ok {
		return false
	}
	state := s.run.Set().State(kind)
	return kind.Pending || state.HasSynced || state.Phase == watch.PhaseNotFound
}

// remove deletes objects, those of the highest wave first, or lets go of those that stay. What could not be removed yet is
// noted in s.leaving.
func (s *scope) remove(ctx context.Context, items []inventory.Item) error {
	items = slices.Clone(items)
	for len(items) > 0 {
		wave := inventory.LastWave(items)
		items = slices.DeleteFunc(items, func(i inventory.Item) bool { return i.Wave == wave[0].Wave })
		for _, i := range wave {
			if err := s.removeOne(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOne deletes an object or lets go of it. A request that passes by itself is an error; one that does not is a problem.
func (s *scope) removeOne(ctx context.Context, i inventory.Item) error {
	name := describe(i)
	kind, known := s.run.Kind(i.GVK())
	live := s.child(i)
	switch {
	case !known || live == nil && !s.visible(i):
		return s.removeUnseen(ctx, i)
	case live == nil:
		return nil
	case i.Retain:
		if err := s.run.Writer().Release(ctx, live, s.obj.UID); err != nil {
			return s.removal(i, err)
		}
		s.run.Set().Forget(watch.RoleChild, kind, i.Namespace, i.Name, i.UID)
		s.toldOf(i, engine.ActionRetained, "")
		return nil
	case i.Deleting:
		s.leaving = append(s.leaving, waitsFor(name, i.Finalizers))
		return nil
	}
	err := s.run.Writer().Delete(ctx, apply.Deletion{Kind: kind, Namespace: i.Namespace, Name: i.Name, UID: i.UID})
	if err != nil {
		return s.removal(i, err)
	}
	s.leaving = append(s.leaving, waitsFor(name, i.Finalizers))
	s.toldOf(i, engine.ActionDeleted, "")
	return nil
}

// removeUnseen looks at an object whose kind cannot be watched now, by asking for it.
func (s *scope) removeUnseen(ctx context.Context, i inventory.Item) error {
	kind, ok := s.run.Kind(i.GVK())
	if !ok || kind.Pending || kind.Resource == "" {
		s.leaving = append(s.leaving, describe(i)+" (its kind is being looked up)")
		s.run.Enqueue(s.req, firstRetry)
		return nil
	}
	found, err := s.run.Writer().Get(ctx, kind, i.Namespace, i.Name)
	if err != nil {
		return s.removal(i, err)
	}
	if found == nil || found.GetLabels()[v1alpha1.LabelInstance] != string(s.obj.UID) || i.Retain {
		return nil
	}
	if err := s.run.Writer().Delete(ctx, apply.Deletion{Kind: kind, Namespace: i.Namespace, Name: i.Name, UID: found.GetUID()}); err != nil {
		return s.removal(i, err)
	}
	s.leaving = append(s.leaving, describe(i))
	s.run.Enqueue(s.req, firstRetry)
	return nil
}

func (s *scope) removal(i inventory.Item, err error) error {
	p := classify(i.Resource, fmt.Errorf("cannot remove %s: %w", describe(i), err))
	if p.transient {
		return ignoreStale(err)
	}
	s.leaving = append(s.leaving, describe(i))
	s.problem(s.explain(p, err))
	return nil
}

func (s *scope) child(i inventory.Item) *watch.Object {
	kind, ok := s.run.Kind(i.GVK())
	if !ok {
		return nil
	}
	o := s.run.Set().Get(kind, i.Namespace, i.Name)
	if o == nil || types.UID(o.Labels[v1alpha1.LabelInstance]) != s.obj.UID {
		return nil
	}
	return o
}

// describe names an object: KIND NAME, or KIND NAMESPACE/NAME.
func describe(i inventory.Item) string {
	if i.Namespace == "" {
		return i.GroupKind.Kind + " " + i.Name
	}
	return i.GroupKind.Kind + " " + i.Namespace + "/" + i.Name
}

func waitsFor(name string, finalizers []string) string {
	if len(finalizers) == 0 {
		return name
	}
	return name + " (held by " + strings.Join(finalizers, ", ") + ")"
}

func isForbidden(err error) bool {
	var f *apply.ForbiddenError
	return errors.As(err, &f)
}
