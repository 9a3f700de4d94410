// Package graph draws what a compiled definition makes and in which order: as text, Mermaid, DOT and SVG. It is pure; the same
// Program yields the same bytes.
package graph
