package files

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/order"
	"github.com/pyfeed/pyfeed/readers/record"
)

// filesReader reads many files at a time by threads of its own, and is one reader to those above. The scheduler says what a
// thread reads next and what a consumer gets; the threads read, and sleep.
type filesReader struct {
	readers.Lookahead
	*fileSet
	listed []record.FileRef
	seed   *uint64 // of the order of files; nil: as they are listed

	mu        sync.Mutex
	consumers wait.List
	work      *sync.Cond // threads wait for room or for the end
	schedule  scheduler
	running   int // threads
	started   bool
	err       error       // why reading ended, once it has
	slow      int64       // a group that takes so many nanoseconds ends with the file that is read
	cut       atomic.Bool // groups end as soon as they can

	flushTimer *time.Timer // wakes a consumer for fewer instances than it waits for
	armed      bool        // it is going to
}

func newFilesReader(refs []record.FileRef, set *fileSet, o *Options) *filesReader {
	r := &filesReader{fileSet: set, listed: refs, seed: o.ShuffleFiles, slow: int64(maxDelay)}
	width := o.Interleave
	if !o.Ordered {
		width = o.NumThreads
	}
	r.work = sync.NewCond(&r.mu)
	r.schedule = newScheduler(set, r.work, o.NumThreads, min(width, len(refs)), o.Ordered)
	r.order(0)
	r.consumers.Init(&r.mu)
	r.consumers.Named("waits for files", trace.Wait)
	r.Read = r.take
	return r
}

// blockOfFiles is what a shuffle of files has in place of a block's number, which no shuffle of tuples comes to.
const blockOfFiles = 1 << 63

// order puts the files into the order of a pass.
func (r *filesReader) order(pass uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.refs = r.listed
	if r.seed != nil {
		r.schedule.refs = slices.Clone(r.listed)
		order.Permute(r.schedule.refs, *r.seed, pass, blockOfFiles, nil)
	}
}

func (r *filesReader) start() {
	r.started = true
	r.schedule.start()
	r.running = min(r.schedule.threads, len(r.schedule.refs))
	for range r.running {
		wait.Go(r.run, r.fault)
	}
}

// fault is called in place of the end of run, which had panicked.
func (r *filesReader) fault(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = pyfeed.Errorf(pyfeed.Fault, "a thread that reads files: %v", fault)
	r.schedule.stopping = true
	r.exit()
}

// exit is the end of a thread.
func (r *filesReader) exit() {
	r.running--
	r.work.Broadcast()
	r.consumers.All()
}

// filesTrack is the name of the tracks of threads that read files.
const filesTrack = "open_files"

// run is a thread: it reads a chunk for the lane that the scheduler picks, again and again.
func (r *filesReader) run() {
	var track trace.Lane
	defer track.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.schedule
	for {
		l := s.pick()
		if l == nil {
			if s.stopping || s.over() {
				r.exit()
				return
			}
			s.rest()
			r.flush() // it would wait for what this thread does not read now
			start, why, name := trace.Begin(), trace.Wait, "no file for this thread"
			if start != 0 && s.full() {
				why, name = trace.Full, "no room"
			}
			s.sleeping++
			r.work.Wait()
			s.sleeping--
			trace.Since(track.Track(filesTrack), why, name, start)
			continue
		}
		n := r.readChunk(l, track.Track(filesTrack))
		if s.stopping {
			r.work.Broadcast() // stop may wait to close the file
			continue
		}
		r.onRecords(max(n, 1))
	}
}

// readChunk reads a chunk for a lane, and returns how many instances came.
func (r *filesReader) readChunk(l *lane, t trace.Track) int {
	s := &r.schedule
	s.begin(l)
	chunk := s.newChunk()
	if l.group != nil {
		result := r.readGroupUnlocked(l, chunk, t)
		s.groupWasRead(l, chunk, result)
		return result.n
	}
	n, bytes, err := r.readUnlocked(l, chunk, s.chunkLimit(l), t)
	s.wasRead(l, chunk, n, bytes, err)
	return n
}

