package parquet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// aheadBytes is about how much memory, in bytes, the rows that a reader's goroutines have decoded ahead take together.
const aheadBytes = 128 << 20

// minAhead is the least part of aheadBytes that each goroutine may use.
const minAhead = 8 << 20

// smallFile is the number of decoded bytes up to which a goroutine would cost more than it saves. It was not measured.
const smallFile = 256 << 10

// decoding counts the goroutines that decode row groups, of all readers.
var decoding atomic.Int32

// pipeline decodes the next row groups in goroutines. Only the reading goroutine calls its methods.
type pipeline struct {
	width int // row groups that are decoded at the same time; 0: the reading goroutine decodes all
	jobs  map[int]*job
	ended sync.WaitGroup
}

// begin decides whether goroutines decode row groups of a reader.
func (p *pipeline) begin(r *records) {
	var bytes int64
	for _, g := range r.groups {
		for i := range r.columns {
			bytes += r.meta.groups[g.number].columns[r.columns[i].leaf.number].uncompressed
		}
	}
	if n := min(numDecoders(), len(r.groups)); n > 1 && !r.single && bytes > smallFile {
		p.width, p.jobs = n, make(map[int]*job)
	}
}

// job decodes a row group in a goroutine.
type job struct {
	reader *groupReader
	limit  int // bytes that it may decode ahead
	ready  chan struct{}
	room   chan struct{}
	stop   atomic.Bool

	mu    sync.Mutex
	slabs []*slab
	bytes int
	done  bool
	err   error
}

// take returns the next rows of the current row group, or nil behind its last row. taken is false if no goroutine
// decodes it. It starts goroutines for the row groups from the current one on.
func (p *pipeline) take(r *records) (s *slab, taken bool, err error) {
	if p.width == 0 {
		return nil, false, nil
	}
	for i := r.group; i < min(r.group+p.width, len(r.groups)); i++ {
		if p.jobs[i] == nil && !p.start(r, i) {
			break
		}
	}
	j := p.jobs[r.group]
	if j == nil {
		return nil, false, nil
	}
	s, err = j.next(r.file.Poll)
	if s == nil && err == nil {
		p.drop(r.group)
	}
	return s, true, err
}

// start starts a goroutine for a row group, unless enough are at work.
func (p *pipeline) start(r *records, i int) bool {
	if int(decoding.Add(1)) > numDecoders() {
		decoding.Add(-1)
		return false
	}
	g := r.groups[i]
	j := &job{limit: max(minAhead, aheadBytes/p.width), ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	from := max(r.next, g.first) - g.first
	j.reader = r.newReader(g, from, func() error {
		if j.stop.Load() {
			return storage.ErrInterrupted
		}
		return nil
	})
	if i == r.group && (i == 0 || from > 0) {
		j.reader.limit = firstRows
	}
	p.jobs[i] = j
	p.ended.Add(1)
	end := func(err error) {
		j.reader.close()
		decoding.Add(-1)
		j.finish(err)
		p.ended.Done()
	}
	wait.Go(func() { end(j.run()) }, func(fault error) { end(pyfeed.Errorf(pyfeed.Fault, "a thread that decodes a row group: %v", fault)) })
	return true
}

// drop ends the goroutine of a row group, if there is one.
func (p *pipeline) drop(i int) {
	if j := p.jobs[i]; j != nil {
		j.cancel()
		delete(p.jobs, i)
	}
}

// stop ends all goroutines, and waits for their end.
func (p *pipeline) stop() {
	for i := range p.jobs {
		p.drop(i)
	}
	p.ended.Wait()
}

// run decodes until the end of the row group, an error, or cancel.
func (j *job) run() error {
	for {
		s, err := j.reader.decode()
		if s == nil || err != nil {
			return err
		}
		j.mu.Lock()
		if j.stop.Load() {
			j.mu.Unlock()
			s.release()
			return storage.ErrInterrupted
		}
		j.slabs = append(j.slabs, s)
		j.bytes += s.bytes()
		full := j.bytes > j.limit
		j.mu.Unlock()
		signal(j.ready)
		for full && !j.stop.Load() {
			<-j.room
			j.mu.Lock()
			full = j.bytes > j.limit
			j.mu.Unlock()
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (j *job) finish(err error) {
	j.mu.Lock()
	j.done, j.err = true, err
	j.mu.Unlock()
	signal(j.ready)
}

// cancel ends the goroutine soon, and drops what it has decoded.
func (j *job) cancel() {
	j.stop.Store(true)
	signal(j.room)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.slabs {
		s.release()
	}
	j.slabs = nil
}

// pollWait is how long a wait for rows lasts at most between two polls.
const pollWait = 2 * time.Millisecond

// next returns the next rows, or nil behind the last one.
func (j *job) next(poll func() error) (*slab, error) {
	var timer *time.Timer
	for {
		j.mu.Lock()
		if len(j.slabs) > 0 {
			s := j.slabs[0]
			j.slabs[0] = nil
			j.slabs = j.slabs[1:]
			j.bytes -= s.bytes()
			j.mu.Unlock()
			signal(j.room)
			return s, nil
		}
		done, err := j.done, j.err
		j.mu.Unlock()
		if done {
			return nil, err
		}
		if timer == nil {
			timer = time.NewTimer(pollWait)
			defer timer.Stop()
		} else {
			timer.Reset(pollWait)
		}
		select {
		case <-j.ready:
		case <-timer.C:
			if err := poll(); err != nil {
				return nil, err
			}
		}
	}
}
