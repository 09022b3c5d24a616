package memory

// An Arena cuts many small pieces from a few large buffers. It is for values that a reader makes for each record. Only
// one goroutine may call it at a time; any thread may release the pieces.
type Arena struct {
	pool  *Pool
	block *Buffer
	at    int
}

const arenaBlock = 256 << 10

// NewArena makes an Arena that allocates its buffers from a Pool.
func NewArena(pool *Pool) *Arena { return &Arena{pool: pool} }

// Get returns n bytes aligned to 16 bytes, and the buffer that contains them. The caller owns one new reference to the
// buffer. The contents are undefined.
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
	a.at += (n + 15) &^ 15 // alignment of the widest element
	a.block.Retain(1)
	return piece, a.block, nil
}

// Close releases the current buffer.
func (a *Arena) Close() {
	if a.block != nil {
		a.block.Release()
		a.block, a.at = nil, 0
	}
}

// Full reports whether more than three quarters of the current buffer are used, or there is none.
func (a *Arena) Full() bool { return a.block == nil || a.at > arenaBlock*3/4 }
