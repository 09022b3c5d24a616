package npy

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// BenchmarkChain reads files of one instance each, as shuffled batches of 32.
func BenchmarkChain(b *testing.B) {
	const count = 4000
	for _, size := range []int64{4 << 10, 64 << 10} {
		dir := b.TempDir()
		head := Header(pyfeed.Float32, pyfeed.Dims{size / 1024, 256})
		for i := range count {
			data := append(head[:len(head):len(head)], make([]byte, size)...)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.npy", i)), data, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		for _, threads := range []int{1, 2} {
			for _, ordered := range []bool{true, false} {
				b.Run(fmt.Sprintf("bytes=%d/threads=%d/ordered=%v", size, threads, ordered), func(b *testing.B) {
					h := chain(b, fmt.Sprintf(`{"filenames": [%q], "options": {"instances": "file"}, "num_threads": %d, "ordered": %v}`, dir, threads, ordered))
					defer h.Drop()
					b.SetBytes(size)
					b.ReportAllocs()
					var before, after syscall.Rusage
					_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
					out := make([]*pyfeed.Tuple, 8)
					n := 0
					for n < b.N {
						got, err := h.ReadMany(context.Background(), out)
						if err == io.EOF {
							err = h.ReInit()
						}
						if err != nil {
							b.Fatal(err)
						}
						pyfeed.ReleaseAll(out[:got])
						n += 32 * got
					}
					_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
					cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
					b.ReportMetric(float64(cpu)/float64(n), "cpu-ns/op")
					b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(n), "sleeps/op")
				})
			}
		}
	}
}

func chain(b *testing.B, attributes string) *readers.ReaderHolder {
	b.Helper()
	var h *readers.ReaderHolder
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	for _, step := range [][2]string{
		{"open_files", attributes},
		{"create_shuffle_reader", `{"buffer_size": 1000, "seed": 1}`},
		{"create_batch_reader", `{"batch_size": 32}`},
	} {
		var in []*readers.ReaderHolder
		if h != nil {
			in = append(in, h)
		}
		r, err := ops.MakeNow(scope, step[0], in, []byte(step[1]))
		if err != nil {
			b.Fatal(err)
		}
		h = readers.NewHolder(r)
	}
	return h
}
