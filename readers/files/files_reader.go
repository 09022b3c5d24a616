package files

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// filesReader reads many files at a time with its own threads. The scheduler decides what a thread reads next and what
// a consumer gets; the threads read and sleep.
type filesReader struct {
	readers.PeekBuffer
	*fileSet
	listed  []record.FileRef
	catalog *catalog // nil: there is no index
	lookups lookups
	stamps  stampCache
	seed    *uint64 // of the order of files; nil: the order of the list

	mu          sync.Mutex
	consumers   wait.List
	workersCond *sync.Cond // threads wait on it for room or for the end
	schedule    scheduler
	anchors     anchors // none if the reader is not ordered
	running     int     // threads
	started     bool
	err         error       // the error that ended reading; nil: reading goes on
	slowGroup   int64       // a group that takes so many nanoseconds stops with the current file
	cutGroups   atomic.Bool // groups stop as soon as they can

	flushTimer *time.Timer // wakes a consumer for fewer instances than it waits for
	armed      bool        // flushTimer is running
}

func newFilesReader(refs []record.FileRef, set *fileSet, c *catalog, o *Options) *filesReader {
	r := &filesReader{fileSet: set, listed: refs, catalog: c, seed: o.ShuffleFiles, slowGroup: int64(maxDelay)}
	width := o.Interleave
	if !o.Ordered {
		width = o.NumThreads
	}
	r.workersCond = sync.NewCond(&r.mu)
	r.schedule = newScheduler(set, r.workersCond, o.NumThreads, min(width, len(refs)), o.Ordered)
	r.anchors = newAnchors(r.schedule.width)
	r.order(0)
	r.consumers.Init(&r.mu)
	r.consumers.Named("waits for files", trace.Wait)
	r.Read = r.take
	return r
}

// blockOfFiles is the block number for the permutation of the files. A shuffle of tuples never has that many blocks, so
// the two orders are independent even for the same seed.
const blockOfFiles = 1 << 63

// order puts the files into the order of a pass.
func (r *filesReader) order(pass uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.refs = r.refsOf(pass)
	r.schedule.corruptBefore = r.ledger.total()
	r.anchors.begin(pass, 0)
}

// refsOf returns the files in the order of a pass.
func (r *filesReader) refsOf(pass uint64) []record.FileRef {
	if r.seed == nil {
		return r.listed
	}
	refs := slices.Clone(r.listed)
	permutation.Permute(refs, *r.seed, pass, blockOfFiles, nil)
	return refs
}

func (r *filesReader) start() {
	r.started = true
	r.schedule.start()
	r.running = min(r.schedule.threads, len(r.schedule.refs))
	for range r.running {
		wait.Go(r.run, r.fault)
	}
}

// fault is called when run has panicked, in place of its normal exit.
func (r *filesReader) fault(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = pyfeed.Errorf(pyfeed.Fault, "a thread that reads files: %v", fault)
	r.schedule.stopping = true
	r.exit()
}

// exit is called when a thread ends.
func (r *filesReader) exit() {
	r.running--
	r.workersCond.Broadcast()
	r.consumers.WakeAll()
}

// filesTrack is the name of the trace tracks of threads that read files.
const filesTrack = "open_files"

// run is the loop of a thread: it reads a chunk for the lane that the scheduler picks, again and again.
func (r *filesReader) run() {
	var track trace.Lane
	defer track.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.schedule
	for {
		l := s.pick()
		if l == nil {
			if s.stopping || s.allRead() {
				r.exit()
				return
			}
			r.flush() // a waiting consumer must not wait for records that this thread does not read now
			start, why, name := trace.Begin(), trace.Wait, "no file for this thread"
			if start != 0 && s.full() {
				why, name = trace.Full, "no room"
			}
			s.sleeping++
			r.workersCond.Wait()
			s.sleeping--
			trace.Since(track.Track(filesTrack), why, name, start)
			continue
		}
		n := r.readChunk(l, track.Track(filesTrack))
		if s.stopping {
			r.workersCond.Broadcast() // stop may wait for this read, to close the file
			continue
		}
		r.onRecords(max(n, 1))
	}
}

// readChunk reads a chunk for a lane and returns its number of instances.
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

