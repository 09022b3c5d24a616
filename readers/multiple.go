package readers

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// MultipleReader reads many files at a time by threads of its own, and is one reader to those above.
//
// A few files are open, each in a lane. Threads take the lanes in turn and read a chunk of instances ahead.
// When the file of a lane ends, the next in the list takes its place. Ordered, one instance is taken from each
// lane in turn, so that the order depends on the files alone; else what has come is taken.
//
// One file stands by for the lane that ends first. Where files are so short that a chunk is all of one, many do, and
// the threads do not stop after each: they sleep when there is no room, until there is half of it, and a consumer that
// sleeps is woken for several instances, not for each. No instance waits long for the next one to be read. Those that look
// like the ones before them are read as bundles.
type MultipleReader struct {
	ahead
	*files
	listed  []source
	seed    *uint64  // of the order of files; nil: as they are listed
	sources []source // in the order of this pass
	threads int
	ordered bool
	width   int // lanes, at most

	mu        sync.Mutex
	consumers wait.List
	work      *sync.Cond // threads wait for room or for the end
	lanes     []*lane
	standby   []*lane // for the lanes that end first, in the order of the list
	depth     int     // files that may stand by
	held      int     // bytes of those that do
	resting   bool    // too much stands by, until half of it is gone
	turn      int     // lane that is read next
	next      int     // of sources, to be opened
	running   int     // threads
	sleeping  int     // of them
	started   bool
	stopping  bool
	err       error // why reading ended, once it has
	idle      []*Lot
	used      []*lane // for the next files
	sides     []*Lot  // room for those that are taken from in turn

	bundles

	untold int   // instances that came since a consumer found nothing
	asked  int   // how many it had room for
	taken  int   // by consumers, while threads hurry
	hurry  bool  // nobody has had all he asked for and come again yet, and threads read no more than that
	since  int64 // when it did, or the last one came
	late   *time.Timer
	armed  bool // late is going to tell it
}

// lane is a file, or a bundle, and what was read of it ahead.
type lane struct {
	file   file
	bundle []source  // nil: it is a file
	like   *likeness // of the files of a bundle, or of a file that has ended
	chunks []*Lot
	bytes  int            // that were read while it stood by
	busy   bool           // a thread reads
	begun  bool           // something was read
	ahead  bool           // it stands by
	back   bool           // it was handed back
	room   *memory.Buffer // in which a bundle has places, from place on; nil: it will have a buffer of its own
	place  int
	end    error // what came after the last chunk
}

const (
	laneChunks = 2       // a lane holds at most
	manyRows   = 8192    // in a chunk, at most
	firstChunk = 32      // instances of a lane at a time at least, while threads hurry
	hurried    = 1024    // and at most
	mostAhead  = 128     // files that stand by
	heldAhead  = 2 << 20 // bytes of those: no more are opened then

	worthWaking = 32                     // instances, if a consumer asks for so many
	pause       = 50 * time.Microsecond  // after which the next instance is not expected soon
	mostLate    = 500 * time.Microsecond // an instance waits at most so long for others
)

func newMultipleReader(sources []source, all *files, a *filesAttributes) *MultipleReader {
	m := &MultipleReader{files: all, listed: sources, seed: a.ShuffleFiles, threads: a.ThreadNum, ordered: a.Ordered}
	m.width = min(a.Interleave, len(sources))
	if !m.ordered {
		m.width = min(m.threads, len(sources))
	}
	m.order(0)
	m.depth, m.hurry, m.slow = 1, true, mostLate
	m.consumers.Init(&m.mu)
	m.consumers.Named("waits for files", trace.Wait)
	m.work = sync.NewCond(&m.mu)
	m.read = m.take
	return m
}

// blockOfFiles is what a shuffle of files has in place of a block's number, which no shuffle of tuples comes to.
const blockOfFiles = 1 << 63

// order puts the files into the order of a pass.
func (m *MultipleReader) order(pass uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = m.listed
	if m.seed != nil {
		m.sources = slices.Clone(m.listed)
		permute(m.sources, *m.seed, pass, blockOfFiles, nil)
	}
}

// open puts the next file into a lane.
func (m *MultipleReader) open() *lane {
	m.next++
	return m.lane(m.sources[m.next-1:m.next], nil)
}

func (m *MultipleReader) start() {
	m.started = true
	for len(m.lanes) < m.width {
		m.lanes = append(m.lanes, m.open())
	}
	m.running = min(m.threads, len(m.sources))
	for range m.running {
		wait.Go(m.run, m.fault)
	}
}

// fault is called in place of the end of run, which had panicked.
func (m *MultipleReader) fault(fault error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = pyfeed.Errorf(pyfeed.Fault, "a thread that reads files: %v", fault)
	m.stopping = true
	m.leave()
}

