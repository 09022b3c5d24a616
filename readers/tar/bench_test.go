package tar

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// archive writes n samples of a jpg of size bytes and a cls, with pax headers like WebDataset's TarWriter, or without.
func archive(b *testing.B, n, size int, pax bool) string {
	path := filepath.Join(b.TempDir(), "bench.tar")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	var all []byte
	for i := range n {
		key := fmt.Sprintf("%09d", i)
		for _, m := range []struct {
			ext  string
			data []byte
		}{{"cls", []byte(fmt.Sprint(i % 1000))}, {"jpg", payload}} {
			if pax {
				record := appendPax(nil, "mtime", []byte("1700000000.1234567"))
				h := newBlock(nil, []byte("././@PaxHeader"), len(record), typePax)
				all = append(all, h[:]...)
				all = append(all, record...)
				all = append(all, zeros[:roundToBlocks(len(record))-len(record)]...)
			}
			h := newBlock(nil, []byte(key+"."+m.ext), len(m.data), typeRegular)
			all = append(all, h[:]...)
			all = append(all, m.data...)
			all = append(all, zeros[:roundToBlocks(len(m.data))-len(m.data)]...)
		}
		if len(all) > 1<<20 {
			f.Write(all)
			all = all[:0]
		}
	}
	f.Write(append(all, zeros[:1024]...))
	f.Close()
	return path
}

func benchmark(b *testing.B, n, size int, pax bool) {
	c := record.Config{Options: &Options{Fields: []Field{{Name: "jpg"}, {Name: "cls"}}}}
	tested.Benchmark(b, archive(b, n, size, pax), c, nil)
}

func BenchmarkSmall(b *testing.B)    { benchmark(b, 20000, 100, false) }
func BenchmarkKilobyte(b *testing.B) { benchmark(b, 20000, 1024, false) }
func BenchmarkPax(b *testing.B)      { benchmark(b, 20000, 1024, true) }
func BenchmarkLarge(b *testing.B)    { benchmark(b, 200, 1<<20, false) }
