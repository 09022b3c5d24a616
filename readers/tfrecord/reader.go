package tfrecord

import (
	"encoding/binary"
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

// Open opens a file for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	r, err := open(c, func(o storage.Options) (*storage.File, error) { return storage.Open(path, o, c.Pool) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

func open(c *record.Config, file func(storage.Options) (*storage.File, error)) (*records, error) {
	o, from, err := resolveOptions(c)
	if err != nil {
		return nil, err
	}
	r := &records{}
	if o.Features != nil {
		p, err := newPlan(o.Features)
		if err != nil {
			return nil, err
		}
		r.examples = newExamples(p, c.Pool, c.Storage.Interrupt)
	}
	if r.f, err = file(from); err != nil {
		return nil, err
	}
	if from.Compression == "" || from.Compression == "auto" {
		r.f = unzlib(r.f, from, file)
	}
	return r, nil
}

// unzlib opens a file again if it is compressed by zlib. The first bytes of zlib may also be those of a record, so
// unzlib checks whether the decompressed data begins with a length and its CRC.
func unzlib(f *storage.File, o storage.Options, file func(storage.Options) (*storage.File, error)) *storage.File {
	if f.IsCompressed() || f.Size() < 0 {
		return f
	}
	b, err := f.Peek(headerSize)
	if err != nil || len(b) < 2 || hasValidHeader(b) || b[0] != 0x78 || binary.BigEndian.Uint16(b)%31 != 0 {
		return f
	}
	o.Compression = "zlib"
	z, err := file(o)
	if err != nil {
		return f
	}
	if b, err = z.Peek(headerSize); hasValidHeader(b) || err == nil && len(b) == 0 {
		f.Close()
		return z
	}
	z.Close()
	return f
}

// hasValidHeader reports whether b begins with a length and its CRC.
func hasValidHeader(b []byte) bool {
	return len(b) >= headerSize && lengthCRC(binary.LittleEndian.Uint64(b)) == binary.LittleEndian.Uint32(b[8:])
}

// records reads one file.
type records struct {
	f        *storage.File
	examples *examples // parses examples; nil if records are returned as bytes
	offsets  record.Offsets
	spans    []record.Span

	record            int64 // number of the record at the position
	approximate       bool  // record is approximate: it is not known how many records were skipped
	searchInterrupted bool  // Resync was interrupted during its search
	searchedBytes     int   // bytes of data whose CRC was wrong, in this search
	err               error // the error that Read returns until Resync
	// behind is the distance from the position to the record after the damage, or unknown, or nowhere.
	behind int64
}

const (
	unknown = 0
	nowhere = -1
)

// recordState reports whether a record is complete and its CRCs are right.
type recordState uint8

const (
	whole recordState = iota
	short             // the data ends within the record
	badLength
	badData
)

// verifyRecord checks both CRCs of the record at the beginning of b, and returns its data. The error is
// storage.ErrInterrupted.
func (r *records) verifyRecord(b []byte) ([]byte, recordState, error) {
	if len(b) < frameSize {
		if len(b) >= headerSize && !hasValidHeader(b) {
			return nil, badLength, nil
		}
		return nil, short, nil
	}
	n := binary.LittleEndian.Uint64(b)
	if lengthCRC(n) != binary.LittleEndian.Uint32(b[8:]) || n > maxLength {
		return nil, badLength, nil
	}
	if n > uint64(len(b)-frameSize) {
		return nil, short, nil
	}
	data, footer := b[headerSize:headerSize+n], b[headerSize+n:]
	var sum uint32
	if len(data) <= crcPiece {
		sum = crc32.Update(0, castagnoli, data)
	} else {
		var err error
		if sum, err = r.longCRC(data); err != nil {
			return nil, whole, err
		}
	}
	if mask(sum) != binary.LittleEndian.Uint32(footer) {
		return nil, badData, nil
	}
	return data, whole, nil
}

// longCRC returns the CRC of data of any length, or storage.ErrInterrupted.
func (r *records) longCRC(data []byte) (sum uint32, err error) {
	for len(data) > storage.PollEvery {
		if err := r.f.Poll(); err != nil {
			return 0, err
		}
		sum = dataChecksum.Update(sum, data[:storage.PollEvery])
		data = data[storage.PollEvery:]
	}
	return dataChecksum.Update(sum, data), nil
}

// Read fills out with the records that are in memory; of a mapped file, with those that begin in the same window.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	b, err := r.peekRecord()
	if err != nil {
		return 0, err
	}
	start, mapped := r.f.Offset(), r.f.IsMapped()
	in := r.f.Hold(0) // references are counted, and added at once
	at, n, held := 0, 0, 0
	for n < len(out) {
		offset := start + int64(at)
		if mapped && offset/memory.WindowSize != start/memory.WindowSize {
			break
		}
		data, v, stop := r.verifyRecord(b[at:])
		if stop != nil || v != whole {
			switch {
			case n > 0: // the next Read returns the error
			case stop != nil:
				err = stop
			default:
				err = r.damaged(v, b)
			}
			break
		}
		if r.examples == nil {
			r.offsets.Record(out[n], data, in)
			held++
		} else {
			views, parseErr := r.examples.fill(out[n], data, in)
			held += views
			if parseErr != nil {
				in.Retain(held)
				held = 0
				for i := range out[n].Slots {
					out[n].Slots[i].Drop()
				}
				if n == 0 {
					err = r.fail(r.locate(parseErr, offset), int64(frameSize+len(data)))
				}
				break
			}
		}
		at += frameSize + len(data)
		n++
	}
	in.Retain(held)
	r.f.Skip(at)
	r.record += int64(n)
	return n, err
}

