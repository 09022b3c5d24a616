package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// file is one file that is being read: its instances, each checked.
type file struct {
	record.FileRef
	*fileSet
	name        *string         // the path, for its tuples
	number      int64           // of the next record
	approximate bool            // the number is
	spare       []*pyfeed.Tuple // empty ones, for the next instances
	err         error           // what came after the last instance
	resync      bool            // damage was noted down, and is to be skipped
	tooLong     func() bool     // says that a read takes too long; nil: none does
	passed      int64           // instances and damage that were taken from the records
	toSkip      int64           // how many of them are to be skipped, since the file was opened again
	pageFault   error           // why it is read in blocks: a page of it could not be read; nil: it is not

	stored   []*storage.File // that were opened for a trial
	onTrial  bool            // it is read to be verified: nothing is delivered, or noted down
	before   os.FileInfo     // of the file when its trial began
	verified bool            // the trial has ended well

	mu          sync.Mutex     // guards the next five, for interrupt
	records     record.Records // nil before the first read and after the last
	stop        *storage.Interrupt
	interrupted bool
	pipe        *os.File // the file, if it is one that was opened and not begun
	trial       *file    // that is verified before it is read; nil: it is not
}

// read adds the next instances, most at most, or answers 0 and an error, from then on always: io.EOF at the end of the
// file. storage.ErrInterrupted is not the file's: the next read goes on. The track is that of the thread that reads.
func (f *file) read(to *record.Chunk, most int, track trace.Track) (int, error) {
	start := trace.Begin()
	n, err := f.next(to, most)
	if start != 0 {
		trace.Since(track, trace.Read, filepath.Base(f.Path), start)
	}
	return n, err
}

