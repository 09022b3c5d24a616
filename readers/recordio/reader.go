package recordio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// records reads a file, chunk by chunk: nothing of one is answered before its checksum is found right. The
// File's position is at the chunk's next record, or, where it is compressed, at what is decompressed next.
type records struct {
	f       *storage.File
	holds   string // Options.Records
	decided bool   // the next two, by the first record that is whole at the latest
	tensors bool
	slots   []pyfeed.Slot

	start   int64  // of the chunk
	chunk   header // the one that is being read
	left    uint32 // records of it that were not answered
	open    bool   // it was not left behind
	payload []byte // what is left of it, if it is not compressed
	unpack  unpacker

	number  int64 // of the next record
	guess   bool  // it is approximate: how many records were skipped is not known
	offsets record.Offsets
	spans   []record.Span
	err     error // what Read goes on answering
	damaged part  // what err is about
	told    bool  // why the file cannot be read to its end
	sought  bool  // scan was interrupted behind the damaged chunk

	patience int64 // how much more may be read of chunks that turn out to be none
}

// part is what is damaged, for Resync to know where to go on.
type part uint8

const (
	chunk     part = iota // that begins, or should, at the position
	content               // of a chunk whose checksum is right
	oneRecord             // of a chunk that is otherwise right
)

// Resync gives up after reading patience bytes, and patienceRate times the file, of chunks whose checksums are
// wrong. Damage does not come to that. But a file can be made of headers that each claim the rest of it.
const (
	patience     = 8 << 30
	patienceRate = 16
)

// Open begins to read a file.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	o, err := options(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, holds: o.Records, patience: patience, unpack: unpacker{stop: f.Interrupt(), pool: c.Pool}}
	if o.Records == "bytes" {
		r.decided, r.slots = true, []pyfeed.Slot{record.BytesSlot}
	}
	return r, nil
}

