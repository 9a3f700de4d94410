package trigger

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
)

// maxAhead is how far what has been dealt with may be ahead of the clock, that was set back, before it counts no more.
const maxAhead = time.Hour

// maxCounted is how many missed times are counted.
const maxCounted = 1000

// scheduled fires at the times of a schedule.
func (s *subject) scheduled(t *program.Trigger) {
	text, zone, ok := s.scheduleText(t)
	if !ok {
		return
	}
	if text == "" {
		s.forget(t) // suspended: what passes meanwhile is not missed
		return
	}
	schedule, err := ParseSchedule(text)
	if err != nil {
		s.problem(t, fmt.Errorf("schedule %q: %w", text, err))
		return
	}
	loc, err := LoadZone(zone)
	if err != nil {
		s.problem(t, fmt.Errorf("timeZone %q is none; a name such as Europe/Berlin is wanted", zone))
		return
	}
	from := s.scheduleStart(t, operation.HashOf(text+" "+zone))
	due, passedBy := lastDue(schedule, loc, from, s.in.Now)
	if !due.IsZero() {
		s.due(t, due, passedBy)
	}
	if next := schedule.Next(maxTime(s.in.Now, from), loc); !next.IsZero() {
		s.wake(next)
	}
}

func (s *subject) scheduleText(t *program.Trigger) (text, zone string, ok bool) {
	text, err := s.in.Eval.Text(t.Schedule, nil)
	if err != nil {
		s.hold(t, "schedule", err)
		return "", "", false
	}
	zone, err = s.in.Eval.Text(t.TimeZone, nil)
	if err != nil {
		s.hold(t, "timeZone", err)
		return "", "", false
	}
	if zone == "" {
		zone = "UTC"
	}
	return text, zone, true
}

// scheduleStart is up to when the times of a schedule have been dealt with. A new schedule begins now.
func (s *subject) scheduleStart(t *program.Trigger, hash string) time.Time {
	if s.in.Memoryless {
		from := maxTime(s.self.GetCreationTimestamp().Time, s.in.EngineStart)
		for _, r := range s.runs {
			if rt := r.Spec.Trigger; rt != nil && rt.Type == v1alpha1.TriggerTypeSchedule && rt.Time != nil && (from.Before(rt.Time.Time) || from.Equal(s.in.EngineStart)) {
				from = rt.Time.Time
			}
		}
		return maxTime(from, s.lastEnd()) // a time that came while a run was under way was let pass
	}
	m := s.note(t)
	if m.Hash != hash || m.Time == nil || m.Time.After(s.now.Add(maxAhead)) {
		now := metav1.NewTime(s.now)
		m.Hash, m.Time = hash, &now
	}
	return m.Time.Time
}

// lastDue returns the last time of a schedule after from and not after now, and how many there were before it; of more than
// maxCounted, that many.
func lastDue(schedule *Schedule, loc *time.Location, from, now time.Time) (due time.Time, before int) {
	for next := schedule.Next(from, loc); !next.IsZero() && !next.After(now); next = schedule.Next(next, loc) {
		if !due.IsZero() {
			before++
		}
		if due = next; before >= maxCounted {
			return lastBefore(schedule, loc, due, now), before
		}
	}
	return due, before
}

// lastBefore looks for the last time of a schedule in spans that end now, the shortest first.
func lastBefore(schedule *Schedule, loc *time.Location, from, now time.Time) time.Time {
	for span := 10 * time.Second; span < now.Sub(from); span *= 6 {
		var last time.Time
		for next := schedule.Next(now.Add(-span), loc); !next.IsZero() && !next.After(now); next = schedule.Next(next, loc) {
			last = next
		}
		if !last.IsZero() {
			return last
		}
	}
	return from
}

