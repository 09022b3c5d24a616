package files

import (
	"context"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fileReader reads one file, in the caller's thread for at most maxCallerRead. A longer read goes on in a goroutine
// while the callers wait; that wait can time out, and a reset or Close ends it.
type fileReader struct {
	readers.PeekBuffer
	*fileSet
	ref        record.FileRef
	callBudget timeBudget
	overTime   func() bool // reports that callBudget is spent

	mu      sync.Mutex
	callers wait.List
	ended   sync.Cond
	file    *file
	reading bool         // the goroutine is reading
	chunk   record.Chunk // what the goroutine has read
	fault   error

	anchors  anchors
	stamps   stampCache
	resumeAt filePlace // where the pass begins
	numRead  int64     // instances since then
}

// maxCallerRead is how long a read may occupy a caller's thread, from the first poll of its Interrupt on.
const maxCallerRead = 10 * time.Millisecond

// timeBudget is the time that an operation may take in a caller's thread.
type timeBudget struct{ since int64 } // the time of the first call; 0: there was none

// expired is a limit for Interrupt.SetLimit.
func (p *timeBudget) expired() bool { return p.exceeds(maxCallerRead) }

// exceeds reports whether the operation has taken longer than limit.
func (p *timeBudget) exceeds(limit time.Duration) bool {
	now := trace.Now()
	if p.since == 0 {
		p.since = now
	}
	return now-p.since > int64(limit)
}

func newFileReader(ref record.FileRef, all *fileSet) *fileReader {
	r := &fileReader{fileSet: all, ref: ref, anchors: newAnchors(1)}
	r.anchors.begin(0, 0)
	r.Many = record.MinBlock
	r.Read, r.overTime = r.take, r.callBudget.expired
	r.callers.Init(&r.mu)
	r.callers.Named("waits for a file", trace.Wait)
	r.ended.L = &r.mu
	return r
}

// take implements ReadMany.
func (r *fileReader) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fault != nil:
		return 0, r.fault
	case r.reading:
		return 0, r.callers.Enter(ctx)
	case r.chunk.Len() > 0:
		before := r.chunk.Bytes()
		n := r.chunk.MoveTo(to, limit)
		r.took(n, before-r.chunk.Bytes())
		return n, nil
	case r.file == nil:
		r.file = &file{FileRef: r.ref, fileSet: r.fileSet}
		r.file.beginAt(r.resumeAt)
	}
	if r.anchors.due(1) {
		r.anchors.add(r.anchor())
	}
	r.callBudget.since = 0
	r.file.setLimit(r.overTime)
	before := to.Bytes()
	n, err := r.file.read(to, limit, wait.TrackOf(ctx))
	if err != storage.ErrInterrupted {
		r.took(n, to.Bytes()-before)
		return n, err
	}
	r.file.setLimit(nil)
	r.reading = true
	wait.Go(func() { r.resume(limit) }, func(fault error) {
		r.chunk.Release()
		r.exit(pyfeed.Errorf(pyfeed.Fault, "a thread that reads a file: %v", fault))
	})
	return 0, r.callers.Enter(ctx)
}

// took notes that n instances were delivered.
func (r *fileReader) took(n, bytes int) {
	r.numRead += int64(n)
	r.anchors.took(n, bytes)
}

// anchor returns where the next instance is. Nothing was read ahead.
func (r *fileReader) anchor() fileAnchor {
	at := laneAnchor{from: r.resumeAt, ahead: r.numRead, stamp: r.file.stamp}
	if place, known := r.file.place(); known {
		at.from, at.ahead = place, 0
	}
	return fileAnchor{next: 1, corrupt: r.ledger.total(), lanes: []laneAnchor{at}}
}

// Identity implements readers.Resumable.
func (r *fileReader) Identity() (string, []state.Option) {
	return "create_file_reader", r.fileSet.options([]record.FileRef{r.ref})
}

// Save implements readers.Resumable.
func (r *fileReader) Save(p readers.Position, s *readers.Saver) error {
	r.mu.Lock()
	a, count, found := r.anchors.find(p)
	r.mu.Unlock()
	if !found {
		return nil
	}
	at, err := r.stamps.state(a, count, []record.FileRef{r.ref}, p.Pass, 1)
	s.SetAt(at)
	return err
}

// CheckState implements readers.StateChecker.
func (r *fileReader) CheckState(at []byte, strict bool) error {
	return checkState("create_file_reader", at, strict, 1, 1, func(uint64) []record.FileRef { return []record.FileRef{r.ref} })
}

// Restore implements readers.Resumable.
func (r *fileReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	r.stamps.forget()
	a, count, err := restoreState(p, s, 1, 1)
	if err != nil || a == nil || len(a.lanes) == 0 || a.lanes[0].file == ended {
		return p.N, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &a.lanes[0]
	if count -= at.ahead; count < 0 {
		return 0, pyfeed.Errorf(pyfeed.Invalid, "state: create_file_reader: expected at most %d instances ahead, found %d", count+at.ahead, at.ahead)
	}
	at.ahead = 0
	r.resumeAt = at.from
	r.anchors.begin(p.Pass, count)
	r.anchors.add(*a)
	r.ledger.restore(a.corrupt)
	return p.N - count, nil
}

// resume runs in the goroutine. It drops an error, since the file returns it again.
func (r *fileReader) resume(limit int) {
	var lane trace.Lane
	defer lane.Done()
	_, _ = r.file.read(&r.chunk, limit, lane.Track("file"))
	r.exit(nil)
}

// exit is called when the goroutine ends.
func (r *fileReader) exit(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.fault = false, fault
	r.ended.Broadcast()
	r.callers.WakeAll()
}

// ReInit goes back to the first record.
func (r *fileReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading {
		r.file.interrupt()
	}
	for r.reading {
		r.ended.Wait()
	}
	r.chunk.Release()
	if r.file != nil {
		r.file.close()
		r.file = nil
	}
	r.resumeAt, r.numRead = filePlace{}, 0
	r.anchors.begin(pass, 0)
	r.callers.WakeAll()
	return nil
}

// Length implements readers.Sized.
func (r *fileReader) Length() int64 { return r.fileSet.length([]record.FileRef{r.ref}) }

// Spec returns that of the instances.
func (r *fileReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader. It includes the damage that was skipped.
func (r *fileReader) Describe(s *readers.Stats) {
	s.Reader = "create_file_reader"
	r.mu.Lock()
	s.Waited = r.callers.Waited().Seconds()
	r.mu.Unlock()
	s.Extra = map[string]any{"file": r.ref.Path, "formats": record.TagsOf([]record.FileRef{r.ref})}
	r.fileSet.describe(s)
}

// Close closes the file.
func (r *fileReader) Close() {
	_ = r.ReInit(0)
	r.fileSet.close()
}
