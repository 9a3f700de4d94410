package kustomization

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// maxNodes is how many values the files of a base may hold, with what aliases stand for.
	maxNodes = 200_000
	// maxNested is how deep YAML within YAML is looked at: a patch in a transformer in a kustomization.
	maxNested = 4
)

// checkSize refuses files in which aliases stand for so much that it would not fit into memory: kustomize writes every alias
// out. What is not YAML is left to kustomize.
func checkSize(files map[string][]byte) error {
	total := 0
	for _, name := range sortedNames(files) {
		if !bytes.Contains(files[name], []byte("*")) {
			continue // no alias
		}
		n := expanded(files[name], 0)
		if total += n; n > maxNodes || total > maxNodes {
			return &FileError{File: name, Message: fmt.Sprintf("the base holds more than %d values, counting what aliases stand for", maxNodes),
				Near: "*", Hint: "write the values out, or use fewer aliases"}
		}
	}
	return nil
}

// expanded counts the values of a text, up to a little more than maxNodes.
func expanded(text []byte, nested int) int {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	total := 0
	for total <= maxNodes {
		var document yaml.Node
		err := decoder.Decode(&document)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return total // kustomize says what is wrong
			}
			break
		}
		c := counter{known: map[*yaml.Node]int{}, nested: nested}
		total += c.count(&document)
	}
	return total
}

type counter struct {
	known  map[*yaml.Node]int
	nested int
}

func (c counter) count(n *yaml.Node) int {
	if size, ok := c.known[n]; ok {
		return size
	}
	c.known[n] = maxNodes + 1 // an alias within what it stands for never ends
	size := 1
	switch {
	case n.Kind == yaml.AliasNode:
		size += c.count(n.Alias)
	case n.Kind == yaml.ScalarNode && c.nested < maxNested && strings.Contains(n.Value, "*") && strings.Contains(n.Value, "&"):
		size += expanded([]byte(n.Value), c.nested+1)
	}
	for _, child := range n.Content {
		if size += c.count(child); size > maxNodes {
			break
		}
	}
	size = min(size, maxNodes+1)
	c.known[n] = size
	return size
}
