package tfrecord

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open begins to read a file.
func Open(path string, c *record.Config) (record.Records, error) {
	r, err := open(c, func(o storage.Options) (*storage.File, error) { return storage.Open(path, o, c.Pool) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

func open(c *record.Config, file func(storage.Options) (*storage.File, error)) (*records, error) {
	o, from, err := settle(c)
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

// unzlib opens a file again if it is compressed by zlib, whose first bytes any record could begin with: so it
// takes the CRC of a length among what it decompresses to.
func unzlib(f *storage.File, o storage.Options, file func(storage.Options) (*storage.File, error)) *storage.File {
	if f.Compressed() || f.Size() < 0 {
		return f
	}
	b, err := f.Peek(headerSize)
	if err != nil || len(b) < 2 || header(b) || b[0] != 0x78 || binary.BigEndian.Uint16(b)%31 != 0 {
		return f
	}
	o.Compression = "zlib"
	z, err := file(o)
	if err != nil {
		return f
	}
	if b, err = z.Peek(headerSize); header(b) || err == nil && len(b) == 0 {
		f.Close()
		return z
	}
	z.Close()
	return f
}

// header says whether a length that verifies is at the front of b.
func header(b []byte) bool {
	return len(b) >= headerSize && lengthCRC(binary.LittleEndian.Uint64(b)) == binary.LittleEndian.Uint32(b[8:])
}

// records are those of one open file.
type records struct {
	f        *storage.File
	examples *examples // parses; nil where the records are handed out as they are
	offsets  record.Offsets
	spans    []record.Span

	record int64 // number of the one at the position
	guess  bool  // it is approximate: how many records were skipped is not known
	sought bool  // Resync was interrupted in its search
	tried  int   // bytes of data of which that tried the CRC in vain
	err    error // what Read goes on answering
	// behind is where err leads to: as many bytes on, or unknown, or nowhere.
	behind int64
}

const (
	unknown = 0
	nowhere = -1
)

// verdict is on what a record looks like.
type verdict uint8

const (
	whole verdict = iota
	short         // the record goes on behind what there is
	badLength
	badData
)

// look is the data of the record at the front of b. The error is storage.ErrInterrupted.
func (r *records) look(b []byte) ([]byte, verdict, error) {
	if len(b) < frameSize {
		if len(b) >= headerSize && !header(b) {
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
	c, rest := uint32(0), data
	for len(rest) > storage.LookEvery {
		if err := r.f.Look(); err != nil {
			return nil, whole, err
		}
		c = crc32.Update(c, castagnoli, rest[:storage.LookEvery])
		rest = rest[storage.LookEvery:]
	}
	if mask(crc32.Update(c, castagnoli, rest)) != binary.LittleEndian.Uint32(footer) {
		return nil, badData, nil
	}
	return data, whole, nil
}

// Read fills out with the records that are in memory, of a mapped file those that begin in the same window.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	b, err := r.show()
	if err != nil {
		return 0, err
	}
	start, mapped := r.f.Offset(), r.f.Mapped()
	in := r.f.Hold(0) // what is held of it is counted, and added in one go
	at, n, held := 0, 0, 0
	for n < len(out) {
		offset := start + int64(at)
		if mapped && offset/memory.WindowSize != start/memory.WindowSize {
			break
		}
		data, v, stop := r.look(b[at:])
		if stop != nil || v != whole {
			switch {
			case n > 0: // to come back to
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
			views, bad := r.examples.fill(out[n], data, in)
			held += views
			if bad != nil {
				in.Retain(held)
				held = 0
				for i := range out[n].Slots {
					out[n].Slots[i].Drop()
				}
				if n == 0 {
					err = r.fail(r.locate(bad, offset), int64(frameSize+len(data)))
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

// ReadBlock is Rowed's: of records that are handed out as they are, and of examples that are used where they lie. They lie as
// those that Read fills out with.
func (r *records) ReadBlock(most int) *record.Block {
	if r.err != nil || most == 0 || r.examples != nil && !r.examples.inPlace {
		return nil
	}
	b, err := r.show()
	if err != nil {
		return nil // which Read answers
	}
	end := len(b)
	if r.f.Mapped() {
		end = memory.WindowSize - int(r.f.Offset()%memory.WindowSize)
	}
	if r.examples != nil {
		return r.alike(b, most, end)
	}
	in := r.f.Hold(0)
	end = min(end, math.MaxUint32-headerSize)
	at, spans := 0, r.spans[:0]
	for len(spans) < most && at < end {
		data, v, err := r.look(b[at:])
		if err != nil || v != whole || uint64(len(data)) > math.MaxUint32 {
			break // for Read to see to
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

// alike is those of the records at the front of b that differ in the values of their features alone: most at most, which
// begin before end. nil: there are few, or something else is to be said about the first.
func (r *records) alike(b []byte, most, end int) *record.Block {
	p, least := &r.examples.pattern, min(most, leastAlike)
	if r.record < p.again || !header(b) || binary.LittleEndian.Uint64(b) > uint64(end/least) {
		return nil // without a look at the data, which Read is going to verify
	}
	if !p.fits(b) {
		data, v, err := r.look(b)
		if err != nil || v != whole || !r.examples.learn(b[:headerSize+len(data)], r.f.Hold(0)) {
			p.again = r.record + notAlike
			return nil
		}
	}
	size := len(p.record) + footerSize
	at, n := size, 1
	for n < most && at < end && p.fits(b[at:]) {
		at += size
		n++
	}
	if n < least {
		p.again = r.record + notAlike
		return nil
	}
	slots := make([]pyfeed.LoDTensor, len(p.values))
	for i, v := range p.values {
		c, s := &r.examples.columns[i], &slots[i]
		s.DType, s.Data, s.ReadOnly = c.slot.DType, b[v.At:v.At+v.Size:at], true
		_ = s.SetDims(c.dims[:len(c.slot.Dims)]) // whose rank was checked
	}
	rows := record.NewBlock(slots, size, n, r.f.Hold(n))
	r.f.Skip(at)
	r.record += int64(n)
	return rows
}

const (
	leastAlike = 16  // records: for fewer, if more are asked for, it does not pay
	notAlike   = 256 // records that are not looked at for it where some were in vain
)

// show has the file show the record at the position, as far as there is one.
func (r *records) show() ([]byte, error) {
	b, err := r.f.Peek(frameSize)
	if err == nil && len(b) == 0 {
		err = io.EOF
	}
	if n := uint64(0); err == nil && header(b) {
		if n = binary.LittleEndian.Uint64(b); n <= maxLength && n+frameSize > uint64(len(b)) {
			b, err = r.f.Peek(int(n + frameSize))
		}
	}
	if err != nil {
		return nil, r.fail(err, nowhere)
	}
	return b, nil
}

// fail makes Read answer an error until Resync.
func (r *records) fail(err error, behind int64) error {
	if err == storage.ErrInterrupted {
		return err
	}
	if shrunk := r.f.Intact(); shrunk != nil {
		err, behind = shrunk, nowhere
	}
	r.err, r.behind = err, behind
	return err
}

// damaged is the error about the record at the front of b.
func (r *records) damaged(v verdict, b []byte) error {
	at := r.f.Offset()
	if v == short && len(b) < headerSize {
		return r.fail(r.f.Corrupt(at, r.record, "expected the %d bytes of a length and its CRC, found the end of the file after %d",
			headerSize, len(b)), nowhere)
	}
	n := binary.LittleEndian.Uint64(b)
	switch {
	case v == short:
		return r.fail(r.f.Corrupt(at, r.record, "expected %d bytes of data and %d of their CRC, found the end of the file after %d",
			n, footerSize, len(b)-headerSize), nowhere)
	case v == badData:
		data, footer := b[headerSize:headerSize+n], b[headerSize+n:]
		return r.fail(r.f.Corrupt(at+headerSize, r.record, "CRC of the data, %d bytes: expected %#08x, found %#08x",
			n, binary.LittleEndian.Uint32(footer), crc(data)), int64(frameSize+n))
	case header(b):
		return r.fail(r.f.Corrupt(at, r.record, "length: expected at most %d, found %d", int64(maxLength), n), unknown)
	}
	return r.fail(r.f.Corrupt(at, r.record, "CRC of the length, %d: expected %#08x, found %#08x",
		n, binary.LittleEndian.Uint32(b[8:]), lengthCRC(n)), unknown)
}

// locate adds where the record is to an error about what is in it.
func (r *records) locate(err error, offset int64) error {
	if e, is := err.(*pyfeed.Error); is && e.At == nil {
		e.At = &pyfeed.Location{File: r.f.Path(), Offset: offset, Record: r.record}
	}
	return err
}

// Resync skips the record whose length is right; otherwise it looks for the next record.
func (r *records) Resync() error {
	if r.err == nil {
		return nil
	}
	if r.behind == nowhere {
		return io.EOF
	}
	var err error
	if r.behind == unknown {
		if !r.sought {
			r.guess = true
			r.f.Skip(1)
			r.tried = 0
		}
		err = r.search()
		if r.sought = err == storage.ErrInterrupted; r.sought {
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

// Number is Numbered's.
func (r *records) Number() (int64, bool) { return r.record, !r.guess }

// mostTried bounds the bytes of data that a search tries the CRC of in vain. Behind that a length that verifies
// is good enough, or a file made for it would keep us for ever.
const mostTried = 64 << 20

// search goes to the next record that verifies. Interrupted, it goes on where it was.
func (r *records) search() error {
	for {
		if err := r.f.Look(); err != nil {
			return err
		}
		b, err := r.f.Peek(headerSize)
		if err == storage.ErrInterrupted {
			return err
		}
		if err != nil {
			return nil // for Read to answer
		}
		if len(b) < headerSize {
			return io.EOF
		}
		most := uint64(maxLength)
		if r.f.Mapped() {
			most = uint64(len(b))
			r.f.Hold(1).Release() // so that its windows move along
		}
		at, found := scan(b[:min(len(b), memory.WindowSize)], most)
		if !found {
			r.f.Skip(at)
			continue
		}
		n := int(binary.LittleEndian.Uint64(b[at:])) + frameSize
		r.f.Skip(at)
		b, err = r.f.Peek(n) // an error comes again where the data ends
		if err == storage.ErrInterrupted {
			return err
		}
		_, v, err := r.look(b)
		if err != nil {
			return err
		}
		if v == whole || v == badData && r.tried > mostTried {
			return nil
		}
		if v == badData {
			r.tried += n
		}
		r.f.Skip(1)
	}
}

// scan is where in b, which begins with none, the next length of at most most verifies, or else where to go on.
func scan(b []byte, most uint64) (at int, found bool) {
	for last := len(b) - headerSize; at <= last; at++ {
		n := binary.LittleEndian.Uint64(b[at:])
		if n <= most && lengthCRC(n) == binary.LittleEndian.Uint32(b[at+8:]) {
			return at, true
		}
	}
	return at, false
}

// Describe is the slots of the features, or that of a record.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.examples != nil {
		slots, names := r.examples.describe()
		return slots, names, nil
	}
	return []pyfeed.Slot{record.BytesSlot}, []string{recordName}, nil
}

// Intact is an error if the file has shrunk.
func (r *records) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.f.Unchanged() }

// Close lets go of the file.
func (r *records) Close() {
	if r.examples != nil {
		r.examples.close()
	}
	r.f.Close()
}
