package readers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// chunkSize is how many instances are moved at a time where many can be.
const chunkSize = 256

// file is one file that is being read: its instances, each checked.
type file struct {
	source
	*files
	name   *string         // the path, for its tuples
	record int64           // number of the next instance
	guess  bool            // it is approximate
	spare  []*pyfeed.Tuple // empty ones, for the next instances
	err    error           // what came after the last instance
	lost   bool            // damage was noted down, and is to be skipped
	limit  func() bool     // says that a read takes too long; nil: none does
	passed int64           // instances and damage that were taken from the records
	again  int64           // how many of them are to be passed again, since the file was opened again
	blocks error           // why it is read in blocks: a page of it could not be read; nil: it is not

	stored   []*storage.File // that were opened for a trial
	onTrial  bool            // it is read to be verified: nothing is delivered, or noted down
	before   os.FileInfo     // of the file when its trial began
	verified bool            // the trial has ended well

	mu          sync.Mutex // guards the next five, for interrupt
	records     Records    // nil before the first read and after the last
	stop        *storage.Interrupt
	interrupted bool
	pipe        *os.File // the file, if it is one that was opened and not begun
	trial       *file    // that is verified before it is read; nil: it is not
}

// files is what the files of one reader have in common.
type files struct {
	configs map[string]*Config // by tag
	spec    *pyfeed.Spec
	skip    bool // damage is skipped
	// verifyFirst has each file verified before its first record is delivered.
	verifyFirst bool
	ledger      ledger
	pool        *memory.Pool

	mu     sync.Mutex
	spares [][]*pyfeed.Tuple // of files that are read no more, for those that are next
	opened opened            // the first one, if it is a pipe and was asked for the slots
}

// opened is a file that was begun.
type opened struct {
	path    string
	records Records // nil: there is none
	stop    *storage.Interrupt
	record  int64 // the number of the next
	guess   bool  // it is approximate
}

// ledger is what was skipped.
type ledger struct {
	mu     sync.Mutex
	count  int64
	places []damaged
}

type damaged struct {
	File        string `json:"file"`
	Offset      int64  `json:"offset"`
	Record      int64  `json:"record"`
	Approximate bool   `json:"approximate"`
	Reason      string `json:"reason"`
}

// mostDamage bounds the ledger's places: the count goes on.
const mostDamage = 1000

func (l *ledger) add(e *pyfeed.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if len(l.places) < mostDamage {
		d := damaged{Offset: -1, Record: -1, Reason: e.Text}
		if e.At != nil {
			d.File, d.Offset, d.Record, d.Approximate = TextOfName(e.At.File), e.At.Offset, e.At.Record, e.At.Approximate
		}
		l.places = append(l.places, d)
	}
}

func (l *ledger) describe(s *Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Extra["corrupt"] = l.count
	s.Extra["ledger"] = append([]damaged{}, l.places...)
}

// read adds the next instances, most at most, or answers 0 and an error, from then on always: io.EOF at the end of the
// file. storage.ErrInterrupted is not the file's: the next read goes on. The track is that of the thread that reads.
func (f *file) read(l *Lot, most int, track trace.Track) (int, error) {
	start := trace.Begin()
	n, err := f.next(l, most)
	if start != 0 {
		trace.Since(track, trace.Read, filepath.Base(f.path), start)
	}
	return n, err
}

func (f *file) next(l *Lot, most int) (int, error) {
	for f.err == nil {
		n, err := f.try(l, most)
		if storage.IsPageFault(err) && f.reopen(err) {
			continue
		}
		interrupted := err == storage.ErrInterrupted || err != nil && f.stop.Stopped() // whatever that looks like
		if err != nil && !interrupted && !f.skipped(err) {
			f.err = err
		}
		if n > 0 {
			return n, nil
		}
		// There may be any number of damaged records.
		if interrupted = interrupted || f.stop.Look() != nil; interrupted && f.err == nil {
			return 0, storage.ErrInterrupted
		}
	}
	return 0, f.err
}

