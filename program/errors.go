package program

import (
	"fmt"
	"strings"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

// An OpError is an error of an operator: of one that is being added to a program, or of one that was run.
type OpError struct {
	Block, Index int // its place in the program
	Op           *desc.Op
	Found        string // its inputs, with shapes
	Cause        error
}

// Place is where the operator is, such as "block 1, op 3: read".
func (e *OpError) Place() string {
	return fmt.Sprintf("block %d, op %d: %s", e.Block, e.Index, e.Op.Type)
}

// Context is everything but the cause.
func (e *OpError) Context() string {
	s := e.Place() + "(" + strings.Join(e.Op.Inputs, ", ") + ")"
	if len(e.Op.Outputs) > 0 {
		s += " -> " + strings.Join(e.Op.Outputs, ", ")
	}
	if e.Op.Where != "" {
		s += " at " + e.Op.Where
	}
	if e.Found != "" {
		s += ", with " + e.Found
	}
	return s
}

func (e *OpError) Error() string { return e.Context() + ": " + e.Cause.Error() }

func (e *OpError) Unwrap() error { return e.Cause }

// reworded is a copy of an Error with another sentence; any other error as it is.
func reworded(err error, text func(string) string) error {
	e, is := err.(*pyfeed.Error)
	if !is {
		return err
	}
	c := *e
	c.Text = text(e.Text)
	return &c
}

// about puts where it is in front of an error's sentence.
func about(err error, format string, args ...any) error {
	return reworded(err, func(text string) string { return fmt.Sprintf(format, args...) + ": " + text })
}

// followed is err with something behind its sentence.
func followed(err error, more string) error {
	return reworded(err, func(text string) string { return text + more })
}

// unprefixed takes the operator's name off an error that will get it anyway.
func unprefixed(err error, prefix string) error {
	return reworded(err, func(text string) string { return strings.TrimPrefix(text, prefix) })
}

// cause is an Error with the kind of err and another text.
func cause(err error, format string, args ...any) error {
	kind := pyfeed.Invalid
	if e, is := err.(*pyfeed.Error); is {
		kind = e.Kind
	}
	return pyfeed.Errorf(kind, format, args...)
}
