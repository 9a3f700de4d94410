package diag

import (
	"fmt"
	"slices"
	"strings"
)

// DidYouMean returns `did you mean "x"?` for the candidate that is nearest to word, or "" when none is near.
func DidYouMean(word string, candidates []string) string {
	if best, ok := Nearest(word, candidates); ok {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// Nearest returns the candidate that is nearest to word, if one is near enough to be meant.
func Nearest(word string, candidates []string) (string, bool) {
	lower := strings.ToLower(word)
	limit := len(word)/3 + 1 // a third of the letters may differ, and one more
	best, bestDistance := "", limit+1
	sorted := slices.Sorted(slices.Values(candidates))
	for _, c := range sorted {
		if c == word || c == "" {
			continue
		}
		// At a distance of the whole word nothing is in common.
		if d := distance(lower, strings.ToLower(c), bestDistance); d < bestDistance && d < max(len(word), len(c)) {
			best, bestDistance = c, d
		}
	}
	return best, bestDistance <= limit
}

// OneOf returns the candidates as text: "a", "b" or "c"; at most n of them.
func OneOf(candidates []string, n int) string {
	sorted := slices.Sorted(slices.Values(candidates))
	more := 0
	if len(sorted) > n {
		more = len(sorted) - n
		sorted = sorted[:n]
	}
	for i, c := range sorted {
		sorted[i] = fmt.Sprintf("%q", c)
	}
	switch {
	case more > 0:
		return fmt.Sprintf("%s (and %d more)", strings.Join(sorted, ", "), more)
	case len(sorted) > 1:
		return strings.Join(sorted[:len(sorted)-1], ", ") + " or " + sorted[len(sorted)-1]
	}
	return strings.Join(sorted, "")
}

// distance is the number of edits (insert, delete, replace, swap of neighbours) between a and b, or at least limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(b)]
}
