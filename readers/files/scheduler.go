package files

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// scheduler decides for which lane a thread reads next, when the next file is opened, from which lane a consumer takes, and
// when sleeping threads and consumers are woken. It does no I/O and has no lock: filesReader's guards it.
//
// A few files are open, each in a lane. Ordered, one instance is taken from each lane in turn, so that the order depends on
// the files alone; else what has come is taken. When the file of a lane ends, the next in the list takes its place. One file
// stands by for the lane that ends first. Where files are so short that a chunk is all of one, many do, and the threads do not
// stop after each: they sleep when there is no room, until there is half of it.
//
// Until the first request of a new reader is satisfied, in its warmup, threads read what that takes and nothing ahead, the same
// number of instances for each lane: anything else would take processors from the consumer that waits for its first batch.
type scheduler struct {
	set     *fileSet
	refs    []record.FileRef // in the order of this pass
	threads int
	ordered bool
	width   int // lanes, at most

	lanes    []*lane
	standby  []*lane // for the lanes that end first, in the order of the list
	turn     int     // lane that is read next
	next     int     // of refs, to be opened
	depth    int     // files that may stand by
	waiting  int     // files that stand by
	held     int     // bytes of those
	requeued int     // lanes among them that were split off a group and no thread has begun
	resting  bool    // too much stands by, until half of it is gone
	stopping bool    // nothing more is read
	groups   grouper

	work     *sync.Cond // threads wait for room or for the end
	sleeping int        // of them

	warmup bool
	taken  int // instances by consumers, in the warmup
	asked  int // the most instances that a consumer has asked for at once

	now         func() int64 // the clock, in nanoseconds
	undelivered int          // instances that came since a consumer found nothing
	request     int          // how many it had asked for
	since       int64        // when it did, or the last instance came

	spareChunks []*record.Chunk
	spareLanes  []*lane
	from        []*record.Chunk // space for the chunks that are taken from in turn
}

// The constants were measured in docs/performance.md: "npy files, one array each" for files that stand by and for waking
// consumers, "The first batch" for the warmup, "Small records" for the size of chunks.
const (
	maxChunk        = 8192    // instances in a chunk
	minWarmup       = 32      // instances of a lane at a time, in the warmup, at least
	maxWarmup       = 1024    // and at most
	maxStandbyFiles = 128     // files that stand by
	maxStandbyBytes = 2 << 20 // bytes of those: no more are opened then

	wakeAfter = 32                     // instances for which a consumer is woken, if it asked for so many
	longPause = 50 * time.Microsecond  // after which the next instance is not expected soon
	maxDelay  = 500 * time.Microsecond // an instance waits at most so long for others
)

func newScheduler(set *fileSet, work *sync.Cond, threads, width int, ordered bool) scheduler {
	return scheduler{set: set, threads: threads, ordered: ordered, width: width, work: work, depth: 1, warmup: true,
		now: trace.Now, groups: grouper{pool: set.pool}}
}

// ---- What threads read ----------------------------------------------------------------------

// start opens the first files.
func (s *scheduler) start() {
	for len(s.lanes) < s.width {
		s.next++
		s.lanes = append(s.lanes, s.newLane(s.refs[s.next-1:s.next], nil))
	}
}

// pick is the lane a thread should read for: the emptiest, the next in turn of those, or else one that stands by.
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
		if l.wants() && (!s.warmup || l.holds() < s.warmupShare()) && (best == nil || len(l.chunks) < len(best.chunks)) {
			best = l
		}
	}
	if best == nil && len(s.standby) > 0 && s.standby[0].wants() {
		best = s.standby[0]
	}
	if best == nil {
		best = s.firstRequeued()
	}
	return best
}

// mayOpen reports whether one more file may stand by.
func (s *scheduler) mayOpen() bool {
	return !s.stopping && !s.resting && !s.warmup && s.next < len(s.refs) && s.waiting < s.depth && s.held < maxStandbyBytes
}

// halfEmpty reports whether there is enough room for threads to be woken.
func (s *scheduler) halfEmpty() bool { return s.waiting <= s.depth/2 && s.held <= maxStandbyBytes/2 }

// full reports whether a lane has no room.
func (s *scheduler) full() bool {
	return s.resting || slices.ContainsFunc(s.lanes, func(l *lane) bool { return len(l.chunks) >= laneChunks })
}

