package recordio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// records reads a file chunk by chunk. It returns no record of a chunk before the chunk's checksum was verified. The
// position of the File is at the chunk's next record; in a compressed chunk it is at the data to be decompressed next.
type records struct {
	f          *storage.File
	recordKind string // Options.Records
	decided    bool   // tensors and slots are set, at the latest after the first complete record
	tensors    bool
	slots      []pyfeed.Slot

	start   int64  // of the chunk
	chunk   header // the current chunk
	left    uint32 // records of the chunk that were not returned yet
	open    bool   // the current chunk was not left yet
	payload []byte // rest of the chunk, if it is not compressed
	unpack  unpacker

	number            int64 // of the next record
	approximate       bool  // number is approximate: it is not known how many records were skipped
	offsets           record.Offsets
	spans             []record.Span
	err               error // the error that Read returns until Resync
	damaged           part  // the part that err is about
	fileErrorReported bool  // an error that prevents reading the file to its end was returned
	searchInterrupted bool  // scan was interrupted after it had searched beyond the damaged chunk

	searchBudget int64 // how many more bytes may be read of chunks with wrong checksums
}

// part is the part of the file that is damaged. It tells Resync where to go on.
type part uint8

const (
	chunk     part = iota // which begins, or should begin, at the position
	content               // of a chunk whose checksum is right
	oneRecord             // of a chunk that is otherwise valid
)

// Resync gives up after it has read more than minSearchBudget bytes plus searchBudgetPerByte times the file of chunks
// with wrong checksums. Ordinary damage stays far below that. The limit is for malicious files of many headers, each of
// which claims the rest of the file as its chunk.
const (
	minSearchBudget     = 8 << 30
	searchBudgetPerByte = 16
)

// Open opens a file for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	o, err := options(c)
	if err != nil {
		return nil, err
	}
	r := &records{f: f, recordKind: o.Records, searchBudget: minSearchBudget, unpack: unpacker{interrupt: f.Interrupt(), pool: c.Pool}}
	if o.Records == "bytes" {
		r.decided, r.slots = true, []pyfeed.Slot{record.BytesSlot}
	}
	return r, nil
}