// ReadBlock implements record.BlockReader for records that are returned as bytes, and for examples whose values are
// used in place. The records are in memory, or begin in the same window, as for Read.
func (r *records) ReadBlock(limit int) *record.Block {
	if r.err != nil || limit == 0 || r.examples != nil && !r.examples.inPlace {
		return nil
	}
	b, err := r.peekRecord()
	if err != nil {
		return nil // Read returns it
	}
	end := len(b)
	if r.f.IsMapped() {
		end = memory.WindowSize - int(r.f.Offset()%memory.WindowSize)
	}
	if r.examples != nil {
		return r.readUniform(b, limit, end)
	}
	in := r.f.Hold(0)
	end = min(end, math.MaxUint32-headerSize)
	at, spans := 0, r.spans[:0]
	for len(spans) < limit && at < end {
		data, v, err := r.verifyRecord(b[at:])
		if err != nil || v != whole || uint64(len(data)) > math.MaxUint32 {
			break // Read returns an error for it
		}
		spans = append(spans, record.Span{At: uint32(at + headerSize), Size: uint32(len(data))})
		at += frameSize + len(data)
	}
	r.spans = spans
	if len(spans) == 0 {
		return nil
	}
	in.Retain(len(spans))
	r.f.Skip(at)
	r.record += int64(len(spans))
	return record.NewSpanBlock(b, slices.Clone(spans), in)
}

// ReadLate implements record.LateReader for records that are returned as bytes.
func (r *records) ReadLate(limit int) *record.Block {
	if r.err != nil || r.examples != nil {
		return nil
	}
	b := record.ReadLate(r.f, limit, headerSize, frameSize-headerSize, lateRecord, &dataChecksum)
	if b != nil {
		r.record += int64(b.Len())
	}
	return b
}

// lateRecord returns the size of the record at the beginning of b, and whether it is verified late.
func lateRecord(b []byte) (size uint64, late bool) {
	if !hasValidHeader(b) {
		return 0, false
	}
	size = binary.LittleEndian.Uint64(b)
	return size, record.VerifiesLate(size)
}

// crcPiece is how many bytes of a record are verified at a time. Go reads 4,032 bytes and more in three streams, 1,344
// bytes apart. The processor does not prefetch these: data that is not in its cache is verified faster in shorter pieces
// (docs/performance.md, "TFRecord of 100 KB records").
const crcPiece = 1 << 10

// dataChecksum is the CRC of the data of a record.
var dataChecksum = record.Checksum{
	Table: castagnoli,
	Piece: crcPiece,
	Stored: func(base []byte, s record.Span) uint32 {
		return unmask(binary.LittleEndian.Uint32(base[s.At+s.Size:]))
	},
	Describe: func(size, stored, found uint32) string { return badCRC(uint64(size), mask(stored), mask(found)) },
}

// badCRC returns the text of the error about the CRC of the data of a record, n bytes.
func badCRC(n uint64, expected, found uint32) string {
	return fmt.Sprintf("CRC of the data, %d bytes: expected %#08x, found %#08x", n, expected, found)
}

const (
	minUniform           = 16  // records; for a smaller Block, tuples are cheaper (record.MinBlock)
	uniformRetryDistance = 256 // records to wait after a failed attempt, so that mixed files pay for few attempts
)

// peekRecord makes the record at the position available, as far as the file has it.
func (r *records) peekRecord() ([]byte, error) {
	b, err := r.f.Peek(frameSize)
	if err == nil && len(b) == 0 {
		err = io.EOF
	}
	if n := uint64(0); err == nil && hasValidHeader(b) {
		if n = binary.LittleEndian.Uint64(b); n <= maxLength && n+frameSize > uint64(len(b)) {
			b, err = r.f.Peek(int(n + frameSize))
		}
	}
	if err != nil {
		return nil, r.fail(err, nowhere)
	}
	return b, nil
}

// fail makes Read return an error until Resync.
func (r *records) fail(err error, behind int64) error {
	if err == storage.ErrInterrupted {
		return err
	}
	if shrunk := r.f.CheckTruncated(); shrunk != nil {
		err, behind = shrunk, nowhere
	}
	r.err, r.behind = err, behind
	return err
}

