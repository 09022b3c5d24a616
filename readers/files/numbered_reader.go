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
//
// Of a permutation, each unit is read by any thread. Of virtual shards in the order of the files, each thread reads some
// of them in every unit, each from front to back. The last of the threads joins them.
type numberedReader struct {
	readers.PeekBuffer
	*fileSet
	division
	lookups     lookups
	seed        *uint64 // of the permutation; nil: there is none
	seedOfFiles *uint64 // of the order of files; nil: the order of the list
	divided     bool    // the tuples are divided among processes
	threads     int
	parts       int   // threads that read parts of each unit; 1: each unit is read by any thread
	unit        int64 // tuples of a unit

	mu          sync.Mutex
	consumers   wait.List
	workersCond *sync.Cond // threads wait on it for room or for the end
	sequence    *sequence  // of this pass
	begin       int64      // number in the pass of the first tuple of unit 0
	units       []oneUnit  // a ring
	next        int64      // number of the unit that any thread reads next
	head        int64      // number of the unit that the consumer takes from
	limit       int64      // number behind the last unit to be read: of the pass, or the one with an error
	workers     []*worker
	running     int // threads
	started     bool
	stopping    bool
	err         error // the error that ended reading, io.EOF at the end; nil: reading goes on
	changed     error // that a file was written to meanwhile
}

// worker is one of the threads.
type worker struct {
	*accessor
	part int   // which of the parts of each unit it reads
	next int64 // number of the unit that it reads next, if there are several parts
}

// oneUnit has what was read of a unit.
type oneUnit struct {
	chunk   record.Chunk
	shards  []record.Chunk // until they are joined
	until   int64          // the number in the pass behind the tuples to be delivered
	err     error          // behind the chunk
	missing int            // parts that were not read yet
	read    bool
}

// release releases what was read.
func (u *oneUnit) release() {
	u.chunk.Release()
	for i := range u.shards {
		u.shards[i].Release()
	}
	*u = oneUnit{chunk: u.chunk, shards: u.shards}
}

const (
	unitRecords  = 256     // at most, if records are permuted
	unitOfShards = 8192    // at most, if virtual shards are read: then the parts of a unit are adjacent records
	unitBytes    = 1 << 20 // as far as the mean size of the records tells
	unitsAhead   = 4       // for each thread
)

