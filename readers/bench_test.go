package readers

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// cut reads records of one size with nothing around them: the least a format can do.
type cut struct {
	f    *storage.File
	size int
}

func init() {
	MustRegister(Format{Tag: "cut", Suffixes: []string{".cut"}, Open: func(path string, c *Config) (Records, error) {
		f, err := storage.Open(path, c.Storage, c.Pool)
		if err != nil {
			return nil, err
		}
		return &cut{f, int(c.Slots[0].Dims[0])}, nil
	}})
}

func (r *cut) Read(out []*pyfeed.Tuple) (int, error) {
	for i, t := range out {
		b, err := r.f.Peek(r.size)
		if err != nil || len(b) == 0 {
			if i == 0 && err == nil {
				err = io.EOF
			}
			return i, err
		}
		if len(b) < r.size {
			return i, r.f.Corrupt(r.f.Offset(), -1, "expected %d bytes, found %d", r.size, len(b))
		}
		s := &t.Slots[0]
		s.DType = pyfeed.Uint8
		_ = s.SetDims(pyfeed.Dims{int64(r.size)})
		s.ReadOnly = true
		s.Hold(b[:r.size:r.size], r.f.Hold(1))
		r.f.Skip(r.size)
	}
	return len(out), nil
}

func (r *cut) Resync() error { return io.EOF }
func (r *cut) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *cut) Unchanged() error { return r.f.Unchanged() }
func (r *cut) Close()           { r.f.Close() }

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
		{"open_files", "files", "", `{"filenames": ["` + path + `"], "slots": [{"dtype": "uint8", "dims": [100]}], "thread_num": 1}`},
		{"create_shuffle_reader", "shuffled", "files", `{"buffer_size": 10000, "seed": 1}`},
		{"create_batch_reader", "batches", "shuffled", `{"batch_size": 256}`},
	} {
		var in []string
		if step.in != "" {
			in = []string{step.in}
		}
		if err := Create(scope, step.op, step.out, in, []byte(step.attributes)); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"files", "shuffled", "batches"} {
		b.Run(name, func(b *testing.B) {
			h, err := find(scope, name)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Drop()
			if err := h.ReInit(); err != nil {
				b.Fatal(err)
			}
			out := make([]*pyfeed.Tuple, chunkSize)
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
