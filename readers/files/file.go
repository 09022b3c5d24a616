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
	"github.com/pyfeed/pyfeed/readers/index"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// file reads one file and checks each instance.
type file struct {
	record.FileRef
	*fileSet
	name         *string         // the path, which tuples refer to
	number       int64           // of the next record
	approximate  bool            // number is only approximate
	spare        []*pyfeed.Tuple // empty tuples for the next instances
	err          error           // the error or end after the last instance
	resync       bool            // damage is in the ledger, and the next read skips it
	overTime     func() bool     // reports whether a read takes too long; nil: it never does
	numDelivered int64           // instances and damaged records that were taken from records so far
	numToSkip    int64           // how many of them are still to be skipped after the file was reopened
	pageFault    error           // of a page, because of which the file is read in blocks; nil: there was none
	from         filePlace       // where reading begins
	toSeek       bool            // records are still to go there
	numCorrupt   int64           // damaged records that were skipped, and those before from
	stamp        fileStamp       // of the file when it was opened, without ends
	block        int             // bytes that are read at a time, for single records; 0: the file is read in order
	key          *index.Key      // of the file when its records were counted, for single records

	stored           []*storage.File // files that were opened for a verification
	verifying        bool            // this file only verifies: it delivers nothing and adds nothing to the ledger
	infoBeforeVerify os.FileInfo     // of the file when its verification began
	verified         bool            // the verification has found no damage

	mu           sync.Mutex     // guards the next fields, for interrupt
	records      record.Records // nil before the first read and after the last
	stop         *storage.Interrupt
	follows      int64 // for readAt: the number of the record that is read next without a seek; -1: not known
	interrupted  bool
	pipe         *os.File // the file, if it is a pipe that was opened but not read
	verification *file    // reads the file to verify it, before this one reads it; nil: verify_first is not set
}

// read adds the next instances, at most limit, or returns 0 and an error: io.EOF at the end of the file. Further calls
// return the same error, except after storage.ErrInterrupted: then the next read goes on. Spans are recorded on track.
func (f *file) read(to *record.Chunk, limit int, track trace.Track) (int, error) {
	start := trace.Begin()
	n, err := f.next(to, limit)
	if start != 0 {
		trace.Since(track, trace.Read, filepath.Base(f.Path), start)
	}
	return n, err
}

func (f *file) next(to *record.Chunk, limit int) (int, error) {
	for f.err == nil {
		n, err := f.readOnce(to, limit)
		if storage.IsPageFault(err) && f.reopen(err) {
			continue
		}
		interrupted := err == storage.ErrInterrupted || err != nil && f.stop.Stopped() // stopped reads return any error
		if err != nil && !interrupted && !f.skipped(err) {
			f.err = err
		}
		if n > 0 {
			return n, nil
		}
		// Check for an interruption here too: any number of damaged records may follow one another.
		if interrupted = interrupted || f.stop.Poll() != nil; interrupted && f.err == nil {
			return 0, storage.ErrInterrupted
		}
	}
	return 0, f.err
}

