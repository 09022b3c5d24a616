package parquet

import (
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// batchValues is how many levels or values are decoded at a time, where they need memory of their own.
const batchValues = 1024

// located returns an error about a row of the row group.
func (c *chunk) located(kind pyfeed.Kind, row int64, text string) error {
	e := c.in.file.Errorf(kind, c.pageAt, "%v, row group %d, row %d of the file: %s", c.leaf, c.group, c.first+row, text)
	e.Slot = c.slot
	return e
}

// nullError is the error about a null in a row. It is no damage: skipping the row would lose its other values.
func (c *chunk) nullError(row int64) error {
	if c.wrong != nil {
		return c.located(pyfeed.Invalid, row, fmt.Sprintf("expected a value, found null, for which %v cannot represent the default %q", c.dtype, *c.wrong))
	}
	return c.located(pyfeed.Invalid, row, "expected a value, found null: the option default gives one")
}

// failed makes an error of a decoder one about the page.
func (c *chunk) failed(err error) error { return c.failedIn(c.header.encoding, err) }

// failedIn makes an error of a decoder one about a part of the page.
func (c *chunk) failedIn(part any, err error) error {
	if _, is := err.(*pyfeed.Error); is || err == storage.ErrInterrupted {
		return err
	}
	return c.corrupt("%v: %v", part, err)
}

// nextRows goes to the next page if no values are left in the current one. Pages MUST follow.
func (c *chunk) nextRows() error {
	for c.left == 0 {
		more, err := c.nextPage(nil)
		if err != nil {
			return err
		}
		if !more {
			return c.corrupt("expected more rows, found the end of the pages after %d", c.row)
		}
	}
	return nil
}

// readFixed stores the elements of the next n rows in to, stride bytes apart. done is how many it has stored.
func (c *chunk) readFixed(to []byte, stride, n int) (done int, err error) {
	if err := c.skip(); err != nil {
		return 0, err
	}
	for done < n {
		if err = c.nextRows(); err != nil {
			break
		}
		k := min(n-done, c.left)
		if k, err = c.fixedRows(to[done*stride:], stride, k); err == nil || k > 0 {
			c.left -= k
			c.row += int64(k)
			done += k
		}
		if err != nil {
			err = c.failed(err)
			break
		}
	}
	if err != storage.ErrInterrupted {
		c.err = err
	}
	return done, err
}

// fixedRows stores some of the next n rows, of one page, and returns how many.
func (c *chunk) fixedRows(to []byte, stride, n int) (int, error) {
	most := c.leaf.maxDef
	if most == 0 {
		return c.values(to, stride, n, c.row)
	}
	k, value, err := c.def.constant(n)
	switch {
	case err != nil:
		return 0, err
	case k > 0 && int(value) == most:
		return c.values(to, stride, k, c.row)
	case k > 0 && int(value) > most:
		return 0, levelError(value, most)
	case k > 0:
		return c.nulls(to, stride, k, c.row)
	}
	levels := c.levelRoom(n)
	same, err := c.def.levels(levels, most)
	if err != nil {
		return 0, err
	}
	if same {
		return c.values(to, stride, len(levels), c.row)
	}
	for done := 0; done < len(levels); {
		end := done + 1
		for end < len(levels) && (int(levels[end]) == most) == (int(levels[done]) == most) {
			end++
		}
		fill := c.nulls
		if int(levels[done]) == most {
			fill = c.values
		}
		if k, err := fill(to[done*stride:], stride, end-done, c.row+int64(done)); err != nil {
			return done + k, err
		}
		done = end
	}
	return len(levels), nil
}

// levelRoom returns space for at most n levels.
func (c *chunk) levelRoom(n int) []uint8 {
	if c.levels == nil {
		c.levels = make([]uint8, batchValues)
	}
	return c.levels[:min(n, batchValues)]
}

// nulls stores the default for n values, of which the first is in a row.
func (c *chunk) nulls(to []byte, stride, n int, row int64) (int, error) {
	if c.fallback == nil && !c.skipping {
		return 0, c.nullError(row)
	}
	for i := range n {
		copy(to[i*stride:][:c.size], c.fallback)
	}
	return n, nil
}

// values stores the next n values, which are not null. The first is in a row. It returns how many it has stored.
func (c *chunk) values(to []byte, stride, n int, row int64) (int, error) {
	if c.fixed != nil && !c.converts {
		if err := c.fixed.next(to, stride, n); err != nil {
			return 0, err // how many of the values are stored is not known
		}
		return n, nil
	}
	if c.fixed == nil {
		return c.valuesOfBytes(to, stride, n, row)
	}
	size := c.physicalSize
	if c.leaf.typ == typeBoolean {
		size = 1
	}
	if len(c.scratch) < batchValues*size {
		c.scratch = make([]byte, batchValues*size)
	}
	for done := 0; done < n; {
		k := min(n-done, batchValues)
		if err := c.fixed.next(c.scratch, size, k); err != nil {
			return done, err
		}
		for i := range k {
			if err := c.convert(to[(done+i)*stride:][:c.size], c.scratch[i*size:][:size]); err != nil && !c.skipping {
				return done + i, c.conversionError(row+int64(done+i), err)
			}
		}
		done += k
	}
	return n, nil
}

// valuesOfBytes is values for byte strings that are converted, such as decimals.
func (c *chunk) valuesOfBytes(to []byte, stride, n int, row int64) (int, error) {
	var spans [256]record.Span
	for done := 0; done < n; {
		k := min(n-done, len(spans))
		if err := c.strings.next(spans[:k]); err != nil {
			return done, err
		}
		base, _ := c.strings.base()
		for i, s := range spans[:k] {
			if err := c.convert(to[(done+i)*stride:][:c.size], base[s.At:][:s.Size]); err != nil && !c.skipping {
				return done + i, c.conversionError(row+int64(done+i), err)
			}
		}
		done += k
	}
	return n, nil
}

// conversionError is the error about a value that the dtype cannot represent. In lists the row is approximate.
func (c *chunk) conversionError(row int64, err error) error {
	if c.leaf.maxRep > 0 {
		row = c.row
	}
	return c.located(pyfeed.Type, row, err.Error())
}
