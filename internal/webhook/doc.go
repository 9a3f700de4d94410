// Package webhook admits OperatorDefinitions: it refuses, with all errors at once, what the reconciler would not accept, and an
// author who may not act as the ServiceAccount that the definition names. It holds no rule of its own: the rules are those of
// compile, and the right is asked of the API server. It makes its own certificate where nobody else does.
package webhook