func newNumberedReader(c *catalog, set *fileSet, o *Options) (*numberedReader, error) {
	r := &numberedReader{fileSet: set, seed: o.ShuffleRecords, seedOfFiles: o.ShuffleFiles, threads: o.NumThreads, parts: 1, unit: unitRecords,
		division: division{catalog: c, shards: readers.Undivided(c.count())}}
	if o.VirtualShards > 0 {
		r.divided, r.shards = true, o.shards()
		r.shards.Records = c.count()
	}
	if err := r.shards.CheckRecords("virtual_shards"); err != nil {
		return nil, err
	}
	own := r.shards.Own()
	if r.seed == nil {
		r.unit = unitOfShards
		r.parts = min(r.threads, own)
		r.threads = r.parts
	}
	if c.bytes > 0 {
		r.unit = min(max(c.count()*unitBytes/c.bytes, 1), r.unit)
	}
	if r.seed == nil && r.unit > int64(own) {
		r.unit -= r.unit % int64(own)
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
	r.sequence = r.ofPass(r.seed, r.seedOfFiles, pass)
	r.begin, r.next, r.head = begin, 0, 0
	r.limit = r.numUnits()
}

// numUnits returns the number of units from begin on.
func (r *numberedReader) numUnits() int64 { return (r.shards.Length() - r.begin + r.unit - 1) / r.unit }

func (r *numberedReader) start() {
	r.started = true
	r.running = r.threads
	r.workers = nil
	for i := range r.threads {
		w := &worker{accessor: newAccessor(r.catalog, r.fileSet, r.threads)}
		if r.seed == nil {
			w.part = i
			w.readShards((r.shards.Own() + r.parts - 1) / r.parts)
		}
		r.workers = append(r.workers, w)
		wait.Go(func() { r.run(w) }, r.fault)
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
func (r *numberedReader) run(w *worker) {
	var lane trace.Lane
	defer lane.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &r.next
	if r.parts > 1 {
		next = &w.next
	}
	for !r.stopping && *next < r.limit {
		if *next-r.head == int64(len(r.units)) {
			start := trace.Begin()
			r.workersCond.Wait()
			trace.Since(lane.Track(filesTrack), trace.Full, "no room", start)
			continue
		}
		number := *next
		*next++
		unit := r.beginUnit(number)
		start := trace.Begin()
		r.read(w, unit, number)
		trace.Since(lane.Track(filesTrack), trace.Read, "records", start)
		if unit.err != nil && number < r.limit {
			r.limit = number + 1 // what comes behind is not delivered
			r.workersCond.Broadcast()
		}
		if unit.read && number == r.head {
			r.consumers.WakeOne().Send()
		}
	}
	var changed error
	if r.unlocked(func() { changed = w.close() }); r.changed == nil && !r.stopping {
		r.changed = changed
	}
	r.exit()
}

// bounds returns the numbers in the pass of the first tuple of a unit, and of the one behind its last.
func (r *numberedReader) bounds(number int64) (from, until int64) {
	from = r.begin + number*r.unit
	return from, min(from+r.unit, r.shards.Length())
}

// beginUnit is called before a part of a unit is read.
func (r *numberedReader) beginUnit(number int64) *oneUnit {
	unit := &r.units[number%int64(len(r.units))]
	if unit.missing == 0 {
		from, until := r.bounds(number)
		unit.missing, unit.until = r.parts, until
		if n := int(min(int64(r.shards.Own()), until-from)); r.seed == nil && len(unit.shards) < n {
			unit.shards = make([]record.Chunk, n)
		}
	}
	return unit
}

// read reads a thread's part of a unit. If it is the last part, it joins the virtual shards.
func (r *numberedReader) read(w *worker, unit *oneUnit, number int64) {
	from, until := r.bounds(number)
	order, shards := r.sequence, unit.shards
	if r.seed != nil {
		r.unlocked(func() { unit.err = order.readEach(w.accessor, &unit.chunk, from, until) })
		unit.missing, unit.read = 0, true
		return
	}
	failed, err := until, error(nil)
	r.unlocked(func() { failed, err = order.readShards(w.accessor, shards, from, until, w.part, r.parts) })
	if err != nil && failed < unit.until {
		unit.until, unit.err = failed, err
	}
	if unit.missing--; unit.missing > 0 {
		return
	}
	r.unlocked(func() {
		shards := shards[:min(int64(len(shards)), until-from)]
		interleave(shards, &unit.chunk, int(unit.until-from))
		for i := range shards {
			shards[i].Release() // behind an error
		}
	})
	unit.read = true
}

// unlocked calls a function without the lock. It takes the lock again even after a panic, as the caller expects.
func (r *numberedReader) unlocked(call func()) {
	r.mu.Unlock()
	defer r.mu.Lock()
	call()
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
	unit.release()
	r.head++
	switch {
	case r.seed != nil:
		r.workersCond.Signal()
	case r.head%int64(len(r.units)/2) == 0: // waking all threads for each unit would cost more
		r.workersCond.Broadcast()
	}
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
	for _, w := range r.workers {
		w.interrupt()
	}
	for r.running > 0 {
		r.workersCond.Wait()
	}
	for i := range r.units {
		r.units[i].release()
	}
	r.workers, r.started, r.stopping, r.changed = nil, false, false, nil
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
	options := append(r.fileSet.options(r.refs), state.Option{Name: "num_records", Value: r.count(), Optional: true},
		state.Option{Name: "files_and_records", Value: r.catalog.hash(), Optional: true})
	for name, seed := range map[string]*uint64{"shuffle_records": r.seed, "shuffle_files": r.seedOfFiles} {
		if seed != nil {
			options = append(options, state.Option{Name: name, Value: strconv.FormatUint(*seed, 10)})
		}
	}
	if shards := r.VirtualShards(); shards.Total > 0 {
		options = append(options, state.Option{Name: "virtual_shards", Value: shards.Total}, state.Option{Name: "even", Value: string(r.shards.Even)})
	}
	slices.SortFunc(options, func(a, b state.Option) int { return strings.Compare(a.Name, b.Name) })
	kind := "open_files"
	if r.divided {
		kind = "open_files with rank"
	}
	return kind, options
}

// VirtualShards implements readers.Sharded.
func (r *numberedReader) VirtualShards() readers.VirtualShards {
	if !r.divided {
		return readers.VirtualShards{}
	}
	return r.shards
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
func (r *numberedReader) Length() int64 { return r.shards.Length() }

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
		s.Extra["even"] = string(r.shards.Even)
	}
	r.fileSet.describe(s)
	s.Extra["corrupt"] = s.Extra["corrupt"].(int64) + r.damaged
}

// Close ends the threads and releases everything.
func (r *numberedReader) Close() {
	r.DropPeeked()
	r.stop()
	r.lookups.close()
	r.catalog.close()
	r.fileSet.close()
}
