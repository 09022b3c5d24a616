package parquet

import (
	"errors"
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// tileBytes is the size of the memory for the numbers of the rows that are decoded together. It should stay in a core's
// cache until they are copied.
const tileBytes = 256 << 10

// maxTileRows is how many rows are decoded together at most.
const maxTileRows = 16 << 10

// run has decoded rows of a column that is not in the tile of numbers.
type run interface {
	rows() int
	hold() *memory.Buffer // its memory; nil: it has none
}

// part is a run of which some rows are used.
type part struct {
	run
	from int
}

func (p *part) left() int {
	if p.run == nil {
		return 0
	}
	return p.rows() - p.from
}

func (p *part) drop() {
	if p.run != nil && p.hold() != nil {
		p.hold().Release()
	}
	p.run = nil
}

// slab has decoded rows of all columns. It holds a reference to each buffer.
type slab struct {
	n     int
	tile  *memory.Buffer // the numbers of the rows; nil: there are none
	room  int            // instances that the tile is for, at least n
	parts []part         // by column; of those that are in the tile, nothing
}

func (s *slab) release() {
	if s.tile != nil {
		s.tile.Release()
	}
	for i := range s.parts {
		s.parts[i].drop()
	}
}

// bytes returns about how much memory the slab holds.
func (s *slab) bytes() (n int) {
	if s.tile != nil {
		n = s.tile.Size()
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.run != nil && p.hold() != nil {
			n += p.hold().Size()
		}
	}
	return n
}

// groupReader decodes the rows of a row group, some at a time. One goroutine at a time uses it.
type groupReader struct {
	*table
	pool   *memory.Pool
	chunks []*chunk
	parts  []part // by column
	left   int64  // rows
	rows   int    // to decode together
	limit  int    // the same for the next call of decode, which doubles it
	budget int    // bytes of lists to decode together, for each column
	err    error  // the error behind the last row that was decoded

	n      int // rows of the slab that is being decoded; 0: none is
	tile   *memory.Buffer
	room   int // instances that the tile is for
	column int // that is decoded next
	done   int // rows of it that are decoded
}

func (g *groupReader) close() {
	for _, c := range g.chunks {
		c.close()
	}
	for i := range g.parts {
		g.parts[i].drop()
	}
	if g.tile != nil {
		g.tile.Release()
		g.tile = nil
	}
	if g.err == nil {
		g.err = errClosed
	}
}

var errClosed = errors.New("expected an open row group, found one that is closed")

// inTile reports whether a column is decoded directly into the tile.
func (c *column) inTile() bool { return c.kind == fixedOutput }

// next decodes the next rows, at most limit. It returns nil behind the last row. After an interruption, the next call
// goes on.
func (g *groupReader) next(limit int) (*slab, error) {
	if g.err != nil || g.left == 0 {
		return nil, g.err
	}
	if g.n == 0 {
		n, err := g.readRuns(int(min(int64(limit), int64(g.rows), g.left)))
		if err != nil {
			if err != storage.ErrInterrupted {
				g.err = err
			}
			return nil, err
		}
		if g.row > 0 {
			if g.tile, err = g.pool.Get(n * g.row); err != nil {
				return nil, err
			}
		}
		g.n, g.room, g.column, g.done = n, n, 0, 0
	}
	for ; g.column < len(g.columns); g.column, g.done = g.column+1, 0 {
		c := &g.columns[g.column]
		switch {
		case c.inTile():
			at, stride := g.place(c, g.room)
			k, err := g.chunks[g.column].readFixed(g.tile.Bytes()[at+g.done*stride:], stride, g.n-g.done)
			g.done += k
			if err == storage.ErrInterrupted {
				return nil, err
			}
			if err != nil {
				g.cut(g.done, err)
			}
		case c.kind == vectorOutput:
			g.copyVectors(g.column)
		}
	}
	return g.take()
}

// decode returns the next rows; nil behind the last one. After an interruption, the next call goes on.
func (g *groupReader) decode() (*slab, error) {
	s, err := g.next(g.limit)
	if s != nil {
		g.limit = min(2*g.limit, maxTileRows)
	}
	return s, err
}

// skip skips the next n rows. It returns false if they have to be decoded from the beginning of the row group.
func (g *groupReader) skip(n int64) bool {
	if g.err != nil || g.n > 0 || n > g.left {
		return false
	}
	for i, c := range g.chunks {
		p := &g.parts[i]
		k := min(n, int64(p.left()))
		if p.from += int(k); p.left() == 0 {
			p.drop()
		}
		c.numToSkip += n - k
	}
	g.left -= n
	g.limit = firstRows
	return true
}

// cut ends the row group after the first n rows of the slab.
func (g *groupReader) cut(n int, err error) { g.n, g.err = n, err }

// readRuns makes sure that the columns with runs have some of the next n rows, and returns how many.
func (g *groupReader) readRuns(n int) (int, error) {
	for i := range g.columns {
		c := g.chunks[i]
		if c.inTile() {
			continue
		}
		p := &g.parts[i]
		if p.left() == 0 {
			p.drop()
			var err error
			if c.kind == bytesOutput {
				var r *textRun
				if r, err = c.readText(n); r != nil {
					*p = part{r, 0}
				}
			} else {
				var r *listRun
				if r, err = c.readLists(n, g.budget); r != nil {
					*p = part{r, 0}
				}
			}
			if err != nil {
				return 0, err
			}
		}
		n = min(n, p.left())
	}
	return n, nil
}

// copyVectors copies the lists of a column, which have a given length, into the tile.
func (g *groupReader) copyVectors(i int) {
	c, p := &g.columns[i], &g.parts[i]
	lists := p.run.(*listRun)
	size := c.count * c.size
	at, stride := g.place(c, g.room)
	to := g.tile.Bytes()[at:]
	for k := range g.n {
		from, end := lists.offsets[0][p.from+k], lists.offsets[0][p.from+k+1]
		if int(end-from) != c.count {
			row := g.chunks[i].rows - g.left + int64(k)
			g.cut(k, g.chunks[i].located(pyfeed.Shape, row, fmt.Sprintf("expected a list of %d elements, as dims say, found one of %d", c.count, end-from)))
			return
		}
		copy(to[k*stride:][:size], lists.data[int(from)*c.size:])
	}
}

// take returns the slab that is decoded.
func (g *groupReader) take() (*slab, error) {
	n, tile := g.n, g.tile
	g.n, g.tile = 0, nil
	if n == 0 {
		if tile != nil {
			tile.Release()
		}
		return nil, g.err
	}
	s := &slab{n: n, tile: tile, room: g.room}
	if g.ragged > 0 {
		s.parts = make([]part, len(g.columns))
	}
	for i := range g.columns {
		p := &g.parts[i]
		if p.run == nil {
			continue
		}
		if g.columns[i].kind != vectorOutput {
			s.parts[i] = *p
			if b := p.hold(); b != nil {
				b.Retain(1)
			}
		}
		p.from += n
	}
	g.left -= int64(n)
	return s, nil
}