// damaged returns the error about the record at the beginning of b.
func (r *records) damaged(v recordState, b []byte) error {
	at := r.f.Offset()
	if v == short && len(b) < headerSize {
		return r.fail(r.f.Corrupt(at, r.record, "expected the %d bytes of a length and its CRC, found the end of the file after %d",
			headerSize, len(b)), nowhere)
	}
	n := binary.LittleEndian.Uint64(b)
	switch {
	case v == short:
		return r.fail(r.f.Corrupt(at, r.record, "expected %d bytes of data and %d of their CRC, found the end of the file after %d: the record is truncated",
			n, footerSize, len(b)-headerSize), nowhere)
	case v == badData:
		data, footer := b[headerSize:headerSize+n], b[headerSize+n:]
		return r.fail(r.f.Corrupt(at+headerSize, r.record, "%s", badCRC(n, binary.LittleEndian.Uint32(footer), crc(data))),
			int64(frameSize+n))
	case hasValidHeader(b):
		return r.fail(r.f.Corrupt(at, r.record, "length: expected at most %d, found %d", int64(maxLength), n), unknown)
	}
	question := ""
	if at == 0 {
		question = ": is it a TFRecord file?"
	}
	return r.fail(r.f.Corrupt(at, r.record, "CRC of the length, %d: expected %#08x, found %#08x%s",
		n, binary.LittleEndian.Uint32(b[8:]), lengthCRC(n), question), unknown)
}

// locate adds the position of the record to an error about its content.
func (r *records) locate(err error, offset int64) error {
	if e, is := err.(*pyfeed.Error); is && e.At == nil {
		e.At = &pyfeed.Location{File: r.f.Path(), Offset: offset, Record: r.record}
	}
	return err
}

// Resync skips a record whose length is right. Otherwise it searches for the next record.
func (r *records) Resync() error {
	if r.err == nil {
		return nil
	}
	if r.behind == nowhere {
		return io.EOF
	}
	var err error
	if r.behind == unknown {
		if !r.searchInterrupted {
			r.approximate = true
			r.f.Skip(1)
			r.searchedBytes = 0
		}
		err = r.search()
		if r.searchInterrupted = err == storage.ErrInterrupted; r.searchInterrupted {
			return err
		}
	} else {
		b, broken := r.f.Peek(int(r.behind) + 1)
		if broken == storage.ErrInterrupted {
			return broken
		}
		if broken == nil && len(b) <= int(r.behind) {
			err = io.EOF
		}
		r.f.Skip(int(r.behind))
	}
	if err != nil {
		return r.fail(err, nowhere)
	}
	r.record++
	r.err = nil
	return nil
}

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.record, !r.approximate }

// maxSearched is how many bytes of data with a wrong CRC a search reads at most. After that, it accepts a length whose
// CRC is right. Otherwise a malicious file could make it search forever.
const maxSearched = 64 << 20

// search moves to the next valid record. After an interruption, the next call goes on.
func (r *records) search() error {
	for {
		if err := r.f.Poll(); err != nil {
			return err
		}
		b, err := r.f.Peek(headerSize)
		if err == storage.ErrInterrupted {
			return err
		}
		if err != nil {
			return nil // Read returns it
		}
		if len(b) < headerSize {
			return io.EOF
		}
		limit := uint64(maxLength)
		if r.f.IsMapped() {
			limit = uint64(len(b))
			r.f.Hold(1).Release() // unmaps the window before the position
		}
		at, found := scan(b[:min(len(b), memory.WindowSize)], limit)
		if !found {
			r.f.Skip(at)
			continue
		}
		n := int(binary.LittleEndian.Uint64(b[at:])) + frameSize
		r.f.Skip(at)
		b, err = r.f.Peek(n) // an error is returned again where the data ends
		if err == storage.ErrInterrupted {
			return err
		}
		_, v, err := r.verifyRecord(b)
		if err != nil {
			return err
		}
		if v == whole || v == badData && r.searchedBytes > maxSearched {
			return nil
		}
		if v == badData {
			r.searchedBytes += n
		}
		r.f.Skip(1)
	}
}

// scan returns the position in b of the next length of at most limit whose CRC is right, or else the position to go on
// from.
func scan(b []byte, limit uint64) (at int, found bool) {
	for last := len(b) - headerSize; at <= last; at++ {
		n := binary.LittleEndian.Uint64(b[at:])
		if n <= limit && lengthCRC(n) == binary.LittleEndian.Uint32(b[at+8:]) {
			return at, true
		}
	}
	return at, false
}

// Describe returns the slots of the features, or the slot of a record.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.examples != nil {
		slots, names := r.examples.describe()
		return slots, names, nil
	}
	return []pyfeed.Slot{record.BytesSlot}, []string{recordName}, nil
}

// Position implements record.Seeker. It is the offset of the record.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.f.Offset()}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	if p.Inner != 0 {
		return record.BadPosition(r.f.Path(), p, "the offset of a record")
	}
	if err := r.f.SeekTo(p.Offset); err != nil {
		return err
	}
	r.record, r.approximate, r.err = number, !exact, nil
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	if r.examples != nil {
		r.examples.close()
	}
	r.f.Close()
}