func (f *file) try(l *Lot, most int) (int, error) {
	if f.records == nil {
		if err := f.verify(); err != nil {
			return 0, err
		}
		err := f.open()
		if err == nil {
			err = f.unchanged()
		}
		if err != nil {
			return 0, f.locate(err, -1)
		}
	}
	if f.again > 0 {
		if err := f.passAgain(); err != nil {
			return 0, f.locate(err, -1)
		}
	}
	if f.lost {
		err := f.records.Resync()
		if torn := f.records.Intact(); storage.IsPageFault(torn) {
			err = torn
		}
		if err == storage.ErrInterrupted || storage.IsPageFault(err) {
			return 0, err
		}
		f.lost = false
		f.passed++
		f.renumber(f.records)
		if err != nil {
			f.err = f.locate(err, f.record)
			return 0, nil
		}
	}
	if r, can := f.records.(Rowed); can && most >= leastRows {
		if rows := r.ReadRows(most); rows != nil {
			return f.addRows(l, rows)
		}
	}
	slots := f.spec.Len()
	if f.spare == nil {
		f.spare = f.files.borrowSpare()
	}
	most = min(most, cap(f.spare))
	if have := len(f.spare); have < most {
		f.spare = f.spare[:most]
		pyfeed.NewTuples(f.spare[have:], slots)
	}
	n, err := f.records.Read(f.spare[:most])
	if n < most { // an instance that was begun and turned out to be damaged
		t := f.spare[n]
		for i := range t.Slots {
			t.Slots[i].Drop()
		}
		t.Resize(slots)
	}
	good, err := f.addTuples(l, f.spare[:n], err)
	if err == io.EOF {
		err = f.finished()
	}
	f.spare = slices.Delete(f.spare, 0, n)
	return good, err
}

// addTuples adds those of the tuples that are good, and lets go of the others. err is what came after them.
func (f *file) addTuples(l *Lot, all []*pyfeed.Tuple, err error) (int, error) {
	if shrunk := f.records.Intact(); shrunk != nil {
		pyfeed.ReleaseAll(all)
		return 0, f.locate(shrunk, f.record)
	}
	good := 0
	for i, t := range all {
		bad := f.check(t, f.record+int64(i))
		if bad != nil && (!f.skip || bad.Kind != pyfeed.Corrupt) {
			err = bad
			pyfeed.ReleaseAll(all[i:])
			break
		}
		if bad != nil {
			f.note(bad)
			t.Release()
			continue
		}
		t.From = pyfeed.Origin{File: f.name, Record: f.record + int64(i), Approximate: f.guess}
		l.Add(t)
		good++
	}
	f.record += int64(len(all))
	f.passed += int64(len(all))
	if err != nil && err != io.EOF {
		err = f.locate(err, f.record)
	}
	return good, err
}

// leastRows is for how many instances it pays to make Rows of them.
const leastRows = 16

// addRows adds instances that have no slots yet. If something is wrong with them they get some, to tell of which.
func (f *file) addRows(l *Lot, rows *Rows) (int, error) {
	if f.records.Intact() == nil && f.fit(rows) {
		rows.from = pyfeed.Origin{File: f.name, Record: f.record, Approximate: f.guess}
		l.AddRows(rows)
		f.record += int64(rows.count)
		f.passed += int64(rows.count)
		return rows.count, nil
	}
	all := make([]*pyfeed.Tuple, rows.count)
	for i := range all {
		all[i] = pyfeed.NewTuple(0)
		rows.fill(all[i], i, &l.offsets)
	}
	return f.addTuples(l, all, nil)
}

// fit says whether all of them are what they should be.
func (f *file) fit(rows *Rows) bool {
	if rows.spans != nil && !(f.spec.Len() == 1 && f.spec.Slot(0).Grows()) {
		return false // the size of each matters
	}
	return f.spec.Check(&rows.first) == nil
}

