package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// maxObject is the size of an object in bytes of JSON: etcd takes 1.5 MiB, managed fields need room too.
const maxObject = 1 << 20

// hash returns 32 hex digits that identify a JSON value, and about how many bytes of JSON it has.
func (e *Evaluation) hash(value any) (digits string, size int) {
	e.buffer = canonical(e.buffer[:0], value)
	sum := sha256.Sum256(e.buffer)
	return hex.EncodeToString(sum[:16]), len(e.buffer)
}

// Hash returns the hash of a JSON value, as Object.Hash: 32 hex digits.
func Hash(value any) string {
	digits, _ := (&Evaluation{}).hash(value)
	return digits
}

// canonical appends a JSON value to a buffer: keys sorted, strings in Go's quotes. It is for hashing, and different values
// have different texts; it need not be read again.
func canonical(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return quoted(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case map[string]any:
		return canonicalObject(b, v)
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = canonical(b, item)
		}
		return append(b, ']')
	}
	text, err := json.Marshal(value)
	if err != nil {
		return append(b, "?"...)
	}
	return append(b, text...)
}

func canonicalObject(b []byte, object map[string]any) []byte {
	var few [24]string
	names := few[:0]
	if len(object) > len(few) {
		names = make([]string, 0, len(object))
	}
	names = slices.AppendSeq(names, maps.Keys(object))
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = quoted(b, name)
		b = append(b, ':')
		b = canonical(b, object[name])
	}
	return append(b, '}')
}

func quoted(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return strconv.AppendQuote(b, text)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
