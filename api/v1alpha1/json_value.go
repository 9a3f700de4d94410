package v1alpha1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// JSONObject is any JSON object: string, bool, int64, float64, nil, []any and map[string]any are in it.
//
// +kubebuilder:object:generate=false
type JSONObject map[string]any

// UnmarshalJSON implements json.Unmarshaler; whole numbers become int64.
func (o *JSONObject) UnmarshalJSON(data []byte) error {
	var m map[string]any
	if err := utiljson.Unmarshal(data, &m); err != nil {
		return err
	}
	*o = m
	return nil
}

// DeepCopy copies it.
func (o JSONObject) DeepCopy() JSONObject {
	if o == nil {
		return nil
	}
	return runtime.DeepCopyJSON(o)
}

// DeepCopyInto copies it into out.
func (o JSONObject) DeepCopyInto(out *JSONObject) { *out = o.DeepCopy() }

// JSONValue is any JSON value: nil, or what JSONObject holds.
//
// +kubebuilder:object:generate=false
type JSONValue struct{ Value any }

// MarshalJSON implements json.Marshaler.
func (v JSONValue) MarshalJSON() ([]byte, error) { return json.Marshal(v.Value) }

// UnmarshalJSON implements json.Unmarshaler; whole numbers become int64.
func (v *JSONValue) UnmarshalJSON(data []byte) error {
	v.Value = nil
	return utiljson.Unmarshal(data, &v.Value)
}

// DeepCopyInto copies it into out.
func (v *JSONValue) DeepCopyInto(out *JSONValue) { out.Value = runtime.DeepCopyJSONValue(v.Value) }

// DeepCopy copies it.
func (v *JSONValue) DeepCopy() *JSONValue {
	if v == nil {
		return nil
	}
	out := &JSONValue{}
	v.DeepCopyInto(out)
	return out
}
