package decorators

import (
	"math"
	"sort"
	"strconv"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// batchGrid computes where each batch of a pass begins in the reader below: at a multiple of the batch size, until a batch
// fails, or is smaller because of an error or the end of the pass. Each such place is a break, from which the multiples
// count anew.
type batchGrid struct {
	size int64

	// The next fields are the reading goroutine's own.
	pass    uint64
	batches int64 // of the pass, that were taken and have not failed
	taken   int64 // instances of the pass, without those left out
	leftOut int64 // instances after those taken, of a batch that is too small to be delivered

	mu     sync.Mutex
	breaks []batchBreak // ascending, without old ones
	oldest batchBreak   // the last one that was forgotten
	isCut  bool         // no batch follows the last break in its pass
}

// batchBreak says that a batch of a pass begins at an instance.
type batchBreak struct {
	pass            uint64
	batch, instance int64
}

// maxBreaks bounds the memory for breaks. Readers above read far fewer batches ahead.
const maxBreaks = 1 << 16

// begin begins a pass.
func (g *batchGrid) begin(pass uint64) {
	g.pass, g.batches, g.taken, g.leftOut = pass, 0, 0, 0
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isCut = false
}

// took notes that instances were taken as a batch. It returns where the batch begins.
func (g *batchGrid) took(instances int) batchBreak {
	begin := batchBreak{g.pass, g.batches, g.taken}
	g.taken += int64(instances)
	g.batches++
	return begin
}

// cut notes that a batch would begin with a damaged record: it is not delivered, and nor are those behind it, which were
// perhaps taken already. The lock of the reader is not held.
func (g *batchGrid) cut(at batchBreak) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.breaks); g.isCut && g.breaks[n-1].batch <= at.batch {
		return
	}
	for n := len(g.breaks); n > 0 && !at.isBehind(g.breaks[n-1].pass, g.breaks[n-1].batch); n-- {
		g.breaks = g.breaks[:n-1]
	}
	g.isCut = true
	g.add(at)
}

// leaveOut notes that instances were taken that belong to no batch. The position after the batches so far stays before
// these instances until more are read. A reader above may have read ahead, and after a resume the instances may be
// delivered: if the error after them does not occur again, or for another number of ranks.
func (g *batchGrid) leaveOut(instances int) { g.leftOut += int64(instances) }

// passLeftOut notes that instances were read after those left out.
func (g *batchGrid) passLeftOut() {
	if g.leftOut > 0 {
		g.taken, g.leftOut = g.taken+g.leftOut, 0
		g.align()
	}
}

// failed notes that the last batch was not delivered after all.
func (g *batchGrid) failed() {
	g.batches--
	g.align()
}

// align adds a break unless the next batch begins where expected.
func (g *batchGrid) align() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isCut {
		return
	}
	for n := len(g.breaks); n > 0 && g.breaks[n-1].isBehind(g.pass, g.batches); n-- {
		g.breaks = g.breaks[:n-1] // it was behind a batch that has failed
	}
	begin := g.breakBefore(g.pass, g.batches)
	if begin.instance+(g.batches-begin.batch)*g.size == g.taken {
		return
	}
	g.add(batchBreak{g.pass, g.batches, g.taken})
}

// add adds a break behind the others. The lock is held.
func (g *batchGrid) add(at batchBreak) {
	if len(g.breaks) == maxBreaks {
		g.oldest = g.breaks[maxBreaks/2-1]
		g.breaks = append(g.breaks[:0], g.breaks[maxBreaks/2:]...)
	}
	g.breaks = append(g.breaks, at)
}

// isBehind reports whether the break is behind a batch.
func (b *batchBreak) isBehind(pass uint64, batch int64) bool {
	return b.pass > pass || b.pass == pass && b.batch > batch
}

// breakBefore returns the last break at or before a batch. The lock is held.
func (g *batchGrid) breakBefore(pass uint64, batch int64) batchBreak {
	n := sort.Search(len(g.breaks), func(i int) bool {
		return g.breaks[i].isBehind(pass, batch)
	})
	if n > 0 && g.breaks[n-1].pass == pass {
		return g.breaks[n-1]
	}
	return batchBreak{pass: pass}
}

// locate returns where a batch begins, and the break that this depends on.
func (g *batchGrid) locate(p readers.Position) (below readers.Position, from batchBreak, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.oldest.isBehind(p.Pass, p.N) {
		return p, from, pyfeed.Errorf(pyfeed.State, "batch: expected a position at most %d smaller batches back, found pass %d, batch %d", maxBreaks/2, p.Pass, p.N)
	}
	from = g.breakBefore(p.Pass, p.N)
	return g.multiple(p, from), from, nil
}

// multiple is the position of a batch behind a break.
func (g *batchGrid) multiple(p readers.Position, from batchBreak) readers.Position {
	n := p.N - from.batch
	if n > (math.MaxInt64-from.instance)/g.size {
		return readers.Position{Pass: p.Pass, N: math.MaxInt64}
	}
	return readers.Position{Pass: p.Pass, N: from.instance + n*g.size}
}

// batchState is the part of a batch reader in a state, if there was a break.
type batchState struct {
	Batch    int64 `json:"batch"`
	Instance int64 `json:"instance"` // of all processes together
}

func (b *batchBreak) appendState(to []byte) []byte {
	to = strconv.AppendInt(append(to, `{"batch":`...), b.batch, 10)
	to = strconv.AppendInt(append(to, `,"instance":`...), b.instance, 10)
	return append(to, '}')
}

// restore goes to a batch, and returns where it begins.
func (g *batchGrid) restore(p readers.Position, is batchState) (readers.Position, error) {
	if is.Batch < 0 || is.Batch > p.N || is.Instance < 0 {
		return p, pyfeed.Errorf(pyfeed.Invalid, "state: batch: expected a batch from 0 to %d, found %d at instance %d", p.N, is.Batch, is.Instance)
	}
	from := batchBreak{p.Pass, is.Batch, is.Instance}
	below := g.multiple(p, from)
	g.mu.Lock()
	g.breaks, g.oldest, g.isCut = nil, batchBreak{}, false
	if from != (batchBreak{pass: p.Pass}) {
		g.breaks = []batchBreak{from}
	}
	g.mu.Unlock()
	g.pass, g.batches, g.taken, g.leftOut = p.Pass, p.N, below.N, 0
	return below, nil
}
