package jsonl

import (
	"bytes"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// ReadBlock makes instances in memory of blockBytes, or of textBlockBytes if they have text. If fewer than minRows fit
// into it, Read makes them: a copy of long text would cost more than its tuple.
const (
	blockBytes     = 64 << 10
	textBlockBytes = 256 << 10
	minRows        = 16
)

// blocks has the memory for ReadBlock.
type blocks struct {
	free      []byte         // space for further instances; nil: none
	buffer    *memory.Buffer // the memory of free
	textBytes int            // of an instance, on average; 0: not known yet
	continues bool           // only the next instance does not fit into a block
}

// observe notes the bytes of text of an instance that Read has made. A single one that is long has little effect.
func (m *blocks) observe(n int) { m.textBytes += (min(n, 2*textBlockBytes/minRows) - m.textBytes) / 8 }

// release releases the free memory.
func (m *blocks) release() {
	if m.buffer != nil {
		m.buffer.Release()
		m.free, m.buffer = nil, nil
	}
}

// room is the memory that the texts of a block are copied to.
type room struct {
	to   []byte // nil: texts are not copied
	used int
	full bool // a text did not fit
}

// ReadBlock implements record.BlockReader for instances without lists of any length. Read returns the errors about
// records.
func (r *records) ReadBlock(limit int) *record.Block {
	stride := (r.rowSize + 7) &^ 7 // aligned for the widest element
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || r.numbers+len(r.texts) < len(r.outputs) || stride == 0 && len(r.texts) == 0 {
		return nil
	}
	lines := r.someLines()
	if len(lines) == 0 {
		return nil
	}
	if len(r.texts) > 0 && r.blocks.textBytes == 0 {
		r.blocks.textBytes = bytes.IndexByte(lines, '\n') + 1
	}
	each, size := stride+r.blocks.textBytes, blockBytes
	if len(r.texts) > 0 {
		size = min(textBlockBytes, max(2*len(lines), minRows*each))
	}
	if each > size/minRows {
		return nil
	}
	fresh := len(r.blocks.free) < minRows*each
	for {
		if fresh {
			r.blocks.release()
			var err error
			if r.blocks.free, r.blocks.buffer, err = r.arena.Get(size); err != nil {
				return nil
			}
		}
		b := r.readBlock(lines, stride, min(limit, len(r.blocks.free)/each))
		if b != nil || fresh || !r.room.full {
			return b
		}
		fresh = true
	}
}

// someLines returns whole lines from the position on, or nil if there are none.
func (r *records) someLines() []byte {
	for want := 1; ; {
		b, end, err := r.peek(want)
		if err != nil || len(b) == 0 {
			return nil
		}
		r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
		if b = r.skipBlanks(b); len(b) == 0 {
			return nil
		}
		lines, err := r.complete(b, end)
		if err != nil || len(lines) > 0 || end {
			return lines
		}
		if len(b) > textBlockBytes {
			r.blocks.continues = true
			return nil
		}
		if want, err = r.grow(b, nil); err != nil {
			return nil // Read returns it
		}
	}
}

// readBlock makes at most limit instances of lines in the free memory: first their rows, then their texts. It returns
// nil if there is an error about the first, or if it does not fit.
func (r *records) readBlock(lines []byte, stride, limit int) *record.Block {
	free, row := r.blocks.free, r.row
	if r.room = (room{}); len(r.texts) > 0 {
		r.room.to = free[limit*stride:]
	}
	for _, c := range r.texts {
		c.spans = make([]record.Span, 0, limit)
	}
	n, used := 0, 0
	for begin := r.file.Offset(); n < limit && len(lines) > 0 && r.file.Offset()-begin < memory.WindowSize; n++ {
		r.row = free[n*stride:]
		size := r.parse(lines, 0, r.root)
		if size < 0 || r.finish(r.columns) != nil || !r.addTexts() {
			break
		}
		used = r.room.used
		lines = r.pass(lines, size)
	}
	r.row = row
	r.blocks.continues = n == 0 && r.room.full
	r.room.to = nil
	if n == 0 {
		return nil
	}
	return r.makeBlock(stride, n, limit*stride, used)
}

// copied copies a string, whose quote is at p, to the room.
func (r *parser) copied(b []byte, p int, c *column) int {
	end, n := r.copyText(r.room.to[r.room.used:], b, p+1)
	if end >= 0 {
		c.text = content{copied: true, span: record.Span{At: uint32(r.room.used), Size: uint32(n)}}
		r.room.used += n
	} else if n < 0 {
		r.room.full = true
	}
	return end
}

// addTexts adds the texts of an instance to those of the block. It returns false if they do not fit.
func (r *records) addTexts() bool {
	for _, c := range r.texts {
		text := &c.text
		if !text.copied {
			if len(text.data) > len(r.room.to)-r.room.used {
				r.room.full = true
				return false
			}
			text.span = record.Span{At: uint32(r.room.used), Size: uint32(len(text.data))}
			r.room.used += copy(r.room.to[r.room.used:], text.data)
		}
	}
	for _, c := range r.texts {
		c.spans = append(c.spans, c.text.span)
	}
	return true
}

// makeBlock makes a Block of the first n instances in the free memory, whose texts are used bytes from an offset on.
func (r *records) makeBlock(stride, n, at, used int) *record.Block {
	slots, texts := make([]pyfeed.LoDTensor, len(r.outputs)), []record.Text(nil)
	if len(r.texts) > 0 {
		texts = make([]record.Text, len(r.outputs))
		r.blocks.textBytes = (r.blocks.textBytes + 3*(used/n+1)) / 4
	}
	base, buffer := r.blocks.free[at:at+used], r.blocks.buffer
	for i := range r.outputs {
		o, slot := &r.outputs[i], &slots[i]
		if o.column != nil {
			texts[i] = record.Text{Spans: o.column.spans, Base: base, Buffer: buffer}
			continue
		}
		slot.DType, slot.Data = o.slot.DType, r.blocks.free[o.at:o.at+o.size:n*stride]
		_ = slot.SetDims(o.slot.Dims) // cannot fail: the rank was checked
	}
	if texts == nil {
		r.blocks.free = r.blocks.free[n*stride:]
		buffer.Retain(n)
		return record.NewBlock(slots, stride, n, buffer)
	}
	r.blocks.free = r.blocks.free[min((at+used+7)&^7, len(r.blocks.free)):] // aligned for the widest element
	return record.NewTextBlock(slots, texts, stride, n, buffer)
}
