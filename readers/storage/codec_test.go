package storage

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// maxCompression returns data as a Sink compresses it.
func maxCompression(t testing.TB, compression string, data []byte) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "packed")
	write(t, name, compression, data)
	all, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// contents writes a file of that name and returns the data that a File reads from it.
func contents(t testing.TB, name string, data []byte, o Options) ([]byte, error) {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(name, o, pool(t))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

func isDamage(err error, words ...string) bool {
	e, is := err.(*pyfeed.Error)
	return is && e.Kind == pyfeed.Corrupt && e.At != nil && e.At.Offset >= 0 &&
		!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) })
}

// chunksOf returns the offsets of the chunks of snappy's framing.
func chunksOf(data []byte) (all []int) {
	for at := 0; at < len(data); at += 4 + int(binary.LittleEndian.Uint32(data[at:])>>8) {
		all = append(all, at)
	}
	return all
}

// Decoders skip any chunk of snappy's framing with a type from 0x80 on, so one flipped bit could drop a chunk of data.
func TestAFlippedTypeOfASnappyChunkIsDamage(t *testing.T) {
	data := noise(300_000)
	whole := maxCompression(t, "snappy", data)
	whole, data = append(whole, whole...), append(data, data...)
	chunks := chunksOf(whole)
	if len(chunks) < 12 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for _, at := range chunks {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << bit
			got, err := contents(t, "x.bin", flipped, Options{Compression: "snappy"})
			if !isDamage(err, "decompressing: ") || !bytes.HasPrefix(data, got) {
				t.Errorf("chunk at %d, bit %d: %d of %d bytes, %v", at, bit, len(got), len(data), err)
			}
		}
	}
}

func TestSkippableSnappyChunksAreSkippedOnRequest(t *testing.T) {
	data := noise(100_000)
	whole := maxCompression(t, "snappy", data)
	for _, kind := range []byte{0x80, 0x99, 0xfd, 0xfe} {
		for _, at := range append(chunksOf(whole)[1:], len(whole)) {
			mixed := slices.Concat(whole[:at], []byte{kind, 3, 0, 0, 'a', 'b', 'c'}, whole[at:])
			if got, err := contents(t, "x.sz", mixed, Options{Compression: "snappy-skippable"}); err != nil || !bytes.Equal(got, data) {
				t.Errorf("type %#x at %d: %d bytes, %v", kind, at, len(got), err)
			}
			if _, err := contents(t, "x.sz", mixed, Options{}); !isDamage(err, "0x00, 0x01 or 0xff", "snappy-skippable") {
				t.Errorf("type %#x at %d: %v", kind, at, err)
			}
		}
	}
	if _, err := Create(filepath.Join(t.TempDir(), "x"), "snappy-skippable"); err == nil {
		t.Error("a Sink accepted snappy-skippable")
	}
}

// Concatenated streams are read as one; anything else after a stream is damage.
func TestDataAfterAStreamIsAnError(t *testing.T) {
	sizes := []int{0, 5, 300_000, 2*blockSize + 1}
	if testing.Short() {
		sizes = []int{0, 5, 100_000}
	}
	for _, kind := range kinds[1:] {
		for _, size := range sizes {
			data := noise(size)
			whole := maxCompression(t, kind, data)
			got, err := contents(t, "x", slices.Concat(whole, whole, whole), Options{Compression: kind})
			if err != nil || !bytes.Equal(got, slices.Concat(data, data, data)) {
				t.Errorf("%s, three streams of %d bytes: found %d, %v", kind, size, len(got), err)
			}
			for _, garbage := range []string{"x", "\n", "garbage", strings.Repeat("garbage", 100), string(whole[:len(whole)-1])} {
				got, err := contents(t, "x", append(bytes.Clone(whole), garbage...), Options{Compression: kind})
				if !isDamage(err, "decompressing: ") || !bytes.HasPrefix(slices.Concat(data, data), got) {
					t.Errorf("%s, %d bytes followed by %.7q: found %d, %v", kind, size, garbage, len(got), err)
				}
			}
		}
	}
}

var suffixes = map[string]string{".gz": "gzip", ".GZ": "gzip", ".tgz": "gzip", ".tar.gz": "gzip", ".raw.zst": "zstd", ".sz": "snappy", ".zlib": "zlib", ".gz-00000-of-00005": "gzip"}

