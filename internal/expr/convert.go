package expr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/runtime"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// toJSON makes a plain JSON value, or Omit, of a CEL value. Nothing is shared with the value. Fields and items that are to
// be omitted are left out.
func toJSON(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return int64(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Null:
		return nil, nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("the result is %v, which is no number in JSON", float64(v))
		}
		return float64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, errors.New("the result is too large for an integer")
		}
		return int64(v), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return time.Duration.String(v.Duration), nil
	case omitValue:
		return Omit{}, nil
	case *types.Optional:
		if !v.HasValue() {
			return Omit{}, nil
		}
		return toJSON(v.GetValue())
	case *objectValue:
		return runtime.DeepCopyJSONValue(v.fields), nil
	case *listValue:
		return runtime.DeepCopyJSONValue(v.elements), nil
	case traits.Mapper:
		return mapToJSON(v)
	case traits.Lister:
		return listToJSON(v)
	case apiservercel.Quantity:
		return v.String(), nil
	case *apiservercel.Quantity:
		return v.String(), nil
	case apiservercel.IP:
		return v.String(), nil
	case apiservercel.CIDR:
		return v.String(), nil
	case apiservercel.Semver:
		return v.String(), nil
	case *types.Err:
		return nil, v
	default:
		return nil, fmt.Errorf("the result is a %s, which cannot be written into an object", describeTypeName(v.Type().TypeName()))
	}
}

func mapToJSON(m traits.Mapper) (any, error) {
	out := make(map[string]any, int(m.Size().(types.Int)))
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, fmt.Errorf("the result has a key that is a %s; keys must be strings", describeTypeName(key.Type().TypeName()))
		}
		v, err := toJSON(m.Get(key))
		if err != nil {
			return nil, err
		}
		if !IsOmit(v) {
			out[string(name)] = v
		}
	}
	return out, nil
}

func listToJSON(l traits.Lister) (any, error) {
	out := make([]any, 0, int(l.Size().(types.Int)))
	for it := l.Iterator(); it.HasNext() == types.True; {
		v, err := toJSON(it.Next())
		if err != nil {
			return nil, err
		}
		if !IsOmit(v) {
			out = append(out, v)
		}
	}
	return out, nil
}

// Format writes a value into text: strings as they are, numbers and booleans as in JSON. Objects, lists, null and Omit
// are an error.
func Format(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case nil:
		return "", errors.New("null cannot stand within a text; use orValue('…') or a condition")
	case Omit:
		return "", errors.New("a value that is left out cannot stand within a text; use orValue('…')")
	case map[string]any:
		return "", errors.New("an object cannot stand within a text; use json(…) or select a field")
	case []any:
		return "", errors.New("a list cannot stand within a text; use join(', ') or json(…)")
	default:
		return "", fmt.Errorf("a %T cannot stand within a text", v)
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
