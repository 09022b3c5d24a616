package parquet

import (
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// textRun has the byte strings of some rows. They lie in one buffer.
type textRun struct {
	base   []byte
	buffer *memory.Buffer
	spans  []record.Span
}

func (r *textRun) rows() int { return len(r.spans) }

func (r *textRun) hold() *memory.Buffer { return r.buffer }

// maxTextRows is how many byte strings are decoded at a time.
const maxTextRows = 4096

// readText returns the byte strings of some of the next n rows, of one page, with a reference to their memory.
func (c *chunk) readText(n int) (*textRun, error) {
	if err := c.skip(); err != nil {
		return nil, err
	}
	err := c.nextRows()
	var run *textRun
	if err == nil {
		k := min(n, c.left, maxTextRows)
		if c.made != nil {
			k = min(k, len(c.made.sizes))
		}
		run, err = c.textRows(k)
		if run != nil {
			c.left -= len(run.spans)
			c.row += int64(len(run.spans))
		}
	}
	if err != nil {
		err = c.failed(err)
	}
	if err != storage.ErrInterrupted {
		c.err = err
	}
	if run != nil {
		err = nil // the next call returns it
	}
	return run, err
}

// textRows decodes n byte strings. It may return some together with an error about the one behind them.
func (c *chunk) textRows(n int) (*textRun, error) {
	most := c.leaf.maxDef
	if most == 0 {
		return c.texts(n)
	}
	k, value, err := c.def.constant(n)
	switch {
	case err != nil:
		return nil, err
	case k > 0 && int(value) == most:
		return c.texts(k)
	case k > 0 && int(value) > most:
		return nil, levelError(value, most)
	case k > 0 && c.fallback == nil && !c.skipping:
		return nil, c.nullError(c.row)
	case k > 0:
		return c.defaults(k)
	}
	levels := c.levelRoom(n)
	same, err := c.def.levels(levels, most)
	if err != nil {
		return nil, err
	}
	if same {
		return c.texts(len(levels))
	}
	if c.fallback == nil && !c.skipping {
		for i, level := range levels {
			if int(level) != most && i == 0 {
				return nil, c.nullError(c.row)
			}
			if int(level) != most {
				run, err := c.texts(i)
				if err == nil {
					err = c.nullError(c.row + int64(i))
				}
				return run, err
			}
		}
	}
	values := 0
	for _, level := range levels {
		if int(level) == most {
			values++
		}
	}
	if values == 0 {
		return c.defaults(len(levels))
	}
	run, err := c.texts(values)
	if err != nil {
		return nil, err
	}
	if len(c.fallback) > 0 {
		if run, err = c.withDefault(run); err != nil {
			return nil, err
		}
	}
	all := make([]record.Span, len(levels))
	at := 0
	for i, level := range levels {
		if int(level) == most {
			all[i] = run.spans[at]
			at++
		} else {
			all[i] = record.Span{At: uint32(len(run.base) - len(c.fallback)), Size: uint32(len(c.fallback))}
		}
	}
	run.spans = all
	return run, nil
}

// texts decodes n byte strings that are not null.
func (c *chunk) texts(n int) (*textRun, error) {
	spans := make([]record.Span, n)
	if err := c.strings.next(spans); err != nil {
		return nil, err
	}
	base, buffer := c.strings.base()
	buffer.Retain(1)
	return &textRun{base, buffer, spans}, nil
}

// defaults returns the default for n rows.
func (c *chunk) defaults(n int) (*textRun, error) {
	b, err := c.pool.Get(max(len(c.fallback), 1))
	if err != nil {
		return nil, err
	}
	run := &textRun{b.Bytes()[:len(c.fallback)], b, make([]record.Span, n)}
	copy(run.base, c.fallback)
	for i := range run.spans {
		run.spans[i].Size = uint32(len(c.fallback))
	}
	return run, nil
}

// withDefault copies a run to memory that ends with the default. It takes over the reference of the run.
func (c *chunk) withDefault(run *textRun) (*textRun, error) {
	defer run.buffer.Release()
	size := len(c.fallback)
	for _, s := range run.spans {
		size += int(s.Size)
	}
	b, err := c.pool.Get(size)
	if err != nil {
		return nil, err
	}
	out := b.Bytes()[:0]
	for i, s := range run.spans {
		run.spans[i].At = uint32(len(out))
		out = append(out, run.base[s.At:][:s.Size]...)
	}
	return &textRun{append(out, c.fallback...), b, run.spans}, nil
}
