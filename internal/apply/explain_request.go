package apply

// Explain makes one of this package's errors of an answer of the API server to a request with the verb that the caller made itself;
// nil for nil.
func (w *Writer) Explain(err error, verb string, t Target) error { return w.explain(err, verb, t) }