// A file whose suffix stands for a compression is never read uncompressed.
func TestSuffixMustMatchTheBytes(t *testing.T) {
	large := 200_000
	if testing.Short() {
		large = smallFile + 1
	}
	for suffix, kind := range suffixes {
		for _, size := range []int{0, 10, large} {
			data := noise(size)
			whole := maxCompression(t, kind, data)
			for _, io := range []string{"auto", "read", "map"} {
				if got, err := contents(t, "x"+suffix, whole, Options{IO: io}); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s, %s, %d bytes: found %d, %v", suffix, io, size, len(got), err)
				}
				for _, bit := range []int{0, 7} {
					flipped := bytes.Clone(whole)
					flipped[0] ^= 1 << bit
					if _, err := contents(t, "x"+suffix, flipped, Options{IO: io}); !isDamage(err) {
						t.Errorf("%s, %s, %d bytes, bit %d: %v", suffix, io, size, bit, err)
					}
					got, err := contents(t, "x"+suffix, flipped, Options{IO: io, Compression: "none"})
					if err != nil || !bytes.Equal(got, flipped) {
						t.Errorf("%s, %s, compression none: found %d, %v", suffix, io, len(got), err)
					}
				}
				if _, err := contents(t, "x"+suffix, data, Options{IO: io}); !isDamage(err, kind, suffixOf(suffix)) {
					t.Errorf("%s, %s, %d bytes that are not compressed: %v", suffix, io, size, err)
				}
			}
		}
	}
}

// An empty file, such as a failed download, is not an empty data set.
func TestEmptyFileIsNotCompressed(t *testing.T) {
	for suffix, kind := range suffixes {
		for _, o := range []Options{{}, {IO: "map"}, {IO: "read"}, {Compression: kind}} {
			if _, err := contents(t, "x"+suffix, nil, o); !isDamage(err, "expected "+kind+" data", "found an empty file") {
				t.Errorf("%s, %+v: %v", suffix, o, err)
			}
		}
		if _, err := contents(t, "x", nil, Options{Compression: kind}); !isDamage(err, "expected "+kind+" data") {
			t.Errorf("no suffix, %s: %v", kind, err)
		}
	}
}

// Some programs write a skippable frame before the first frame of zstd.
func TestASkippableFrameBeginsZstd(t *testing.T) {
	data := noise(100)
	for kind := range byte(16) {
		whole := append([]byte{0x50 + kind, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'a', 'b'}, maxCompression(t, "zstd", data)...)
		if got, err := contents(t, "x.zst", whole, Options{}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%#x: %d bytes, %v", 0x50+kind, len(got), err)
		}
	}
}

func TestAPipeIsCompressedAsItsNameSays(t *testing.T) {
	for _, c := range []struct {
		data []byte
		ok   bool
	}{{maxCompression(t, "gzip", []byte("data")), true}, {[]byte("data"), false}, {nil, false}} {
		name := fifo(t)
		named := name + ".gz"
		if err := os.Rename(name, named); err != nil {
			t.Fatal(err)
		}
		written := writeLater(named, c.data)
		f, err := Open(named, Options{Interrupt: new(Interrupt)}, pool(t))
		if failed := <-written; failed != nil {
			t.Fatal(failed)
		}
		if !c.ok {
			if !isDamage(err) {
				t.Errorf("%q: %v", c.data, err)
			}
			continue
		}
		got, err := readAll(f)
		if err != nil || string(got) != "data" {
			t.Errorf("found %q, %v", got, err)
		}
		f.Close()
	}
}

// A Sink refuses a compression that readers of the file would refuse.
func TestAFileIsCompressedAsItsSuffixSays(t *testing.T) {
	for suffix, kind := range suffixes {
		for _, requested := range append([]string{"", "auto"}, kinds...) {
			s, err := Create(filepath.Join(t.TempDir(), "x"+suffix), requested)
			if fits := requested == "" || requested == "auto" || requested == kind; fits != (err == nil) {
				t.Errorf("%s, compression %q: %v", suffix, requested, err)
			}
			if e, _ := err.(*pyfeed.Error); err != nil && (e.Kind != pyfeed.Invalid || !strings.Contains(e.Text, "expected "+kind)) {
				t.Errorf("%s, compression %q: %v", suffix, requested, err)
			}
			if err == nil {
				s.Abort()
			}
		}
	}
}
