package recordio

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// BenchmarkRead reads a mapped file in the page cache.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		size, n int
		o       Options
	}{
		{100, 200000, Options{Records: "bytes"}}, {1 << 20, 128, Options{Records: "bytes"}},
		{100, 200000, Options{Records: "bytes", Layout: "go"}},
		{100, 200000, Options{Records: "tensors"}}, {1 << 20, 128, Options{Records: "tensors"}},
		{100, 200000, Options{Records: "tensors", Compression: "snappy"}}, {1 << 20, 128, Options{Records: "tensors", Compression: "snappy"}},
		{1 << 20, 128, Options{Records: "bytes", Layout: "go", Compression: "gzip"}},
	} {
		b.Run(fmt.Sprintf("%s/%d%s%s", c.o.Records, c.size, c.o.Layout, c.o.Compression), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "a.rio")
			tuple := tupleOf([]fluidTensor{{pyfeed.Uint8, []int64{int64(c.size)}, nil, pseudo(c.size, 1)}})
			if err := tested.Write(b, path, &record.Config{Options: &c.o}, slices.Repeat([]*pyfeed.Tuple{tuple}, c.n)...); err != nil {
				b.Fatal(err)
			}
			tested.Benchmark(b, path, record.Config{Options: &c.o}, nil)
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, o := range []Options{{}, {Compression: "snappy"}, {Layout: "go", Compression: "snappy"}} {
		for _, size := range []int{100, 1 << 20} {
			b.Run(fmt.Sprintf("%d%s%s", size, o.Layout, o.Compression), func(b *testing.B) {
				w, err := Create(filepath.Join(b.TempDir(), "a.rio"), &record.Config{Options: &o})
				if err != nil {
					b.Fatal(err)
				}
				defer w.Abort()
				t := tupleOf([]fluidTensor{{pyfeed.Uint8, []int64{int64(size)}, nil, pseudo(size, 1)}})
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if err := w.Write(t); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
