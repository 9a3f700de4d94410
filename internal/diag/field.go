package diag

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FromField turns an error of Kubernetes' own validation into a diagnostic.
func FromField(e *field.Error) Diagnostic {
	d := Diagnostic{Path: Normalize(strings.TrimPrefix(e.Field, "<nil>")), Message: strings.TrimSuffix(strings.TrimPrefix(e.Detail, e.Field+" in body "), ".")}
	if _, rest, ok := strings.Cut(d.Message, " in body "); ok {
		d.Message = rest
	}
	if expected, found, ok := strings.Cut(strings.TrimPrefix(d.Message, "must be of type "), ": "); ok && strings.HasPrefix(d.Message, "must be of type ") {
		d.Message, d.Expected, d.Found = "the value has the wrong type", expected, strings.Trim(found, `"`)
		return d
	}
	switch e.Type {
	case field.ErrorTypeRequired:
		if d.Message == "" || d.Message == e.Type.String() {
			d.Message = "required, and not there"
		}
	case field.ErrorTypeNotSupported:
		d.Message, d.Expected, d.Found = "not one of the possible values", strings.TrimPrefix(d.Message, "supported values: "), found(e.BadValue)
	case field.ErrorTypeDuplicate:
		d.Message, d.Found = "the same is there twice", found(e.BadValue)
	case field.ErrorTypeTooMany, field.ErrorTypeTooLong, field.ErrorTypeForbidden:
	default:
		d.Found = found(e.BadValue)
	}
	if d.Message == "" {
		d.Message = strings.ToLower(e.Type.String())
	}
	return d
}

// found shows a value that is wrong, if that is short.
func found(value any) string {
	switch value.(type) {
	case string:
		if text := fmt.Sprintf("%q", value); len(text) <= 120 {
			return text
		}
	case int, int32, int64, float64, bool:
		return fmt.Sprint(value)
	}
	return ""
}
