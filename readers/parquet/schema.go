package parquet

import (
	"fmt"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
)

// maxDepth is the deepest nesting of a column that is read.
const maxDepth = 64

// leaf is a column of the file: a field of the schema that has values.
type leaf struct {
	schemaElement
	label    string // its path with dots, without the names that only lists and maps have
	number   int    // among the leaves
	maxDef   int    // definition level of a value that is not null
	maxRep   int
	elements []int // for each repetition level from 1: the definition level from which an element of the list exists
}

// nullable reports whether a value, or one of the structs that it is in, may be null.
func (l *leaf) nullable() bool {
	if l.maxRep == 0 {
		return l.maxDef > 0
	}
	return l.maxDef > l.elements[l.maxRep-1]
}

func (l *leaf) String() string { return columns.Label(l.label, l.number) }

// describe returns the type for an error.
func (l *leaf) describe() string {
	name := l.typ.String()
	switch l.annotation {
	case annotatedDecimal:
		name += fmt.Sprintf(" with decimals of scale %d", l.scale)
	case annotatedInteger:
		kind := "int"
		if l.unsigned {
			kind = "uint"
		}
		name += fmt.Sprintf(" with values of %s%d", kind, l.bits)
	}
	if l.maxRep > 0 {
		name = strings.Repeat("list of ", l.maxRep) + name
	}
	return name
}

// schemaReader walks over the nodes of a schema.
type schemaReader struct {
	elements []schemaElement
	at       int
	leaves   []leaf
}

// context is what the nodes above a node say.
type context struct {
	label      string
	def, rep   int
	elements   []int
	depth      int
	unlabelled bool // the node's own name is not part of the path
}

// repeat adds the levels of a repeated node.
func (c *context) repeat() {
	c.def++
	c.rep++
	c.elements = append(c.elements[:len(c.elements):len(c.elements)], c.def)
}

// leavesOf returns the columns of a schema.
func leavesOf(schema []schemaElement) ([]leaf, error) {
	s := &schemaReader{elements: schema}
	root := s.elements[0]
	s.at = 1
	for range root.children {
		if err := s.node(context{}); err != nil {
			return nil, err
		}
	}
	if s.at != len(s.elements) {
		return nil, fmt.Errorf("schema: expected %d nodes, found %d", s.at, len(s.elements))
	}
	return s.leaves, nil
}

// node reads a node and all nodes below it.
func (s *schemaReader) node(above context) error {
	if s.at >= len(s.elements) {
		return fmt.Errorf("schema: expected more than %d nodes, found the end", len(s.elements))
	}
	if above.depth >= maxDepth {
		return fmt.Errorf("schema: expected at most %d levels, found more", maxDepth)
	}
	e := s.elements[s.at]
	s.at++
	here := above
	here.depth++
	here.unlabelled = false
	if !above.unlabelled {
		here.label = strings.TrimPrefix(above.label+"."+e.name, ".")
	}
	switch e.repetition {
	case optional:
		here.def++
	case repeated:
		here.repeat()
	}
	if e.children == 0 && e.typ >= 0 {
		if here.rep > pyfeed.MaxLoDLevels-1 {
			return fmt.Errorf("schema: column %q: expected lists of at most %d levels, found %d", here.label, pyfeed.MaxLoDLevels-1, here.rep)
		}
		s.leaves = append(s.leaves, leaf{schemaElement: e, label: here.label, number: len(s.leaves),
			maxDef: here.def, maxRep: here.rep, elements: here.elements})
		return nil
	}
	if e.typ >= 0 {
		return fmt.Errorf("schema: column %q: expected a type or fields, found both", here.label)
	}
	// The group in a list or map is not part of the path of the columns below it.
	wraps := e.annotation == annotatedList || e.annotation == annotatedMap
	for range e.children {
		if wraps && e.children == 1 && s.at < len(s.elements) && s.elements[s.at].repetition == repeated {
			if err := s.wrapper(here, &e); err != nil {
				return err
			}
			continue
		}
		if err := s.node(here); err != nil {
			return err
		}
	}
	return nil
}

// wrapper reads the repeated node in a list or a map. The rules for older files are those of
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists.
func (s *schemaReader) wrapper(above context, parent *schemaElement) error {
	r := s.elements[s.at]
	if r.children == 0 { // the elements themselves
		above.unlabelled = true
		return s.node(above)
	}
	s.at++
	above.repeat()
	if above.depth++; above.depth >= maxDepth {
		return fmt.Errorf("schema: expected at most %d levels, found more", maxDepth)
	}
	isElement := r.children > 1 || r.name == "array" || r.name == parent.name+"_tuple"
	above.unlabelled = parent.annotation == annotatedList && !isElement
	for range r.children {
		if err := s.node(above); err != nil {
			return err
		}
	}
	return nil
}