// leave is the end of a thread.
func (m *MultipleReader) leave() {
	m.running--
	m.work.Broadcast()
	m.consumers.All()
}

// run is a thread: it reads a chunk for the lane that needs one most, again and again.
func (m *MultipleReader) run() {
	var track trace.Lane
	defer track.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		l := m.pick()
		if l == nil {
			if m.stopping || m.over() {
				m.leave()
				return
			}
			m.resting = !m.roomy()
			m.tell() // it would wait for what this thread does not read now
			start, why, name := trace.Begin(), trace.Wait, "no file for this thread"
			if start != 0 && m.full() {
				why, name = trace.Full, "no room"
			}
			m.sleeping++
			m.work.Wait()
			m.sleeping--
			trace.Since(track.Track(filesTrack), why, name, start)
			continue
		}
		n := m.fill(l, track.Track(filesTrack))
		if m.stopping {
			m.work.Broadcast() // somebody may wait to close the file
			continue
		}
		wake := m.came(max(n, 1))
		if wake != (wait.Wake{}) {
			m.mu.Unlock()
			wake.Send()
			m.mu.Lock()
		}
	}
}

// fill reads a chunk for a lane, and says how many instances came.
func (m *MultipleReader) fill(l *lane, t trace.Track) int {
	if m.begin(l); l.bundle != nil {
		return m.gather(l, t)
	}
	chunk := m.chunk()
	n, bytes, err := m.readUnlocked(l, chunk, m.atOnce(l), t)
	l.busy = false
	if n > 0 {
		l.chunks = append(l.chunks, chunk)
	} else {
		m.idle = append(m.idle, chunk)
	}
	l.end = err
	m.learn(l, bytes)
	m.compare(l)
	return n
}

// settle is the end of the hurry: threads read ahead from now on.
func (m *MultipleReader) settle() {
	if m.hurry {
		m.hurry = false
		m.urge()
	}
}

// learn is whether files are short, from one of which a chunk was read.
func (m *MultipleReader) learn(l *lane, bytes int) {
	if !l.begun {
		if l.begun = true; l.end == nil {
			m.depth = 1
		} else if l.end == io.EOF {
			m.settle()                                                           // short files take no time, and many are wanted
			m.depth = max(min(2*m.depth, mostAhead, heldAhead/max(bytes, 1)), 1) // as if all were of that size
		}
	}
	if l.ahead {
		l.bytes += bytes
		m.held += bytes
	}
}

// came is told of instances, or of an end, and who is to be woken for them.
func (m *MultipleReader) came(n int) wait.Wake {
	if m.consumers.Len() == 0 {
		return wait.Wake{}
	}
	m.untold += n
	if !m.has() {
		return wait.Wake{}
	}
	before := m.since
	m.since = trace.Now()
	enough := m.untold >= min(m.asked, worthWaking) || m.since-before > int64(pause)
	if m.hurry && m.asked > 1 {
		enough = m.neediest() == nil && !m.reading() // he takes some of each lane, and would be woken for each
	}
	if enough {
		return m.told()
	}
	if !m.armed {
		if m.armed = true; m.late == nil {
			m.late = time.AfterFunc(mostLate, m.remind)
		} else {
			m.late.Reset(mostLate)
		}
	}
	return wait.Wake{}
}

// told wakes a consumer.
func (m *MultipleReader) told() wait.Wake {
	m.untold = 0
	return m.consumers.One()
}

// tell wakes a consumer that waits while there is something for it.
func (m *MultipleReader) tell() {
	if m.consumers.Len() > 0 && m.has() {
		m.told().Send()
	}
}

// remind is what late does.
func (m *MultipleReader) remind() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = false
	m.tell()
}

// atOnce is how many instances of a lane are read at a time. Rows cost little each; but nobody is to wait for many of them.
func (m *MultipleReader) atOnce(l *lane) int {
	if m.hurry { // and nothing ahead: that would take processors from those who wait
		return min(max(m.share()-l.holds(), firstChunk), hurried)
	}
	return int(min(max(chunkSize, 3*l.file.record), manyRows))
}

// readUnlocked lets go of the lock to read. After a panic too it is held again, as those above expect.
func (m *MultipleReader) readUnlocked(l *lane, chunk *Lot, most int, t trace.Track) (n, bytes int, err error) {
	m.mu.Unlock()
	defer m.mu.Lock()
	n, err = l.file.read(chunk, most, t)
	bytes = chunk.bytes
	if n > 0 && l.file.ended() {
		err = io.EOF
		l.like = l.file.likeness()
	}
	if err == io.EOF {
		l.file.close()
	}
	return n, bytes, err
}

