package trigger

import (
	"cmp"
	"fmt"
	"maps"
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
	m := s.of(t)
	switch {
	case m != nil && m.Fired:
		return
	case m == nil && s.in.Known: // the instance was there before the trigger
		s.note(t).Fired = true
		return
	}
	rt := v1alpha1.RunTrigger{}
	if s.op.On(v1alpha1.EventTriggerUpdate) {
		rt.New = s.seen()
	}
	s.note(t).Fired = s.fire(t, rt, "") != held
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
	for _, t := range s.op.Triggers {
		hash, ok := changed[t.Index]
		if !ok || t.Type != v1alpha1.TriggerTypeUpdate {
			continue
		}
		if s.of(t) == nil { // the definition has the trigger only now
			s.begin(t, hash)
			continue
		}
		rt := v1alpha1.RunTrigger{Old: s.memory.Values.DeepCopy(), New: s.seen(), Fields: s.changedFields(t), Count: s.memory.Count + 1}
		switch s.fire(t, rt, fmt.Sprintf("%d %s", rt.Count, hash)) {
		case held:
		case passed:
			s.note(t).Hash = hash
		case fired:
			s.memory.Count = rt.Count
			s.remember(changed) // one run sees all of it
			return
		}
	}
}

// remember takes what Update triggers compare for known, and what they have seen for what the last run saw.
func (s *subject) remember(hashes map[int]string) {
	for _, t := range s.op.Triggers {
		if hash, ok := hashes[t.Index]; ok && t.Type == v1alpha1.TriggerTypeUpdate {
			s.note(t).Hash = hash
		}
	}
	s.memory.Generation, s.memory.Values = s.self.GetGeneration(), s.seen()
}

// begin takes what a new Update trigger compares for known.
func (s *subject) begin(t *program.Trigger, hash string) {
	s.note(t).Hash = hash
	values := map[string]any(s.memory.Values.DeepCopy())
	if values == nil {
		values = map[string]any{}
	}
	for _, path := range t.Fields {
		copyPath(values, s.in.Self, path)
	}
	s.memory.Values = boundedValues(values)
}

// seen is what Update triggers compare, and what expressions read of old, as it is now.
func (s *subject) seen() v1alpha1.JSONObject {
	values := map[string]any{}
	for _, t := range s.op.Triggers {
		if t.Type != v1alpha1.TriggerTypeUpdate {
			continue
		}
		if len(t.Fields) == 0 {
			maps.Copy(values, project(s.in.Self, nil))
		}
		for _, path := range slices.Concat(t.Fields, t.OldFields) {
			copyPath(values, s.in.Self, path)
		}
	}
	return boundedValues(values)
}

func boundedValues(values map[string]any) v1alpha1.JSONObject {
	if len(operation.Encode(values)) > maxRemembered {
		return nil
	}
	return runtime.DeepCopyJSON(values)
}

// takeOver remembers what passes have fired that did not come to their end: the runs are there, and say what was seen.
func (s *subject) takeOver() {
	if s.in.Memoryless {
		return
	}
	runs := slices.DeleteFunc(slices.Clone(s.runs), func(r *operation.Run) bool {
		rt := r.Spec.Trigger
		return rt == nil || rt.Type == v1alpha1.TriggerTypeRun || int(rt.Index) >= len(s.op.Triggers) || s.op.Triggers[rt.Index].Type != rt.Type
	})
	slices.SortStableFunc(runs, func(a, b *operation.Run) int { return cmp.Compare(a.Spec.Trigger.Count, b.Spec.Trigger.Count) })
	for _, r := range runs {
		rt := r.Spec.Trigger
		t := s.op.Triggers[rt.Index]
		switch {
		case rt.Type == v1alpha1.TriggerTypeCreate:
			if m := s.of(t); m == nil || !m.Fired {
				s.note(t).Fired = true
				s.takeSeen(rt)
			}
		case rt.Count <= s.memory.Count:
		case rt.Type == v1alpha1.TriggerTypeUpdate:
			s.memory.Count = rt.Count
			s.takeSeen(rt)
		case rt.Type == v1alpha1.TriggerTypeCondition:
			s.memory.Count = rt.Count
			m := s.note(t)
			m.Fired, m.Time = true, rt.Time
		case rt.Type == v1alpha1.TriggerTypeWatch:
			s.memory.Count = rt.Count
			s.note(t).Hash = rt.Hash
		}
	}
}

// takeSeen takes what a run saw for what Update triggers have seen.
func (s *subject) takeSeen(rt *v1alpha1.RunTrigger) {
	if rt.New == nil {
		return
	}
	s.fresh = false
	s.memory.Generation, s.memory.Values = rt.Generation, rt.New.DeepCopy()
	for _, t := range s.op.Triggers {
		if t.Type == v1alpha1.TriggerTypeUpdate {
			s.note(t).Hash = operation.HashOf(project(rt.New, t.Fields))
		}
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
