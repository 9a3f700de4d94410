package schema

// Mismatch is a value that does not fit a schema, in words for its author.
type Mismatch struct {
	Message, Expected, Found, Hint string
}

// Check checks a value without expressions against the schema: its type, and for a scalar its enum, format, pattern and
// bounds. The parts of objects and arrays are not checked. Nil: it fits.
func (s *Schema) Check(value any) *Mismatch { return nil }

// Describe says in words what the schema takes, such as "integer", "list of string" or "one of: Always, Never".
func (s *Schema) Describe() string { return "" }
