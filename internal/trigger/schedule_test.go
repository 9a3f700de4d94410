package trigger

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones on a machine without them
)

func TestNext(t *testing.T) {
	const never = "0001-01-01T00:00:00Z"
	for name, tc := range map[string]struct {
		text, zone, after string
		want              []string
	}{
		"five fields":          {"30 2 * * *", "UTC", "2026-01-01T02:30:00Z", []string{"2026-01-02T02:30:00Z"}},
		"six fields":           {"10 30 2 * * *", "UTC", "2026-01-01T02:30:00Z", []string{"2026-01-01T02:30:10Z", "2026-01-02T02:30:10Z"}},
		"a word":               {"@daily", "Europe/Berlin", "2026-01-01T12:00:00Z", []string{"2026-01-01T23:00:00Z"}},
		"a time that never is": {"0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", []string{never}},
		"a leap day":           {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		"Sunday or the 13th":   {"0 0 13 * 0", "UTC", "2026-02-10T00:00:00Z", []string{"2026-02-13T00:00:00Z", "2026-02-15T00:00:00Z"}},
		"Berlin, spring: once, right after the gap": {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		"Berlin, autumn: once, the first time": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"Berlin, autumn: from within the second hour": {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30:00Z"}},
		"Berlin, spring: every hour without a gap": {"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}},
		"Berlin, autumn: every half hour without a double or a gap": {"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"}},
		"Berlin, spring: every second hour": {"0 */2 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}},
		"New York, spring": {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		"New York, autumn": {"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		"Lord Howe, half an hour forward": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T10:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		"Lord Howe, half an hour back": {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T10:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		"a midnight that does not exist": {"0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", []string{"2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSchedule(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			loc, err := time.LoadLocation(tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			at := moment(t, tc.after)
			for _, want := range tc.want {
				at = s.Next(at, loc)
				if got := at.UTC().Format(time.RFC3339); got != want {
					t.Fatalf("next is %s, want %s", got, want)
				}
			}
		})
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A time of the day comes exactly once on each day of the calendar, in every zone, whatever clocks do.
func TestOnceADay(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "America/Havana", "Africa/Casablanca"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"0 0 * * *", "30 1 * * *", "15 2 * * *", "59 2 * * *", "30 23 * * *"} {
			s, err := ParseSchedule(text)
			if err != nil {
				t.Fatal(err)
			}
			from := time.Date(2025, 12, 31, 23, 59, 59, 0, loc)
			end := time.Date(2027, 1, 1, 12, 0, 0, 0, loc)
			n := 0
			for at := s.Next(from, loc); at.Before(end); at = s.Next(at, loc) {
				if !at.After(from) {
					t.Fatalf("%s %q: %s does not come after %s", zone, text, at, from)
				}
				if at.Sub(from) > 26*time.Hour {
					t.Errorf("%s %q: %s passes between %s and %s", zone, text, at.Sub(from), from, at)
				}
				from = at
				n++
			}
			if n != 365 && n != 366 {
				t.Errorf("%s %q: %d times in a year", zone, text, n)
			}
		}
	}
}

func TestParseScheduleSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "found 0 fields",
		"* * *":               "found 3 fields",
		"61 * * * *":          "minute (0 to 59)",
		"* * * * mon-xyz":     "day of week",
		"@every 5m":           "every: 10m",
		"@fortnightly":        "@fortnightly",
		"TZ=UTC 0 0 * * *":    "timeZone",
		"* * * * * * *":       "found 7 fields",
		"0 0 * * *; rm -rf /": "fields",
	} {
		if _, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}
