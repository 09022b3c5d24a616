package readers

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// bundles is what a MultipleReader knows of bundles.
//
// A bundle is several files in a row that one thread reads one after the other into one buffer: short files that are
// expected to look like those before them. The locks of the reader, of the pool and of spare tuples are taken once for all
// of them, and their instances are Rows. Each is still a file of its own, so that the order is that of files read one by
// one. A file that looks otherwise, or is damaged, or not there, ends the bundle and is read by itself, as any other; what
// is behind it is handed back to whoever comes first.
type bundles struct {
	like    *likeness     // of the short files that were read last; nil: there was none
	alike   int           // how many in a row were so
	most    int           // instances that a consumer asked for
	waiting int           // files that stand by
	back    int           // lanes among them that were handed back and nobody has begun
	slow    time.Duration // a bundle that takes as long ends with the file that was read
	cut     atomic.Bool   // bundles end as soon as they can

	room     *memory.Buffer // for a batch of instances, of which bundles are given places; nil: there is none
	roomFor  *likeness
	from, to int // the files that it has places for
}

const (
	leastAlike = 4             // short files, after which others are expected to be alike
	mostBundle = heldAhead / 4 // bytes of one
)

// likeness is what Records that are Alike say.
type likeness struct {
	format *Format
	head   []byte
	first  pyfeed.LoDTensor // but for its data
	size   int              // of the data in bytes
}

// likeness is what other files may have in common with one whose only instance was read; nil: nothing.
func (f *file) likeness() *likeness {
	r, can := f.records.(Alike)
	if !can {
		return nil
	}
	head, slot := r.Alike()
	if len(head) == 0 {
		return nil
	}
	l := &likeness{format: f.format, head: head, first: pyfeed.LoDTensor{DType: slot.DType, ReadOnly: true}}
	err := l.first.SetDims(slot.Dims)
	if err == nil {
		l.size, err = l.first.Measure()
	}
	if err != nil || l.size == 0 || storage.NewAlike(head) == nil {
		return nil
	}
	return l
}

func (l *likeness) equals(other *likeness) bool {
	return l.format == other.format && l.first.DType == other.first.DType && bytes.Equal(l.head, other.head) &&
		slices.Equal(l.first.Dims(), other.first.Dims())
}

// compare is told what the file is like of which a chunk was read.
func (m *MultipleReader) compare(l *lane) {
	switch {
	case l.like == nil:
		m.alike = 0
	case m.like != nil && m.like.equals(l.like):
		m.alike++
	default:
		m.like, m.alike = l.like, 1
	}
}

// several is how many of the next files a thread should claim: the threads share a batch, and none keeps it waiting.
func (m *MultipleReader) several() int {
	if m.alike < leastAlike {
		return 1
	}
	share := (min(m.most, worthWaking) + m.threads - 1) / m.threads
	return max(min(share, mostBundle/m.like.size, len(m.sources)-m.next), 1)
}

// claim is a lane for the next files, which stand by.
func (m *MultipleReader) claim() *lane {
	n := m.several()
	if n > 1 {
		n = m.enter(n)
	}
	l := m.lane(m.sources[m.next:m.next+n], m.like)
	if n > 1 && m.room != nil {
		m.room.Retain(1)
		l.room, l.place = m.room, m.next-m.from
	}
	if m.next += n; m.next >= min(m.to, len(m.sources)) {
		m.leaveRoom()
	}
	m.stand(l, len(m.standby))
	return l
}

// enter sees to room for a batch of instances, beginning where a batch does if each file has one, and says how many of
// the next n files it is for. So the instances of a batch lie one behind the other, whoever reads them.
func (m *MultipleReader) enter(n int) int {
	if m.room != nil && (m.like != m.roomFor || m.next >= m.to) {
		m.leaveRoom()
	}
	if m.room == nil {
		size := m.most * m.like.size
		if size > heldAhead {
			return n
		}
		room, err := m.pool.Get(size)
		if err != nil {
			return n // and a bundle asks for its own
		}
		m.room, m.roomFor, m.from = room, m.like, m.next/m.most*m.most
		m.to = m.from + m.most
	}
	rest := min(m.to, len(m.sources)) - m.next
	if n == rest-1 {
		n = rest // one alone would be read into a buffer of its own
	}
	return min(n, rest)
}

