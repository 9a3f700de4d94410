package testkit

import (
	"testing"
	"time"
)

// interval is how often a condition is looked at.
const interval = 50 * time.Millisecond

// Eventually calls f until it returns nil, and fails the test with its last error when that has not happened in time.
// what is a clause for the message: "the Deployment is there".
func Eventually(t testing.TB, timeout time.Duration, what string, f func() error) {
	t.Helper()
	start := time.Now()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Since(start) > timeout {
			t.Fatalf("waited %s, and still not: %s\n  last: %v", timeout, what, err)
		}
		time.Sleep(interval)
	}
}

// Consistently calls f for the time, and fails the test at the first error.
func Consistently(t testing.TB, d time.Duration, what string, f func() error) {
	t.Helper()
	start := time.Now()
	for time.Since(start) < d {
		if err := f(); err != nil {
			t.Fatalf("after %s no longer: %s\n  %v", time.Since(start).Round(time.Millisecond), what, err)
		}
		time.Sleep(interval)
	}
}
