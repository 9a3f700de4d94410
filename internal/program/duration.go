package program

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

var durationPart = regexp.MustCompile(`([0-9]+)(ms|s|m|h|d)`)

var durationWhole = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d))+$`)

var durationUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// ParseDuration reads a v1alpha1.Duration: 90s, 1h30m, 30d. A day has 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	if !durationWhole.MatchString(text) {
		return 0, fmt.Errorf("%q is no duration such as 90s, 1h30m or 30d", text)
	}
	var sum time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(part[1], 10, 64)
		unit := durationUnits[part[2]]
		if err != nil || n > int64((1<<62)/unit) {
			return 0, fmt.Errorf("%q is too long a duration", text)
		}
		if sum += time.Duration(n) * unit; sum < 0 {
			return 0, fmt.Errorf("%q is too long a duration", text)
		}
	}
	return sum, nil
}