// Read fills out with records, as many as are at hand.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	n, size := 0, 0
	for r.err == nil && n < len(out) && size < memory.WindowSize {
		if n > 0 && r.left == 0 && !r.atHand() {
			break
		}
		record, err := r.show()
		if err == nil {
			err = r.fill(out[n], record)
		}
		if err != nil {
			r.err = err
			break
		}
		r.take(len(record))
		n++
		size += lengthSize + len(record)
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// ReadBlock is Rowed's: of records of bytes that lie in a chunk as they are, of a mapped file those that begin in the
// same window.
func (r *records) ReadBlock(most int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || !r.decided || r.tensors {
		return nil
	}
	if _, err := r.show(); err != nil {
		r.err = err // which Read answers
		return nil
	}
	if r.chunk.compressor != uncompressed {
		return nil
	}
	b, in := r.payload, r.f.Hold(0)
	end := len(b)
	if r.f.Mapped() {
		end = memory.WindowSize - int(r.f.Offset()%memory.WindowSize)
	}
	at, spans := 0, r.spans[:0]
	for len(spans) < min(most, int(r.left)) && at < end && len(b)-at >= lengthSize {
		size := binary.LittleEndian.Uint32(b[at:])
		if uint64(size) > uint64(len(b)-at-lengthSize) {
			break // for Read to see to
		}
		spans = append(spans, record.Span{At: uint32(at + lengthSize), Size: size})
		at += lengthSize + int(size)
	}
	r.spans = spans
	in.Retain(len(spans))
	r.payload = b[at:]
	r.f.Skip(at)
	r.left -= uint32(len(spans))
	r.number += int64(len(spans))
	return record.NewSpanBlock(b, slices.Clone(spans), in)
}

// atHand says whether the next chunk can be read without waiting for it.
func (r *records) atHand() bool {
	if r.f.Mapped() {
		return true
	}
	b, err := r.f.Peek(0)
	var h header
	return err == nil && h.parse(b) == flaw{} && len(b) >= h.whole()
}

// show is the next record. It stays the next one until it is taken.
func (r *records) show() ([]byte, error) {
	for r.left == 0 {
		if err := r.finish(); err != nil {
			return nil, err
		}
		if err := r.next(); err != nil {
			return nil, err
		}
	}
	b, err := r.peek(lengthSize)
	if err != nil {
		return nil, err
	}
	if len(b) < lengthSize {
		return nil, r.damage(content, 0, "expected the length of a record, %d bytes, with %d records of the chunk to come, found %d", lengthSize, r.left, len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	if b, err = r.peek(lengthSize + int(n)); err != nil {
		return nil, err
	}
	if uint64(len(b)-lengthSize) < uint64(n) {
		return nil, r.damage(content, 0, "expected a record of %d bytes, found %d before the end of the chunk", n, len(b)-lengthSize)
	}
	return b[lengthSize : lengthSize+int(n) : lengthSize+int(n)], nil
}

// peek is what is left of the chunk, n bytes of it at least, unless it ends before.
func (r *records) peek(n int) ([]byte, error) {
	if r.chunk.compressor == uncompressed {
		return r.payload, nil
	}
	b, err := r.unpack.peek(n)
	if err != nil {
		if err == storage.ErrInterrupted {
			return nil, err
		}
		if errors.Is(err, memory.ErrNoMemory) {
			r.damaged = content
			return nil, err
		}
		return nil, r.damage(content, 0, "decompressing: %v", err)
	}
	// The position follows, so that a mapped file's pages come and go in time.
	if done := int(r.start+int64(r.chunk.whole())-r.f.Offset()) - r.unpack.left(); done > 0 {
		r.f.Skip(done)
		if r.f.Mapped() {
			r.f.Hold(1).Release()
		}
	}
	return b, nil
}

// take goes on behind the record that show answered.
func (r *records) take(n int) {
	n += lengthSize
	if r.chunk.compressor == uncompressed {
		r.payload = r.payload[n:]
		r.f.Skip(n)
	} else {
		r.unpack.skip(n)
	}
	r.left--
	r.number++
}

// finish leaves a chunk whose records were all taken.
func (r *records) finish() error {
	if !r.open {
		return nil
	}
	b, err := r.peek(1)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		return r.damage(content, 0, "expected the end of the chunk after its %d records, found more", r.chunk.records)
	}
	r.leave()
	return nil
}

// leave goes on behind the chunk.
func (r *records) leave() {
	r.f.Skip(int(r.start + int64(r.chunk.whole()) - r.f.Offset()))
	r.open, r.left, r.payload = false, 0, nil
}

// next goes into the chunk at the position, or answers io.EOF.
func (r *records) next() error {
	b, err := r.f.Peek(1)
	if len(b) == 0 && err == nil {
		if err = r.f.Intact(); err == nil {
			err = io.EOF
		}
		return err
	}
	h, bad, err := r.check(0)
	if err == storage.ErrInterrupted {
		return err
	}
	if err != nil {
		r.damaged, r.told = chunk, true
		return err
	}
	if bad != (flaw{}) {
		return r.damage(chunk, 0, "%s", bad)
	}
	return r.enter(h)
}

// check looks for a whole chunk at a distance from the position. The error is that of reading the file.
func (r *records) check(at int) (h header, bad flaw, err error) {
	b, err := r.f.Peek(at + headerSize)
	if err != nil {
		return h, bad, err
	}
	if bad = h.parse(b[min(at, len(b)):]); bad != (flaw{}) {
		return h, bad, nil
	}
	if need := at + h.whole(); need > len(b) {
		if b, err = r.f.Peek(need); err == storage.ErrInterrupted {
			return h, flaw{}, err
		} else if len(b) < need {
			return h, flaw{"expected a chunk of %d bytes, found %d before the end of the file", uint64(h.whole()), uint64(len(b) - at)}, err
		}
	}
	sum, err := r.checksum(b[at+headerSize : at+h.whole()])
	if err != nil {
		return h, flaw{}, err
	}
	if sum != h.checksum {
		r.patience -= int64(h.size)
		return h, flaw{"checksum of a chunk: expected %08x, found %08x", uint64(h.checksum), uint64(sum)}, nil
	}
	return h, flaw{}, nil
}

// enter goes into the chunk at the position, which was checked.
func (r *records) enter(h header) error {
	b, err := r.f.Peek(h.whole())
	if err != nil {
		return err
	}
	r.start, r.chunk, r.left, r.open = r.f.Offset(), h, h.records, true
	payload := b[headerSize:h.whole()]
	r.f.Skip(headerSize)
	if h.compressor == uncompressed {
		r.payload = payload
		return nil
	}
	if err := r.unpack.begin(&h, payload); err != nil {
		return r.damage(content, 0, "decompressing: %v", err)
	}
	return nil
}

// damage is an error about what lies at a distance from the next record, or about the chunk where that has no
// place in the file.
func (r *records) damage(what part, at int, text string, args ...any) error {
	if err := r.f.Intact(); err != nil {
		return err
	}
	r.damaged = what
	offset := r.f.Offset() + int64(at)
	if r.open && r.chunk.compressor != uncompressed {
		offset = r.start
	}
	return r.f.Corrupt(offset, r.number, text, args...)
}

// hold is n references to the memory that show's answer lies in.
func (r *records) hold(n int) *memory.Buffer {
	if r.chunk.compressor == uncompressed {
		return r.f.Hold(n)
	}
	return r.unpack.hold(n)
}

// fill makes a tuple of a record.
func (r *records) fill(t *pyfeed.Tuple, b []byte) error {
	if !r.decided {
		if err := r.decide(b); err != nil {
			return err
		}
		var err error
		if b, err = r.show(); err != nil { // where it lies now
			return err
		}
	}
	if !r.tensors {
		r.offsets.Record(t, b, r.hold(1))
		return nil
	}
	n, err := tensors(b)
	if err != nil {
		return r.damage(oneRecord, lengthSize, "%v", err)
	}
	if n != len(t.Slots) {
		t.Resize(n)
	}
	if at, err := parseTensors(b, t.Slots, &r.offsets, r.f.Interrupt()); err != nil {
		drop(t.Slots)
		if errors.Is(err, storage.ErrInterrupted) {
			return storage.ErrInterrupted
		}
		return r.damage(oneRecord, lengthSize+at, "%v", err)
	}
	memory := r.hold(n)
	for i := range t.Slots {
		s := &t.Slots[i]
		s.Hold(s.Data, memory)
	}
	return nil
}

func drop(slots []pyfeed.LoDTensor) {
	for i := range slots {
		slots[i].Drop()
	}
}

// decide tells by the record at hand, b, what the slots are, and what the records hold if the options do not say. Other records than
// b are asked only where b cannot be read as tensors, which is damage if one of them shows that they are tensors.
func (r *records) decide(b []byte) error {
	var first pyfeed.Tuple
	at := 0
	n, err := tensors(b)
	if err == nil {
		first.Slots = make([]pyfeed.LoDTensor, n)
		at, err = parseTensors(b, first.Slots, &r.offsets, r.f.Interrupt())
	}
	switch {
	case errors.Is(err, storage.ErrInterrupted):
		return storage.ErrInterrupted
	case err == nil:
		r.decided, r.tensors, r.slots = true, true, record.DescribeTuple(&first)
		return nil
	case r.holds == "tensors":
		return r.damage(oneRecord, lengthSize+at, "%v", err)
	case beginsAsTensors(b) || r.anyOther(len(b), showsTensors):
		r.holds = "tensors" // whatever comes behind the damage
		return r.damage(oneRecord, lengthSize+at, "%v; if the records hold no tensors, say so by the option records: \"bytes\"", err)
	}
	r.decided, r.slots = true, []pyfeed.Slot{record.BytesSlot}
	return nil
}

// showsTensors says whether a record holds tensors, some of which may be damaged.
func showsTensors(b []byte) bool {
	n, err := tensors(b)
	if err != nil {
		return false
	}
	_, err = parseTensors(b, make([]pyfeed.LoDTensor, n), new(record.Offsets), nil)
	return err == nil || beginsAsTensors(b)
}

// How far anyOther looks.
const (
	mostOthers     = 64
	mostOtherBytes = 4 << 20
)

// anyOther says whether any of the records behind the one at hand, of n bytes, is as wanted: of those that are in memory
// already, in its chunk and those behind it, so that nothing is waited for. What show has answered is not valid any more.
func (r *records) anyOther(n int, wanted func(record []byte) bool) bool {
	payload, _ := r.peek(min(pieceSize, mostOtherBytes)) // an error is told when it is reached
	looked := 1
	in := func(payload []byte) bool {
		for ; len(payload) >= lengthSize && looked < mostOthers; looked++ {
			size := binary.LittleEndian.Uint32(payload)
			if uint64(size) > uint64(len(payload)-lengthSize) {
				return false
			}
			if wanted(payload[lengthSize : lengthSize+int(size)]) {
				return true
			}
			payload = payload[lengthSize+int(size):]
		}
		return false
	}
	if len(payload) >= lengthSize+n && in(payload[lengthSize+n:]) {
		return true
	}
	b, _ := r.f.Peek(0)
	b = b[min(int(r.start+int64(r.chunk.whole())-r.f.Offset()), len(b)):]
	b = b[:min(len(b), mostOtherBytes)]
	var h header
	for looked < mostOthers && h.parse(b) == (flaw{}) && h.whole() <= len(b) {
		payload = b[headerSize:h.whole()]
		b = b[h.whole():]
		if checksum(payload) != h.checksum {
			return false
		}
		if h.compressor == uncompressed && in(payload) || h.compressor != uncompressed && r.inPacked(&h, payload, in) {
			return true
		}
	}
	return false
}

// inPacked calls in with the beginning of a compressed chunk.
func (r *records) inPacked(h *header, payload []byte, in func(payload []byte) bool) bool {
	u := unpacker{pool: r.unpack.pool}
	defer u.close()
	if u.begin(h, payload) != nil {
		return false
	}
	b, _ := u.peek(pieceSize) // an error is told when it is reached
	return in(b)
}

// Describe is by the next record, which stays the next. There are no names.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if !r.decided && r.err == nil {
		b, err := r.show()
		if err == nil {
			err = r.decide(b)
		}
		if err == storage.ErrInterrupted {
			return nil, nil, err
		}
		if shrunk := r.f.Intact(); shrunk != nil {
			err, r.decided = shrunk, false
		}
		r.err = err
	}
	switch {
	case r.decided:
		return r.slots, nil, nil
	case r.err == io.EOF:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected slots to be given, because the file has no records to tell them by", r.f.Path())
	}
	return nil, nil, r.err
}

