package pyfeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Kind classifies errors for callers. Each kind is a status of the C API and an exception class in Python and C++.
type Kind uint8

// The kinds of Error.
const (
	Closed      Kind = iota + 1 // the queue is closed, or the push belongs to an earlier pass
	Cancelled                   // the wait was cancelled
	Invalid                     // an argument that is never valid
	Shape                       // wrong rank, dimension or ragged offsets (LoD, level of detail)
	Type                        // wrong element type
	Slots                       // wrong number of slots
	TooLarge                    // a tuple larger than the limit on bytes
	State                       // the call is not possible in the present state
	NotFound                    // no variable, kernel or operator of the given name
	Unsupported                 // not supported by this build or machine
	Corrupt                     // a file does not match its format
	IO                          // the operating system could not read or write a file
	Fault                       // a goroutine of the library panicked: the library has stopped
	CUDAError                   // the CUDA driver returned an error: see Error.CUDA
)

// Error is the error type of this module for errors that a caller can act on.
type Error struct {
	Kind Kind
	Slot int // the number of the slot that is wrong, or -1
	Text string

	At    *Location  // the location in a file, or nil
	CUDA  *CUDAFault // the driver's error, or nil
	Cause error      // the error of the operating system, or another error to match with errors.Is; or nil
}

// CUDAFault is an error returned by the CUDA driver.
type CUDAFault struct {
	Code int    // a CUresult
	Name string // such as "CUDA_ERROR_OUT_OF_MEMORY"
}

// A Location is a position in a file.
type Location struct {
	File   string // "": bytes in memory
	Offset int64  // in bytes of the decompressed data; -1: not known
	Record int64  // counted from 0; -1: not known

	// Approximate reports that Record is an estimate: damage before it was skipped, and the number of records lost
	// there is not known.
	Approximate bool
}

func (l *Location) String() string {
	var parts []string
	if l.File != "" {
		parts = append(parts, l.File)
	}
	if l.Offset >= 0 {
		parts = append(parts, fmt.Sprintf("byte %d", l.Offset))
	}
	if l.Record >= 0 {
		about := ""
		if l.Approximate {
			about = "about "
		}
		parts = append(parts, fmt.Sprintf("%srecord %d", about, l.Record))
	}
	return strings.Join(parts, ", ")
}

func (e *Error) Error() string {
	if e.At == nil || *e.At == (Location{Offset: -1, Record: -1}) {
		return e.Text
	}
	return e.At.String() + ": " + e.Text
}

func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error that concerns no slot.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Slot: -1, Text: fmt.Sprintf(format, args...)}
}

// SlotErrorf makes an Error about a slot. The text begins with the number of the slot.
func SlotErrorf(kind Kind, slot int, format string, args ...any) *Error {
	return &Error{Kind: kind, Slot: slot, Text: fmt.Sprintf("slot %d: ", slot) + fmt.Sprintf(format, args...)}
}

// ProducerError is an error of a producer or a kernel that is passed on to the consumer.
type ProducerError struct {
	Who                      string // what failed, such as "worker process 12"; "": the producer
	Type, Message, Traceback string
	Token                    uint64 // identifies the original error on the producer's side
	Worker                   int64  // process id of a worker that died; otherwise 0
	ExitStatus               int32  // its exit status, or minus the signal number; 0 also if it is not known

	Place string    // the input being processed, such as "map: x.npy, record 7"; or ""
	At    *Location // the same location, if it is in a file; or nil
}

func (e *ProducerError) Error() string {
	text := cmp.Or(e.Who, "the producer") + " failed"
	for _, more := range [2]string{e.Type, e.Message} {
		if more != "" {
			text += ": " + more
		}
	}
	if e.Place != "" {
		text = e.Place + ": " + text
	}
	return text
}

// IsFinal reports whether err is an end (the last tuple, or a failure) and not an interrupted wait, which is repeated
// later. An end that is returned just as ctx ends still counts as an end.
func IsFinal(ctx context.Context, err error) bool {
	if err == wait.ErrWouldBlock || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return false
	}
	e, is := err.(*Error)
	return !is || e.Kind != Cancelled
}

// IsKind reports whether an error is an Error of that kind.
func IsKind(err error, kind Kind) bool {
	e, is := err.(*Error)
	return is && e.Kind == kind
}