func (m *MultipleReader) leaveRoom() {
	if m.room != nil {
		m.room.Release()
		m.room = nil
	}
}

// leaveRoom is when nothing more is read into a lane's places.
func (l *lane) leaveRoom() {
	if l.room != nil {
		l.room.Release()
		l.room = nil
	}
}

// lane is one for a file, or for a bundle.
func (m *MultipleReader) lane(of []source, like *likeness) *lane {
	l := new(lane)
	if n := len(m.used); n > 0 {
		l, m.used = m.used[n-1], m.used[:n-1]
	}
	m.put(l, of, like)
	return l
}

// put makes a lane one for a file, or for a bundle.
func (m *MultipleReader) put(l *lane, of []source, like *likeness) {
	*l = lane{chunks: l.chunks[:0]}
	if len(of) == 1 {
		l.file = file{source: of[0], files: m.files}
	} else {
		l.bundle, l.like, l.bytes = of, like, len(of)*like.size
	}
}

// stand has a lane stand by, as the at-th.
func (m *MultipleReader) stand(l *lane, at int) {
	m.standby = slices.Insert(m.standby, at, l)
	m.count(l)
}

// count is told of a lane that stands by.
func (m *MultipleReader) count(l *lane) {
	l.ahead = true
	m.waiting += max(len(l.bundle), 1)
	m.held += l.bytes
}

// relieve is told of a lane that does not stand by any more, or did not.
func (m *MultipleReader) relieve(l *lane) {
	if l.ahead {
		l.ahead = false
		m.waiting -= max(len(l.bundle), 1)
		m.held -= l.bytes
	}
}

// gather reads a bundle, and says how many instances came.
func (m *MultipleReader) gather(l *lane, t trace.Track) int {
	chunk := m.chunk()
	n, pipe, unlike := m.gatherUnlocked(l, chunk, t)
	l.busy = false
	if n > 0 {
		l.chunks, l.end = append(l.chunks, chunk), io.EOF
	} else {
		m.idle = append(m.idle, chunk)
	}
	if unlike {
		m.alike = 0
	}
	if n < len(l.bundle) {
		m.part(l, n, unlike, pipe)
	} else {
		l.leaveRoom()
	}
	return n
}

// gatherUnlocked lets go of the lock to read, as readUnlocked does. The file behind the last is unlike them, and may be a
// pipe that is open; or it was not looked at.
func (m *MultipleReader) gatherUnlocked(l *lane, out *Lot, t trace.Track) (n int, pipe *os.File, unlike bool) {
	m.mu.Unlock()
	defer m.mu.Lock()
	first, size := l.like.first, l.like.size
	if m.spec.Check(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{first}}) != nil {
		return 0, nil, true
	}
	b := l.room
	if b == nil {
		var err error
		if b, err = m.pool.Get(len(l.bundle) * size); err != nil {
			return 0, nil, true // and it is tried again for one alone
		}
		defer b.Release()
	}
	to := b.Bytes()[l.place*size:][:len(l.bundle)*size]
	alike, begun, begin := storage.NewAlike(l.like.head), m.files.begun(), trace.Now()
	for _, s := range l.bundle {
		if m.cut.Load() || n > 0 && trace.Now()-begin >= int64(m.slow) {
			break
		}
		start, same := trace.Begin(), false
		if s.format == l.like.format && s.path != begun {
			same, pipe = alike.Read(s.path, to[n*size:(n+1)*size])
		}
		if !same {
			unlike = true
			break
		}
		trace.Since(t, trace.Read, filepath.Base(s.path), start)
		n++
	}
	if n == 0 {
		return 0, pipe, unlike
	}
	b.Retain(n)
	first.Data = to[: size : n*size]
	rows := NewRows([]pyfeed.LoDTensor{first}, size, n, b)
	rows.files = l.bundle[:n:n]
	out.AddRows(rows)
	return n, pipe, unlike
}

