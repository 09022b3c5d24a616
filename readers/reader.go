// Package readers is what a chain of readers is made of: the Reader interface, the holder that hides which Reader it is and
// that a variable has, and the link from a Reader to the one that it reads.
package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A Reader delivers tuples, pass by pass.
//
// Its methods are called by one caller at a time: a ReaderHolder sees to that. They wait only by
// [wait.List.Enter], so that no caller keeps another out while it sleeps: ReadNext, ReadMany and HasNext then
// answer [wait.ErrWouldBlock] and keep what they have, for the next call to go on from there.
type Reader interface {
	// ReadNext is the next tuple, which is the caller's then, or io.EOF at the end of the pass.
	ReadNext(ctx context.Context) (*pyfeed.Tuple, error)
	// ReadMany adds the next instances to a Chunk, as many as are there without waiting, but at least one and at
	// most so many, and answers how many. It spares those who move many the cost of many calls, and of tuples.
	ReadMany(ctx context.Context, c *record.Chunk, most int) (int, error)
	// HasNext says whether there is a next tuple. It reads ahead.
	HasNext(ctx context.Context) (bool, error)
	// ReInit starts over, from any state, with a pass of that number: 0 is the one a reader begins with. The
	// order of a pass depends on its number, never on how far an earlier one had come.
	ReInit(pass uint64) error
	// Spec is what the tuples look like.
	Spec() *pyfeed.Spec
	// Describe adds what this Reader did to its Stats, whose kind it sets. The counts are there already.
	Describe(*Stats)
	// Close gives everything back. The Reader MUST NOT be used afterwards.
	Close()
}

// Stats is what a reader did, since it was made.
type Stats struct {
	Reader string `json:"reader"` // its kind, such as "batch"
	Tuples int64  `json:"tuples"` // delivered
	Bytes  int64  `json:"bytes"`  // of their data
	Passes int64  `json:"passes"` // begun by resets and from the start
	// PassID is the pass of the last tuple, where a multi_pass reader below goes on to further ones; from 0.
	PassID int64 `json:"pass_id"`
	// Waited is the time that callers slept in it because there was nothing to read, summed.
	Waited float64                 `json:"waited_seconds"`
	Slots  []record.SlotAttributes `json:"slots"` // what its tuples look like
	Extra  map[string]any          `json:"details,omitempty"`
	Below  []Stats                 `json:"below,omitempty"` // of the readers it reads
}

// A Decorator is a Reader that reads others.
type Decorator interface {
	Reader
	// Upstreams are the readers that it reads.
	Upstreams() []*Upstream
}

// A Deferred is a Reader that can hand out its next tuple before the bytes are copied into it, so that several threads copy
// tuples side by side.
type Deferred interface {
	Reader
	// ReadPending is ReadNext without the copy.
	ReadPending(ctx context.Context) (Pending, error)
}

// Pending is a tuple before the bytes are copied into it.
type Pending interface {
	// Size is that of the tuple's data, in bytes, and its pass.
	Size() (bytes int, pass int64)
	// Finish copies the bytes. Any thread, once; the thread's spans are recorded on the track.
	Finish(track trace.Track) (*pyfeed.Tuple, error)
}