// filesTrack is the name of the tracks of threads that read files.
const filesTrack = "open_files"

// full says whether a lane has no room.
func (m *MultipleReader) full() bool {
	return m.resting || slices.ContainsFunc(m.lanes, func(l *lane) bool { return len(l.chunks) >= laneChunks })
}

// pick is the lane a thread should read for: the emptiest, the next in turn of those, or else one that stands by.
func (m *MultipleReader) pick() *lane {
	l := m.neediest()
	if l == nil && m.mayOpen() {
		l = m.claim()
	}
	return l
}

func (m *MultipleReader) neediest() *lane {
	if m.stopping {
		return nil
	}
	var best *lane
	for i := range m.lanes {
		l := m.lanes[(m.turn+i)%len(m.lanes)]
		if l.wants() && (!m.hurry || l.holds() < m.share()) && (best == nil || len(l.chunks) < len(best.chunks)) {
			best = l
		}
	}
	if best == nil && len(m.standby) > 0 && m.standby[0].wants() {
		best = m.standby[0]
	}
	if best == nil {
		best = m.handedBack()
	}
	return best
}

// mayOpen says whether one more file may stand by.
func (m *MultipleReader) mayOpen() bool {
	return !m.stopping && !m.resting && !m.hurry && m.next < len(m.sources) && m.waiting < m.depth && m.held < heldAhead
}

// roomy says whether there is room enough for threads to be woken.
func (m *MultipleReader) roomy() bool { return m.waiting <= m.depth/2 && m.held <= heldAhead/2 }

// urge wakes threads that sleep, if there is something for them to read.
func (m *MultipleReader) urge() {
	m.resting = m.resting && !m.roomy()
	if m.sleeping > 0 && (m.neediest() != nil || m.mayOpen()) {
		m.work.Broadcast()
	}
}

// reading says whether a thread is at work on a lane.
func (m *MultipleReader) reading() bool {
	return slices.ContainsFunc(m.lanes, func(l *lane) bool { return l.busy })
}

// enough is how many instances are taken before threads read ahead.
func (m *MultipleReader) enough() int { return max(m.most, firstChunk) }

// share is how many instances each lane is to have while threads hurry: those a consumer has asked for and not yet taken.
func (m *MultipleReader) share() int {
	if m.taken >= m.enough() {
		return 0
	}
	return max(1, (m.most-m.taken+len(m.lanes)-1)/len(m.lanes))
}

// holds is how many instances were read ahead.
func (l *lane) holds() (n int) {
	for _, c := range l.chunks {
		n += c.Len()
	}
	return n
}

func (l *lane) wants() bool { return !l.busy && l.end == nil && len(l.chunks) < laneChunks }

// over says whether there is nothing more to be read.
func (m *MultipleReader) over() bool {
	for _, l := range m.lanes {
		if l.end == nil {
			return false
		}
	}
	for _, l := range m.standby {
		if l.end == nil {
			return false
		}
	}
	return m.next == len(m.sources)
}

func (m *MultipleReader) chunk() *Lot {
	if n := len(m.idle); n > 0 {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return c
	}
	return new(Lot)
}

// take is ReadMany.
func (m *MultipleReader) take(ctx context.Context, to *Lot, most int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started && m.err == nil {
		m.start()
	}
	if m.taken >= m.enough() {
		m.settle()
	}
	m.most = max(m.most, most)
	n := 0
	for n < most && m.err == nil {
		if len(m.lanes) == 0 {
			m.err = io.EOF
			m.consumers.All()
			break
		}
		l := m.ready()
		if l == nil {
			break
		}
		if len(l.chunks) == 0 {
			if m.bundled(l) {
				n += m.serve(to, most-n)
			} else {
				m.finish(l)
			}
			continue
		}
		first := l.chunks[0]
		if rounds := m.rounds(most - n); rounds > 0 {
			n += m.takeRounds(to, rounds)
			continue
		}
		if m.ordered && len(m.lanes) > 1 {
			n += first.move(to, 1)
			m.turn = (m.turn + 1) % len(m.lanes)
		} else {
			n += first.move(to, most-n)
		}
		m.spent(l)
	}
	switch {
	case n > 0:
		if m.hurry {
			if m.taken += n; m.taken >= m.enough() && m.consumers.Len() > 0 {
				m.settle() // another waits, and nobody may come again
			}
		}
		if m.consumers.Len() > 0 && m.has() {
			m.consumers.One().Send() // there is something left for another
		}
		return n, nil
	case m.err != nil:
		return 0, m.err
	}
	m.urge()
	m.untold, m.asked, m.since = 0, most, trace.Now()
	return 0, m.consumers.Enter(ctx)
}