// readUnlocked reads without the lock. It takes the lock again even after a panic, as the callers expect.
func (r *filesReader) readUnlocked(l *lane, chunk *record.Chunk, limit int, t trace.Track) (n, bytes int, err error) {
	r.mu.Unlock()
	defer r.mu.Lock()
	n, err = l.file.read(chunk, limit, t)
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

// readGroupUnlocked does the same for a group.
func (r *filesReader) readGroupUnlocked(l *lane, chunk *record.Chunk, t trace.Track) groupResult {
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.readGroup(l, chunk, r.slowGroup, &r.cutGroups, t)
}

// onRecords wakes a consumer, if the scheduler decides so, after n instances or the end of a file have arrived.
func (r *filesReader) onRecords(n int) {
	if r.consumers.Len() == 0 {
		return
	}
	switch r.schedule.onRecords(n) {
	case wakeNow:
		if wake := r.consumers.WakeOne(); wake != (wait.Wake{}) {
			r.mu.Unlock()
			wake.Send()
			r.mu.Lock()
		}
	case wakeDelayed:
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

// flush wakes a sleeping consumer if it can take something.
func (r *filesReader) flush() {
	if r.consumers.Len() > 0 && r.schedule.canTake() {
		r.schedule.undelivered = 0
		r.consumers.WakeOne().Send()
	}
}

// take is a readers.ReadFunc.
func (r *filesReader) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	if !r.started {
		r.start()
	}
	s := &r.schedule
	if s.ordered && r.anchors.due(len(s.lanes)) {
		r.anchors.add(s.anchor())
	}
	before := to.Bytes()
	n, err := s.take(to, limit)
	r.anchors.took(n, to.Bytes()-before)
	if err != nil {
		r.setEnd(err)
	}
	switch {
	case n > 0:
		s.wasTaken(n, r.consumers.Len() > 0)
		if r.consumers.Len() > 0 && s.canTake() {
			r.consumers.WakeOne().Send() // another consumer can take the rest
		}
		return n, nil
	case err != nil:
		return 0, err
	}
	s.onRequest(limit)
	return 0, r.consumers.Enter(ctx)
}

// setEnd stops reading because of err.
func (r *filesReader) setEnd(err error) {
	r.err = err
	if err != io.EOF {
		r.schedule.stopping = true
		r.workersCond.Broadcast()
	}
	r.consumers.WakeAll()
}

// stop ends the threads and releases what they have read.
func (r *filesReader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.stopping = true
	r.cutGroups.Store(true)
	r.workersCond.Broadcast()
	for _, l := range slices.Concat(r.schedule.lanes, r.schedule.standby) {
		if l.busy {
			l.file.interrupt()
		}
	}
	for r.running > 0 {
		r.workersCond.Wait()
	}
	r.schedule.reset() // all lanes, also those that were added while this waited
	r.cutGroups.Store(false)
	r.started = false
	if !pyfeed.IsKind(r.err, pyfeed.Fault) {
		r.err = nil
	}
	r.consumers.WakeAll()
}

// ReInit goes back to the first file.
func (r *filesReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.stop()
	r.order(pass)
	return nil
}

// Identity implements readers.Resumable.
func (r *filesReader) Identity() (string, []state.Option) {
	seed := state.Option{Name: "shuffle_files"}
	if r.seed != nil {
		seed.Value = strconv.FormatUint(*r.seed, 10) // 0 is a seed too
	}
	options := slices.Insert(r.fileSet.options(r.listed), 4, state.Option{Name: "interleave", Value: r.schedule.width})
	return "open_files", slices.Insert(options, 6, seed)
}

// Save implements readers.Resumable.
func (r *filesReader) Save(p readers.Position, s *readers.Saver) error {
	if !r.schedule.ordered {
		return pyfeed.Errorf(pyfeed.State, "open_files: expected ordered=True for a position that can be saved, found ordered=False: "+
			"the order of the instances depends on the timing of threads")
	}
	r.mu.Lock()
	a, count, found := r.anchors.find(p)
	opened := a.next
	if p.Pass == r.anchors.pass {
		opened = r.schedule.next
	}
	r.mu.Unlock()
	if !found {
		return nil
	}
	at, err := r.stamps.state(a, count, r.refsOf(p.Pass), p.Pass, opened)
	s.SetAt(at)
	return err
}

// CheckState implements readers.StateChecker.
func (r *filesReader) CheckState(at []byte, strict bool) error {
	return checkState("open_files", at, strict, r.schedule.width, len(r.listed), r.refsOf)
}

// Restore implements readers.Resumable.
func (r *filesReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	r.stamps.forget()
	a, count, err := restoreState(p, s, r.schedule.width, len(r.listed))
	if err != nil || a == nil {
		return p.N, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.anchors.begin(p.Pass, count)
	r.anchors.add(*a)
	r.schedule.resumeAt = a
	r.schedule.corruptBefore = a.corruptBefore()
	r.ledger.restore(a.corrupt)
	return p.N - count, nil
}

// Length implements readers.Sized.
func (r *filesReader) Length() int64 {
	if r.catalog != nil {
		return r.catalog.count()
	}
	return r.fileSet.length(r.listed)
}

// At implements readers.RandomAccess.
func (r *filesReader) At(i int64) (*pyfeed.Tuple, error) {
	if r.catalog == nil {
		return nil, readers.ErrNoRandomAccess("open_files")
	}
	return r.lookups.at(r.catalog, r.fileSet, i)
}

// Spec returns that of the instances.
func (r *filesReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader. It includes the damage that was skipped.
func (r *filesReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "open_files"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"files": len(r.schedule.refs), "formats": record.TagsOf(r.schedule.refs), "num_threads": r.schedule.threads,
		"ordered": r.schedule.ordered, "opened": r.schedule.next}
	r.fileSet.describe(s)
}

// Close ends the threads and releases everything.
func (r *filesReader) Close() {
	r.DropPeeked()
	r.stop()
	r.lookups.close()
	if r.catalog != nil {
		r.catalog.close()
	}
	r.fileSet.close()
}
