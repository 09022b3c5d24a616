package parquet

import (
	"os"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// BenchmarkBlocks decodes the file that PYFEED_PARQUET_FILE names, as blocks.
func BenchmarkBlocks(b *testing.B) {
	path := os.Getenv("PYFEED_PARQUET_FILE")
	if path == "" {
		b.Skip("PYFEED_PARQUET_FILE names no file")
	}
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	rows := 0
	for b.Loop() {
		r, err := Open(path, &record.Config{Pool: pool})
		if err != nil {
			b.Fatal(err)
		}
		var chunk record.Chunk
		for r.(*records).next < r.(*records).count {
			block := r.(record.BlockReader).ReadBlock(record.ChunkSize)
			if block == nil {
				b.Fatal("no block")
			}
			rows += block.Len()
			chunk.AddBlock(block)
			chunk.Release()
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
}