// Resync goes on behind the damage: behind the record, if only that is wrong, or the chunk, if that is known to
// be one; else where a header and its checksum agree.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if err := r.f.Intact(); err != nil {
		return err
	}
	damage := r.err
	err := r.behind()
	if err == storage.ErrInterrupted {
		r.err = damage // for the next Resync
	}
	return err
}

// behind goes behind the damage, which stays r.err where the error is storage.ErrInterrupted.
func (r *records) behind() error {
	r.guess = r.guess || r.damaged != oneRecord // a chunk's number of records is in no checksum
	switch r.damaged {
	case oneRecord:
		b, err := r.show()
		if err != nil { // it was there
			r.err = err
			return err
		}
		r.take(len(b))
		if r.left > 0 {
			r.err = nil
			return nil
		}
		if r.err = r.finish(); r.err == storage.ErrInterrupted {
			r.err = nil // for Read to find out
		}
		if r.err != nil || r.open {
			return nil
		}
	case content:
		r.leave()
	default:
		r.err = r.scan()
		if r.err == io.EOF || r.err == storage.ErrInterrupted || r.exhausted() {
			return r.err
		}
		return nil
	}
	r.err = nil
	if b, err := r.f.Peek(1); len(b) == 0 && err == nil {
		r.err = io.EOF
	}
	return r.err
}

