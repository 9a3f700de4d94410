package trigger

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a parsed cron expression. It is immutable.
type Schedule struct {
	spec *cron.SpecSchedule
	// anyHour: the hours are not limited: it goes by elapsed time, whatever clocks do.
	anyHour bool
}

// parser is that of Kubernetes' CronJobs, with seconds in front if there are six fields.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// hourStar is the bit by which the parser marks a field that is *.
const hourStar = 1 << 63

// ParseSchedule reads a cron expression: five fields, six with seconds in front, or @hourly, @daily, @weekly, @monthly, @yearly.
func ParseSchedule(text string) (*Schedule, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New("@every is no schedule; write a trigger with every instead, as in every: 10m")
	case strings.HasPrefix(text, "TZ="), strings.HasPrefix(text, "CRON_TZ="):
		return nil, errors.New("the time zone stands in timeZone, not in the schedule")
	case !strings.HasPrefix(text, "@"):
		if n := len(strings.Fields(text)); n != 5 && n != 6 {
			return nil, fmt.Errorf("found %d fields; a schedule has five (minute, hour, day of month, month, day of week), or six with seconds in front", n)
		}
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		if field := wrongField(text); field != "" {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return nil, fmt.Errorf("not a schedule such as \"30 2 * * *\" (minute, hour, day of month, month, day of week): %w", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("not a schedule")
	}
	return &Schedule{spec: spec, anyHour: spec.Hour&hourStar != 0}, nil
}

// fieldNames are the fields of a schedule, from its end, and what may stand in them.
var fieldNames = []string{
	"day of week (0 to 6 from Sunday, or SUN to SAT)", "month (1 to 12, or JAN to DEC)", "day of month (1 to 31)", "hour (0 to 23)", "minute (0 to 59)", "second (0 to 59)",
}

// wrongField names the first field of a schedule that cannot be read; empty: none by itself.
func wrongField(text string) string {
	fields := strings.Fields(text)
	if strings.HasPrefix(text, "@") {
		return ""
	}
	for i := range fields {
		alone := strings.Fields("* * * * * *")[:len(fields)]
		alone[i] = fields[i]
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("%s, found %q", fieldNames[len(fields)-1-i], fields[i])
		}
	}
	return ""
}

// LoadZone loads a time zone by its name. That of the machine is none: it would be another one on another machine.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the zone of the machine is none")
	}
	return time.LoadLocation(name)
}

// maxSkips is how many times that clocks hide Next passes over; a day has at most one hour of them.
const maxSkips = 100_000

// Next returns the first time after a time, in a time zone; zero: it never comes. A time of the day that does not exist, because
// clocks are put forward, comes right after the gap; one that exists twice comes the first time.
func (s *Schedule) Next(after time.Time, loc *time.Location) time.Time {
	if s.anyHour {
		spec := *s.spec
		spec.Location = loc
		return spec.Next(after.In(loc))
	}
	spec := *s.spec
	spec.Location = time.UTC
	// What clocks on the wall show, as if it were UTC. It begins some hours early: clocks may have been put forward since.
	wall := wallOf(after.In(loc)).Add(-3 * time.Hour)
	for range maxSkips {
		wall = spec.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if at := onClock(wall, loc); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// onClock returns when clocks in a time zone first show a wall time; if they never do, the moment in which they jump over it.
func onClock(wall time.Time, loc *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, loc)
	start, end := t.ZoneBounds()
	if !wallOf(t).Equal(wall) {
		if !start.IsZero() && t.Sub(start) < 4*time.Hour {
			return start
		}
		return end
	}
	if start.IsZero() {
		return t
	}
	_, before := start.Add(-time.Second).Zone()
	_, now := t.Zone()
	if earlier := t.Add(time.Duration(now-before) * time.Second); earlier.Before(start) && wallOf(earlier.In(loc)).Equal(wall) {
		return earlier
	}
	return t
}