func (f *file) next(to *record.Chunk, most int) (int, error) {
	for f.err == nil {
		n, err := f.try(to, most)
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

func (f *file) try(to *record.Chunk, most int) (int, error) {
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
	if f.toSkip > 0 {
		if err := f.skipAgain(); err != nil {
			return 0, f.locate(err, -1)
		}
	}
	if f.resync {
		err := f.records.Resync()
		if torn := f.records.Intact(); storage.IsPageFault(torn) {
			err = torn
		}
		if err == storage.ErrInterrupted || storage.IsPageFault(err) {
			return 0, err
		}
		f.resync = false
		f.passed++
		f.renumber(f.records)
		if err != nil {
			f.err = f.locate(err, f.number)
			return 0, nil
		}
	}
	if r, can := f.records.(record.BlockReader); can && most >= record.MinBlock {
		if b := r.ReadBlock(most); b != nil {
			return f.addBlock(to, b)
		}
	}
	slots := f.spec.Len()
	if f.spare == nil {
		f.spare = f.fileSet.borrowSpare()
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
	good, err := f.addTuples(to, f.spare[:n], err)
	if err == io.EOF {
		err = f.finished()
	}
	f.spare = slices.Delete(f.spare, 0, n)
	return good, err
}

// addTuples adds those of the tuples that are good, and lets go of the others. err is what came after them.
func (f *file) addTuples(to *record.Chunk, all []*pyfeed.Tuple, err error) (int, error) {
	if shrunk := f.records.Intact(); shrunk != nil {
		pyfeed.ReleaseAll(all)
		return 0, f.locate(shrunk, f.number)
	}
	good := 0
	for i, t := range all {
		bad := f.check(t, f.number+int64(i))
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
		t.From = pyfeed.Origin{File: f.name, Record: f.number + int64(i), Approximate: f.approximate}
		to.Add(t)
		good++
	}
	f.number += int64(len(all))
	f.passed += int64(len(all))
	if err != nil && err != io.EOF {
		err = f.locate(err, f.number)
	}
	return good, err
}

// addBlock adds the instances of a Block. If something is wrong with them they become tuples, to tell with which.
func (f *file) addBlock(to *record.Chunk, b *record.Block) (int, error) {
	n := b.Len()
	if f.records.Intact() == nil && f.fits(b) {
		b.SetOrigin(pyfeed.Origin{File: f.name, Record: f.number, Approximate: f.approximate})
		to.AddBlock(b)
		f.number += int64(n)
		f.passed += int64(n)
		return n, nil
	}
	all := make([]*pyfeed.Tuple, n)
	var offsets record.Offsets
	for i := range all {
		all[i] = pyfeed.NewTuple(0)
		b.Materialize(all[i], i, &offsets)
	}
	return f.addTuples(to, all, nil)
}

// fits reports whether all instances are what they should be.
func (f *file) fits(b *record.Block) bool {
	if b.HasSpans() && !(f.spec.Len() == 1 && f.spec.Slot(0).Grows()) {
		return false // the size of each matters
	}
	return f.spec.Check(b.Spec()) == nil
}

func (f *file) open() error {
	begun := f.fileSet.takeOpened(f.Path)
	if begun.stop == nil {
		begun.stop = new(storage.Interrupt)
	}
	f.mu.Lock()
	f.stop = begun.stop
	pipe := f.pipe
	f.pipe = nil
	f.stop.Limit(f.tooLong)
	if f.interrupted {
		f.stop.Now()
	}
	f.mu.Unlock()
	records := begun.records
	if records != nil {
		f.number, f.approximate = begun.number, begun.approximate
	} else {
		c := *f.configs[f.Format.Tag]
		c.Storage.Interrupt, c.Storage.Pipe = begun.stop, pipe
		if f.pageFault != nil {
			c.Storage.IO = "read"
		}
		if f.onTrial {
			f.stored = nil
			c.Storage.Opened = func(s *storage.File) { f.stored = append(f.stored, s) }
		}
		var err error
		if records, err = f.Format.Open(f.Path, &c); err != nil {
			return err
		}
	}
	path := f.Path // alone, since tuples may keep it for long
	f.name = &path
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = records
	if stop, can := records.(record.Interruptible); can && f.interrupted {
		stop.Interrupt()
	}
	return nil
}

// reopen has the file read in blocks from its beginning, without what was passed of it. A page that cannot be read takes
// with it what was looked at together with it: so all records before it are delivered, and the error is the read's. false:
// it is so already, or nothing of it is delivered.
func (f *file) reopen(err error) bool {
	if f.pageFault != nil || f.onTrial {
		return false
	}
	f.mu.Lock()
	records := f.records
	f.records = nil
	f.mu.Unlock()
	if records != nil {
		records.Close()
	}
	f.pageFault, f.toSkip = err, f.passed
	if f.resync {
		f.toSkip++ // up to the damage, which is met again
	}
	return true
}

// skipAgain skips what was read before the file was opened again.
func (f *file) skipAgain() error {
	if f.spare == nil {
		f.spare = f.fileSet.borrowSpare()
	}
	for f.toSkip > 0 {
		most := int(min(f.toSkip, int64(cap(f.spare))))
		if have := len(f.spare); have < most {
			f.spare = f.spare[:most]
			pyfeed.NewTuples(f.spare[have:], f.spec.Len())
		}
		n, err := f.records.Read(f.spare[:most])
		pyfeed.ReleaseAll(f.spare[:n])
		f.spare = slices.Delete(f.spare, 0, n)
		f.toSkip -= int64(n)
		switch {
		case err == nil || f.toSkip == 0: // the next Read answers it again
		case !f.skip || !isCorrupt(err):
			return err
		case f.toSkip == 1 && f.resync:
			f.toSkip = 0 // what is behind it is looked for as if it had just been met
		default:
			if err = f.records.Resync(); err != nil {
				return err // if it was interrupted, the next Read answers the damage again
			}
			f.toSkip--
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
		located.At = &pyfeed.Location{File: f.Path, Offset: -1, Record: record, Approximate: f.approximate && record >= 0}
		located.Place = located.At.String()
		return &located
	}
	var e *pyfeed.Error
	if !errors.As(err, &e) {
		return err
	}
	located, at := *e, pyfeed.Location{File: f.Path, Offset: -1, Record: record}
	if e.At != nil {
		at = *e.At
	}
	if e.Kind == pyfeed.Corrupt && at.Record < 0 {
		at.Record = f.number
	}
	at.Approximate = f.approximate && at.Record >= 0
	located.At = &at
	return &located
}

// renumber asks for the number of the next record after damage was skipped.
func (f *file) renumber(records record.Records) {
	if r, can := records.(record.Numbered); can {
		var exact bool
		f.number, exact = r.Number()
		f.approximate = !exact
		return
	}
	f.number++
	f.approximate = true
}

// setLimit has reads end when they take too long: when tooLong says so at one of their polls. nil: none does.
func (f *file) setLimit(tooLong func() bool) {
	f.tooLong = tooLong
	if f.stop != nil {
		f.stop.Limit(tooLong)
	}
}

// skipped notes damage down, behind which the next read goes on, if that is asked for.
func (f *file) skipped(err error) bool {
	if !f.skip || !isCorrupt(err) || f.onTrial && isUntrustworthy(err) {
		return false
	}
	f.note(err.(*pyfeed.Error))
	if f.records == nil || f.records.Intact() != nil {
		f.err = io.EOF
		return true
	}
	f.resync = true
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
	if r, can := f.records.(record.Interruptible); can {
		r.Interrupt()
	}
	if f.trial != nil {
		f.trial.interrupt()
	}
}

// ended says whether there is nothing more, as far as that is known without reading.
func (f *file) ended() bool {
	r, can := f.records.(record.Ending)
	if f.err == nil && can && r.Ended() {
		f.err = f.finished()
	}
	return f.err == io.EOF
}

// finished is what comes behind the last instance: io.EOF, unless the file was written to meanwhile.
func (f *file) finished() error {
	err := f.records.Unchanged()
	if err == nil && f.pageFault != nil { // the page can be read by now: what was delivered of it before may be zeros
		err = f.pageFault
	}
	if err == nil {
		return io.EOF
	}
	err = f.locate(err, f.number)
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
		f.fileSet.returnSpare(f.spare)
		f.spare = nil
	}
}
