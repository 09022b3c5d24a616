package files

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// scheduler decides for which lane a thread reads next, when the next file is opened, from which lane a consumer takes,
// and when sleeping threads and consumers are woken. It does no I/O. The lock of the filesReader guards it.
//
// A few files are open, each in a lane. In ordered mode, one instance is taken from each lane in turn, so that the
// order depends on the files alone. In unordered mode, instances are taken from any lane that has some. When the file
// of a lane ends, the next file of the list takes its place. One file stands by, opened and read ahead, for the lane
// that ends first. If files are so short that one chunk is a whole file, many stand by. Threads then do not stop after
// each file: once there is no room, they sleep until half of the room is free.
//
// The warmup of a new reader lasts until consumers have taken as many instances as the largest request so far asked
// for, but at least 32, and one asks again. During it, threads read only the instances that were asked for, the same
// number for each lane. Reading ahead would take processor time from the consumer that waits for its first batch.
type scheduler struct {
	set     *fileSet
	refs    []record.FileRef // in the order of this pass
	threads int
	ordered bool
	width   int // lanes, at most

	lanes        []*lane
	standby      []*lane // they replace the lanes that end first, in the order of the list
	turn         int     // index of the lane to take from next
	next         int     // index in refs of the next file to be opened
	maxStandby   int     // how many files may stand by
	numStandby   int     // files that stand by
	standbyBytes int     // bytes of those files
	requeued     int     // lanes in standby that were split off a group and that no thread has begun
	stopping     bool    // nothing more is read
	groups       grouper

	resumeAt      *fileAnchor // where the pass begins; nil: at the first file
	corruptBefore int64       // damaged records in files that consumers are through with, of all passes

	workersCond *sync.Cond // threads wait on it for room or for the end
	sleeping    int        // threads that wait on workersCond

	warmup       bool
	numTaken     int // instances that consumers took during the warmup
	maxRequested int // the most instances that a consumer has asked for at once

	now         func() int64 // the clock, in nanoseconds
	undelivered int          // instances that arrived since a consumer found none
	requested   int          // how many instances that consumer had asked for
	lastArrival int64        // when it found none, or the last instance arrived

	spareChunks []*record.Chunk
	spareLanes  []*lane
	from        []*record.Chunk // reused by takeRounds
}

// The constants were measured in docs/performance.md: "npy files, one array each" for the files that stand by and for
// waking consumers, "The first batch" for the warmup, "Small records" for the size of chunks.
const (
	maxChunk        = 8192    // instances in a chunk
	minWarmup       = 32      // instances that are read for a lane at a time during the warmup, at least
	maxWarmup       = 1024    // the same, at most
	maxStandbyFiles = 128     // files that stand by
	maxStandbyBytes = 2 << 20 // of those files; more would be evicted from the processor's cache before they are taken

	wakeAfter = 32                     // instances after which a consumer is woken if it asked for more: a usual batch
	longPause = 50 * time.Microsecond  // between arrivals, after which waiting for more costs more than a wake-up
	maxDelay  = 500 * time.Microsecond // an instance waits no longer for others: at most 2000 timers a second
)

func newScheduler(set *fileSet, work *sync.Cond, threads, width int, ordered bool) scheduler {
	return scheduler{set: set, threads: threads, ordered: ordered, width: width, workersCond: work, maxStandby: 1, warmup: true,
		now: trace.Now, groups: grouper{pool: set.pool}}
}

// ---- What threads read ----------------------------------------------------------------------

// start opens the first files.
func (s *scheduler) start() {
	if a := s.resumeAt; a != nil && (len(a.lanes) > 0 || a.next > 0) {
		s.startAt(a)
		return
	}
	for len(s.lanes) < s.width {
		s.lanes = append(s.lanes, s.newLane(s.refs[s.next:s.next+1], nil))
		s.next++
	}
}

