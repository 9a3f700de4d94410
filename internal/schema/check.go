package schema

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/libretto-dev/libretto/internal/diag"
)

// Mismatch is a value that does not fit a schema, in words for its author.
type Mismatch struct {
	Message, Expected, Found, Hint string
}

// Check checks a value without expressions against the schema: its type, and for a scalar its enum, format, pattern and
// bounds. The parts of objects and arrays are not checked. Nil: it fits.
func (s *Schema) Check(value any) *Mismatch {
	s = s.Resolved()
	if s == nil || s.typ == Unknown || value == nil {
		return nil
	}
	if m := s.checkType(value); m != nil {
		return m
	}
	if len(s.enum) > 0 {
		return s.checkEnum(value)
	}
	switch v := value.(type) {
	case string:
		return s.checkString(v)
	case []any:
		if s.maxItems != nil && int64(len(v)) > *s.maxItems {
			return &Mismatch{Message: "too many items", Expected: fmt.Sprintf("at most %d", *s.maxItems), Found: strconv.Itoa(len(v))}
		}
	default:
		if n, ok := number(value); ok {
			return s.checkBounds(n)
		}
	}
	return nil
}

func (s *Schema) checkType(value any) *Mismatch {
	found := typeOf(value)
	switch s.typ {
	case found:
		return nil
	case Number:
		if found == Integer {
			return nil
		}
	case Integer:
		if n, ok := number(value); ok && n == math.Trunc(n) {
			return nil
		}
	case IntOrString:
		if found == Integer || found == String {
			return nil
		}
	case String:
		if s.format == FormatQuantity && (found == Integer || found == Number) {
			return nil
		}
	}
	m := &Mismatch{Message: "the value has the wrong type", Expected: s.Describe(), Found: describeValue(value)}
	text, isString := value.(string)
	switch {
	case s.typ == String && (found == Integer || found == Number || found == Boolean):
		m.Hint = "put it in quotes"
	case isString && (s.typ == Integer || s.typ == Number):
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			m.Hint = "leave the quotes out"
		}
	case isString && s.typ == Boolean && (text == "true" || text == "false"):
		m.Hint = "leave the quotes out"
	}
	return m
}

func (s *Schema) checkEnum(value any) *Mismatch {
	var names []string
	for _, allowed := range s.enum {
		if reflect.DeepEqual(allowed, value) {
			return nil
		}
		if a, ok := number(allowed); ok {
			if n, ok := number(value); ok && a == n {
				return nil
			}
		}
		if text, ok := allowed.(string); ok {
			names = append(names, text)
		}
	}
	m := &Mismatch{Message: "the value is not one of those allowed", Expected: s.Describe(), Found: describeValue(value)}
	if text, ok := value.(string); ok {
		if similar, ok := diag.Nearest(text, names); ok {
			m.Hint = fmt.Sprintf("did you mean %s?", similar)
		}
	}
	return m
}

func (s *Schema) checkString(v string) *Mismatch {
	length := int64(utf8.RuneCountInString(v))
	switch {
	case s.minLength != nil && length < *s.minLength:
		return &Mismatch{Message: "the text is too short", Expected: fmt.Sprintf("at least %d characters", *s.minLength), Found: strconv.FormatInt(length, 10)}
	case s.maxLength != nil && length > *s.maxLength:
		return &Mismatch{Message: "the text is too long", Expected: fmt.Sprintf("at most %d characters", *s.maxLength), Found: strconv.FormatInt(length, 10)}
	}
	if s.pattern != "" {
		if re, err := regexp.Compile(s.pattern); err == nil && !re.MatchString(v) {
			return &Mismatch{Message: "the text does not match the pattern", Expected: s.pattern, Found: describeValue(v)}
		}
	}
	var err error
	hint := ""
	switch s.format {
	case FormatQuantity:
		_, err = resource.ParseQuantity(v)
		hint = "quantities are written as 100m, 2 or 1Gi"
	case FormatDateTime:
		_, err = time.Parse(time.RFC3339, v)
		hint = "times are written as 2006-01-02T15:04:05Z"
	case FormatDate:
		_, err = time.Parse(time.DateOnly, v)
		hint = "dates are written as 2006-01-02"
	case FormatByte:
		_, err = base64.StdEncoding.DecodeString(v)
		hint = "write base64, or an expression: ${bytes('…')}"
	}
	if err != nil {
		return &Mismatch{Message: "the text does not have the format " + s.format, Expected: s.Describe(), Found: describeValue(v), Hint: hint}
	}
	return nil
}

func (s *Schema) checkBounds(n float64) *Mismatch {
	found := strconv.FormatFloat(n, 'g', -1, 64)
	if s.minimum != nil && (n < *s.minimum || s.exclusiveMin && n == *s.minimum) {
		return &Mismatch{Message: "the number is too small", Expected: bound("at least", "more than", s.exclusiveMin, *s.minimum), Found: found}
	}
	if s.maximum != nil && (n > *s.maximum || s.exclusiveMax && n == *s.maximum) {
		return &Mismatch{Message: "the number is too large", Expected: bound("at most", "less than", s.exclusiveMax, *s.maximum), Found: found}
	}
	return nil
}

func bound(inclusive, exclusive string, isExclusive bool, limit float64) string {
	if isExclusive {
		inclusive = exclusive
	}
	return inclusive + " " + strconv.FormatFloat(limit, 'g', -1, 64)
}

// Describe says in words what the schema takes, such as "integer", "list of string" or "one of: Always, Never".
func (s *Schema) Describe() string {
	return s.describe(0)
}

func (s *Schema) describe(depth int) string {
	s = s.Resolved()
	if s == nil || s.typ == Unknown || depth > 4 {
		return "any value"
	}
	if len(s.enum) > 0 {
		words := make([]string, len(s.enum))
		for i, v := range s.enum {
			words[i] = fmt.Sprint(v)
		}
		return "one of: " + strings.Join(words, ", ")
	}
	switch s.typ {
	case IntOrString:
		return "integer or string"
	case Array:
		return "list of " + s.items.describe(depth+1)
	case Object:
		switch {
		case s.additional != nil:
			return "map of " + s.additional.describe(depth+1)
		case s.name != "" && len(s.properties) > 0:
			return "object (" + s.name + ")"
		default:
			return "object"
		}
	case String:
		switch s.format {
		case FormatByte:
			return "string (base64)"
		case FormatQuantity, FormatDateTime, FormatDate, FormatDuration:
			return "string (" + s.format + ")"
		}
	}
	return string(s.typ)
}

func typeOf(value any) Type {
	switch v := value.(type) {
	case string:
		return String
	case bool:
		return Boolean
	case map[string]any:
		return Object
	case []any:
		return Array
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return Integer
		}
		return Number
	case int, int32, int64:
		return Integer
	default:
		return Unknown
	}
}

// describeValue says in words what a value is; long text is cut.
func describeValue(value any) string {
	switch v := value.(type) {
	case string:
		if utf8.RuneCountInString(v) > 40 {
			v = string([]rune(v)[:40]) + "…"
		}
		return "string " + strconv.Quote(v)
	case map[string]any:
		return "object"
	case []any:
		return "list"
	default:
		return fmt.Sprintf("%s %v", typeOf(value), value)
	}
}

func number(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int32:
		return float64(v), true
	case int:
		return float64(v), true
	default:
		return 0, false
	}
}
