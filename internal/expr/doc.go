// Package expr compiles and evaluates the expressions of a definition: CEL, with the types of schemas.
//
// An Env has the names that expressions may use. Compile checks an expression against them and says in the words of its
// author all that is wrong with it; an Expr tells what it reads (Refs), what it yields (Type, Schema, Assignable), and
// computes it (Eval) from plain JSON values to plain JSON values. Scan finds the ${…} in a string.
//
// The functions are those of Kubernetes' CEL. The types are built here, from schema.Schema, rather than by the declarations
// of k8s.io/apiserver: types are looked at when an expression selects a field, so that they cost nothing until then and may
// contain themselves; what preserves unknown fields can be read; and objects of the same definition have the same type in
// every kind. Values wrap the JSON values that they are given and copy nothing.
//
// The package knows no cluster, no clock and no YAML. The functions of random alone yield something else every time; they
// have to be allowed.
package expr
