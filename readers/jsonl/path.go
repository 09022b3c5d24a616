package jsonl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/readers/columns"
)

// splitPath returns the names and indexes that a path consists of.
func splitPath(path string) ([]string, error) {
	switch {
	case path == "":
		return nil, fmt.Errorf("expected the path of a value, found an empty one")
	case path[0] != '/':
		return strings.Split(path, "."), nil
	}
	steps := strings.Split(path[1:], "/")
	for i, s := range steps {
		for rest := s; ; {
			_, behind, escaped := strings.Cut(rest, "~")
			if !escaped {
				break
			}
			if behind == "" || behind[0] != '0' && behind[0] != '1' {
				return nil, fmt.Errorf("expected a JSON pointer, in which ~0 stands for ~ and ~1 for /, found %q", path)
			}
			rest = behind
		}
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return steps, nil
}

// choose returns the paths that a selection has. single reports whether it is a value by itself, rather than a list of
// one.
func choose(s columns.Select) (paths []string, single bool, err error) {
	for _, item := range s.Items {
		switch item := item.(type) {
		case string:
			paths = append(paths, item)
		case int:
			if item < 0 {
				return nil, false, fmt.Errorf("expected an index of an array from 0, found %d", item)
			}
			paths = append(paths, strconv.Itoa(item))
		}
	}
	if len(paths) == 0 {
		return nil, false, fmt.Errorf("expected at least 1 column, found none")
	}
	return paths, s.Single, nil
}

// A node is a value that is selected, or that has selected values in it.
type node struct {
	path     string
	column   *column // of the value itself; nil: only values in it are selected
	children []*node
	names    map[string]*node // the children by their names
	items    []*node          // the children whose names are indexes of arrays, by index
	indexes  []int            // of items

	discovers bool // each name of an object becomes a child with a column

	// order has the names of the last object in their order. Most objects have the same names in the same order, so a
	// name is first compared with the one that was at its place.
	order []member
	seen  uint64 // the last record in which the value was found
}

// member is a name with its quotes and the colon after it, as in the file.
type member struct {
	text  []byte
	child *node // nil: it is not selected
}

// Limits on the names that a node remembers. A longer name, or one behind many, is looked up.
const (
	maxMembers = 4096
	maxMember  = 256
)

// add adds a column at a path below the node.
func (n *node) add(steps []string, c *column) error {
	if len(steps) == 0 {
		switch {
		case n.column != nil:
			return fmt.Errorf("expected values that no other slot has, found %v, which slot %d has", c, n.column.slot)
		case len(n.children) > 0 && !c.json:
			return fmt.Errorf("expected a value in which no other is selected, found %v, but %q is selected too", c, n.children[0].path)
		}
		n.column = c
		return nil
	}
	if n.column != nil && !n.column.json {
		return fmt.Errorf("expected a value in which no other is selected, found %v, but %v is selected too", n.column, c)
	}
	next := n.names[steps[0]]
	if next == nil {
		next = n.addChild(steps[0], c.path)
		if index, err := strconv.Atoi(steps[0]); err == nil && index >= 0 && strconv.Itoa(index) == steps[0] {
			at, _ := slices.BinarySearch(n.indexes, index)
			n.indexes, n.items = slices.Insert(n.indexes, at, index), slices.Insert(n.items, at, next)
		}
	}
	return next.add(steps[1:], c)
}

// addChild adds a child.
func (n *node) addChild(name, path string) *node {
	child := &node{path: path}
	if n.names == nil {
		n.names = make(map[string]*node)
	}
	n.names[name] = child
	n.children = append(n.children, child)
	return child
}
