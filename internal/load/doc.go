// Package load reads YAML documents into OperatorDefinitions and remembers where each field stands. It is strict: what the
// API server would refuse or drop is an error here, in the same words, because the rules are those of the generated
// CustomResourceDefinition of OperatorDefinition.
//
// It knows nothing of what a definition means: that is compile's part.
package load
