package files

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// permutedReader reads all records of many files in the order of a permutation, which it does not store. The records of
// a pass are divided into units. Its threads read units, and the consumer takes them in order.
type permutedReader struct {
	readers.PeekBuffer
	*fileSet
	*catalog
	lookups lookups
	seed    uint64
	threads int
	unit    int64 // records of a unit

	mu          sync.Mutex
	consumers   wait.List
	workersCond *sync.Cond // threads wait on it for room or for the end
	order       *permutation.Feistel
	begin       int64     // number in the pass of the first record of unit 0
	units       []oneUnit // a ring
	next        int64     // number of the unit that a thread reads next
	head        int64     // number of the unit that the consumer takes from
	accessors   []*accessor
	running     int // threads
	started     bool
	stopping    bool
	err         error // the error that ended reading, io.EOF at the end; nil: reading goes on
	changed     error // that a file was written to meanwhile
}

// oneUnit has what was read of a unit.
type oneUnit struct {
	chunk record.Chunk
	err   error // behind the chunk
	read  bool
}

const (
	unitRecords = 256     // at most
	unitBytes   = 1 << 20 // as far as the mean size of the records tells
	unitsAhead  = 4       // for each thread
)

func newPermutedReader(c *catalog, set *fileSet, o *Options) *permutedReader {
	r := &permutedReader{fileSet: set, catalog: c, seed: *o.ShuffleRecords, threads: o.NumThreads, unit: unitRecords}
	if c.bytes > 0 {
		r.unit = min(max(c.count()*unitBytes/c.bytes, 1), unitRecords)
	}
	r.units = make([]oneUnit, unitsAhead*r.threads)
	r.workersCond = sync.NewCond(&r.mu)
	r.consumers.Init(&r.mu)
	r.consumers.Named("waits for records", trace.Wait)
	r.Read = r.take
	r.beginPass(0, 0)
	return r
}

// beginPass begins a pass behind a number of records. No thread runs.
func (r *permutedReader) beginPass(pass uint64, begin int64) {
	r.order = permutation.NewFeistel(uint64(r.count()), r.seed, pass)
	r.begin, r.next, r.head = begin, 0, 0
}

// numUnits returns the number of units from begin on.
func (r *permutedReader) numUnits() int64 { return (r.count() - r.begin + r.unit - 1) / r.unit }

func (r *permutedReader) start() {
	r.started = true
	r.running = r.threads
	r.accessors = nil
	for range r.threads {
		a := newAccessor(r.catalog, r.fileSet, r.threads)
		r.accessors = append(r.accessors, a)
		wait.Go(func() { r.run(a) }, r.fault)
	}
}

// fault is called when run has panicked, in place of its normal exit.
func (r *permutedReader) fault(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = pyfeed.Errorf(pyfeed.Fault, "a thread that reads files: %v", fault)
	r.stopping = true
	r.exit()
}

// exit is called when a thread ends.
func (r *permutedReader) exit() {
	r.running--
	r.workersCond.Broadcast()
	r.consumers.WakeAll()
}

// run is the loop of a thread.
func (r *permutedReader) run(a *accessor) {
	var lane trace.Lane
	defer lane.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.stopping && r.next < r.numUnits() {
		if r.next-r.head == int64(len(r.units)) {
			start := trace.Begin()
			r.workersCond.Wait()
			trace.Since(lane.Track(filesTrack), trace.Full, "no room", start)
			continue
		}
		number := r.next
		r.next++
		unit := &r.units[number%int64(len(r.units))]
		start := trace.Begin()
		unit.err = r.readUnlocked(a, &unit.chunk, number)
		trace.Since(lane.Track(filesTrack), trace.Read, "records", start)
		if unit.read = true; unit.err != nil {
			r.stopping = true // what comes behind is not delivered
			r.workersCond.Broadcast()
		}
		if number == r.head {
			r.consumers.WakeOne().Send()
		}
	}
	if err := r.closeUnlocked(a); r.changed == nil && !r.stopping {
		r.changed = err
	}
	r.exit()
}

// readUnlocked reads a unit without the lock. It takes the lock again even after a panic, as the caller expects.
func (r *permutedReader) readUnlocked(a *accessor, to *record.Chunk, number int64) error {
	from := r.begin + number*r.unit
	until, order := min(from+r.unit, r.count()), r.order
	r.mu.Unlock()
	defer r.mu.Lock()
	return readUnit(a, to, order, from, until)
}