// Number is Numbered's.
func (r *records) Number() (int64, bool) { return r.number, !r.guess }

// scan goes into the next whole chunk behind the position, where one is damaged. An error is what Read answers
// next, or storage.ErrInterrupted: then it goes on where it was.
func (r *records) scan() error {
	if !r.sought {
		if found, err := r.beyond(); found || err != nil {
			return err
		}
		r.sought = true
	}
	err := r.search()
	r.sought = err == storage.ErrInterrupted
	return err
}

// beyond looks for a whole chunk, or the end of the file, where the damaged chunk says that it ends. What that holds may
// look like chunks, if its records are RecordIO files. But if there is one, its size is right, whatever else is wrong.
func (r *records) beyond() (found bool, err error) {
	var h header
	b, err := r.f.Peek(headerSize)
	if err == storage.ErrInterrupted {
		return false, err
	}
	if err == nil && h.parse(b) == (flaw{}) {
		b, err = r.f.Peek(h.whole() + 1)
		switch {
		case err == storage.ErrInterrupted:
			return false, err
		case err == nil && len(b) == h.whole():
			r.f.Skip(len(b))
			return true, io.EOF
		case err == nil && len(b) > h.whole():
			next, bad, err := r.check(h.whole())
			if err == storage.ErrInterrupted {
				return false, err
			}
			if err == nil && bad == (flaw{}) {
				r.f.Skip(h.whole())
				return true, r.enter(next)
			}
		}
	}
	r.f.Skip(min(1, r.shown()))
	return false, nil
}