func (f *file) readOnce(to *record.Chunk, limit int) (int, error) {
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
	if f.toSeek {
		if err := f.seek(); err != nil {
			return 0, f.locate(err, -1)
		}
	}
	if f.numToSkip > 0 {
		if err := f.skipAgain(); err != nil {
			return 0, f.locate(err, -1)
		}
	}
	if f.resync {
		err := f.records.Resync()
		if torn := f.records.CheckTruncated(); storage.IsPageFault(torn) {
			err = torn
		}
		if err == storage.ErrInterrupted || storage.IsPageFault(err) {
			return 0, err
		}
		f.resync = false
		f.numDelivered++
		f.renumber(f.records)
		if err != nil {
			f.err = f.locate(err, f.number)
			return 0, nil
		}
	}
	if r, can := f.records.(record.LateReader); can && f.verifiesLate() {
		if b := r.ReadLate(limit); b != nil {
			return f.addBlock(to, b)
		}
	}
	if r, can := f.records.(record.BlockReader); can && limit >= record.MinBlock {
		if b := r.ReadBlock(limit); b != nil {
			return f.addBlock(to, b)
		}
	}
	slots := f.spec.Len()
	if f.spare == nil {
		f.spare = f.fileSet.borrowSpare()
	}
	limit = min(limit, cap(f.spare))
	if have := len(f.spare); have < limit {
		f.spare = f.spare[:limit]
		pyfeed.NewTuples(f.spare[have:], slots)
	}
	n, err := f.records.Read(f.spare[:limit])
	if n < limit { // a damaged instance may have been written in part
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

// addTuples adds the valid tuples and releases the others. err is the error that came after them.
func (f *file) addTuples(to *record.Chunk, all []*pyfeed.Tuple, err error) (int, error) {
	if shrunk := f.records.CheckTruncated(); shrunk != nil {
		pyfeed.ReleaseAll(all)
		return 0, f.locate(shrunk, f.number)
	}
	good := 0
	for i, t := range all {
		mismatch := f.check(t, f.number+int64(i))
		if mismatch != nil && (!f.skip || mismatch.Kind != pyfeed.Corrupt) {
			err = mismatch
			pyfeed.ReleaseAll(all[i:])
			break
		}
		if mismatch != nil {
			f.noteDamage(mismatch)
			t.Release()
			continue
		}
		t.From = pyfeed.Origin{File: f.name, Record: f.number + int64(i), Approximate: f.approximate}
		to.Add(t)
		good++
	}
	f.number += int64(len(all))
	f.numDelivered += int64(len(all))
	if err != nil && err != io.EOF {
		err = f.locate(err, f.number)
	}
	return good, err
}

// addBlock adds the instances of a Block. If an instance is not valid, all become tuples, so that the error can name
// it.
func (f *file) addBlock(to *record.Chunk, b *record.Block) (int, error) {
	n := b.Len()
	b.SetOrigin(pyfeed.Origin{File: f.name, Record: f.number, Approximate: f.approximate})
	if f.records.CheckTruncated() == nil && f.fits(b) {
		to.AddBlock(b)
		f.number += int64(n)
		f.numDelivered += int64(n)
		return n, nil
	}
	var c record.Chunk
	c.AddBlock(b)
	defer c.Release()
	all := make([]*pyfeed.Tuple, n)
	n, err := c.Take(all)
	return f.addTuples(to, all[:n], err)
}

// verifiesLate reports whether large byte strings are verified when they are copied or handed out. Damage that is skipped
// has to be found before, and records that are read by number may not be followed by others.
func (f *file) verifiesLate() bool {
	return !f.skip && !f.verifying && f.key == nil && f.spec.Len() == 1 && f.spec.Slot(0).Grows()
}

// fits reports whether all instances match the Spec.
func (f *file) fits(b *record.Block) bool {
	for i := range b.Spec().Slots {
		if b.HasSpans(i) && (i >= f.spec.Len() || !f.spec.Grows(i)) {
			return false // the size of each instance has to be checked
		}
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
	f.stop.SetLimit(f.overTime)
	if f.interrupted {
		f.stop.Stop()
	}
	f.mu.Unlock()
	records := begun.records
	f.toSeek = f.from.seeks
	if records != nil {
		f.number, f.approximate = begun.number, begun.approximate
	} else {
		c := *f.configs[f.Format.Tag]
		c.Storage.Interrupt, c.Storage.Pipe = begun.stop, pipe
		if f.pageFault != nil || f.block > 0 && !f.Format.Whole {
			c.Storage.IO = "read"
		}
		c.Storage.Block = f.block
		c.Storage.Opened = f.noteOpened
		if f.verifying {
			f.stored = nil
		}
		var err error
		if records, err = f.Format.Open(f.Path, &c); err != nil {
			return err
		}
		if changed := f.changedSince(); changed != nil {
			records.Close()
			return changed
		}
		f.fileSet.counts.add(f.Path, records)
	}
	f.fileSet.noteFormat(records)
	path := f.Path // a copy of its own, which tuples may keep for long
	f.name = &path
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = records
	if stop, can := records.(record.Interruptible); can && f.interrupted {
		stop.Interrupt()
	}
	return nil
}

// noteOpened is called for the file, and again if it turns out to be compressed in another way.
func (f *file) noteOpened(s *storage.File) {
	if f.verifying {
		f.stored = append(f.stored, s)
	}
	f.stamp.size, f.stamp.changed = s.OpenedStamp()
}

// seek goes to where reading begins.
func (f *file) seek() error {
	s, can := f.records.(record.Seeker)
	if !can {
		return pyfeed.Errorf(pyfeed.State, "the state has a place in this file, where format %q cannot begin", f.Format.Tag)
	}
	err := s.Seek(f.from.position, f.from.number, !f.from.approximate)
	var e *pyfeed.Error
	if f.key == nil && errors.As(err, &e) && e.Kind == pyfeed.Corrupt && f.records.CheckTruncated() == nil {
		// Skipping this damage would deliver records again or lose some: the position in the file is unknown.
		changed := *e
		changed.Kind, changed.Text = pyfeed.State, "the file has changed since the state was saved: "+e.Text
		return &changed
	}
	f.toSeek = err != nil
	return err
}

// changedSince returns an error if the file that was opened is not the one whose records were counted.
func (f *file) changedSince() error {
	if f.key == nil {
		return nil
	}
	size, changed := f.key.Size, f.key.Changed/1000 // in microseconds, as the stamp
	if f.stamp.size == size && f.stamp.changed == changed {
		return nil
	}
	text := fmt.Sprintf("%d bytes, found %d", size, f.stamp.size)
	if f.stamp.size == size {
		text = fmt.Sprintf("a last change at %d µs, found %d", changed, f.stamp.changed)
	}
	return &pyfeed.Error{Kind: pyfeed.State, Slot: -1, At: &pyfeed.Location{File: f.Path, Offset: -1, Record: -1},
		Text: "the file has changed since its records were counted: expected " + text}
}

// beginAt sets where reading begins, before the first read.
func (f *file) beginAt(from filePlace) {
	f.from, f.number, f.approximate, f.numCorrupt = from, from.number, from.approximate, from.corrupt
}

// place returns where the next instance is, and whether that is known: else it is the beginning, from which all instances
// that were read have to be read again. No read is in progress.
func (f *file) place() (filePlace, bool) {
	if f.records != nil && !f.resync && !f.toSeek && f.numToSkip == 0 {
		if s, can := f.records.(record.Seeker); can {
			if p, known := s.Position(); known {
				return filePlace{true, p, f.number, f.approximate, f.numCorrupt}, true
			}
		}
	}
	return f.from, false
}

// reopen prepares to read the file in blocks from its beginning, and to skip what was delivered already. The next read
// reopens it. Through a mapping, a page that cannot be read also costs the records that were read together with it.
// Read in blocks, all records before that page are delivered, and the error is that of the read. reopen returns false
// if the file is read in blocks already, or is only verified.
func (f *file) reopen(err error) bool {
	if f.pageFault != nil || f.verifying {
		return false
	}
	f.mu.Lock()
	records := f.records
	f.records = nil
	f.mu.Unlock()
	if records != nil {
		records.Close()
	}
	f.pageFault, f.numToSkip = err, f.numDelivered
	if f.resync {
		f.numToSkip++ // up to the damage, which the next read finds again
	}
	return true
}

// skipAgain skips the records that were delivered before the file was reopened.
func (f *file) skipAgain() error {
	if f.spare == nil {
		f.spare = f.fileSet.borrowSpare()
	}
	for f.numToSkip > 0 {
		limit := int(min(f.numToSkip, int64(cap(f.spare))))
		if have := len(f.spare); have < limit {
			f.spare = f.spare[:limit]
			pyfeed.NewTuples(f.spare[have:], f.spec.Len())
		}
		n, err := f.records.Read(f.spare[:limit])
		pyfeed.ReleaseAll(f.spare[:n])
		f.spare = slices.Delete(f.spare, 0, n)
		f.numToSkip -= int64(n)
		switch {
		case err == nil || f.numToSkip == 0: // if there is an error, the next Read returns it again
		case !f.skip || !isCorrupt(err):
			return err
		case f.numToSkip == 1 && f.resync:
			f.numToSkip = 0 // skip to the next record as after any damage
		default:
			if err = f.records.Resync(); err != nil {
				return err // if it is ErrInterrupted, the next Read returns the damage again
			}
			f.numToSkip--
		}
	}
	return nil
}

// check compares an instance with the Spec. Invalid LoD (level of detail) offsets are damage.
func (f *file) check(t *pyfeed.Tuple, record int64) *pyfeed.Error {
	mismatch := f.spec.Check(t)
	if mismatch == nil {
		return nil
	}
	e := f.locate(mismatch, record).(*pyfeed.Error)
	for i := range t.Slots {
		if wrong := t.Slots[i].CheckLoD(); wrong != nil {
			e.Kind, e.Slot, e.Text = pyfeed.Corrupt, i, fmt.Sprintf("slot %d: %v", i, wrong)
			break
		}
	}
	return e
}

// locate adds the location to an error, as far as the error does not have it. Damage gets the number of the first
// record that is not delivered because of it, whether the format, a checksum of compressed data, or the end of the file
// revealed it.
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

// renumber sets the number of the next record after damage was skipped.
func (f *file) renumber(records record.Records) {
	if r, can := records.(record.Numberer); can {
		var exact bool
		f.number, exact = r.Number()
		f.approximate = !exact
		return
	}
	f.number++
	f.approximate = true
}

// setLimit makes reads end when tooLong returns true at one of their polls. nil: there is no limit.
func (f *file) setLimit(tooLong func() bool) {
	f.overTime = tooLong
	if f.stop != nil {
		f.stop.SetLimit(tooLong)
	}
}

// skipped adds damage to the ledger, if damage is to be skipped. The next read goes on after the damage.
func (f *file) skipped(err error) bool {
	if !f.skip || !isCorrupt(err) || f.verifying && isUntrustworthy(err) {
		return false
	}
	f.noteDamage(err.(*pyfeed.Error))
	if f.records == nil || f.records.CheckTruncated() != nil {
		f.err = io.EOF
		return true
	}
	f.resync = true
	return true
}

// noteDamage adds skipped damage to the ledger.
func (f *file) noteDamage(e *pyfeed.Error) {
	if !f.verifying {
		f.numCorrupt++
		f.ledger.add(e)
	}
}

func isCorrupt(err error) bool {
	e, is := err.(*pyfeed.Error)
	return is && e.Kind == pyfeed.Corrupt
}

// interrupt makes a read in another goroutine end soon, if the file or the format can be interrupted.
func (f *file) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = true
	if f.stop != nil {
		f.stop.Stop()
	}
	if r, can := f.records.(record.Interruptible); can {
		r.Interrupt()
	}
	if f.verification != nil {
		f.verification.interrupt()
	}
}

// ended reports whether the file is known, without reading, to have no more instances.
func (f *file) ended() bool {
	r, can := f.records.(record.EndReporter)
	if f.err == nil && can && r.AtEnd() {
		f.err = f.finished()
	}
	return f.err == io.EOF
}

// finished returns the error after the last instance: io.EOF, unless the file was written to meanwhile.
func (f *file) finished() error {
	err := f.records.CheckUnchanged()
	if err == nil && f.pageFault != nil { // the page can be read now, but instances may have zeros in its place
		err = f.pageFault
	}
	if err == nil {
		return io.EOF
	}
	err = f.locate(err, f.number)
	if f.skip && isCorrupt(err) {
		f.noteDamage(err.(*pyfeed.Error))
		return io.EOF
	}
	return err
}

func (f *file) close() {
	f.setVerification(nil)
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