// readUnlocked unlocks to read. After a panic too the lock is held again, as the callers expect.
func (r *filesReader) readUnlocked(l *lane, chunk *record.Chunk, most int, t trace.Track) (n, bytes int, err error) {
	r.mu.Unlock()
	defer r.mu.Lock()
	n, err = l.file.read(chunk, most, t)
	bytes = chunk.Bytes()
	if n > 0 && l.file.ended() {
		err = io.EOF
		l.signature = l.file.signature()
	}
	if err == io.EOF {
		l.file.close()
	}
	return n, bytes, err
}

// readGroupUnlocked is the same for a group.
func (r *filesReader) readGroupUnlocked(l *lane, chunk *record.Chunk, t trace.Track) groupResult {
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.readGroup(l, chunk, r.slow, &r.cut, t)
}

// onRecords is told that n instances, or an end, came, and wakes a consumer for them.
func (r *filesReader) onRecords(n int) {
	if r.consumers.Len() == 0 {
		return
	}
	switch r.schedule.onRecords(n) {
	case wakeNow:
		if wake := r.consumers.One(); wake != (wait.Wake{}) {
			r.mu.Unlock()
			wake.Send()
			r.mu.Lock()
		}
	case wakeSoon:
		r.armTimer()
	}
}

func (r *filesReader) armTimer() {
	if r.armed {
		return
	}
	r.armed = true
	if r.flushTimer == nil {
		r.flushTimer = time.AfterFunc(maxDelay, r.onTimer)
	} else {
		r.flushTimer.Reset(maxDelay)
	}
}

func (r *filesReader) onTimer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	r.flush()
}

// flush wakes a consumer that sleeps while there is something for it.
func (r *filesReader) flush() {
	if r.consumers.Len() > 0 && r.schedule.has() {
		r.schedule.undelivered = 0
		r.consumers.One().Send()
	}
}

// take is a readers.ReadFunc.
func (r *filesReader) take(ctx context.Context, to *record.Chunk, most int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	if !r.started {
		r.start()
	}
	s := &r.schedule
	n, err := s.take(to, most)
	if err != nil {
		r.setEnd(err)
	}
	switch {
	case n > 0:
		s.wasTaken(n, r.consumers.Len() > 0)
		if r.consumers.Len() > 0 && s.has() {
			r.consumers.One().Send() // there is something left for another
		}
		return n, nil
	case err != nil:
		return 0, err
	}
	s.onRequest(most)
	return 0, r.consumers.Enter(ctx)
}

// setEnd is why nothing more is read.
func (r *filesReader) setEnd(err error) {
	r.err = err
	if err != io.EOF {
		r.schedule.stopping = true
		r.work.Broadcast()
	}
	r.consumers.All()
}

// stop ends the threads and releases what they have read.
func (r *filesReader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.stopping = true
	r.cut.Store(true)
	r.work.Broadcast()
	for _, l := range slices.Concat(r.schedule.lanes, r.schedule.standby) {
		if l.busy {
			l.file.interrupt()
		}
	}
	for r.running > 0 {
		r.work.Wait()
	}
	r.schedule.reset() // the lanes may be more now
	r.cut.Store(false)
	r.started = false
	if !pyfeed.IsKind(r.err, pyfeed.Fault) {
		r.err = nil
	}
	r.consumers.All()
}

// ReInit goes back to the first file.
func (r *filesReader) ReInit(pass uint64) error {
	r.DropAhead()
	r.stop()
	r.order(pass)
	return nil
}

// Spec is that of the instances.
func (r *filesReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it, its files and the damage it skipped.
func (r *filesReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "multiple"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"files": len(r.schedule.refs), "formats": record.TagsOf(r.schedule.refs), "num_threads": r.schedule.threads,
		"ordered": r.schedule.ordered, "opened": r.schedule.next}
	r.ledger.describe(s)
}

// Close ends the threads.
func (r *filesReader) Close() {
	r.DropAhead()
	r.stop()
	r.fileSet.close()
}