// startAt opens the files of an anchor.
func (s *scheduler) startAt(a *fileAnchor) {
	for _, at := range a.lanes {
		l := &lane{begun: true, end: io.EOF}
		if at.file != ended {
			s.next = at.file
			l = s.newLane(s.refs[at.file:at.file+1], nil)
			l.restore(at)
		}
		s.lanes = append(s.lanes, l)
	}
	s.next, s.turn = a.next, a.turn
}

// anchor returns where the consumer is in the files. The reader MUST be ordered.
func (s *scheduler) anchor() fileAnchor {
	a := fileAnchor{turn: s.turn, next: s.next, corrupt: s.corruptBefore, lanes: make([]laneAnchor, 0, len(s.lanes))}
	for _, l := range s.lanes {
		a.lanes = append(a.lanes, l.anchor())
		a.corrupt += l.corruptBefore()
	}
	if len(s.standby) > 0 {
		first := s.standby[0]
		a.next = first.index
		if first.group != nil && len(first.chunks) > 0 {
			a.next += first.chunks[0].NumTaken()
		}
	}
	return a
}

// pick returns the lane that a thread should read for: the emptiest, of equally empty lanes the next in turn, or else a
// lane that stands by. nil: there is nothing to read now.
func (s *scheduler) pick() *lane {
	l := s.neediest()
	if l == nil && s.mayOpen() {
		l = s.claim()
	}
	return l
}

func (s *scheduler) neediest() *lane {
	if s.stopping {
		return nil
	}
	var best *lane
	for i := range s.lanes {
		l := s.lanes[(s.turn+i)%len(s.lanes)]
		if l.hasRoom() && (!s.warmup || !s.hasWarmupShare(l)) && (best == nil || len(l.chunks) < len(best.chunks)) {
			best = l
		}
	}
	if best == nil && len(s.standby) > 0 && s.standby[0].hasRoom() {
		best = s.standby[0]
	}
	if best == nil {
		best = s.firstRequeued()
	}
	return best
}

// mayOpen reports whether one more file may stand by.
func (s *scheduler) mayOpen() bool {
	readsAhead := !s.stopping && !s.warmup
	return readsAhead && s.next < len(s.refs) && !s.standbyFull()
}

// standbyFull reports whether standby holds as many files or bytes as it may.
func (s *scheduler) standbyFull() bool {
	return s.numStandby >= s.maxStandby || s.standbyBytes >= maxStandbyBytes
}

// full reports whether a lane or standby has no room.
func (s *scheduler) full() bool {
	return s.standbyFull() || slices.ContainsFunc(s.lanes, func(l *lane) bool { return len(l.chunks) >= laneChunks })
}

// allRead reports whether there is nothing more to be read.
func (s *scheduler) allRead() bool {
	unended := func(l *lane) bool { return l.end == nil }
	return s.next == len(s.refs) && !slices.ContainsFunc(s.lanes, unended) && !slices.ContainsFunc(s.standby, unended)
}

// reading reports whether a thread reads for one of the lanes.
func (s *scheduler) reading() bool {
	return slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.busy })
}

// claim returns a new lane in standby, for the next file or file group.
func (s *scheduler) claim() *lane {
	n := s.groups.size(s.maxRequested, s.threads, len(s.refs)-s.next)
	if n > 1 {
		n = s.groups.reserve(n, s.next, len(s.refs), s.maxRequested)
	}
	l := s.newLane(s.refs[s.next:s.next+n], s.groups.last)
	if n > 1 {
		s.groups.place(l, s.next)
	}
	s.next += n
	s.groups.advance(s.next, len(s.refs))
	s.enterStandby(l, len(s.standby))
	return l
}

// begin marks a lane as being read. The thread that has picked the lane calls it before it reads.
func (s *scheduler) begin(l *lane) {
	if l.requeued {
		l.requeued = false
		s.requeued--
	}
	if l.group != nil && !s.groups.expects() { // signatures were read after it was claimed
		s.splitGroup(l, groupResult{mismatch: true})
		l.requeued = false
		s.requeued--
	}
	l.reading = l.nextStart()
	l.busy = true
}

