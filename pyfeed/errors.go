package pyfeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Kind tells errors apart for those who catch them. Each is a status of the C API and a class in
// Python and C++.
type Kind uint8

// The kinds of Error.
const (
	Closed      Kind = iota + 1 // the queue is closed, or the push belongs to an earlier pass
	Cancelled                   // somebody ended the wait
	Invalid                     // an argument that can never be right
	Shape                       // wrong rank, dimension or level of detail
	Type                        // wrong type of element
	Slots                       // wrong number of slots
	TooLarge                    // a tuple larger than the limit in bytes
	State                       // not now
	NotFound                    // no variable of that name
	Unsupported                 // this build or machine cannot
	Corrupt                     // a file is not what its format says
	IO                          // the operating system could not read or write a file
	Fault                       // a panic of ours in a goroutine of ours: nothing more is to be trusted
	CUDAError                   // the driver said no: see Error.CUDA
)

// Error is what the packages of this module answer when a caller can do something about it.
type Error struct {
	Kind Kind
	Slot int // the slot it is about, or -1
	Text string

	At    *Location  // where in a file, or nil
	CUDA  *CUDAFault // what the driver said, or nil
	Cause error      // the operating system's, or one to tell it by, or nil
}

// CUDAFault is an error of the CUDA driver's.
type CUDAFault struct {
	Code int    // a CUresult
	Name string // such as "CUDA_ERROR_OUT_OF_MEMORY"
}

// A Location is a place in a file.
type Location struct {
	File   string // "": what was given as bytes
	Offset int64  // in bytes, of the decompressed data; -1: none in particular
	Record int64  // from 0; -1: none in particular

	// Approximate says that Record is a guess: of damage before it that was skipped it is not known how many records it was.
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

// Errorf makes an Error that is about no slot.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Slot: -1, Text: fmt.Sprintf(format, args...)}
}

// SlotErrorf makes an Error about a slot, whose number it puts first.
func SlotErrorf(kind Kind, slot int, format string, args ...any) *Error {
	return &Error{Kind: kind, Slot: slot, Text: fmt.Sprintf("slot %d: ", slot) + fmt.Sprintf(format, args...)}
}

// ProducerError is the error of a producer, or of a kernel, on its way to the consumer.
type ProducerError struct {
	Who                      string // it was; "": the producer
	Type, Message, Traceback string
	Token                    uint64 // by which the producer's side finds the original
	Worker                   int64  // process id of the worker that died; else 0
	ExitStatus               int32  // its exit status, or minus its signal; 0: also if it is not known

	Place string    // what it failed at, such as "map: x.npy, record 7"; or ""
	At    *Location // the same, where it is a file; or nil
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

// IsFinal tells an end, by the last tuple or an error, from a wait that goes on later or was cancelled. An end that comes when
// ctx has just ended is one all the same.
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