// due deals with the times of a schedule that have come.
func (s *subject) due(t *program.Trigger, due time.Time, before int) {
	at := metav1.NewTime(due.UTC())
	late := s.in.Now.Sub(due) > t.StartingDeadline
	missed := before
	done := func() {
		if !s.in.Memoryless {
			s.note(t).Time = &at
		}
	}
	for _, r := range s.runs {
		if rt := r.Spec.Trigger; rt != nil && rt.Type == v1alpha1.TriggerTypeSchedule && rt.Time != nil && rt.Time.Equal(&at) {
			s.replace(r.Name) // the pass that made it did not come to its end
			done()
			return
		}
	}
	quiet := s.in.Memoryless && s.in.Resumed // nothing remembers that it has been told: it is told once for each start of the engine
	switch {
	case late && t.Missed != v1alpha1.MissedPolicyOnce:
		missed++
		done()
	case s.busy():
		if !quiet {
			s.out.Notes = append(s.out.Notes, Note{Reason: ReasonMissedSchedule, Message: fmt.Sprintf(
				"operation %s did not run at %s: the run before has not ended", s.op.Name, due.UTC().Format(time.RFC3339))})
		}
		done()
		return
	default:
		if s.fire(t, v1alpha1.RunTrigger{Time: &at}, strconv.FormatInt(due.Unix(), 10)) != held {
			done()
		}
	}
	if missed > 0 && !quiet && t.Missed != v1alpha1.MissedPolicyOnce {
		s.out.Notes = append(s.out.Notes, Note{Reason: ReasonMissedSchedule, Warning: true, Message: fmt.Sprintf(
			"operation %s has missed %s of its times, the last one at %s", s.op.Name, counted(missed), due.UTC().Format(time.RFC3339))})
	}
}

func counted(n int) string {
	if n >= maxCounted {
		return fmt.Sprintf("more than %d", maxCounted)
	}
	return strconv.Itoa(n)
}

// interval fires at an interval from the end of the last run.
func (s *subject) interval(t *program.Trigger) {
	text, err := s.in.Eval.Text(t.Every, nil)
	if err != nil {
		s.hold(t, "every", err)
		return
	}
	if text == "" {
		s.forget(t)
		return
	}
	every, err := program.ParseDuration(text)
	if err != nil || every < time.Second {
		s.problem(t, fmt.Errorf("every %q is no interval such as 10m, of one second at least", text))
		return
	}
	idleSince := s.idleSince(t)
	if s.busy() {
		return // its end wakes
	}
	base := s.lastEnd()
	due := base.Add(every)
	if base.IsZero() {
		base = s.memory.Since.Time
		due = base.Add(every)
		if t.InitialDelay > 0 {
			due = base.Add(t.InitialDelay)
		}
	}
	due = due.Add(s.jitter(t))
	if t.Idle > 0 {
		due = maxTime(due, idleSince.Add(t.Idle))
	}
	if m := s.of(t); m != nil && m.Asked != nil {
		due = maxTime(due, m.Asked.Add(every)) // when said no: it is asked again an interval later
	}
	if s.in.Now.Before(due) {
		s.wake(due)
		return
	}
	at := metav1.NewTime(due.UTC().Truncate(time.Second))
	switch s.fire(t, v1alpha1.RunTrigger{Time: &at}, strconv.FormatInt(base.UnixMicro(), 10)) {
	case held:
	case passed:
		if now := metav1.NewTime(s.now); !s.in.Memoryless {
			s.note(t).Asked = &now
		}
		s.wake(s.in.Now.Add(every))
	case fired:
		if m := s.of(t); m != nil {
			m.Asked = nil
			s.dropEmpty(t)
		}
	}
}

// idleSince is since when the spec of the instance has been as it is.
func (s *subject) idleSince(t *program.Trigger) time.Time {
	if t.Idle <= 0 {
		return time.Time{}
	}
	if s.in.Memoryless {
		return s.self.GetCreationTimestamp().Time
	}
	m := s.note(t)
	if hash := operation.HashOf(project(s.in.Self, nil)); m.Hash != hash || m.Time == nil {
		now := metav1.NewTime(s.now)
		m.Hash, m.Time = hash, &now
	}
	return m.Time.Time
}

