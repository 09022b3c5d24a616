package record

import (
	"hash/crc32"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Instances of one Block that are moved in several calls are verified also if the Chunk had others of that Block before.
func TestVerifyInstancesThatWereMovedInParts(t *testing.T) {
	released(t)
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	const n, size = 6, minLate
	buffer, err := pool.Get(n * size)
	if err != nil {
		t.Fatal(err)
	}
	clear(buffer.Bytes())
	intact := crc32.ChecksumIEEE(make([]byte, size))
	spans := make([]Span, n)
	for i := range spans {
		spans[i] = Span{At: uint32(i * size), Size: size}
	}
	buffer.Bytes()[4*size+1] = 1 // damages the fifth
	buffer.Retain(n - 1)
	b := NewSpanBlock(buffer.Bytes(), spans, buffer)
	b.VerifyLate(&Checksum{Table: crc32.IEEETable, Piece: 1 << 10, Stored: func([]byte, Span) uint32 { return intact },
		Describe: func(_, _, _ uint32) string { return "damaged" }}, 0)
	var from, to Chunk
	defer from.Release()
	defer to.Release()
	from.AddBlock(b)
	for _, moved := range []int{2, 1, 3} {
		before := to.Checkpoint()
		from.MoveTo(&to, moved)
		if err := to.Verify(before, nil); (err != nil) != (from.Len() == 0) || err != nil && !pyfeed.IsKind(err, pyfeed.Corrupt) {
			t.Errorf("%d more: found %v", moved, err)
		}
	}
	if to.Len() != 4 {
		t.Errorf("expected the 4 instances before the damaged one, found %d", to.Len())
	}
}