func (f *file) open() error {
	begun := f.files.takeOpened(f.path)
	if begun.stop == nil {
		begun.stop = new(storage.Interrupt)
	}
	f.mu.Lock()
	f.stop = begun.stop
	pipe := f.pipe
	f.pipe = nil
	f.stop.Limit(f.limit)
	if f.interrupted {
		f.stop.Now()
	}
	f.mu.Unlock()
	records := begun.records
	if records != nil {
		f.record, f.guess = begun.record, begun.guess
	} else {
		c := *f.configs[f.format.Tag]
		c.Storage.Interrupt, c.Storage.Pipe = begun.stop, pipe
		if f.blocks != nil {
			c.Storage.IO = "read"
		}
		if f.onTrial {
			f.stored = nil
			c.Storage.Opened = func(s *storage.File) { f.stored = append(f.stored, s) }
		}
		var err error
		if records, err = f.format.Open(f.path, &c); err != nil {
			return err
		}
	}
	path := f.path // alone, since tuples may keep it for long
	f.name = &path
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = records
	if stop, can := records.(Interruptible); can && f.interrupted {
		stop.Interrupt()
	}
	return nil
}

// reopen has the file read in blocks from its beginning, without what was passed of it. A page that cannot be read takes
// with it what was looked at together with it: so all records before it are delivered, and the error is the read's. false:
// it is so already, or nothing of it is delivered.
func (f *file) reopen(err error) bool {
	if f.blocks != nil || f.onTrial {
		return false
	}
	f.mu.Lock()
	records := f.records
	f.records = nil
	f.mu.Unlock()
	if records != nil {
		records.Close()
	}
	f.blocks, f.again = err, f.passed
	if f.lost {
		f.again++ // up to the damage, which is met again
	}
	return true
}

// passAgain reads what was passed before.
func (f *file) passAgain() error {
	if f.spare == nil {
		f.spare = f.files.borrowSpare()
	}
	for f.again > 0 {
		most := int(min(f.again, int64(cap(f.spare))))
		if have := len(f.spare); have < most {
			f.spare = f.spare[:most]
			pyfeed.NewTuples(f.spare[have:], f.spec.Len())
		}
		n, err := f.records.Read(f.spare[:most])
		pyfeed.ReleaseAll(f.spare[:n])
		f.spare = slices.Delete(f.spare, 0, n)
		f.again -= int64(n)
		switch {
		case err == nil || f.again == 0: // the next Read answers it again
		case !f.skip || !isCorrupt(err):
			return err
		case f.again == 1 && f.lost:
			f.again = 0 // what is behind it is looked for as if it had just been met
		default:
			if err = f.records.Resync(); err != nil {
				return err // if it was interrupted, the next Read answers the damage again
			}
			f.again--
		}
	}
	return nil
}

// check compares an instance with the Spec. Offsets that no tensor can have are damage.
func (f *file) check(t *pyfeed.Tuple, record int64) *pyfeed.Error {
	bad := f.spec.Check(t)
	if bad == nil {
		return nil
	}
	e := f.locate(bad, record).(*pyfeed.Error)
	for i := range t.Slots {
		if wrong := t.Slots[i].CheckLoD(); wrong != nil {
			e.Kind, e.Slot, e.Text = pyfeed.Corrupt, i, fmt.Sprintf("slot %d: %v", i, wrong)
			break
		}
	}
	return e
}

// locate says where an error is, as far as that does not say so itself. Damage has the number of the first record that is
// not delivered for it, whatever found it: the format, a checksum of what is compressed, or the file's end.
func (f *file) locate(err error, record int64) error {
	if failed, is := err.(*pyfeed.ProducerError); is && failed.Place == "" {
		located := *failed
		located.At = &pyfeed.Location{File: f.path, Offset: -1, Record: record, Approximate: f.guess && record >= 0}
		located.Place = located.At.String()
		return &located
	}
	var e *pyfeed.Error
	if !errors.As(err, &e) {
		return err
	}
	located, at := *e, pyfeed.Location{File: f.path, Offset: -1, Record: record}
	if e.At != nil {
		at = *e.At
	}
	if e.Kind == pyfeed.Corrupt && at.Record < 0 {
		at.Record = f.record
	}
	at.Approximate = f.guess && at.Record >= 0
	located.At = &at
	return &located
}

