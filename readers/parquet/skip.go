package parquet

import "github.com/pyfeed/pyfeed/readers/storage"

// skip drops numToSkip rows. Pages of which all rows are dropped are not decoded, if their headers have the number of rows.
// It returns the error that ended the column, if there is one. After an interruption, the next call goes on.
func (c *chunk) skip() error {
	if c.numToSkip == 0 || c.err != nil || c.skipping {
		return c.err
	}
	c.skipping = true
	defer func() { c.skipping = false }()
	for c.numToSkip > 0 {
		k, err := c.skipSome()
		c.numToSkip -= k
		if err != nil {
			if err != storage.ErrInterrupted {
				c.err = c.failed(err)
			}
			return err
		}
	}
	return nil
}

// skipSome drops some of the next rows, and returns how many.
func (c *chunk) skipSome() (int64, error) {
	if c.left == 0 && c.lists.at == len(c.lists.rep) && c.lists.run == nil {
		more, err := c.nextPage(func(h *pageHeader) bool {
			rows := int64(h.values)
			if c.leaf.maxRep > 0 {
				if rows = int64(h.rows); h.kind != pageDataV2 || rows < 0 {
					return false
				}
			}
			if rows > c.numToSkip {
				return false
			}
			c.numToSkip -= rows
			c.row += rows
			return true
		})
		if err != nil {
			return 0, err
		}
		if !more && c.numToSkip > 0 {
			return 0, c.corrupt("expected more rows, found the end of the pages after %d", c.row)
		}
	}
	n := int(min(c.numToSkip, batchValues))
	switch {
	case n == 0:
		return 0, nil
	case c.kind == fixedOutput:
		k, err := c.readFixed(make([]byte, n*c.size), c.size, n)
		return int64(k), err
	case c.kind == bytesOutput:
		run, err := c.readText(n)
		if run == nil {
			return 0, err
		}
		run.buffer.Release()
		return int64(run.rows()), err
	}
	run, err := c.readLists(n, listBudget)
	if run == nil {
		return 0, err
	}
	if run.buffer != nil {
		run.buffer.Release()
	}
	return int64(run.rows()), err
}
