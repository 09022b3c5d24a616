package ops_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
)

// BenchmarkSmallRecords moves records of 100 bytes from a mapped file through shuffle and batch.
func BenchmarkSmallRecords(b *testing.B) {
	path := filepath.Join(b.TempDir(), "small.cut")
	const size, records = 100, 1 << 20
	if err := os.WriteFile(path, make([]byte, size*records), 0o600); err != nil {
		b.Fatal(err)
	}
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	for _, step := range []struct{ op, out, in, attributes string }{
		{"open_files", "files", "", `{"filenames": ["` + path + `"], "slots": [{"dtype": "uint8", "dims": [100]}], "num_threads": 1}`},
		{"create_shuffle_reader", "shuffled", "files", `{"buffer_size": 10000, "seed": 1}`},
		{"create_batch_reader", "batches", "shuffled", `{"batch_size": 256}`},
	} {
		var in []string
		if step.in != "" {
			in = []string{step.in}
		}
		if err := ops.Create(scope, step.op, step.out, in, []byte(step.attributes)); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"files", "shuffled", "batches"} {
		b.Run(name, func(b *testing.B) {
			h, err := readers.FindHolder(scope, name)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Drop()
			if err := h.ReInit(); err != nil {
				b.Fatal(err)
			}
			out := make([]*pyfeed.Tuple, record.ChunkSize)
			n := 0
			b.SetBytes(size)
			b.ReportAllocs()
			for n < b.N {
				got, err := h.ReadMany(background, out)
				if err == io.EOF {
					if err = h.ReInit(); err != nil {
						b.Fatal(err)
					}
					continue
				}
				if err != nil {
					b.Fatal(err)
				}
				if n += got; name == "batches" {
					n += got*256 - got
				}
				pyfeed.ReleaseAll(out[:got])
			}
		})
	}
}
