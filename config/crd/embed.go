// Package crd holds the CustomResourceDefinitions of Libretto's own kinds, as generated from api/v1alpha1. The rules that
// the API server enforces with them are enforced offline with them too.
package crd

import _ "embed" // the files below

// OperatorDefinitions is the CustomResourceDefinition of OperatorDefinition, in YAML.
//
//go:embed bases/libretto.dev_operatordefinitions.yaml
var OperatorDefinitions []byte

// OperatorRevisions is the CustomResourceDefinition of OperatorRevision, in YAML.
//
//go:embed bases/libretto.dev_operatorrevisions.yaml
var OperatorRevisions []byte