// begun is the path of the file that was begun before, which is not opened again.
func (f *files) begun() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened.path
}

// part leaves the first n files in the lane of a bundle, and hands the others back. The first of those, if it is unlike
// them, gets a lane to itself, and the pipe that it was opened as, if it is one.
func (m *MultipleReader) part(l *lane, n int, unlike bool, pipe *os.File) {
	parts := [][]source{l.bundle[n:]}
	if unlike {
		parts = [][]source{l.bundle[n : n+1], l.bundle[n+1:]}
	}
	like, ahead, at := l.like, l.ahead, slices.Index(m.standby, l) // -1: in the place of a file that has ended
	room, place := l.room, l.place+n
	l.room = nil
	m.relieve(l)
	if n > 0 {
		l.bundle, l.bytes = l.bundle[:n], n*like.size
	} else {
		m.put(l, parts[0], like)
	}
	if ahead {
		m.count(l)
	}
	for i, of := range parts {
		if len(of) == 0 {
			continue
		}
		back := l
		if i > 0 || n > 0 {
			at++
			back = m.lane(of, like)
			m.stand(back, at)
		}
		if i == 0 {
			back.file.pipe = pipe
		}
		if room != nil && len(of) > 1 {
			room.Retain(1)
			back.room, back.place = room, place
		}
		place += len(of)
		back.back = true
		m.back++
	}
	for !m.ordered && len(m.lanes) < m.width && len(m.standby) > 0 { // one was given up when nothing stood by
		next := m.standby[0]
		m.relieve(next)
		m.lanes = append(m.lanes, next)
		m.standby = append(m.standby[:0], m.standby[1:]...)
	}
	m.urge() // others, since what this thread reads next may be a pipe
	if room != nil {
		room.Release()
	}
}

// handedBack is the first lane of those that were; nil: there is none.
func (m *MultipleReader) handedBack() *lane {
	if m.back == 0 {
		return nil
	}
	if i := slices.IndexFunc(m.standby, func(l *lane) bool { return l.back }); i >= 0 {
		return m.standby[i]
	}
	return nil
}

// begin is what a thread does with a lane that it has picked, before it reads.
func (m *MultipleReader) begin(l *lane) {
	if l.back {
		l.back = false
		m.back--
	}
	if l.bundle != nil && m.alike < leastAlike { // by what is known now
		m.part(l, 0, true, nil)
		l.back = false
		m.back--
	}
	l.busy = true
}

// coming says whether the place of a file that has ended is that of one in a bundle that nobody has read yet.
func (m *MultipleReader) coming(l *lane) bool {
	return m.bundled(l) && len(m.standby[0].chunks) == 0
}

// bundled says whether the place of a file that has ended is that of one in a bundle. Unordered, a bundle is like a file.
func (m *MultipleReader) bundled(l *lane) bool {
	return m.ordered && l.end == io.EOF && len(m.standby) > 0 && m.standby[0].bundle != nil
}

// serve takes instances of the bundle that stands by first: one in the place of the lane whose turn it is, or as many as
// there is room for, if all lanes have come to their ends and nothing comes between.
func (m *MultipleReader) serve(to *Lot, most int) int {
	b := m.standby[0]
	if b.ahead {
		m.relieve(b)
		m.urge()
	}
	for _, l := range m.lanes {
		if len(l.chunks) > 0 || l.end != io.EOF {
			most = 1
			break
		}
	}
	n := b.chunks[0].move(to, most)
	m.turn = (m.turn + n) % len(m.lanes)
	if b.chunks[0].Len() == 0 {
		m.idle = append(m.idle, b.chunks[0])
		b.chunks = b.chunks[:0]
		m.standby = append(m.standby[:0], m.standby[1:]...)
		m.used = append(m.used, b)
	}
	return n
}
