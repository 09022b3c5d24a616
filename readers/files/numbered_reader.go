package files

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// numberedReader reads the records of many files by their numbers: in the order of a permutation, or those of some virtual
// shards, or both. The tuples of a pass are divided into units. Its threads read units, and the consumer takes them in
// order.
type numberedReader struct {
	readers.PeekBuffer
	*fileSet
	*catalog
	lookups     lookups
	seed        *uint64 // of the permutation; nil: there is none
	seedOfFiles *uint64 // of the order of files; nil: the order of the list
	divided     bool    // the tuples are divided among processes
	threads     int
	unit        int64 // tuples of a unit

	mu          sync.Mutex
	consumers   wait.List
	workersCond *sync.Cond // threads wait on it for room or for the end
	sequence    sequence   // of this pass
	begin       int64      // number in the pass of the first tuple of unit 0
	units       []oneUnit  // a ring
	next        int64      // number of the unit that a thread reads next
	head        int64      // number of the unit that the consumer takes from
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
	unitRecords = 256     // at most, if records are permuted
	unitOfRuns  = 8192    // at most, if they are not: the reads of a unit then are runs of records
	unitBytes   = 1 << 20 // as far as the mean size of the records tells
	unitsAhead  = 4       // for each thread
)

func newNumberedReader(c *catalog, set *fileSet, o *Options) (*numberedReader, error) {
	r := &numberedReader{fileSet: set, catalog: c, seed: o.ShuffleRecords, seedOfFiles: o.ShuffleFiles, threads: o.NumThreads, unit: unitRecords,
		sequence: sequence{catalog: c, shards: readers.VirtualShards{Total: 1, World: 1}, even: readers.EvenDrop}}
	if o.VirtualShards > 0 {
		r.divided, r.sequence.shards, r.sequence.even = true, o.shards(), readers.Even(o.Even)
	}
	shards := &r.sequence.shards
	if r.sequence.length() == 0 && (c.count() > 0 || shards.Total > 1) {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "virtual_shards: expected at most the number of records, %d, found %d", c.count(), shards.Total)
	}
	if r.seed == nil {
		r.unit = unitOfRuns
	}
	if c.bytes > 0 {
		r.unit = min(max(c.count()*unitBytes/c.bytes, 1), r.unit)
	}
	if own := int64(shards.Own()); r.seed == nil {
		r.unit = max(r.unit-r.unit%own, own)
	}
	r.units = make([]oneUnit, unitsAhead*r.threads)
	r.workersCond = sync.NewCond(&r.mu)
	r.consumers.Init(&r.mu)
	r.consumers.Named("waits for records", trace.Wait)
	r.Read = r.take
	r.beginPass(0, 0)
	return r, nil
}

// beginPass begins a pass behind a number of tuples. No thread runs.
func (r *numberedReader) beginPass(pass uint64, begin int64) {
	r.sequence = r.sequence.ofPass(r.seed, r.seedOfFiles, pass)
	r.begin, r.next, r.head = begin, 0, 0
}

// numUnits returns the number of units from begin on.
func (r *numberedReader) numUnits() int64 {
	return (r.sequence.length() - r.begin + r.unit - 1) / r.unit
}

func (r *numberedReader) start() {
	r.started = true
	r.running = r.threads
	r.accessors = nil
	for range r.threads {
		a := newAccessor(r.catalog, r.fileSet, r.threads, r.seed == nil)
		r.accessors = append(r.accessors, a)
		order := r.sequence
		wait.Go(func() { r.run(a, &order) }, r.fault)
	}
}

// fault is called when run has panicked, in place of its normal exit.
func (r *numberedReader) fault(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = pyfeed.Errorf(pyfeed.Fault, "a thread that reads files: %v", fault)
	r.stopping = true
	r.exit()
}

// exit is called when a thread ends.
func (r *numberedReader) exit() {
	r.running--
	r.workersCond.Broadcast()
	r.consumers.WakeAll()
}

// run is the loop of a thread.
func (r *numberedReader) run(a *accessor, order *sequence) {
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
		unit.err = r.readUnlocked(a, order, &unit.chunk, number)
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
func (r *numberedReader) readUnlocked(a *accessor, order *sequence, to *record.Chunk, number int64) error {
	from := r.begin + number*r.unit
	until := min(from+r.unit, order.length())
	r.mu.Unlock()
	defer r.mu.Lock()
	return order.read(a, to, from, until)
}

// closeUnlocked does the same for the files of a thread.
func (r *numberedReader) closeUnlocked(a *accessor) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	return a.close()
}

// take is a readers.ReadFunc.
func (r *numberedReader) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
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
func (r *numberedReader) nextUnit(unit *oneUnit) {
	unit.chunk.Release()
	unit.read = false
	r.head++
	r.workersCond.Signal()
	if r.consumers.Len() > 0 {
		r.consumers.WakeOne().Send()
	}
}

// stop ends the threads and releases what they have read.
func (r *numberedReader) stop() {
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
func (r *numberedReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPass(pass, 0)
	return nil
}

// Identity implements readers.Resumable.
func (r *numberedReader) Identity() (string, []state.Option) {
	options := append(r.fileSet.options(r.refs), state.Option{Name: "num_records", Value: r.count(), Optional: true})
	for name, seed := range map[string]*uint64{"shuffle_records": r.seed, "shuffle_files": r.seedOfFiles} {
		if seed != nil {
			options = append(options, state.Option{Name: name, Value: strconv.FormatUint(*seed, 10)})
		}
	}
	if shards := r.VirtualShards(); shards.Total > 0 {
		options = append(options, state.Option{Name: "virtual_shards", Value: shards.Total}, state.Option{Name: "even", Value: string(r.sequence.even)})
	}
	slices.SortFunc(options, func(a, b state.Option) int { return strings.Compare(a.Name, b.Name) })
	return "open_files", options
}

// VirtualShards implements readers.Sharded.
func (r *numberedReader) VirtualShards() readers.VirtualShards {
	if !r.divided {
		return readers.VirtualShards{}
	}
	return r.sequence.shards
}

// Save implements readers.Resumable. The number of tuples suffices.
func (r *numberedReader) Save(readers.Position, *readers.Saver) error { return nil }

// Restore implements readers.Resumable.
func (r *numberedReader) Restore(p readers.Position, _ *readers.Restorer) (int64, error) {
	if length := r.Length(); p.N > length {
		return 0, readers.ErrPassTooShort(p.N - length)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPass(p.Pass, p.N)
	return 0, nil
}

// Length implements readers.Sized.
func (r *numberedReader) Length() int64 { return r.sequence.length() }

// At implements readers.RandomAccess.
func (r *numberedReader) At(i int64) (*pyfeed.Tuple, error) {
	if r.divided {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "expected a reader of all records, found one whose records are divided among processes: "+
			"open the files without a rank for records by number")
	}
	return r.lookups.at(r.catalog, r.fileSet, i)
}

// Spec returns that of the instances.
func (r *numberedReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *numberedReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "open_files"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"files": len(r.refs), "formats": record.TagsOf(r.refs), "num_threads": r.threads, "records": r.count()}
	if shards := r.VirtualShards(); shards.Total > 0 {
		s.Extra["virtual_shards"], s.Extra["rank"], s.Extra["world"] = shards.Total, shards.Rank, shards.World
		s.Extra["even"] = string(r.sequence.even)
	}
	r.fileSet.describe(s)
}

// Close ends the threads and releases everything.
func (r *numberedReader) Close() {
	r.DropPeeked()
	r.stop()
	r.lookups.close()
	r.catalog.close()
	r.fileSet.close()
}