// over reports whether there is nothing more to be read.
func (s *scheduler) over() bool {
	unended := func(l *lane) bool { return l.end == nil }
	return s.next == len(s.refs) && !slices.ContainsFunc(s.lanes, unended) && !slices.ContainsFunc(s.standby, unended)
}

// reading reports whether a thread is at work on a lane.
func (s *scheduler) reading() bool {
	return slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.busy })
}

// claim is a lane for the next files, which stands by.
func (s *scheduler) claim() *lane {
	n := s.groups.size(s.asked, s.threads, len(s.refs)-s.next)
	if n > 1 {
		n = s.groups.reserve(n, s.next, len(s.refs), s.asked)
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

// begin is what a thread does with a lane that it has picked, before it reads.
func (s *scheduler) begin(l *lane) {
	if l.requeued {
		l.requeued = false
		s.requeued--
	}
	if l.group != nil && !s.groups.expects() { // by what is known now
		s.splitGroup(l, groupResult{mismatch: true})
		l.requeued = false
		s.requeued--
	}
	l.busy = true
}

// chunkLimit is how many instances of a lane are read at a time. Those of Blocks cost little each; but no consumer is to wait
// for many of them.
func (s *scheduler) chunkLimit(l *lane) int {
	if s.warmup {
		return min(max(s.warmupShare()-l.holds(), minWarmup), maxWarmup)
	}
	return int(min(max(record.ChunkSize, 3*l.file.number), maxChunk))
}

// wasRead is told of a chunk of bytes that was read of a file, of n instances, and what came after it.
func (s *scheduler) wasRead(l *lane, chunk *record.Chunk, n, bytes int, end error) {
	l.busy = false
	s.addChunk(l, chunk, n)
	l.end = end
	s.learnLength(l, bytes)
	s.groups.observe(l.signature)
}

// groupWasRead is told of a chunk that was read of a group.
func (s *scheduler) groupWasRead(l *lane, chunk *record.Chunk, r groupResult) {
	l.busy = false
	s.addChunk(l, chunk, r.n)
	if r.n > 0 {
		l.end = io.EOF
	}
	if r.mismatch {
		s.groups.same = 0
	}
	if r.n < len(l.group) {
		s.splitGroup(l, r)
	} else {
		l.releaseBuffer()
	}
}

func (s *scheduler) addChunk(l *lane, chunk *record.Chunk, n int) {
	if n > 0 {
		l.chunks = append(l.chunks, chunk)
	} else {
		s.spareChunks = append(s.spareChunks, chunk)
	}
}

// learnLength learns whether files are short, from one of which a chunk was read.
func (s *scheduler) learnLength(l *lane, bytes int) {
	if !l.begun {
		if l.begun = true; l.end == nil {
			s.depth = 1
		} else if l.end == io.EOF {
			s.endWarmup()                                                                    // short files take no time, and many are wanted
			s.depth = max(min(2*s.depth, maxStandbyFiles, maxStandbyBytes/max(bytes, 1)), 1) // as if all were of that size
		}
	}
	if l.standsBy {
		l.bytes += bytes
		s.held += bytes
	}
}

// ---- The warmup -----------------------------------------------------------------------------

// warmupSize is how many instances are taken before threads read ahead.
func (s *scheduler) warmupSize() int { return max(s.asked, minWarmup) }

// warmupShare is how many instances each lane is to have in the warmup: those a consumer has asked for and not yet taken.
func (s *scheduler) warmupShare() int {
	if s.taken >= s.warmupSize() {
		return 0
	}
	return max(1, (s.asked-s.taken+len(s.lanes)-1)/len(s.lanes))
}

// endWarmup has threads read ahead from now on.
func (s *scheduler) endWarmup() {
	if s.warmup {
		s.warmup = false
		s.wakeWorkers()
	}
}

// ---- Wake-ups -------------------------------------------------------------------------------

// wakeWorkers wakes threads that sleep, if there is something for them to read.
func (s *scheduler) wakeWorkers() {
	s.resting = s.resting && !s.halfEmpty()
	if s.sleeping > 0 && (s.neediest() != nil || s.mayOpen()) {
		s.work.Broadcast()
	}
}

// rest is told of a thread that finds nothing to read.
func (s *scheduler) rest() { s.resting = !s.halfEmpty() }

// wakeUp is when a consumer is woken.
type wakeUp int

const (
	dontWake wakeUp = iota
	wakeNow
	wakeSoon // after maxDelay, if not before
)

// onRecords is told that n instances, or an end, came while a consumer sleeps.
func (s *scheduler) onRecords(n int) wakeUp {
	s.undelivered += n
	if !s.has() {
		return dontWake
	}
	before := s.since
	s.since = s.now()
	paused := s.since-before > int64(longPause)
	enough := s.undelivered >= min(s.request, wakeAfter) || paused
	if s.warmup && s.request > 1 {
		enough = s.neediest() == nil && !s.reading() // it takes some of each lane, and would be woken for each
	}
	if enough {
		s.undelivered = 0
		return wakeNow
	}
	return wakeSoon
}

// onRequest is told of a consumer that found nothing, and will sleep.
func (s *scheduler) onRequest(most int) {
	s.wakeWorkers()
	s.undelivered, s.request, s.since = 0, most, s.now()
}

// ---- What consumers take --------------------------------------------------------------------

// take takes instances, as many as are there and at most so many, and returns how many. The error is what comes after those: it
// ends reading, and is io.EOF at the end of all files.
func (s *scheduler) take(to *record.Chunk, most int) (n int, err error) {
	if s.taken >= s.warmupSize() {
		s.endWarmup()
	}
	s.asked = max(s.asked, most)
	for n < most {
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
				n += s.takeFromGroup(to, most-n)
			case l.end != io.EOF:
				return n, l.end
			default:
				s.replace(l)
			}
			continue
		}
		if rounds := s.rounds(most - n); rounds > 0 {
			n += s.takeRounds(to, rounds)
			continue
		}
		if s.ordered && len(s.lanes) > 1 {
			n += l.chunks[0].MoveTo(to, 1)
			s.turn = (s.turn + 1) % len(s.lanes)
		} else {
			n += l.chunks[0].MoveTo(to, most-n)
		}
		s.dropEmpty(l)
	}
	return n, nil
}