// renumber asks for the number of the next record after damage was skipped.
func (f *file) renumber(records Records) {
	if r, can := records.(Numbered); can {
		var exact bool
		f.record, exact = r.Number()
		f.guess = !exact
		return
	}
	f.record++
	f.guess = true
}

// within has reads end when they take too long: when over says so at one of their looks. nil: none does.
func (f *file) within(over func() bool) {
	f.limit = over
	if f.stop != nil {
		f.stop.Limit(over)
	}
}

// skipped notes damage down, behind which the next read goes on, if that is asked for.
func (f *file) skipped(err error) bool {
	if !f.skip || !isCorrupt(err) || f.onTrial && wholly(err) {
		return false
	}
	f.note(err.(*pyfeed.Error))
	if f.records == nil || f.records.Intact() != nil {
		f.err = io.EOF
		return true
	}
	f.lost = true
	return true
}

// note puts damage that is skipped into the ledger.
func (f *file) note(e *pyfeed.Error) {
	if !f.onTrial {
		f.ledger.add(e)
	}
}

func isCorrupt(err error) bool {
	e, is := err.(*pyfeed.Error)
	return is && e.Kind == pyfeed.Corrupt
}

// interrupt has a read in another goroutine come to an end soon, if the file or the format can wait for something.
func (f *file) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = true
	if f.stop != nil {
		f.stop.Now()
	}
	if r, can := f.records.(Interruptible); can {
		r.Interrupt()
	}
	if f.trial != nil {
		f.trial.interrupt()
	}
}

// Interruptible are Records whose Read may wait for something else than a disk.
type Interruptible interface {
	// Interrupt has a Read in progress, and any later one, answer an error soon. Any goroutine.
	Interrupt()
}

// Ending are Records that know when there is nothing behind the last instance.
type Ending interface {
	// Ended says that Read would answer io.EOF, without asking anybody. false: that is not known.
	Ended() bool
}

// ended says whether there is nothing more, as far as that is known without reading.
func (f *file) ended() bool {
	r, can := f.records.(Ending)
	if f.err == nil && can && r.Ended() {
		f.err = f.finished()
	}
	return f.err == io.EOF
}

// finished is what comes behind the last instance: io.EOF, unless the file was written to meanwhile.
func (f *file) finished() error {
	err := f.records.Unchanged()
	if err == nil && f.blocks != nil { // the page can be read by now: what was delivered of it before may be zeros
		err = f.blocks
	}
	if err == nil {
		return io.EOF
	}
	err = f.locate(err, f.record)
	if f.skip && isCorrupt(err) {
		f.ledger.add(err.(*pyfeed.Error))
		return io.EOF
	}
	return err
}

func (f *file) close() {
	f.setTrial(nil)
	f.mu.Lock()
	records, pipe := f.records, f.pipe
	f.records, f.pipe = nil, nil
	f.mu.Unlock()
	if pipe != nil {
		_ = pipe.Close()
	}
	if records != nil {
		records.Close()
	}
	if f.spare != nil {
		f.files.returnSpare(f.spare)
		f.spare = nil
	}
}

// borrowSpare is room for a chunk, with the empty tuples that somebody has left over.
func (f *files) borrowSpare() []*pyfeed.Tuple {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.spares); n > 0 {
		s := f.spares[n-1]
		f.spares = f.spares[:n-1]
		return s
	}
	return make([]*pyfeed.Tuple, 0, chunkSize)
}

func (f *files) returnSpare(s []*pyfeed.Tuple) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spares = append(f.spares, s)
}