// chunkLimit returns how many instances a thread reads for a lane at a time. Large chunks make the instances of Blocks
// cheaper, but a consumer should not wait long for the first chunk, so chunks grow as the file is read.
func (s *scheduler) chunkLimit(l *lane) int {
	if s.warmup {
		return min(max(s.warmupShare()-l.numInstances(), minWarmup), maxWarmup)
	}
	return int(min(max(record.ChunkSize, 3*l.file.number), maxChunk))
}

// wasRead notes that a chunk of n instances and that many bytes was read from a file. end is the error after it, or
// nil.
func (s *scheduler) wasRead(l *lane, chunk *record.Chunk, n, bytes int, end error) {
	l.busy = false
	kept := l.dropAhead(chunk, n)
	l.reading.ahead -= int64(n - kept)
	l.reading.stamp = l.file.stamp
	s.addChunk(l, chunk, kept)
	l.end = end
	s.noteFileLength(l, bytes)
	s.groups.observe(l.signature)
}

// groupWasRead notes the result of reading a group.
func (s *scheduler) groupWasRead(l *lane, chunk *record.Chunk, r groupResult) {
	l.busy = false
	s.addChunk(l, chunk, r.n)
	if r.n > 0 {
		l.end = io.EOF
	}
	if r.mismatch {
		s.groups.numSame = 0
	}
	if r.n < len(l.group) {
		s.splitGroup(l, r)
	} else {
		l.releaseBuffer()
	}
}

func (s *scheduler) addChunk(l *lane, chunk *record.Chunk, n int) {
	if n > 0 {
		l.chunks, l.starts = append(l.chunks, chunk), append(l.starts, l.reading)
	} else {
		s.spareChunks = append(s.spareChunks, chunk)
	}
}

// noteFileLength notes, after the first chunk of a file, whether that chunk is the whole file. Then twice as many files
// as before may stand by, within the limits if all have this size. A longer file sets that number back to one.
func (s *scheduler) noteFileLength(l *lane, bytes int) {
	if !l.begun {
		if l.begun = true; l.end == nil {
			s.maxStandby = 1
		} else if l.end == io.EOF {
			s.endWarmup() // a request needs many short files
			s.maxStandby = max(min(2*s.maxStandby, maxStandbyFiles, maxStandbyBytes/max(bytes, 1)), 1)
		}
	}
	if l.standsBy {
		l.bytes += bytes
		s.standbyBytes += bytes
	}
}

// ---- The warmup -----------------------------------------------------------------------------

// warmupSize is how many instances consumers take before threads read ahead.
func (s *scheduler) warmupSize() int { return max(s.maxRequested, minWarmup) }

// hasWarmupShare reports whether a lane has its share of the warmup.
func (s *scheduler) hasWarmupShare(l *lane) bool { return l.numInstances() >= s.warmupShare() }

// warmupShare returns how many instances each lane should have in the warmup: its share of those asked for and not yet
// taken.
func (s *scheduler) warmupShare() int {
	if s.numTaken >= s.warmupSize() {
		return 0
	}
	return max(1, (s.maxRequested-s.numTaken+len(s.lanes)-1)/len(s.lanes))
}

// endWarmup lets threads read ahead from now on.
func (s *scheduler) endWarmup() {
	if s.warmup {
		s.warmup = false
		s.wakeWorkers()
	}
}

// ---- Wake-ups -------------------------------------------------------------------------------

// wakeWorkers wakes sleeping threads if there is something for them to read.
func (s *scheduler) wakeWorkers() {
	if s.sleeping > 0 && (s.neediest() != nil || s.mayOpen()) {
		s.workersCond.Broadcast()
	}
}

