// Package readers has the parts of a chain of readers: the Reader interface; the ReaderHolder, which wraps any Reader
// and is stored in a variable; and the Upstream, the link from a Reader to the one that it reads.
package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A Reader delivers tuples, pass by pass.
//
// A ReaderHolder makes sure that one caller at a time calls its methods. The methods wait only by [wait.List.Enter], so
// that a waiting caller does not keep other callers out: ReadNext, ReadMany and HasNext then return
// [wait.ErrWouldBlock] and keep what they have gathered. The next call goes on from there.
type Reader interface {
	// ReadNext returns the next tuple, which the caller owns, or io.EOF at the end of the pass.
	ReadNext(ctx context.Context) (*pyfeed.Tuple, error)
	// ReadMany adds the next instances to a Chunk: as many as can be read without waiting, but at least one and at most
	// limit. It returns how many. One call for many instances costs less than many calls of ReadNext, and makes no
	// tuples.
	ReadMany(ctx context.Context, c *record.Chunk, limit int) (int, error)
	// HasNext reports whether there is a next tuple. It may read that tuple ahead.
	HasNext(ctx context.Context) (bool, error)
	// ReInit starts the given pass, from any state. A new reader is in pass 0. The order of a pass depends on its
	// number, never on how far an earlier pass was read.
	ReInit(pass uint64) error
	// Spec returns the names, dtypes and dims of the tuples' slots.
	Spec() *pyfeed.Spec
	// Describe adds the reader's own entries to its Stats and sets their kind. The holder has set the counts.
	Describe(*Stats)
	// Close releases everything that the reader holds. The Reader MUST NOT be used afterwards.
	Close()
}

// Stats describes what a reader has done since it was made.
type Stats struct {
	Reader string `json:"reader"` // its kind, such as "batch"
	Tuples int64  `json:"tuples"` // delivered
	Bytes  int64  `json:"bytes"`  // of their data
	Passes int64  `json:"passes"` // started, the first one included
	// PassID is the pass of the last tuple, from 0. Above a multi_pass reader it advances within one pass of this
	// reader.
	PassID int64 `json:"pass_id"`
	// Length is the number of tuples of a pass: nil if it is not known, -1 if the pass has no end.
	Length *int64 `json:"length,omitempty"`
	// Waited is the total time that callers slept in the reader because there was nothing to read.
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

// A Deferred is a Reader that can hand out its next tuple before the bytes are copied into it. Then several threads can
// copy tuples in parallel.
type Deferred interface {
	Reader
	// ReadPending is ReadNext without the copy.
	ReadPending(ctx context.Context) (Pending, error)
}

// Pending is a tuple before the bytes are copied into it.
type Pending interface {
	// Size returns the size of the tuple's data in bytes, and the tuple's pass.
	Size() (bytes int, pass int64)
	// Finish copies the bytes. It is called once, by any thread, whose spans are recorded on the given track.
	Finish(track trace.Track) (*pyfeed.Tuple, error)
}