// Read fills out with the records that are available without reading another chunk, at least one.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	n, size, wasDecided := 0, 0, r.decided
	for r.err == nil && n < len(out) && size < memory.WindowSize {
		if n > 0 && r.left == 0 && (!r.nextInMemory() || !wasDecided && r.nextIsLate()) {
			break
		}
		record, err := r.peekRecord()
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

// ReadBlock implements record.BlockReader. It returns byte-string records of an uncompressed chunk; if the file is
// mapped, those that begin in the same window.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || !r.decided || r.tensors {
		return nil
	}
	if _, err := r.peekRecord(); err != nil {
		r.err = err // Read returns it
		return nil
	}
	if r.chunk.compressor != uncompressed {
		return nil
	}
	b, in := r.payload, r.f.Hold(0)
	end := len(b)
	if r.f.IsMapped() {
		end = memory.WindowSize - int(r.f.Offset()%memory.WindowSize)
	}
	at, spans := 0, r.spans[:0]
	for len(spans) < min(limit, int(r.left)) && at < end && len(b)-at >= lengthSize {
		size := binary.LittleEndian.Uint32(b[at:])
		if uint64(size) > uint64(len(b)-at-lengthSize) {
			break // Read returns an error for it
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

// ReadLate implements record.LateReader for chunks, not compressed, of one record that is returned as bytes.
//
// The size in the header of such a chunk and the length of its record have to match, so that the place of the next chunk
// is known before the checksum is verified. If a chunk has several records, none can be delivered before the whole chunk
// was read, and verifying it late would gain nothing.
func (r *records) ReadLate(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || !r.decided || r.tensors || r.left > 0 || r.finish() != nil {
		return nil // Read returns an error of finish
	}
	b := record.ReadLate(r.f, limit, lateHeader, 0, lateRecord, &chunkChecksum)
	if b != nil {
		r.number += int64(b.Len())
	}
	return b
}

// nextIsLate reports whether ReadLate would return the next chunk, as far as it is in memory.
func (r *records) nextIsLate() bool {
	b, err := r.f.Peek(0)
	_, late := lateRecord(b)
	return err == nil && late && !r.tensors
}

// lateHeader is the size of what precedes the only record of a chunk.
const lateHeader = headerSize + lengthSize

// lateRecord returns the size of the record of the chunk at the beginning of b, and whether the chunk is verified late.
func lateRecord(b []byte) (size uint64, late bool) {
	var h header
	if len(b) < lateHeader || h.parse(b) != (chunkFault{}) || h.compressor != uncompressed || h.records != 1 {
		return 0, false
	}
	size = uint64(binary.LittleEndian.Uint32(b[headerSize:]))
	return size, size+lengthSize == uint64(h.size) && record.VerifiesLate(size)
}

// chunkChecksum is the checksum of a chunk of one record.
var chunkChecksum = record.Checksum{
	Table:  crc32.IEEETable,
	Piece:  8 << 10,
	Before: lengthSize,
	Back:   lateHeader,
	Stored: func(base []byte, s record.Span) uint32 {
		var h header
		h.parse(base[s.At-lateHeader : s.At])
		return h.checksum
	},
	Describe: func(_, stored, found uint32) string { return badChecksum(stored, found).String() },
}

// badChecksum is the fault of a chunk with a wrong checksum.
func badChecksum(stored, found uint32) chunkFault {
	return chunkFault{"checksum of a chunk: expected %08x, found %08x", uint64(stored), uint64(found)}
}

// nextInMemory reports whether the whole next chunk is in memory.
func (r *records) nextInMemory() bool {
	if r.f.IsMapped() {
		return true
	}
	b, err := r.f.Peek(0)
	var h header
	return err == nil && h.parse(b) == chunkFault{} && len(b) >= h.totalSize()
}

// peekRecord returns the next record, which stays the next one until take is called.
func (r *records) peekRecord() ([]byte, error) {
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

// peek returns the rest of the chunk: at least n bytes of it, unless the chunk ends before.
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
	// Advance the position, so that a mapped file's pages are mapped and unmapped in time.
	if done := int(r.start+int64(r.chunk.totalSize())-r.f.Offset()) - r.unpack.left(); done > 0 {
		r.f.Skip(done)
		if r.f.IsMapped() {
			r.f.Hold(1).Release()
		}
	}
	return b, nil
}

// take moves past the record of n bytes that peekRecord returned.
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

// finish leaves the current chunk, of which all records were taken, and checks that it has no more data.
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

// leave moves the position to the end of the chunk.
func (r *records) leave() {
	r.f.Skip(int(r.start + int64(r.chunk.totalSize()) - r.f.Offset()))
	r.open, r.left, r.payload = false, 0, nil
}

// next enters the chunk at the position, or returns io.EOF.
func (r *records) next() error {
	b, err := r.f.Peek(1)
	if len(b) == 0 && err == nil {
		if err = r.f.CheckTruncated(); err == nil {
			err = io.EOF
		}
		return err
	}
	h, fault, err := r.check(0)
	if err == storage.ErrInterrupted {
		return err
	}
	if err != nil {
		r.damaged, r.fileErrorReported = chunk, true
		return err
	}
	if fault != (chunkFault{}) {
		return r.damage(chunk, 0, "%s", fault)
	}
	return r.enter(h)
}

// check checks that a complete chunk begins at bytes after the position. err is an error of reading the file.
func (r *records) check(at int) (h header, fault chunkFault, err error) {
	b, err := r.f.Peek(at + headerSize)
	if err != nil {
		return h, fault, err
	}
	if fault = h.parse(b[min(at, len(b)):]); fault != (chunkFault{}) {
		return h, fault, nil
	}
	if need := at + h.totalSize(); need > len(b) {
		if b, err = r.f.Peek(need); err == storage.ErrInterrupted {
			return h, chunkFault{}, err
		} else if len(b) < need {
			return h, chunkFault{"expected a chunk of %d bytes, found %d before the end of the file", uint64(h.totalSize()), uint64(len(b) - at)}, err
		}
	}
	sum, err := r.checksum(b[at+headerSize : at+h.totalSize()])
	if err != nil {
		return h, chunkFault{}, err
	}
	if sum != h.checksum {
		r.searchBudget -= int64(h.size)
		return h, badChecksum(h.checksum, sum), nil
	}
	return h, chunkFault{}, nil
}

// enter begins to read the chunk at the position, which was checked.
func (r *records) enter(h header) error {
	b, err := r.f.Peek(h.totalSize())
	if err != nil {
		return err
	}
	r.start, r.chunk, r.left, r.open = r.f.Offset(), h, h.records, true
	payload := b[headerSize:h.totalSize()]
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

// damage returns an error about the data at bytes after the position. In a compressed chunk, which has no positions of
// records, the error is about the chunk.
func (r *records) damage(what part, at int, text string, args ...any) error {
	if err := r.f.CheckTruncated(); err != nil {
		return err
	}
	r.damaged = what
	offset := r.f.Offset() + int64(at)
	if r.open && r.chunk.compressor != uncompressed {
		offset = r.start
	}
	return r.f.Corrupt(offset, r.number, text, args...)
}

// hold returns n references to the memory of the record that peek returned.
func (r *records) hold(n int) *memory.Buffer {
	if r.chunk.compressor == uncompressed {
		return r.f.Hold(n)
	}
	return r.unpack.hold(n)
}

// fill makes t a tuple of a record.
func (r *records) fill(t *pyfeed.Tuple, b []byte) error {
	if !r.decided {
		if err := r.decide(b); err != nil {
			return err
		}
		var err error
		if b, err = r.peekRecord(); err != nil { // decide may have moved the record in memory
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

// decide sets the slots, and whether records are tensors if the options do not say. Its decision is based on the next
// record, b. Further records are only examined if b cannot be parsed as tensors: if one of them shows that the records
// are tensors, b is damaged.
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
	case r.recordKind == "tensors":
		return r.damage(oneRecord, lengthSize+at, "%v", err)
	case looksLikeTensors(b) || r.anyFollowing(len(b), holdsTensors):
		r.recordKind = "tensors" // also for Read after the damage
		return r.damage(oneRecord, lengthSize+at, "%v; if the records hold no tensors, say so by the option records: \"bytes\"", err)
	}
	r.decided, r.slots = true, []pyfeed.Slot{record.BytesSlot}
	return nil
}

// holdsTensors reports whether a record holds tensors, possibly damaged ones.
func holdsTensors(b []byte) bool {
	n, err := tensors(b)
	if err != nil {
		return false
	}
	_, err = parseTensors(b, make([]pyfeed.LoDTensor, n), new(record.Offsets), nil)
	return err == nil || looksLikeTensors(b)
}

// Limits of the search of anyFollowing.
const (
	maxFollowing      = 64
	maxFollowingBytes = 4 << 20
)

// anyFollowing reports whether matches is true for any record after the next one, which has n bytes. It only examines
// records that are in memory already, in the same chunk and the chunks after it, and does not wait. It invalidates the
// record that peek has returned.
func (r *records) anyFollowing(n int, matches func(record []byte) bool) bool {
	payload, _ := r.peek(min(pieceSize, maxFollowingBytes)) // an error is reported when it is reached
	looked := 1
	in := func(payload []byte) bool {
		for ; len(payload) >= lengthSize && looked < maxFollowing; looked++ {
			size := binary.LittleEndian.Uint32(payload)
			if uint64(size) > uint64(len(payload)-lengthSize) {
				return false
			}
			if matches(payload[lengthSize : lengthSize+int(size)]) {
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
	b = b[min(int(r.start+int64(r.chunk.totalSize())-r.f.Offset()), len(b)):]
	b = b[:min(len(b), maxFollowingBytes)]
	var h header
	for looked < maxFollowing && h.parse(b) == (chunkFault{}) && h.totalSize() <= len(b) {
		payload = b[headerSize:h.totalSize()]
		b = b[h.totalSize():]
		if checksum(payload) != h.checksum {
			return false
		}
		if h.compressor == uncompressed && in(payload) || h.compressor != uncompressed && r.withDecompressed(&h, payload, in) {
			return true
		}
	}
	return false
}

// withDecompressed calls call with the beginning of a compressed chunk.
func (r *records) withDecompressed(h *header, payload []byte, call func(payload []byte) bool) bool {
	u := unpacker{pool: r.unpack.pool}
	defer u.close()
	if u.begin(h, payload) != nil {
		return false
	}
	b, _ := u.peek(pieceSize) // an error is reported when it is reached
	return call(b)
}

// Describe returns slots that are inferred from the next record, which it does not take. There are no names.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if !r.decided && r.err == nil {
		b, err := r.peekRecord()
		if err == nil {
			err = r.decide(b)
		}
		if err == storage.ErrInterrupted {
			return nil, nil, err
		}
		if shrunk := r.f.CheckTruncated(); shrunk != nil {
			err, r.decided = shrunk, false
		}
		r.err = err
	}
	switch {
	case r.decided:
		return r.slots, nil, nil
	case r.err == io.EOF:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected slots to be given, because the file has no records to infer them from", r.f.Path())
	}
	return nil, nil, r.err
}

// Resync goes on after the damage: after the record, if only that is damaged; after the chunk, if its checksum is
// right; else at the next chunk whose checksum is right.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if err := r.f.CheckTruncated(); err != nil {
		return err
	}
	damage := r.err
	err := r.behind()
	if err == storage.ErrInterrupted {
		r.err = damage // for the next Resync
	}
	return err
}

// behind moves past the damage. If it returns storage.ErrInterrupted, r.err stays the damage.
func (r *records) behind() error {
	r.approximate = r.approximate || r.damaged != oneRecord // no checksum covers a chunk's number of records
	switch r.damaged {
	case oneRecord:
		b, err := r.peekRecord()
		if err != nil { // an error of reading the file, since the record was there before
			r.err = err
			return err
		}
		r.take(len(b))
		if r.left > 0 {
			r.err = nil
			return nil
		}
		if r.err = r.finish(); r.err == storage.ErrInterrupted {
			r.err = nil // Read calls finish again
		}
		if r.err != nil || r.open {
			return nil
		}
	case content:
		r.leave()
	default:
		r.err = r.scan()
		if r.err == io.EOF || r.err == storage.ErrInterrupted || r.budgetExhausted() {
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

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.number, !r.approximate }

// scan enters the next valid chunk after the position, where a chunk is damaged. It returns the error that Read will
// return, or storage.ErrInterrupted; then the next call goes on with the search.
func (r *records) scan() error {
	if !r.searchInterrupted {
		if found, err := r.findBeyond(); found || err != nil {
			return err
		}
		r.searchInterrupted = true
	}
	err := r.search()
	r.searchInterrupted = err == storage.ErrInterrupted
	return err
}

// findBeyond looks for a valid chunk, or the end of the file, at the end of the damaged chunk according to its header.
// The data of a chunk may look like chunks, if its records are RecordIO files, and must not be searched. A valid chunk
// there proves that the size in the header is right, whatever else is damaged.
func (r *records) findBeyond() (found bool, err error) {
	var h header
	b, err := r.f.Peek(headerSize)
	if err == storage.ErrInterrupted {
		return false, err
	}
	if err == nil && h.parse(b) == (chunkFault{}) {
		b, err = r.f.Peek(h.totalSize() + 1)
		switch {
		case err == storage.ErrInterrupted:
			return false, err
		case err == nil && len(b) == h.totalSize():
			r.f.Skip(len(b))
			return true, io.EOF
		case err == nil && len(b) > h.totalSize():
			next, fault, err := r.check(h.totalSize())
			if err == storage.ErrInterrupted {
				return false, err
			}
			if err == nil && fault == (chunkFault{}) {
				r.f.Skip(h.totalSize())
				return true, r.enter(next)
			}
		}
	}
	r.f.Skip(min(1, r.availableBytes()))
	return false, nil
}

// search enters the next valid chunk at or after the position.
func (r *records) search() error {
	for {
		if err := r.f.Poll(); err != nil {
			return err
		}
		b, err := r.f.Peek(headerSize)
		if err == storage.ErrInterrupted {
			return err
		}
		if len(b) < headerSize {
			r.f.Skip(len(b))
			if err == nil || r.fileErrorReported {
				return io.EOF
			}
			r.damaged, r.fileErrorReported = chunk, true
			return err
		}
		if r.f.IsMapped() {
			r.f.Hold(1).Release() // so that the window before the position is unmapped
		}
		b = b[:min(len(b), memory.WindowSize)] // short enough to let Go's scheduler and collector run in between
		at := bytes.Index(b, magicBytes)
		if at < 0 {
			r.f.Skip(len(b) - len(magicBytes) + 1)
			continue
		}
		r.f.Skip(at)
		h, fault, err := r.check(0)
		if err == storage.ErrInterrupted {
			return err
		}
		if err == nil && fault == (chunkFault{}) {
			return r.enter(h)
		}
		if r.budgetExhausted() {
			return r.damage(chunk, 0, "expected at most %d GiB plus %d times the file in chunks with wrong checksums, found more: gave up the search for a valid chunk", minSearchBudget>>30, searchBudgetPerByte)
		}
		r.f.Skip(1)
	}
}

// availableBytes returns how many bytes are available without a read.
func (r *records) availableBytes() int {
	b, _ := r.f.Peek(0)
	return len(b)
}

func (r *records) budgetExhausted() bool { return r.searchBudget+searchBudgetPerByte*r.f.Offset() < 0 }

// Position implements record.Seeker. Offset is that of the chunk. Inner is twice the number of the record in it, plus one
// if records are tensors: the first record of the file may have decided this, and the next one may be damaged.
func (r *records) Position() (record.Position, bool) {
	p := record.Position{Offset: r.f.Offset()}
	if r.open {
		p = record.Position{Offset: r.start, Inner: 2 * int64(r.chunk.records-r.left)}
	}
	if r.tensors {
		p.Inner++
	}
	return p, r.err == nil && r.decided
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	if p.Offset < 0 || p.Inner < 0 || p.Inner/2 > math.MaxUint32 {
		return record.BadPosition(r.f.Path(), p, "the offset of a chunk and the number of a record in it")
	}
	if r.open && (r.start != p.Offset || int64(r.chunk.records-r.left) > p.Inner/2) { // another chunk, or behind the record
		r.leave()
	}
	if !r.open {
		if err := r.f.SeekTo(p.Offset); err != nil {
			return err
		}
	}
	if before := p.Inner / 2; before > 0 {
		if err := r.skipRecords(uint32(before), p); err != nil {
			return err
		}
	}
	if !r.decided {
		r.decided, r.tensors = true, p.Inner%2 == 1
		if !r.tensors {
			r.slots = []pyfeed.Slot{record.BytesSlot}
		}
	}
	r.number, r.approximate, r.err = number, !exact, nil
	return nil
}

// skipRecords skips records of the chunk at the position until so many were skipped. After an interruption, the next call
// goes on.
func (r *records) skipRecords(before uint32, p record.Position) error {
	if !r.open {
		if err := r.next(); err != nil {
			if err == io.EOF {
				err = record.BadPosition(r.f.Path(), p, "the offset of a chunk")
			}
			return err
		}
	}
	if before > r.chunk.records {
		return record.BadPosition(r.f.Path(), p, fmt.Sprintf("one of the %d records of the chunk", r.chunk.records))
	}
	for r.chunk.records-r.left < before {
		b, err := r.peekRecord()
		if err != nil {
			return err
		}
		r.take(len(b))
	}
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	r.unpack.close()
	r.f.Close()
}

// checksum returns the checksum of a chunk's payload, or storage.ErrInterrupted.
func (r *records) checksum(b []byte) (sum uint32, err error) {
	for len(b) > storage.PollEvery {
		if err := r.f.Poll(); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, crc32.IEEETable, b[:storage.PollEvery])
		b = b[storage.PollEvery:]
	}
	return crc32.Update(sum, crc32.IEEETable, b), nil
}