// closeUnlocked does the same for the files of a thread.
func (r *permutedReader) closeUnlocked(a *accessor) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	return a.close()
}

// readUnit reads the records of a pass from one number to another.
func readUnit(a *accessor, to *record.Chunk, order *permutation.Feistel, from, until int64) error {
	for i := from; i < until; i++ {
		if err := a.read(to, int64(order.At(uint64(i)))); err != nil {
			return err
		}
	}
	return nil
}

// take is a readers.ReadFunc.
func (r *permutedReader) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.err != nil {
			return 0, r.err
		}
		if !r.started {
			r.start()
		}
		if r.head >= r.numUnits() {
			if r.running > 0 {
				return 0, r.consumers.Enter(ctx) // they may still find that a file has changed
			}
			if r.err = r.changed; r.err == nil {
				r.err = io.EOF
			}
			r.consumers.WakeAll()
			continue
		}
		unit := &r.units[r.head%int64(len(r.units))]
		if !unit.read {
			return 0, r.consumers.Enter(ctx)
		}
		if unit.chunk.Len() > 0 {
			n := unit.chunk.MoveTo(to, limit)
			if unit.chunk.Len() > 0 && r.consumers.Len() > 0 {
				r.consumers.WakeOne().Send()
			}
			if unit.chunk.Len() == 0 && unit.err == nil {
				r.nextUnit(unit)
			}
			return n, nil
		}
		if unit.err != nil {
			r.err = unit.err
			r.consumers.WakeAll()
			continue
		}
		r.nextUnit(unit)
	}
}

// nextUnit goes to the next unit.
func (r *permutedReader) nextUnit(unit *oneUnit) {
	unit.chunk.Release()
	unit.read = false
	r.head++
	r.workersCond.Signal()
	if r.consumers.Len() > 0 {
		r.consumers.WakeOne().Send()
	}
}

// stop ends the threads and releases what they have read.
func (r *permutedReader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	r.workersCond.Broadcast()
	for _, a := range r.accessors {
		a.interrupt()
	}
	for r.running > 0 {
		r.workersCond.Wait()
	}
	for i := range r.units {
		r.units[i].chunk.Release()
		r.units[i].err, r.units[i].read = nil, false
	}
	r.accessors, r.started, r.stopping, r.changed = nil, false, false, nil
	if !pyfeed.IsKind(r.err, pyfeed.Fault) {
		r.err = nil
	}
	r.consumers.WakeAll()
}

// ReInit begins a pass.
func (r *permutedReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPass(pass, 0)
	return nil
}

// Identity implements readers.Resumable.
func (r *permutedReader) Identity() (string, []state.Option) {
	return "open_files", slices.Insert(r.fileSet.options(r.refs), 5,
		state.Option{Name: "num_records", Value: r.count(), Optional: true},
		state.Option{Name: "shuffle_records", Value: strconv.FormatUint(r.seed, 10)})
}

// Save implements readers.Resumable. The number of records suffices.
func (r *permutedReader) Save(readers.Position, *readers.Saver) error { return nil }

// Restore implements readers.Resumable.
func (r *permutedReader) Restore(p readers.Position, _ *readers.Restorer) (int64, error) {
	if p.N > r.count() {
		return 0, readers.ErrPassTooShort(p.N - r.count())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPass(p.Pass, p.N)
	return 0, nil
}

// Length implements readers.Sized.
func (r *permutedReader) Length() int64 { return r.count() }

// At implements readers.RandomAccess.
func (r *permutedReader) At(i int64) (*pyfeed.Tuple, error) {
	return r.lookups.at(r.catalog, r.fileSet, i)
}

// Spec returns that of the instances.
func (r *permutedReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *permutedReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "open_files"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"files": len(r.refs), "formats": record.TagsOf(r.refs), "num_threads": r.threads, "records": r.count()}
	r.fileSet.describe(s)
}

// Close ends the threads and releases everything.
func (r *permutedReader) Close() {
	r.DropPeeked()
	r.stop()
	r.lookups.close()
	r.catalog.close()
	r.fileSet.close()
}