// wakeUp is whether and when to wake a consumer.
type wakeUp int

const (
	noWakeUp wakeUp = iota
	wakeNow
	wakeDelayed // after maxDelay at the latest
)

// onRecords notes that n instances, or an end, have arrived while a consumer sleeps, and decides when to wake it.
func (s *scheduler) onRecords(n int) wakeUp {
	s.undelivered += n
	if !s.canTake() {
		return noWakeUp
	}
	before := s.lastArrival
	s.lastArrival = s.now()
	if s.enoughArrived(s.lastArrival - before) {
		s.undelivered = 0
		return wakeNow
	}
	return wakeDelayed
}

// enoughArrived reports whether to wake a consumer now; pause is the time between the last two arrivals. In the warmup,
// a consumer of a batch takes some instances of each lane, so it is woken once, when all lanes have their share.
func (s *scheduler) enoughArrived(pause int64) bool {
	if s.warmup && s.requested > 1 {
		return s.neediest() == nil && !s.reading()
	}
	return s.undelivered >= min(s.requested, wakeAfter) || pause > int64(longPause)
}

// onRequest notes that a consumer found nothing and will sleep.
func (s *scheduler) onRequest(limit int) {
	s.wakeWorkers()
	s.undelivered, s.requested, s.lastArrival = 0, limit, s.now()
}

// ---- What consumers take --------------------------------------------------------------------

// take takes the instances that are there, at most limit, and returns how many. The error is what follows them: it ends
// reading, and is io.EOF at the end of all files.
func (s *scheduler) take(to *record.Chunk, limit int) (n int, err error) {
	if s.numTaken >= s.warmupSize() {
		s.endWarmup()
	}
	s.maxRequested = max(s.maxRequested, limit)
	for n < limit {
		if len(s.lanes) == 0 {
			return n, io.EOF
		}
		l := s.ready()
		if l == nil {
			break
		}
		if len(l.chunks) == 0 {
			switch {
			case s.replacedByGroup(l):
				n += s.takeFromGroup(to, limit-n)
			case l.end != io.EOF:
				return n, l.end
			default:
				s.replace(l)
			}
			continue
		}
		if rounds := s.rounds(limit - n); rounds > 0 {
			n += s.takeRounds(to, rounds)
			continue
		}
		if s.ordered && len(s.lanes) > 1 {
			n += l.chunks[0].MoveTo(to, 1)
			s.turn = (s.turn + 1) % len(s.lanes)
		} else {
			n += l.chunks[0].MoveTo(to, limit-n)
		}
		s.dropEmpty(l)
	}
	return n, nil
}

// wasTaken notes that n instances were taken, and whether other consumers wait.
func (s *scheduler) wasTaken(n int, others bool) {
	if s.warmup {
		if s.numTaken += n; s.numTaken >= s.warmupSize() && others {
			s.endWarmup() // the consumer that took them may not call again to end the warmup
		}
	}
}

// canTake reports whether a consumer can take something without waiting.
func (s *scheduler) canTake() bool { return len(s.lanes) == 0 || s.ready() != nil }

// ready returns the lane to take from: one that has instances, or that has ended. nil: the consumer has to wait.
func (s *scheduler) ready() *lane {
	if s.ordered {
		if l := s.lanes[s.turn]; len(l.chunks) > 0 || l.end != nil && !s.replacementMissing(l) {
			return l
		}
		return nil
	}
	for i := range s.lanes {
		l := s.lanes[(s.turn+i)%len(s.lanes)]
		if len(l.chunks) > 0 || l.end != nil {
			s.turn = (s.turn + i) % len(s.lanes)
			return l
		}
	}
	return nil
}

// rounds returns how many instances can be taken from every lane, for at most limit instances in all. 0: there is one
// lane, or the reader is unordered.
func (s *scheduler) rounds(limit int) int {
	if !s.ordered || len(s.lanes) == 1 {
		return 0
	}
	n := limit / len(s.lanes)
	for _, l := range s.lanes {
		if len(l.chunks) == 0 {
			return 0
		}
		n = min(n, l.chunks[0].Len())
	}
	return n
}

