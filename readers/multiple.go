package readers

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// MultipleReader reads many files at a time by threads of its own, and is one reader to those above.
//
// A few files are open, each in a lane. Threads take the lanes in turn and read a chunk of instances ahead.
// When the file of a lane ends, the next in the list takes its place. Ordered, one instance is taken from each
// lane in turn, so that the order depends on the files alone; else what has come is taken.
type MultipleReader struct {
	ahead
	*files
	sources []source
	threads int
	ordered bool
	width   int // lanes, at most

	mu        sync.Mutex
	consumers wait.List
	work      *sync.Cond // threads wait for room or for the end
	lanes     []*lane
	standby   *lane // for the lane that ends first
	turn      int   // lane that is read next
	next      int   // of sources, to be opened
	running   int   // threads
	started   bool
	stopping  bool
	err       error // why reading ended, once it has
	idle      [][]*pyfeed.Tuple
}

// lane is a file and what was read of it ahead.
type lane struct {
	file   *file
	chunks [][]*pyfeed.Tuple // the first from at on
	at     int
	busy   bool  // a thread reads
	end    error // what came after the last chunk
}

// laneChunks is how many chunks a lane holds at most.
const laneChunks = 2

func newMultipleReader(sources []source, all *files, threads int, ordered bool, width int) *MultipleReader {
	m := &MultipleReader{files: all, sources: sources, threads: threads, ordered: ordered, width: min(width, len(sources))}
	if !ordered {
		m.width = min(threads, len(sources))
	}
	m.consumers.Init(&m.mu)
	m.consumers.Named("waits for files", trace.Wait)
	m.work = sync.NewCond(&m.mu)
	m.read = m.take
	return m
}

// open puts the next file into a lane, if there is one.
func (m *MultipleReader) open() *lane {
	if m.next == len(m.sources) {
		return nil
	}
	m.next++
	return &lane{file: &file{source: m.sources[m.next-1], files: m.files}}
}

func (m *MultipleReader) start() {
	m.started = true
	for len(m.lanes) < m.width {
		m.lanes = append(m.lanes, m.open())
	}
	m.standby = m.open()
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
			start, why, name := trace.Begin(), trace.Wait, "no file for this thread"
			if start != 0 && m.full() {
				why, name = trace.Full, "no room"
			}
			m.work.Wait()
			trace.Since(track.Track(filesTrack), why, name, start)
			continue
		}
		l.busy = true
		chunk := m.chunk()
		n, err := m.readUnlocked(l, chunk, track.Track(filesTrack))
		l.busy = false
		if n > 0 {
			l.chunks = append(l.chunks, chunk[:n])
		} else {
			m.idle = append(m.idle, chunk)
			l.end = err
		}
		if m.stopping {
			m.work.Broadcast() // somebody may wait to close the file
			continue
		}
		if !m.ordered || l == m.current() {
			wake := m.consumers.One()
			m.mu.Unlock()
			wake.Send()
			m.mu.Lock()
		}
	}
}

// readUnlocked lets go of the lock to read. After a panic too it is held again, as those above expect.
func (m *MultipleReader) readUnlocked(l *lane, chunk []*pyfeed.Tuple, t trace.Track) (int, error) {
	m.mu.Unlock()
	defer m.mu.Lock()
	return l.file.read(chunk, t)
}

// filesTrack is the name of the tracks of threads that read files.
const filesTrack = "open_files"

// full says whether a lane has no room.
func (m *MultipleReader) full() bool {
	return slices.ContainsFunc(m.lanes, func(l *lane) bool { return len(l.chunks) >= laneChunks })
}

// pick is the lane a thread should read for: the emptiest, the next in turn of those.
func (m *MultipleReader) pick() *lane {
	if m.stopping {
		return nil
	}
	var best *lane
	for i := range m.lanes {
		l := m.lanes[(m.turn+i)%len(m.lanes)]
		if l.wants() && (best == nil || len(l.chunks) < len(best.chunks)) {
			best = l
		}
	}
	if best == nil && m.standby != nil && m.standby.wants() {
		best = m.standby
	}
	return best
}

func (l *lane) wants() bool { return !l.busy && l.end == nil && len(l.chunks) < laneChunks }

// over says whether there is nothing more to be read.
func (m *MultipleReader) over() bool {
	for _, l := range m.lanes {
		if l.end == nil {
			return false
		}
	}
	return m.standby == nil || m.standby.end != nil && m.next == len(m.sources)
}

func (m *MultipleReader) current() *lane {
	if len(m.lanes) == 0 {
		return nil
	}
	return m.lanes[m.turn]
}

func (m *MultipleReader) chunk() []*pyfeed.Tuple {
	if n := len(m.idle); n > 0 {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return c[:cap(c)]
	}
	return make([]*pyfeed.Tuple, chunkSize)
}

// take is ReadMany.
func (m *MultipleReader) take(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started && m.err == nil {
		m.start()
	}
	n := 0
	for n < len(out) && m.err == nil {
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
			m.finish(l)
			continue
		}
		if m.ordered && len(m.lanes) > 1 {
			out[n] = l.chunks[0][l.at]
			l.at++
			n++
			m.turn = (m.turn + 1) % len(m.lanes)
		} else {
			got := copy(out[n:], l.chunks[0][l.at:])
			l.at += got
			n += got
		}
		if l.at == len(l.chunks[0]) {
			m.idle = append(m.idle, l.chunks[0])
			l.chunks = append(l.chunks[:0], l.chunks[1:]...)
			l.at = 0
			m.work.Signal()
		}
	}
	switch {
	case n > 0:
		if m.consumers.Len() > 0 && (len(m.lanes) == 0 || m.ready() != nil) {
			m.consumers.One().Send() // there is something left for another
		}
		return n, nil
	case m.err != nil:
		return 0, m.err
	}
	return 0, m.consumers.Enter(ctx)
}

// ready is the lane to take from: one with instances, or at its end. nil if that takes waiting.
func (m *MultipleReader) ready() *lane {
	if m.ordered {
		if l := m.lanes[m.turn]; len(l.chunks) > 0 || l.end != nil {
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
	l.file.close()
	if m.standby != nil {
		m.lanes[m.turn] = m.standby
		m.standby = m.open()
	} else {
		m.lanes = append(m.lanes[:m.turn], m.lanes[m.turn+1:]...)
		if m.turn == len(m.lanes) {
			m.turn = 0
		}
	}
	m.work.Broadcast()
}

// stop ends the threads and drops what they have read.
func (m *MultipleReader) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
	m.work.Broadcast()
	all := m.lanes
	if m.standby != nil {
		all = append(all, m.standby)
	}
	for _, l := range all {
		if l.busy {
			l.file.interrupt()
		}
	}
	for m.running > 0 {
		m.work.Wait()
	}
	for _, l := range all {
		for i, c := range l.chunks {
			if i == 0 {
				c = c[l.at:]
			}
			pyfeed.ReleaseAll(c)
		}
		l.file.close()
	}
	m.lanes, m.standby, m.turn, m.next = nil, nil, 0, 0
	m.idle = nil
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
func (m *MultipleReader) ReInit(uint64) error {
	m.drop()
	m.stop()
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