// wasTaken is told that n instances were taken, and whether another consumer waits.
func (s *scheduler) wasTaken(n int, others bool) {
	if s.warmup {
		if s.taken += n; s.taken >= s.warmupSize() && others {
			s.endWarmup() // another waits, and the one that took them may not come again
		}
	}
}

// has reports whether a consumer need not wait.
func (s *scheduler) has() bool { return len(s.lanes) == 0 || s.ready() != nil }

// ready is the lane to take from: one with instances, or at its end. nil if that takes waiting.
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

// rounds is how often an instance can be taken from each of several lanes, for at most so many instances.
func (s *scheduler) rounds(most int) int {
	if !s.ordered || len(s.lanes) == 1 {
		return 0
	}
	n := most / len(s.lanes)
	for _, l := range s.lanes {
		if len(l.chunks) == 0 {
			return 0
		}
		n = min(n, l.chunks[0].Len())
	}
	return n
}

// takeRounds takes so many instances from each lane.
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

// dropEmpty takes the first chunk of a lane away if nothing is left of it.
func (s *scheduler) dropEmpty(l *lane) {
	if l.chunks[0].Len() > 0 {
		return
	}
	s.spareChunks = append(s.spareChunks, l.dropFirst())
	if l.end == nil {
		s.work.Signal()
	}
}