// takeRounds takes that many instances from each lane.
func (s *scheduler) takeRounds(to *record.Chunk, rounds int) int {
	from := s.from[:0]
	for i := range s.lanes {
		from = append(from, s.lanes[(s.turn+i)%len(s.lanes)].chunks[0])
	}
	s.from = from
	record.Interleave(from, to, rounds)
	for _, l := range s.lanes {
		s.dropEmpty(l)
	}
	return rounds * len(from)
}

// dropEmpty removes the first chunk of a lane if it is empty.
func (s *scheduler) dropEmpty(l *lane) {
	if l.chunks[0].Len() > 0 {
		return
	}
	s.spareChunks = append(s.spareChunks, l.dropFirst())
	if l.end == nil {
		s.workersCond.Signal()
	}
}

// replace puts the next file in the place of the lane whose turn it is, and which has ended.
func (s *scheduler) replace(l *lane) {
	if len(s.standby) == 0 && s.next < len(s.refs) {
		s.claim() // no thread has claimed that file yet
	}
	if s.replacedByGroup(l) {
		s.wakeWorkers() // the ended lane stays, and the group's instances are taken in its turn
		return
	}
	s.corruptBefore += l.file.numCorrupt
	if len(s.standby) > 0 {
		s.lanes[s.turn] = s.nextStandby()
	} else {
		s.lanes = append(s.lanes[:s.turn], s.lanes[s.turn+1:]...)
		if s.turn == len(s.lanes) {
			s.turn = 0
		}
	}
	s.spareLanes = append(s.spareLanes, l)
	s.wakeWorkers()
}

// replacementMissing reports whether an ended lane is replaced by a file of a group that is not read yet.
func (s *scheduler) replacementMissing(l *lane) bool {
	return s.replacedByGroup(l) && len(s.standby[0].chunks) == 0
}

// replacedByGroup reports whether an ended lane is replaced by a file of a group. In unordered mode, a group becomes a
// lane, as a file does.
func (s *scheduler) replacedByGroup(l *lane) bool {
	return s.ordered && l.end == io.EOF && len(s.standby) > 0 && s.standby[0].group != nil
}

// takeFromGroup takes instances of the first group in standby. It takes one in the turn of the current lane; if all
// lanes have ended, no other instances come between, and it takes up to limit.
func (s *scheduler) takeFromGroup(to *record.Chunk, limit int) int {
	g := s.standby[0]
	if g.standsBy {
		s.leaveStandby(g)
		s.wakeWorkers()
	}
	for _, l := range s.lanes {
		if len(l.chunks) > 0 || l.end != io.EOF {
			limit = 1
			break
		}
	}
	n := g.chunks[0].MoveTo(to, limit)
	s.turn = (s.turn + n) % len(s.lanes)
	if g.chunks[0].Len() == 0 {
		s.spareChunks = append(s.spareChunks, g.chunks[0])
		g.chunks, g.starts = g.chunks[:0], g.starts[:0]
		s.removeFirstStandby()
		s.spareLanes = append(s.spareLanes, g)
	}
	return n
}

// ---- Files that stand by --------------------------------------------------------------------

// newLane returns a lane for a file, or for a group of files with a signature.
func (s *scheduler) newLane(refs []record.FileRef, signature *fileSignature) *lane {
	l := new(lane)
	if n := len(s.spareLanes); n > 0 {
		l, s.spareLanes = s.spareLanes[n-1], s.spareLanes[:n-1]
	}
	l.set(refs, signature, s.set)
	l.index = s.next
	return l
}

