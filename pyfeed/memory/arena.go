package memory

// An Arena hands out many small pieces of a few large buffers: for values that a reader makes anew, record
// after record. One caller at a time; the pieces may be released by any thread.
type Arena struct {
	pool  *Pool
	block *Buffer
	at    int
}

const arenaBlock = 256 << 10

// NewArena makes an Arena that takes its buffers from a Pool.
func NewArena(pool *Pool) *Arena { return &Arena{pool: pool} }

// Get is n bytes, aligned to 16 bytes at least, with whatever was in them, and the buffer they lie in, which has
// one reference more for them.
func (a *Arena) Get(n int) ([]byte, *Buffer, error) {
	if n > arenaBlock/4 {
		b, err := a.pool.Get(n)
		if err != nil {
			return nil, nil, err
		}
		return b.Bytes(), b, nil
	}
	if a.block == nil || a.at+n > arenaBlock {
		a.Close()
		b, err := a.pool.Get(arenaBlock)
		if err != nil {
			return nil, nil, err
		}
		a.block, a.at = b, 0
	}
	piece := a.block.Bytes()[a.at : a.at+n : a.at+n]
	a.at += (n + 15) &^ 15 // the widest element
	a.block.Retain(1)
	return piece, a.block, nil
}

// Close lets go of the buffer in use.
func (a *Arena) Close() {
	if a.block != nil {
		a.block.Release()
		a.block, a.at = nil, 0
	}
}

// Full says whether most of the buffer in use is handed out.
func (a *Arena) Full() bool { return a.block == nil || a.at > arenaBlock*3/4 }
