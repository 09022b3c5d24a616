package record

import "github.com/pyfeed/pyfeed/pyfeed"

// AllSpans reports whether the instances are of Blocks that have byte strings in the given slots, and only there, and the
// same dtypes and dims in the other slots; or tuples like these, which often lie between Blocks.
func (c *Chunk) AllSpans(inSlot func(i int) bool) bool {
	if len(c.blocks) == 0 || c.blocks[0].texts == nil {
		return false
	}
	first := c.blocks[0].Block
	for i := range first.first.Slots {
		if first.HasSpans(i) != inSlot(i) {
			return false
		}
	}
	for i := range c.blocks[1:] {
		other := c.blocks[1+i].Block
		if bothStrings := first.isString() && other.isString(); !bothStrings && !alike(first, other) {
			return false
		}
	}
	for _, t := range c.tuples {
		if t != nil && !first.matches(t) {
			return false
		}
	}
	return true
}

// matches reports whether a tuple has one byte string in each slot with spans, and the layout of the Block in the others.
func (b *Block) matches(t *pyfeed.Tuple) bool {
	if len(t.Slots) != len(b.first.Slots) {
		return false
	}
	for i := range t.Slots {
		s := &t.Slots[i]
		if !b.HasSpans(i) {
			if !sameSlot(&b.first.Slots[i], s) {
				return false
			}
		} else if s.DType != pyfeed.Uint8 || s.Place != pyfeed.CPUPlace() || len(s.Dims()) != 1 || len(s.LoD) != 1 || len(s.LoD[0]) != 2 {
			return false
		}
	}
	return true
}

// AppendSpanEnds appends, for each instance, the total size of a slot of all instances up to and including it. AllSpans
// MUST hold for the slot.
func (c *Chunk) AppendSpanEnds(ends []int64, slot int) []int64 {
	total := 0
	for _, it := range c.items[c.front:] {
		if it.block == tupleItem {
			total += len(c.tuples[it.index].Slots[slot].Data)
		} else {
			total += int(c.blocks[it.block].texts[slot].Spans[it.index].Size)
		}
		ends = append(ends, int64(total))
	}
	return ends
}

// CopySpans copies a slot of the instances first to end-1 into consecutive memory. AllSpans MUST hold for the slot. An
// error may be a [Damage].
func (c *Chunk) CopySpans(to []byte, slot, first, end int) error {
	for i, it := range c.items[c.front:][first:end] {
		if it.block == tupleItem {
			t := &c.tuples[it.index].Slots[slot]
			pyfeed.Copy(to, t.Data)
			if err := t.CheckTruncated(slot); err != nil {
				return err
			}
			to = to[len(t.Data):]
			continue
		}
		b := c.blocks[it.block].Block
		text := &b.texts[slot]
		s := text.Spans[it.index]
		if b.checksum == nil {
			pyfeed.Copy(to, text.Base[s.At:][:s.Size])
		} else if err := b.copySpan(to, int(it.index)); err != nil {
			return &Damage{first + i, err}
		}
		to = to[s.Size:]
	}
	return nil
}