// search goes into the next whole chunk from the position on.
func (r *records) search() error {
	for {
		if err := r.f.Look(); err != nil {
			return err
		}
		b, err := r.f.Peek(headerSize)
		if err == storage.ErrInterrupted {
			return err
		}
		if len(b) < headerSize {
			r.f.Skip(len(b))
			if err == nil || r.told {
				return io.EOF
			}
			r.damaged, r.told = chunk, true
			return err
		}
		if r.f.Mapped() {
			r.f.Hold(1).Release() // so that its windows move along
		}
		b = b[:min(len(b), memory.WindowSize)] // between which Go's scheduler and collector can get in
		at := bytes.Index(b, magicBytes)
		if at < 0 {
			r.f.Skip(len(b) - len(magicBytes) + 1)
			continue
		}
		r.f.Skip(at)
		h, bad, err := r.check(0)
		if err == storage.ErrInterrupted {
			return err
		}
		if err == nil && bad == (flaw{}) {
			return r.enter(h)
		}
		if r.exhausted() {
			return r.damage(chunk, 0, "expected no more than %d GiB and %d times the file in chunks with wrong checksums, found more: gave up looking for a right one", patience>>30, patienceRate)
		}
		r.f.Skip(1)
	}
}

// shown is how much of the file is at hand.
func (r *records) shown() int {
	b, _ := r.f.Peek(0)
	return len(b)
}

func (r *records) exhausted() bool { return r.patience+patienceRate*r.f.Offset() < 0 }

// Intact is the file's.
func (r *records) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.f.Unchanged() }

// Close lets go of the file.
func (r *records) Close() {
	r.unpack.close()
	r.f.Close()
}

// checksum is that of a chunk's payload, or storage.ErrInterrupted.
func (r *records) checksum(b []byte) (sum uint32, err error) {
	for len(b) > storage.LookEvery {
		if err := r.f.Look(); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, crc32.IEEETable, b[:storage.LookEvery])
		b = b[storage.LookEvery:]
	}
	return crc32.Update(sum, crc32.IEEETable, b), nil
}