// newChunk returns an empty chunk.
func (s *scheduler) newChunk() *record.Chunk {
	if n := len(s.spareChunks); n > 0 {
		c := s.spareChunks[n-1]
		s.spareChunks = s.spareChunks[:n-1]
		return c
	}
	return new(record.Chunk)
}

// enterStandby inserts a lane into standby, at index at.
func (s *scheduler) enterStandby(l *lane, at int) {
	s.standby = slices.Insert(s.standby, at, l)
	s.countStandby(l)
}

// countStandby adds a lane to the counts of standby.
func (s *scheduler) countStandby(l *lane) {
	l.standsBy = true
	s.numStandby += l.numFiles()
	s.standbyBytes += l.bytes
}

// leaveStandby subtracts a lane from the counts of standby, if it was counted.
func (s *scheduler) leaveStandby(l *lane) {
	if l.standsBy {
		l.standsBy = false
		s.numStandby -= l.numFiles()
		s.standbyBytes -= l.bytes
	}
}

// nextStandby removes and returns the first lane in standby.
func (s *scheduler) nextStandby() *lane {
	l := s.standby[0]
	s.leaveStandby(l)
	s.removeFirstStandby()
	return l
}

func (s *scheduler) removeFirstStandby() { s.standby = append(s.standby[:0], s.standby[1:]...) }

// firstRequeued returns the first requeued lane; nil: there is none.
func (s *scheduler) firstRequeued() *lane {
	if s.requeued == 0 {
		return nil
	}
	if i := slices.IndexFunc(s.standby, func(l *lane) bool { return l.requeued }); i >= 0 {
		return s.standby[i]
	}
	return nil
}

// splitGroup keeps the files of a group that were read in its lane, and requeues the others. If the first of those has
// another signature, it gets its own lane, and the open pipe if it is one.
func (s *scheduler) splitGroup(l *lane, r groupResult) {
	parts := [][]record.FileRef{l.group[r.n:]}
	if r.mismatch {
		parts = [][]record.FileRef{l.group[r.n : r.n+1], l.group[r.n+1:]}
	}
	signature, standsBy, at := l.signature, l.standsBy, slices.Index(s.standby, l) // -1: l is one of s.lanes
	buffer, place := l.buffer, l.place+r.n
	l.buffer = nil
	s.leaveStandby(l)
	index := l.index + r.n
	if r.n > 0 {
		l.group, l.bytes = l.group[:r.n], r.n*signature.size
	} else {
		l.set(parts[0], signature, s.set)
	}
	if standsBy {
		s.countStandby(l)
	}
	for i, refs := range parts {
		if len(refs) == 0 {
			continue
		}
		part := l
		if i > 0 || r.n > 0 {
			at++
			part = s.newLane(refs, signature)
			s.enterStandby(part, at)
		}
		part.index = index
		index += len(refs)
		if i == 0 {
			part.file.pipe = r.pipe
		}
		if buffer != nil && len(refs) > 1 {
			buffer.Retain(1)
			part.buffer, part.place = buffer, place
		}
		place += len(refs)
		part.requeued = true
		s.requeued++
	}
	for !s.ordered && len(s.lanes) < s.width && len(s.standby) > 0 { // a lane was removed when standby was empty
		s.lanes = append(s.lanes, s.nextStandby())
	}
	s.wakeWorkers() // other threads too, since the file that this thread reads next may be a pipe
	if buffer != nil {
		buffer.Release()
	}
}

// reset releases what was read, when no thread is reading, and goes back to the first file. The warmup does not begin
// again.
func (s *scheduler) reset() {
	for _, l := range slices.Concat(s.lanes, s.standby) {
		l.close()
	}
	s.groups.reset()
	s.lanes, s.standby, s.turn, s.next = nil, nil, 0, 0
	s.maxStandby, s.standbyBytes, s.numStandby, s.requeued = 1, 0, 0, 0
	s.spareChunks, s.spareLanes = nil, nil
	s.maxRequested, s.stopping, s.resumeAt = 0, false, nil
}
