package parquet

import (
	"bytes"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// listRun has the lists of some rows. Their elements lie one behind the other.
type listRun struct {
	count   int
	offsets [][]int64 // for each level, where its lists begin among those of the next level or the elements, and the end
	data    []byte
	buffer  *memory.Buffer
}

func (r *listRun) rows() int { return r.count }

func (r *listRun) hold() *memory.Buffer { return r.buffer }

// listState is what chunk.readLists has decoded but not returned.
type listState struct {
	run      *listRun
	counts   []int64 // elements of each level
	rep, def []uint8 // levels that are decoded
	at       int     // of them, that come next
	same     bool    // all definition levels are those of values
	pending  int     // values that are not decoded yet
	valid    int     // bytes of the run that are decoded
}

func (s *listState) drop() {
	if s.run != nil && s.run.buffer != nil {
		s.run.buffer.Release()
	}
	s.run = nil
}

// maxLists bounds a row: the bytes and the number of its elements. A few bytes of a file can claim any number.
const maxLists = 1 << 30

// readLists returns the lists of the next n rows, or of fewer if they have more than budget bytes. After an
// interruption, the next call goes on.
func (c *chunk) readLists(n, budget int) (*listRun, error) {
	if err := c.skip(); err != nil {
		return nil, err
	}
	s := &c.lists
	if s.run == nil {
		s.begin(c, n)
	}
	err := c.listRows(n, budget)
	if err == storage.ErrInterrupted {
		return nil, err
	}
	if err != nil {
		c.err = c.failed(err)
	}
	run := s.run
	s.run = nil
	if run.count == 0 {
		if run.buffer != nil {
			run.buffer.Release()
		}
		return nil, c.err
	}
	return run, nil
}

// begin begins a run.
func (s *listState) begin(c *chunk, n int) {
	levels := c.leaf.maxRep
	if c.text {
		levels++
	}
	s.run = &listRun{offsets: make([][]int64, levels)}
	s.run.offsets[0] = make([]int64, 0, min(n, batchValues)+1)
	s.counts, s.valid = make([]int64, levels), 0
	if s.rep == nil {
		s.rep, s.def = make([]uint8, 0, batchValues), make([]uint8, 0, batchValues)
	}
}

// listRows decodes rows into the run. If there is an error, the run has the rows before it.
func (c *chunk) listRows(n, budget int) error {
	s := &c.lists
	for {
		if s.at == len(s.rep) {
			if err := c.takeValues(); err != nil { // the values of a page have to be taken before the next page
				return c.cutRow(err)
			}
			if c.left == 0 {
				more, err := c.nextPage(nil)
				if err == storage.ErrInterrupted {
					return err
				}
				if err != nil {
					return c.cutRow(err)
				}
				if !more {
					return c.finish(true)
				}
			}
			k := min(c.left, batchValues)
			s.rep, s.def = s.rep[:k], s.def[:k]
			_, err := c.rep.levels(s.rep, c.leaf.maxRep)
			if err == nil {
				s.same, err = c.def.levels(s.def, c.leaf.maxDef)
			}
			if err != nil {
				s.rep, s.def, s.at = s.rep[:0], s.def[:0], 0
				return c.cutRow(err)
			}
			c.left -= k
			s.at = 0
		}
		full, err := c.entries(n, budget)
		if err != nil {
			return c.cutRow(err)
		}
		if full {
			if err := c.takeValues(); err != nil {
				return c.cutRow(err)
			}
			return c.finish(false)
		}
	}
}

// finish completes the run. end: no pages follow, so that the number of rows has to be that of the row group.
func (c *chunk) finish(end bool) error {
	s := &c.lists
	for level := range s.run.offsets {
		s.run.offsets[level] = append(s.run.offsets[level], s.counts[level])
	}
	c.row += int64(s.run.count)
	if end && c.row != c.rows {
		return c.corrupt("expected %d rows, found %d", c.rows, c.row)
	}
	return nil
}

// cutRow completes the run before the rows that err concerns: the last one, and those whose values are not decoded. It
// returns err.
func (c *chunk) cutRow(err error) error {
	s := &c.lists
	r := s.run
	_ = c.takeValues() // as far as they are there
	last := len(r.offsets) - 1
	have := int64(s.valid / c.size)
	lists := r.offsets
	if c.text {
		have, lists = int64(len(r.offsets[last])), r.offsets[:last]
	}
	for r.count > 0 {
		r.count--
		end := int64(r.count)
		for level, all := range lists {
			if end < int64(len(all)) {
				end = all[end]
			} else {
				end = s.counts[level]
			}
		}
		if end <= have {
			break
		}
	}
	end := int64(r.count)
	for level, all := range r.offsets {
		at := end
		if end = s.counts[level]; at < int64(len(all)) {
			end = all[at]
		}
		r.offsets[level] = append(all[:min(at, int64(len(all)))], end)
	}
	c.row += int64(r.count)
	return err
}

// entries takes decoded levels, until they are used up or the run has all its rows: then it returns true.
func (c *chunk) entries(n, budget int) (full bool, err error) {
	s := &c.lists
	r := s.run
	deepest, most := c.leaf.maxRep, c.leaf.maxDef
	elements := c.leaf.elements
	last := len(r.offsets) - 1
	for s.at < len(s.rep) {
		if s.rep[s.at] == 0 {
			if r.count == n || r.count > 0 && len(r.data)+s.pending*c.size > budget {
				return true, nil
			}
			r.count++
			r.offsets[0] = append(r.offsets[0], s.counts[0])
		} else if r.count == 0 {
			return false, c.corrupt("expected the beginning of a row, found the rest of one")
		}
		if s.same && deepest == 1 && !c.text {
			// A run of elements up to the next row.
			k := bytes.IndexByte(s.rep[s.at+1:], 0) + 1
			if k == 0 {
				k = len(s.rep) - s.at
			}
			s.counts[0] += int64(k)
			s.pending += k
			s.at += k
			continue
		}
		rep, def := int(s.rep[s.at]), int(s.def[s.at])
		s.at++
		// Lists that begin here, in elements that exist.
		for level := rep + 1; level <= deepest; level++ {
			if level > 1 {
				if def < elements[level-2] {
					break
				}
				r.offsets[level-1] = append(r.offsets[level-1], s.counts[level-1])
			}
			if def < elements[level-1]-1 && !c.hasDefault() && !c.skipping {
				return false, c.nullError(c.row + int64(r.count) - 1)
			}
		}
		for level := max(rep, 1); level <= deepest && def >= elements[level-1]; level++ {
			s.counts[level-1]++
		}
		switch {
		case def < elements[deepest-1]:
		case def == most:
			if s.pending++; c.text && s.pending == batchText {
				err = c.takeValues()
			}
		case c.fallback == nil && !c.skipping:
			return false, c.nullError(c.row + int64(r.count) - 1)
		default:
			if err = c.takeValues(); err == nil {
				if c.text {
					r.offsets[last] = append(r.offsets[last], s.counts[last])
				}
				err = c.addData(c.fallback)
			}
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// batchText is how many byte strings of a list are decoded at a time.
const batchText = 256

// addData appends bytes to the elements.
func (c *chunk) addData(data []byte) error {
	to, err := c.lists.room(c, len(data))
	if err == nil {
		copy(to, data)
		c.lists.valid += len(data)
		if c.text {
			c.lists.counts[len(c.lists.counts)-1] += int64(len(data))
		}
	}
	return err
}

// room appends n bytes to the elements, and returns them.
func (s *listState) room(c *chunk, n int) ([]byte, error) {
	r := s.run
	used := len(r.data)
	if used+n > maxLists {
		return nil, c.located(pyfeed.TooLarge, c.row+int64(r.count)-1, "expected a list of less than 1 GiB, found a larger one")
	}
	if r.buffer == nil || used+n > r.buffer.Size() {
		b, err := c.pool.Get(max(used+n, min(2*used, maxLists), listBuffer))
		if err != nil {
			return nil, err
		}
		copy(b.Bytes(), r.data)
		if r.buffer != nil {
			r.buffer.Release()
		}
		r.buffer = b
	}
	r.data = r.buffer.Bytes()[:used+n]
	return r.data[used:], nil
}

// listBuffer is the least memory for the elements of a run, in bytes.
const listBuffer = 4 << 10

// takeValues decodes the values that are pending.
func (c *chunk) takeValues() error {
	s := &c.lists
	n := s.pending
	s.pending = 0
	switch {
	case n == 0:
		return nil
	case !c.text:
		to, err := s.room(c, n*c.size)
		if err == nil {
			n, err = c.values(to, c.size, n, c.row)
			s.valid += n * c.size
		}
		return err
	}
	var spans [batchText]record.Span
	last := len(s.counts) - 1
	for done := 0; done < n; {
		k := min(n-done, len(spans))
		if err := c.strings.next(spans[:k]); err != nil {
			return err
		}
		base, _ := c.strings.base()
		for _, one := range spans[:k] {
			s.run.offsets[last] = append(s.run.offsets[last], s.counts[last])
			if err := c.addData(base[one.At:][:one.Size]); err != nil {
				return err
			}
		}
		done += k
	}
	return nil
}