// spent takes the first chunk of a lane away if nothing is left of it.
func (m *MultipleReader) spent(l *lane) {
	first := l.chunks[0]
	if first.Len() > 0 {
		return
	}
	m.idle = append(m.idle, first)
	l.chunks = append(l.chunks[:0], l.chunks[1:]...)
	if l.end == nil {
		m.work.Signal()
	}
}

// rounds is how often an instance can be taken from each of several lanes, for so many instances at most.
func (m *MultipleReader) rounds(most int) int {
	if !m.ordered || len(m.lanes) == 1 {
		return 0
	}
	n := most / len(m.lanes)
	for _, l := range m.lanes {
		if len(l.chunks) == 0 {
			return 0
		}
		n = min(n, l.chunks[0].Len())
	}
	return n
}

// takeRounds takes so many instances from each lane.
func (m *MultipleReader) takeRounds(to *Lot, rounds int) int {
	from := m.sides[:0]
	for i := range m.lanes {
		from = append(from, m.lanes[(m.turn+i)%len(m.lanes)].chunks[0])
	}
	m.sides = from
	interleave(from, to, rounds)
	for _, l := range m.lanes {
		m.spent(l)
	}
	return rounds * len(from)
}

// has says whether a consumer need not wait.
func (m *MultipleReader) has() bool { return len(m.lanes) == 0 || m.ready() != nil }

// ready is the lane to take from: one with instances, or at its end. nil if that takes waiting.
func (m *MultipleReader) ready() *lane {
	if m.ordered {
		if l := m.lanes[m.turn]; len(l.chunks) > 0 || l.end != nil && !m.coming(l) {
			return l
		}
		return nil
	}
	for i := range m.lanes {
		l := m.lanes[(m.turn+i)%len(m.lanes)]
		if len(l.chunks) > 0 || l.end != nil {
			m.turn = (m.turn + i) % len(m.lanes)
			return l
		}
	}
	return nil
}

// finish puts the next file in the place of one that has ended.
func (m *MultipleReader) finish(l *lane) {
	if l.end != io.EOF {
		m.err = l.end
		m.stopping = true
		m.work.Broadcast()
		m.consumers.All()
		return
	}
	if len(m.standby) == 0 && m.next < len(m.sources) {
		m.claim() // no thread has come to it yet
	}
	if m.bundled(l) {
		m.urge() // it stays where it is
		return
	}
	if len(m.standby) > 0 {
		next := m.standby[0]
		m.relieve(next)
		m.lanes[m.turn] = next
		m.standby = append(m.standby[:0], m.standby[1:]...)
	} else {
		m.lanes = append(m.lanes[:m.turn], m.lanes[m.turn+1:]...)
		if m.turn == len(m.lanes) {
			m.turn = 0
		}
	}
	m.used = append(m.used, l)
	m.urge()
}

// stop ends the threads and drops what they have read.
func (m *MultipleReader) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
	m.cut.Store(true)
	m.work.Broadcast()
	for _, l := range slices.Concat(m.lanes, m.standby) {
		if l.busy {
			l.file.interrupt()
		}
	}
	for m.running > 0 {
		m.work.Wait()
	}
	for _, l := range slices.Concat(m.lanes, m.standby) { // which may be more now
		for _, c := range l.chunks {
			c.drop()
		}
		l.file.close()
		l.leaveRoom()
	}
	m.leaveRoom()
	m.lanes, m.standby, m.turn, m.next = nil, nil, 0, 0
	m.depth, m.held, m.resting = 1, 0, false
	m.idle, m.used = nil, nil
	m.like, m.alike, m.most, m.waiting, m.back = nil, 0, 0, 0, 0
	m.cut.Store(false)
	m.started, m.stopping = false, false
	if !isFault(m.err) {
		m.err = nil
	}
	m.consumers.All()
}

func isFault(err error) bool {
	e, is := err.(*pyfeed.Error)
	return is && e.Kind == pyfeed.Fault
}

// ReInit goes back to the first file.
func (m *MultipleReader) ReInit(pass uint64) error {
	m.drop()
	m.stop()
	m.order(pass)
	return nil
}

// Spec is that of the instances.
func (m *MultipleReader) Spec() *pyfeed.Spec { return m.spec }

// Describe names it, its files and the damage it skipped.
func (m *MultipleReader) Describe(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Reader = "multiple"
	s.Waited = m.consumers.Waited().Seconds()
	s.Extra = map[string]any{"files": len(m.sources), "formats": tagsOf(m.sources), "thread_num": m.threads, "ordered": m.ordered,
		"opened": m.next}
	m.ledger.describe(s)
}

// Close ends the threads.
func (m *MultipleReader) Close() {
	m.drop()
	m.stop()
	m.files.close()
}
