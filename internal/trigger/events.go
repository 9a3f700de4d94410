package trigger

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// maxRemembered is the size of the values that are remembered of an instance, as JSON, in bytes.
const maxRemembered = 16 * 1024

// maxFields is how many changed paths are told.
const maxFields = 20

// deleted fires Delete, before the instance goes.
func (s *subject) deleted() {
	for _, t := range s.op.Triggers {
		if t.Type == v1alpha1.TriggerTypeDelete && !s.has(v1alpha1.TriggerTypeDelete) {
			s.fire(t, v1alpha1.RunTrigger{Time: s.self.GetDeletionTimestamp()}, "")
			return
		}
	}
}

// created fires Create, once.
func (s *subject) created(t *program.Trigger) {
	if s.in.Memoryless {
		if !s.has(v1alpha1.TriggerTypeCreate) {
			s.fire(t, v1alpha1.RunTrigger{}, "")
		}
		return
	}
	if m := s.of(t); m != nil && m.Fired {
		return
	}
	if s.fresh && s.in.Known { // the instance was there before the operation
		s.note(t).Fired = true
		return
	}
	if s.fire(t, v1alpha1.RunTrigger{}, "") != held {
		s.note(t).Fired = true
	}
}

// resumed fires Resume for an instance that was there when the engine began.
func (s *subject) resumed(t *program.Trigger) {
	if s.in.Known && !s.in.Resumed && s.fire(t, v1alpha1.RunTrigger{}, s.in.Engine) == held {
		s.waiting = true
	}
}

// updated fires Update when what it compares is not what it was.
func (s *subject) updated() {
	if s.in.Memoryless || !s.op.On(v1alpha1.EventTriggerUpdate) {
		return
	}
	var fire *program.Trigger
	changed := map[int]string{}
	creating := false
	for _, t := range s.op.Triggers {
		switch t.Type {
		case v1alpha1.TriggerTypeCreate:
			m := s.of(t)
			creating = creating || m == nil || !m.Fired
		case v1alpha1.TriggerTypeUpdate:
			hash := operation.HashOf(project(s.in.Self, t.Fields))
			if m := s.of(t); m == nil || m.Hash != hash {
				changed[t.Index] = hash
			}
		default:
		}
	}
	if len(changed) == 0 {
		return
	}
	if s.fresh || creating {
		s.remember(changed) // the starting point
		return
	}
	if s.busy() {
		return // it fires when the run has ended, with what was remembered before it
	}
	dealt := map[int]string{}
	for _, t := range s.op.Triggers {
		hash, ok := changed[t.Index]
		if !ok || t.Type != v1alpha1.TriggerTypeUpdate {
			continue
		}
		if s.of(t) == nil { // the definition has the trigger only now
			dealt[t.Index] = hash
			continue
		}
		rt := v1alpha1.RunTrigger{Old: s.memory.Values.DeepCopy(), Fields: s.changedFields(t)}
		// What stands in metadata changes without a new generation: the count tells one change there and back from the next.
		switch s.fire(t, rt, fmt.Sprintf("%s %s %d %d", s.of(t).Hash, hash, s.self.GetGeneration(), s.of(t).Count)) {
		case held:
		case passed:
			dealt[t.Index] = hash
		case fired:
			fire = t
			s.note(t).Count++
		}
		if fire != nil {
			dealt = changed // one run sees all of it
			break
		}
	}
	s.remember(dealt)
}

// remember takes what Update triggers compare for known.
func (s *subject) remember(hashes map[int]string) {
	if len(hashes) == 0 {
		return
	}
	values := map[string]any{}
	for _, t := range s.op.Triggers {
		if t.Type != v1alpha1.TriggerTypeUpdate {
			continue
		}
		if hash, ok := hashes[t.Index]; ok {
			s.note(t).Hash = hash
		}
		for _, path := range slices.Concat(t.Fields, t.OldFields) {
			copyPath(values, s.in.Self, path)
		}
		if len(t.Fields) == 0 {
			merge(values, project(s.in.Self, nil))
		}
	}
	s.memory.Generation = s.self.GetGeneration()
	s.memory.Values = runtime.DeepCopyJSON(values)
	if len(operation.Encode(values)) > maxRemembered {
		s.memory.Values = nil
	}
}

// changedFields lists the paths that an Update trigger compares and that have changed.
func (s *subject) changedFields(t *program.Trigger) []string {
	var out []string
	if s.memory.Values == nil {
		return nil
	}
	for _, path := range t.Fields {
		if !reflect.DeepEqual(lookup(s.memory.Values, path), lookup(s.in.Self, path)) {
			out = append(out, strings.Join(path, "."))
		}
	}
	if len(t.Fields) == 0 {
		out = differences("", project(s.memory.Values, nil), project(s.in.Self, nil))
	}
	slices.Sort(out)
	if len(out) > maxFields {
		out = out[:maxFields]
	}
	return out
}

// differences lists the paths, two levels deep at most, at which two objects differ.
func differences(prefix string, a, b map[string]any) []string {
	var out []string
	for name := range union(a, b) {
		if reflect.DeepEqual(a[name], b[name]) {
			continue
		}
		x, isMap := a[name].(map[string]any)
		y, wasMap := b[name].(map[string]any)
		if isMap && wasMap && prefix == "" {
			out = append(out, differences(name+".", x, y)...)
			continue
		}
		out = append(out, prefix+name)
	}
	return out
}

func union(a, b map[string]any) map[string]bool {
	names := make(map[string]bool, len(a)+len(b))
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}

// project returns what counts of an object: the given paths; without any its spec, or, if it has none, all but metadata and
// status.
func project(object map[string]any, paths [][]string) map[string]any {
	out := map[string]any{}
	if len(paths) > 0 {
		for _, path := range paths {
			copyPath(out, object, path)
		}
		return out
	}
	if spec, ok := object["spec"]; ok {
		out["spec"] = spec
		return out
	}
	for name, value := range object {
		if name != "metadata" && name != "status" && name != "apiVersion" && name != "kind" {
			out[name] = value
		}
	}
	return out
}

// copyPath copies the value at a path, if there is one. Nothing of from is changed.
func copyPath(to, from map[string]any, path []string) {
	value := lookup(from, path)
	if value == nil || len(path) == 0 {
		return
	}
	for _, name := range path[:len(path)-1] {
		next, ok := to[name].(map[string]any)
		if !ok {
			next = map[string]any{}
		}
		clone := make(map[string]any, len(next)+1)
		for k, v := range next {
			clone[k] = v
		}
		to[name] = clone
		to = clone
	}
	to[path[len(path)-1]] = value
}

func merge(to, from map[string]any) {
	for name, value := range from {
		to[name] = value
	}
}

func lookup(object map[string]any, path []string) any {
	var value any = object
	for _, name := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}