// replace puts the next file in the place of one that has ended, whose turn it is.
func (s *scheduler) replace(l *lane) {
	if len(s.standby) == 0 && s.next < len(s.refs) {
		s.claim() // no thread has come to it yet
	}
	if s.replacedByGroup(l) {
		s.wakeWorkers() // it stays where it is
		return
	}
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

// replacementMissing reports whether the place of a file that has ended is that of one in a group that is not read yet.
func (s *scheduler) replacementMissing(l *lane) bool {
	return s.replacedByGroup(l) && len(s.standby[0].chunks) == 0
}

// replacedByGroup reports whether the place of a file that has ended is that of one in a group. Unordered, a group is like a
// file.
func (s *scheduler) replacedByGroup(l *lane) bool {
	return s.ordered && l.end == io.EOF && len(s.standby) > 0 && s.standby[0].group != nil
}

// takeFromGroup takes instances of the group that stands by first: one in the place of the lane whose turn it is, or as many as
// there is room for, if all lanes have come to their ends and nothing comes between.
func (s *scheduler) takeFromGroup(to *record.Chunk, most int) int {
	g := s.standby[0]
	if g.standsBy {
		s.leaveStandby(g)
		s.wakeWorkers()
	}
	for _, l := range s.lanes {
		if len(l.chunks) > 0 || l.end != io.EOF {
			most = 1
			break
		}
	}
	n := g.chunks[0].MoveTo(to, most)
	s.turn = (s.turn + n) % len(s.lanes)
	if g.chunks[0].Len() == 0 {
		s.spareChunks = append(s.spareChunks, g.chunks[0])
		g.chunks = g.chunks[:0]
		s.removeFirstStandby()
		s.spareLanes = append(s.spareLanes, g)
	}
	return n
}

// ---- Files that stand by --------------------------------------------------------------------

// newLane is a lane for a file, or for a group of files of a signature.
func (s *scheduler) newLane(refs []record.FileRef, signature *fileSignature) *lane {
	l := new(lane)
	if n := len(s.spareLanes); n > 0 {
		l, s.spareLanes = s.spareLanes[n-1], s.spareLanes[:n-1]
	}
	l.set(refs, signature, s.set)
	return l
}

// newChunk is an empty chunk.
func (s *scheduler) newChunk() *record.Chunk {
	if n := len(s.spareChunks); n > 0 {
		c := s.spareChunks[n-1]
		s.spareChunks = s.spareChunks[:n-1]
		return c
	}
	return new(record.Chunk)
}

// enterStandby has a lane stand by, as the at-th.
func (s *scheduler) enterStandby(l *lane, at int) {
	s.standby = slices.Insert(s.standby, at, l)
	s.countStandby(l)
}

// countStandby counts a lane that stands by.
func (s *scheduler) countStandby(l *lane) {
	l.standsBy = true
	s.waiting += l.numFiles()
	s.held += l.bytes
}

// leaveStandby is told of a lane that does not stand by any more, or did not.
func (s *scheduler) leaveStandby(l *lane) {
	if l.standsBy {
		l.standsBy = false
		s.waiting -= l.numFiles()
		s.held -= l.bytes
	}
}

// nextStandby takes the first lane that stands by.
func (s *scheduler) nextStandby() *lane {
	l := s.standby[0]
	s.leaveStandby(l)
	s.removeFirstStandby()
	return l
}

func (s *scheduler) removeFirstStandby() { s.standby = append(s.standby[:0], s.standby[1:]...) }

// firstRequeued is the first lane that was requeued; nil: there is none.
func (s *scheduler) firstRequeued() *lane {
	if s.requeued == 0 {
		return nil
	}
	if i := slices.IndexFunc(s.standby, func(l *lane) bool { return l.requeued }); i >= 0 {
		return s.standby[i]
	}
	return nil
}

// splitGroup leaves the files of a group that were read in its lane, and requeues the others. The first of those, if it is not
// like them, gets a lane to itself, and the pipe that it was opened as, if it is one.
func (s *scheduler) splitGroup(l *lane, r groupResult) {
	parts := [][]record.FileRef{l.group[r.n:]}
	if r.mismatch {
		parts = [][]record.FileRef{l.group[r.n : r.n+1], l.group[r.n+1:]}
	}
	signature, standsBy, at := l.signature, l.standsBy, slices.Index(s.standby, l) // -1: in the place of a file that has ended
	buffer, place := l.buffer, l.place+r.n
	l.buffer = nil
	s.leaveStandby(l)
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
	for !s.ordered && len(s.lanes) < s.width && len(s.standby) > 0 { // one was given up when nothing stood by
		s.lanes = append(s.lanes, s.nextStandby())
	}
	s.wakeWorkers() // others, since what this thread reads next may be a pipe
	if buffer != nil {
		buffer.Release()
	}
}

// reset releases what was read, once no thread is at work, and goes back to the first file. The warmup does not begin again.
func (s *scheduler) reset() {
	for _, l := range slices.Concat(s.lanes, s.standby) {
		l.close()
	}
	s.groups.reset()
	s.lanes, s.standby, s.turn, s.next = nil, nil, 0, 0
	s.depth, s.held, s.waiting, s.requeued, s.resting = 1, 0, 0, 0, false
	s.spareChunks, s.spareLanes = nil, nil
	s.asked, s.stopping = 0, false
}
