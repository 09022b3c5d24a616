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
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fileReader reads one file, in the caller's thread as long as that is quick. What takes longer than maxCallerRead goes on in a
// goroutine, for which callers wait as for any other: they can give up, and a reset or Close ends it.
type fileReader struct {
	readers.Lookahead
	*fileSet
	ref      record.FileRef
	patience patience
	tooLong  func() bool // the patience's

	mu      sync.Mutex
	callers wait.List
	ended   sync.Cond
	file    *file
	reading bool         // the goroutine does
	chunk   record.Chunk // what it has read
	fault   error
}

// maxCallerRead is how long a caller's thread is kept by one read, from the first poll of its Interrupt on.
const maxCallerRead = 10 * time.Millisecond

// patience is that of a caller's thread.
type patience struct{ since int64 } // of the first look; 0: there was none

// exceeded is a limit of an Interrupt.
func (p *patience) exceeded() bool { return p.longerThan(maxCallerRead) }

// longerThan says whether the thread was kept for longer than that.
func (p *patience) longerThan(most time.Duration) bool {
	now := trace.Now()
	if p.since == 0 {
		p.since = now
	}
	return now-p.since > int64(most)
}

func newFileReader(ref record.FileRef, all *fileSet) *fileReader {
	r := &fileReader{fileSet: all, ref: ref}
	r.Many = record.MinBlock
	r.Read, r.tooLong = r.take, r.patience.exceeded
	r.callers.Init(&r.mu)
	r.callers.Named("waits for a file", trace.Wait)
	r.ended.L = &r.mu
	return r
}

// take is ReadMany.
func (r *fileReader) take(ctx context.Context, to *record.Chunk, most int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fault != nil:
		return 0, r.fault
	case r.reading:
		return 0, r.callers.Enter(ctx)
	case r.chunk.Len() > 0:
		return r.chunk.MoveTo(to, most), nil
	case r.file == nil:
		r.file = &file{FileRef: r.ref, fileSet: r.fileSet}
	}
	r.patience.since = 0
	r.file.setLimit(r.tooLong)
	n, err := r.file.read(to, most, wait.TrackOf(ctx))
	if err != storage.ErrInterrupted {
		return n, err
	}
	r.file.setLimit(nil)
	r.reading = true
	wait.Go(func() { r.resume(most) }, func(fault error) {
		r.chunk.Release()
		r.exit(pyfeed.Errorf(pyfeed.Fault, "a thread that reads a file: %v", fault))
	})
	return 0, r.callers.Enter(ctx)
}

// resume is the goroutine. An error is the file's, which returns it again.
func (r *fileReader) resume(most int) {
	var lane trace.Lane
	defer lane.Done()
	_, _ = r.file.read(&r.chunk, most, lane.Track("file"))
	r.exit(nil)
}

// exit is the end of the goroutine.
func (r *fileReader) exit(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.fault = false, fault
	r.ended.Broadcast()
	r.callers.All()
}

// ReInit goes back to the first record.
func (r *fileReader) ReInit(uint64) error {
	r.DropAhead()
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
	r.callers.All()
	return nil
}

// Spec is that of the instances.
func (r *fileReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it and the damage it skipped.
func (r *fileReader) Describe(s *readers.Stats) {
	s.Reader = "file"
	r.mu.Lock()
	s.Waited = r.callers.Waited().Seconds()
	r.mu.Unlock()
	s.Extra = map[string]any{"file": r.ref.Path, "formats": record.TagsOf([]record.FileRef{r.ref})}
	r.ledger.describe(s)
}

// Close lets go of the file.
func (r *fileReader) Close() {
	_ = r.ReInit(0)
	r.fileSet.close()
}
