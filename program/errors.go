package program

import (
	"fmt"
	"strings"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

// An OpError is an error of an operator, either when it is added to a program or when it runs.
type OpError struct {
	Block, Index int // position in the program
	Op           *desc.Op
	Found        string // descriptions of the inputs
	Cause        error
}

// Place returns the position of the operator, such as "block 1, op 3: read".
func (e *OpError) Place() string {
	return fmt.Sprintf("block %d, op %d: %s", e.Block, e.Index, e.Op.Type)
}

// Context returns the message without the cause.
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

// mapErrorText returns a copy of err with a changed text if it is a *pyfeed.Error, else err itself.
func mapErrorText(err error, text func(string) string) error {
	e, is := err.(*pyfeed.Error)
	if !is {
		return err
	}
	c := *e
	c.Text = text(e.Text)
	return &c
}

// prefixError puts a prefix in front of an error's text.
func prefixError(err error, format string, args ...any) error {
	return mapErrorText(err, func(text string) string { return fmt.Sprintf(format, args...) + ": " + text })
}

// suffixError appends to an error's text.
func suffixError(err error, more string) error {
	return mapErrorText(err, func(text string) string { return text + more })
}

// unprefixed removes the operator's name from an error, because OpError adds it.
func unprefixed(err error, prefix string) error {
	return mapErrorText(err, func(text string) string { return strings.TrimPrefix(text, prefix) })
}

// cause makes an Error with the kind of err and another text.
func cause(err error, format string, args ...any) error {
	kind := pyfeed.Invalid
	if e, is := err.(*pyfeed.Error); is {
		kind = e.Kind
	}
	return pyfeed.Errorf(kind, format, args...)
}