// jitter is the delay of this instance: always the same, evenly spread.
func (s *subject) jitter(t *program.Trigger) time.Duration {
	if t.Jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(s.self.GetUID()) + s.op.Name + strconv.Itoa(t.Index)))
	return time.Duration(h.Sum64() % uint64(t.Jitter)) //nolint:gosec // positive, and smaller than the jitter
}

// condition fires when an expression has been true for long enough.
func (s *subject) condition(t *program.Trigger) {
	is, err := s.in.Eval.Bool(t.Condition, nil)
	if err != nil {
		s.hold(t, "condition", err)
		return
	}
	m := s.note(t)
	if m.Fired {
		again := !is
		if t.Until != nil {
			if again, err = s.in.Eval.Bool(t.Until, nil); err != nil {
				s.hold(t, "until", err)
				return
			}
		}
		if again {
			m.Fired, m.Time = false, nil
			s.dropEmpty(t)
		}
		return
	}
	if !is {
		m.Time = nil
		s.dropEmpty(t)
		return
	}
	if m.Time == nil {
		now := metav1.NewTime(s.now)
		m.Time = &now
	}
	due := m.Time.Add(t.For)
	if last := s.lastEnd(); t.Cooldown > 0 && !last.IsZero() {
		due = maxTime(due, last.Add(t.Cooldown))
	}
	switch {
	case s.in.Now.Before(due):
		s.wake(due)
	case s.busy(): // its end wakes
	default:
		rt := v1alpha1.RunTrigger{Count: s.memory.Count + 1}
		switch s.fire(t, rt, strconv.FormatInt(rt.Count, 10)) {
		case held:
		case passed:
			m.Fired = true
		case fired:
			m.Fired, s.memory.Count = true, rt.Count
		}
	}
}

// dropEmpty forgets a trigger that has nothing to remember.
func (s *subject) dropEmpty(t *program.Trigger) {
	if m := s.of(t); m != nil && m.Time == nil && !m.Fired && m.Hash == "" && m.Asked == nil {
		s.forget(t)
	}
}

// absent is the hash of what is not there.
const absent = "absent"

// watched fires when another object is not as it was.
func (s *subject) watched(t *program.Trigger) {
	value, known := s.in.Watched(t.Watch.Variable())
	if !known {
		return
	}
	hash := absent
	if value != nil {
		hash = operation.HashOf(watchedPart(t.Watch, value))
	}
	m := s.note(t)
	switch {
	case m.Hash == hash:
		return
	case m.Hash == "": // the starting point
		m.Hash = hash
		return
	case s.busy():
		return // it fires when the run has ended
	}
	rt := v1alpha1.RunTrigger{Count: s.memory.Count + 1, Hash: hash}
	if object, ok := value.(map[string]any); ok {
		i := operation.InstanceOf(object)
		rt.Object = &v1alpha1.RunObject{APIVersion: i.APIVersion, Kind: i.Kind, Namespace: i.Namespace, Name: i.Name, UID: string(i.UID)}
	}
	switch s.fire(t, rt, fmt.Sprintf("%d %s", rt.Count, hash)) {
	case held:
	case passed:
		m.Hash = hash
	case fired:
		m.Hash, s.memory.Count = hash, rt.Count
	}
}

// watchedPart is what counts of what is watched: of each object of a list, with its name.
func watchedPart(w *program.WatchTrigger, value any) any {
	switch v := value.(type) {
	case map[string]any:
		return content(v, w.Fields)
	case []any:
		out := make(map[string]any, len(v))
		for _, item := range v {
			if object, ok := item.(map[string]any); ok {
				i := operation.InstanceOf(object)
				out[i.Namespace+"/"+i.Name] = content(object, w.Fields)
			}
		}
		return out
	}
	return value
}

// content is what counts of an object: the given paths, or all but metadata and status.
func content(object map[string]any, paths [][]string) map[string]any {
	if len(paths) > 0 {
		return project(object, paths)
	}
	out := map[string]any{}
	for name, value := range object {
		if name != "metadata" && name != "status" {
			out[name] = value
		}
	}
	return out
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
