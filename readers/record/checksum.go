package record

import (
	"errors"
	"hash/crc32"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Large records are verified late: when they are copied into a batch, or become tuples. So their bytes are read into the
// processor's cache once, not twice.

// Checksum describes the CRC of byte strings that is verified late.
type Checksum struct {
	Table *crc32.Table
	// Piece is how many bytes are verified, and then copied, at a time: as many as the processor's cache keeps, and as
	// verifying is fastest with.
	Piece int
	// Before is how many bytes before a byte string its CRC covers too.
	Before int
	// Back is how many bytes before a byte string the place is that errors name.
	Back int
	// Stored returns the CRC that the file has for the byte string at a span of base.
	Stored func(base []byte, s Span) uint32
	// Describe returns the text of the error about a byte string of that size, whose CRC is another one than the stored.
	Describe func(size, stored, found uint32) string
}

// Records of these sizes, in bytes, are verified late. Smaller ones would gain nothing (docs/performance.md, "TFRecord of
// 100 KB records"). A late check cannot be interrupted, so larger ones would delay a reset.
const (
	minLate = 8 << 10
	maxLate = 4 << 20
)

// VerifiesLate reports whether records of that size are verified late, if the Config permits it.
func VerifiesLate(size uint64) bool { return minLate <= size && size <= maxLate }

// Damage is the error that an instance of a Chunk is damaged.
type Damage struct {
	Index int // of the instance in the Chunk
	Err   error
}

// Error implements error.
func (d *Damage) Error() string { return d.Err.Error() }

// Unwrap returns the error about the record.
func (d *Damage) Unwrap() error { return d.Err }

// VerifyLate makes the Block verify the byte strings that VerifiesLate names when they are copied or become tuples. The
// caller has verified all others. The Block was made by NewSpanBlock. offset is that of base in the file.
func (b *Block) VerifyLate(c *Checksum, offset int64) { b.checksum, b.offset = c, offset }

// ReadLate is [LateReader.ReadLate] for byte strings between frames of constant sizes: before and after are how many bytes
// precede and follow each. size returns the size of the first byte string of b, and whether it is verified late; b may end
// anywhere. The Block has the byte strings that are in memory; of a mapped file, those that begin in the same window.
// After an error of the file, ReadLate returns nil, and Read meets the error again.
func ReadLate(f *storage.File, limit, before, after int, size func(b []byte) (n uint64, late bool), c *Checksum) *Block {
	b, err := f.Peek(before)
	n, late := size(b)
	if err != nil || !late {
		return nil // without reading more than Read would
	}
	if b, err = f.Peek(before + int(n) + after); err != nil {
		return nil
	}
	end := min(len(b), math.MaxUint32-before)
	if f.IsMapped() {
		end = memory.WindowSize - int(f.Offset()%memory.WindowSize)
	}
	at := 0
	var spans []Span
	for len(spans) < limit && at < end {
		if n, late = size(b[at:]); !late || int(n) > len(b)-at-before-after {
			break
		}
		spans = append(spans, Span{At: uint32(at + before), Size: uint32(n)})
		at += before + int(n) + after
	}
	if len(spans) == 0 {
		return nil
	}
	block := NewSpanBlock(b, spans, f.Hold(len(spans)))
	block.VerifyLate(c, f.Offset())
	f.Skip(at)
	return block
}

// isUnverified reports whether the k-th instance is verified late.
func (b *Block) isUnverified(k int) bool {
	return b.checksum != nil && VerifiesLate(uint64(b.texts[0].Spans[k].Size))
}

// verify returns an error if the k-th instance is damaged.
func (b *Block) verify(k int) error {
	if !b.isUnverified(k) {
		return nil
	}
	return b.compare(k, b.checksum.Update(b.beginCRC(k), b.data(0, k)))
}

// Update adds data to a CRC.
func (c *Checksum) Update(sum uint32, data []byte) uint32 {
	for len(data) > c.Piece {
		sum = crc32.Update(sum, c.Table, data[:c.Piece])
		data = data[c.Piece:]
	}
	return crc32.Update(sum, c.Table, data)
}

// copySpan copies the k-th instance, and verifies it if it is verified late.
func (b *Block) copySpan(to []byte, k int) error {
	data := b.data(0, k)
	if !b.isUnverified(k) {
		pyfeed.Copy(to, data)
		return nil
	}
	sum := b.beginCRC(k)
	for len(data) > 0 {
		piece := data[:min(len(data), b.checksum.Piece)]
		sum = crc32.Update(sum, b.checksum.Table, piece)
		to, data = to[copy(to, piece):], data[len(piece):]
	}
	return b.compare(k, sum)
}

// beginCRC returns the CRC of the bytes before the k-th instance that its CRC covers.
func (b *Block) beginCRC(k int) uint32 {
	at := int(b.texts[0].Spans[k].At)
	return crc32.Checksum(b.texts[0].Base[at-b.checksum.Before:at], b.checksum.Table)
}

// compare returns an error if found is not the CRC that the file has for the k-th instance.
func (b *Block) compare(k int, found uint32) error {
	s := b.texts[0].Spans[k]
	stored := b.checksum.Stored(b.texts[0].Base, s)
	if stored == found {
		return nil
	}
	from := b.origin(k)
	at := from.Location()
	if at == nil {
		at = &pyfeed.Location{Offset: -1, Record: -1}
	}
	var instance pyfeed.LoDTensor
	instance.Hold(b.data(0, k), b.parts[0].buffer) // without a reference of its own
	if torn := instance.CheckTruncated(0); torn != nil {
		var e *pyfeed.Error
		if errors.As(torn, &e) && e.At != nil && e.At.Record < 0 {
			e.At.Record, e.At.Approximate = at.Record, at.Approximate
		}
		return torn
	}
	at.Offset = b.offset + int64(s.At) - int64(b.checksum.Back)
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: at, Text: b.checksum.Describe(s.Size, stored, found)}
}

// Verify verifies the instances that were added since a checkpoint and are verified late, and makes them tuples. If one is
// damaged, Verify releases it and all behind it, and returns the error about it. When done is closed, Verify stops halfway.
func (c *Chunk) Verify(since Checkpoint, done <-chan struct{}) error {
	if !c.hasUnverified() {
		return nil
	}
	for i := max(since.items, c.front); i < len(c.items); i++ {
		select {
		case <-done:
			return nil
		default:
		}
		if err := c.verifyItem(i); err != nil {
			c.Keep(0, i-c.front)
			return err
		}
	}
	return nil
}

// VerifyNext does the same for the next instance, of which there MUST be one. If it is damaged, it stays.
func (c *Chunk) VerifyNext() error { return c.verifyItem(c.front) }

// hasUnverified reports whether instances may be verified late. Those that were added since a checkpoint may be of Blocks
// that the Chunk had before.
func (c *Chunk) hasUnverified() bool {
	for i := range c.blocks {
		if c.blocks[i].checksum != nil {
			return true
		}
	}
	return false
}

// verifyItem makes an item a verified tuple if it is verified late. After an error, nothing has changed.
func (c *Chunk) verifyItem(i int) error {
	it := c.items[i]
	if it.block == tupleItem || !c.blocks[it.block].isUnverified(int(it.index)) {
		return nil
	}
	t, err := c.tupleOf(it)
	if err != nil {
		return err
	}
	c.items[i] = item{tupleItem, uint32(len(c.tuples))}
	c.tuples = append(c.tuples, t)
	return nil
}