// takeOpened is the file that was begun before, if it is of that path, once.
func (f *files) takeOpened(path string) opened {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.opened
	if o.path != path {
		return opened{}
	}
	f.opened = opened{}
	return o
}

// close gives everything back, when no file is open any more.
func (f *files) close() {
	if f.opened.records != nil {
		f.opened.records.Close()
	}
	for _, s := range f.spares {
		pyfeed.ReleaseAll(s)
	}
	f.spares = nil
	f.pool.Close()
}

// FileReader reads one file, in the caller's thread as long as that is quick. What takes longer than quick goes on in a
// goroutine, for which callers wait as for any other: they can give up, and a reset or Close ends it.
type FileReader struct {
	ahead
	*files
	source   source
	patience patience
	over     func() bool // the patience's

	mu      sync.Mutex
	callers wait.List
	ended   sync.Cond
	file    *file
	reading bool // the goroutine does
	came    Lot  // what it has read
	fault   error
}

// quick is how long a caller's thread is kept by one read, from the first look at its Interrupt on.
const quick = 10 * time.Millisecond

// patience is that of a caller's thread.
type patience struct{ since int64 } // of the first look; 0: there was none

// over is a limit of an Interrupt.
func (p *patience) over() bool { return p.longer(quick) }

// longer says whether the thread was kept for longer than that.
func (p *patience) longer(most time.Duration) bool {
	now := trace.Now()
	if p.since == 0 {
		p.since = now
	}
	return now-p.since > int64(most)
}

func newFileReader(s source, all *files) *FileReader {
	r := &FileReader{files: all, source: s}
	r.many = leastRows
	r.read, r.over = r.take, r.patience.over
	r.callers.Init(&r.mu)
	r.callers.Named("waits for a file", trace.Wait)
	r.ended.L = &r.mu
	return r
}

// take is ReadMany.
func (r *FileReader) take(ctx context.Context, l *Lot, most int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fault != nil:
		return 0, r.fault
	case r.reading:
		return 0, r.callers.Enter(ctx)
	case r.came.Len() > 0:
		return r.came.move(l, most), nil
	case r.file == nil:
		r.file = &file{source: r.source, files: r.files}
	}
	r.patience.since = 0
	r.file.within(r.over)
	n, err := r.file.read(l, most, wait.TrackOf(ctx))
	if err != storage.ErrInterrupted {
		return n, err
	}
	r.file.within(nil)
	r.reading = true
	wait.Go(func() { r.goOn(most) }, func(fault error) {
		r.came.drop()
		r.leave(pyfeed.Errorf(pyfeed.Fault, "a thread that reads a file: %v", fault))
	})
	return 0, r.callers.Enter(ctx)
}

// goOn is the goroutine. An error is the file's, which answers it again.
func (r *FileReader) goOn(most int) {
	var lane trace.Lane
	defer lane.Done()
	_, _ = r.file.read(&r.came, most, lane.Track("file"))
	r.leave(nil)
}

// leave is the end of the goroutine.
func (r *FileReader) leave(fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.fault = false, fault
	r.ended.Broadcast()
	r.callers.All()
}

// ReInit goes back to the first record.
func (r *FileReader) ReInit(uint64) error {
	r.drop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading {
		r.file.interrupt()
	}
	for r.reading {
		r.ended.Wait()
	}
	r.came.drop()
	if r.file != nil {
		r.file.close()
		r.file = nil
	}
	r.callers.All()
	return nil
}

// Spec is that of the instances.
func (r *FileReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it and the damage it skipped.
func (r *FileReader) Describe(s *Stats) {
	s.Reader = "file"
	r.mu.Lock()
	s.Waited = r.callers.Waited().Seconds()
	r.mu.Unlock()
	s.Extra = map[string]any{"file": r.source.path, "formats": tagsOf([]source{r.source})}
	r.ledger.describe(s)
}

// Close lets go of the file.
func (r *FileReader) Close() {
	_ = r.ReInit(0)
	r.files.close()
}
