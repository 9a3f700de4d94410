package apply

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// normalize puts stringData of a Secret where the API server will put it: in data. Otherwise Libretto would own stringData, which
// no live Secret has, and a change of data by somebody else would go unseen.
func normalize(t Target, obj *unstructured.Unstructured) *unstructured.Unstructured {
	text, ok := obj.Object["stringData"].(map[string]any)
	if !ok || !sensitive(t) {
		return obj
	}
	data := map[string]any{}
	if have, ok := obj.Object["data"].(map[string]any); ok {
		for k, v := range have {
			data[k] = v
		}
	}
	for k, v := range text {
		s, ok := v.(string)
		if !ok {
			return obj // the API server tells what is wrong
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	out := copyOf(obj)
	delete(out.Object, "stringData")
	out.Object["data"] = data
	return out
}
