package tfrecord

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// What tensorflow 2.21.0 writes: an Example of the features a, b, c, d and e, and an empty record; "abc" and an empty
// record with compression_type ZLIB and GZIP.
var (
	goldenExample = formattest.Hex("0a520a160a016112111a0f0a0d01feffffffffffffffff01ac020a110a0162120c120a0a080000003f00000040" +
		"0a0d0a016312080a060a0278790a000a0d0a016412080a060a046a7065670a070a016512021200")
	goldenFile = formattest.Hex("54000000000000005f514587 0a520a160a016112111a0f0a0d01feffffffffffffffff01ac020a110a0162120c120a0a08" +
		"0000003f000000400a0d0a016312080a060a0278790a000a0d0a016412080a060a046a7065670a070a016512021200 2e00d97a" +
		"000000000000000029039807 d8ea82a2")
	goldenZlib = formattest.Hex("789c636680800d333df9129392f3c23f2a424518349967b0df78d5b40800735d0852")
	goldenGzip = formattest.Hex("1f8b0800000000000003636680800d333df9129392f3c23f2a424518349967b0df78d5b40800234ab4ed23000000")
)

func TestGoldenFile(t *testing.T) {
	for _, limit := range []int{1, 7} {
		seen, err := all(t, inMemory(t, config(t, ""), goldenFile), limit)
		formattest.ExpectTexts(t, seen, fmt.Sprintf("%q", goldenExample), `""`)
		if err != nil {
			t.Error(err)
		}
	}
	if found := file(string(goldenExample), ""); !bytes.Equal(found, goldenFile) {
		t.Errorf("expected %x, found %x", goldenFile, found)
	}
}

func TestGoldenCompression(t *testing.T) {
	for name, data := range map[string][]byte{"zlib": goldenZlib, "gzip": goldenGzip} {
		for _, compression := range []string{"", name} {
			for _, r := range []record.Records{
				inMemory(t, config(t, fmt.Sprintf(`{"compression": %q}`, compression)), data),
				onDisk(t, config(t, fmt.Sprintf(`{"compression": %q}`, compression)), data),
			} {
				seen, err := all(t, r, 4)
				formattest.ExpectTexts(t, seen, `"abc"`, `""`)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	c := config(t, `{"compression": "none"}`)
	_, err := all(t, inMemory(t, c, goldenZlib), 4)
	formattest.Expect(t, err, pyfeed.Corrupt, "a file, byte 0, record 0: CRC of the length, ")
	formattest.Expect(t, err, pyfeed.Corrupt, ": is it a TFRecord file?")
}

func TestEmptyZlibAndFalseZlibHeaders(t *testing.T) {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Close()
	seen, err := all(t, inMemory(t, config(t, ""), packed.Bytes()), 4)
	formattest.ExpectTexts(t, seen)
	if err != nil {
		t.Error(err)
	}
	// The length of the first record begins like zlib. A bit after it is wrong.
	plain := file(strings.Repeat("x", 0x9c78), "next")
	plain[9] ^= 1
	r := inMemory(t, config(t, ""), plain)
	_, err = all(t, r, 4)
	formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the length, 40056: expected ")
	if err = r.Resync(); err != nil {
		t.Error(err)
	}
	seen, err = all(t, r, 4)
	formattest.ExpectTexts(t, seen, `"next"`)
	if err != nil {
		t.Error(err)
	}
}

func TestLengthCRC(t *testing.T) {
	var b [8]byte
	for _, n := range []uint64{0, 1, 100, 255, 256, 65535, 65536, 1 << 31, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1, 0x0123456789abcdef, 0xff00ff0000000000} {
		binary.LittleEndian.PutUint64(b[:], n)
		if want := mask(crc32.Checksum(b[:], castagnoli)); lengthCRC(n) != want || crc(b[:]) != want {
			t.Errorf("%d: expected %#x, found %#x and %#x", n, want, lengthCRC(n), crc(b[:]))
		}
	}
	long := bytes.Repeat([]byte("0123456789"), 400_000)
	if crc(long) != mask(crc32.Checksum(long, castagnoli)) {
		t.Error("the CRC of 4 MB differs from that of its pieces")
	}
}

func TestRecordsOfEverySize(t *testing.T) {
	var contents, want []string
	for i, n := range []int{0, 1, 7, 8, 9, 100, 4096, 100_000, 1 << 20, 1<<20 + 1, 3 << 20, 0, 5} {
		contents = append(contents, strings.Repeat(fmt.Sprint(i%10), n))
		want = append(want, fmt.Sprintf("%q", contents[i]))
	}
	for range 10_000 {
		contents, want = append(contents, "small"), append(want, `"small"`)
	}
	data := file(contents...)
	streamed := config(t, "")
	streamed.Storage.IO = "read"
	mapped := onDisk(t, config(t, ""), data)
	if !mapped.(*records).f.IsMapped() {
		t.Error("expected a mapped file")
	}
	for name, r := range map[string]record.Records{
		"memory": inMemory(t, config(t, ""), data), "mapped": mapped, "streamed": onDisk(t, streamed, data),
		"gzip": onDisk(t, config(t, ""), formattest.Gzip(data)),
	} {
		seen, err := all(t, r, 100)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(seen) != len(want) {
			t.Fatalf("%s: expected %d records, found %d", name, len(want), len(seen))
		}
		for i := range seen {
			if seen[i] != want[i] {
				t.Errorf("%s: record %d of %d bytes differs", name, i, len(contents[i]))
			}
		}
		if err = r.Resync(); err != io.EOF {
			t.Errorf("%s: expected the end, found %v", name, err)
		}
	}
}

func TestRecordsAreViews(t *testing.T) {
	c := config(t, "")
	c.Storage.IO = "map"
	r := onDisk(t, c, file("hello", "world")).(*records)
	tuples := []*pyfeed.Tuple{pyfeed.NewTuple(1), pyfeed.NewTuple(3)}
	defer pyfeed.ReleaseAll(tuples)
	if n, err := r.Read(tuples); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	b, _ := r.f.Peek(0)
	if len(b) != 0 {
		t.Fatalf("expected the end, found %d bytes", len(b))
	}
	r.Close()
	for i, want := range []string{"hello", "world"} {
		s := &tuples[i].Slots[0]
		if len(tuples[i].Slots) != 1 || string(s.Data) != want || !s.ReadOnly || !s.InHeap || fmt.Sprint(s.LoD) != "[[0 5]]" {
			t.Errorf("found %q, read-only %v, offsets in the heap %v, LoD %v", s.Data, s.ReadOnly, s.InHeap, s.LoD)
		}
	}
	if live := memory.Count().Live[memory.File]; live != 0 {
		t.Errorf("%d bytes were copied", live)
	}
}

func TestEmptyFile(t *testing.T) {
	for _, r := range []record.Records{inMemory(t, config(t, ""), nil), onDisk(t, config(t, ""), nil)} {
		seen, err := all(t, r, 3)
		formattest.ExpectTexts(t, seen)
		if err != nil {
			t.Error(err)
		}
	}
}

func TestEveryTruncation(t *testing.T) {
	records := []string{"first", "", "the third"}
	data := file(records...)
	ends := map[int]int{0: 0}
	end := 0
	for i, r := range records {
		end += frameSize + len(r)
		ends[end] = i + 1
	}
	for n := range data {
		for _, io := range []string{"map", "read"} {
			c := config(t, "")
			c.Storage.IO = io
			if n == 0 {
				c.Storage.IO = ""
			}
			r := onDisk(t, c, data[:n])
			seen, err := all(t, r, 10)
			if whole, is := ends[n]; is {
				if err != nil || len(seen) != whole {
					t.Errorf("%d bytes: expected %d records, found %d, %v", n, whole, len(seen), err)
				}
				continue
			}
			e := formattest.Expect(t, err, pyfeed.Corrupt, "found the end of the file")
			if int(e.At.Record) != len(seen) || ends[int(e.At.Offset)] != len(seen) {
				t.Errorf("%d bytes: %d records, then %v", n, len(seen), err)
			}
			if err = r.Resync(); err.Error() != "EOF" {
				t.Errorf("expected nothing after it, found %v", err)
			}
		}
	}
}

func TestEveryFlippedBit(t *testing.T) {
	records := []string{"first", "", "the third", "4", "5"}
	data := file(records...)
	var owner []int // the record of each byte
	for i, r := range records {
		for range frameSize + len(r) {
			owner = append(owner, i)
		}
	}
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		r := inMemory(t, config(t, ""), data)
		seen, err := all(t, r, 10)
		hit := owner[bit/8]
		e := formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the ")
		if int(e.At.Record) != hit || len(seen) != hit {
			t.Fatalf("bit %d: expected damage in record %d, found %d records and %v", bit, hit, len(seen), err)
		}
		if err = r.Resync(); hit == len(records)-1 {
			if err != io.EOF {
				t.Fatalf("bit %d: expected the end, found %v", bit, err)
			}
		} else if err != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		rest, err := all(t, r, 10)
		if err != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		seen = append(seen, rest...)
		var want []string
		for i, r := range records {
			if i != hit {
				want = append(want, fmt.Sprintf("%q", r))
			}
		}
		formattest.ExpectTexts(t, seen, want...)
		data[bit/8] ^= 1 << (bit % 8)
	}
}

func TestDamageHasLocationAndCause(t *testing.T) {
	data := file("first", "second")
	data[frameSize+len("first")+headerSize] = 'S'
	_, err := all(t, inMemory(t, config(t, ""), data), 1)
	e := formattest.Expect(t, err, pyfeed.Corrupt, fmt.Sprintf("a file, byte 33, record 1: CRC of the data, 6 bytes: expected %#08x, found %#08x",
		crc([]byte("second")), crc([]byte("Second"))))
	if e.At.Offset != 33 || e.At.Record != 1 || e.Slot != -1 {
		t.Errorf("found %+v", e)
	}
}

func TestAdversarialLengths(t *testing.T) {
	for _, n := range []uint64{7, 1 << 31, 1 << 40, 1<<40 + 1, 1 << 46, 1<<63 - 16, 1 << 63, 1<<64 - 16, 1<<64 - 1} {
		data := binary.LittleEndian.AppendUint64(file("first"), n)
		data = binary.LittleEndian.AppendUint32(data, lengthCRC(n))
		data = append(data, "short"...)
		for _, io := range []string{"map", "read"} {
			c := config(t, "")
			c.Storage.IO = io
			r := onDisk(t, c, data)
			seen, err := all(t, r, 5)
			formattest.ExpectTexts(t, seen, `"first"`)
			text := "bytes of data and 4 of their CRC, found the end of the file after 5: the record is truncated"
			if n > maxLength {
				text = fmt.Sprintf("length: expected at most 1099511627776, found %d", n)
			}
			formattest.Expect(t, err, pyfeed.Corrupt, text)
			if err = r.Resync(); err.Error() != "EOF" {
				t.Errorf("expected nothing after it, found %v", err)
			}
		}
	}
}

func TestResyncFindsVerifiedRecords(t *testing.T) {
	// After the damage: a header without its record, then a header whose data is wrong.
	lie := binary.LittleEndian.AppendUint64(nil, 1000)
	lie = binary.LittleEndian.AppendUint32(lie, lengthCRC(1000))
	wrong := file("wrong")
	wrong[headerSize] ^= 1
	damaged := file(strings.Repeat("lost", 100_000))
	damaged[0] ^= 0x10
	data := bytes.Join([][]byte{file("first"), damaged, lie, wrong, file("found", "last")}, nil)
	for _, io := range []string{"map", "read"} {
		c := config(t, "")
		c.Storage.IO = io
		r := onDisk(t, c, data)
		seen, err := all(t, r, 10)
		formattest.ExpectTexts(t, seen, `"first"`)
		formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the length")
		if strings.Contains(err.Error(), "is it a TFRecord file?") { // it is: its first record was right
			t.Error(err)
		}
		if err = r.Resync(); err != nil {
			t.Fatal(err)
		}
		seen, err = all(t, r, 10)
		formattest.ExpectTexts(t, seen, `"found"`, `"last"`)
		if err != nil {
			t.Error(err)
		}
		if err = r.Resync(); err.Error() != "EOF" {
			t.Error(err)
		}
	}
}

func TestResyncSearchIsBounded(t *testing.T) {
	// Many lengths with a right CRC are each followed by much data with a wrong one.
	const n = 200_000
	data := []byte("no header at all")
	for len(data) < 2*n {
		data = binary.LittleEndian.AppendUint64(data, n)
		data = binary.LittleEndian.AppendUint32(data, lengthCRC(n))
	}
	r := inMemory(t, config(t, ""), data)
	_, err := all(t, r, 1)
	formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the length")
	if err = r.Resync(); err != nil {
		t.Fatal(err)
	}
	_, err = all(t, r, 1)
	formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the data")
	if offset := r.f.Offset(); offset > 12*(maxSearched/n+10) {
		t.Errorf("Resync went on to byte %d", offset)
	}
}

func TestBrokenCompression(t *testing.T) {
	packed := formattest.Gzip(file("first", "second", strings.Repeat("third", 1000)))
	r := inMemory(t, config(t, ""), packed[:len(packed)-30])
	seen, err := all(t, r, 10)
	formattest.ExpectTexts(t, seen, `"first"`, `"second"`)
	formattest.Expect(t, err, pyfeed.Corrupt, "decompressing: ")
	if err = r.Resync(); err != io.EOF {
		t.Error(err)
	}
	// The stream breaks while Resync searches: the search ends there, and Read returns the error.
	damaged := file("first", strings.Repeat("second", 10_000))
	damaged[frameSize+5] ^= 1
	packed = formattest.Gzip(damaged)
	r = inMemory(t, config(t, ""), packed[:len(packed)-6])
	_, err = all(t, r, 10)
	formattest.Expect(t, err, pyfeed.Corrupt, "CRC of the length")
	if err = r.Resync(); err != nil {
		t.Fatal(err)
	}
	_, err = all(t, r, 10)
	formattest.Expect(t, err, pyfeed.Corrupt, "decompressing: ")
	if err = r.Resync(); err != io.EOF {
		t.Error(err)
	}
}

func TestFileThatShrinks(t *testing.T) {
	c := config(t, "")
	path := formattest.File(t, "a.tfrecord", file("first", strings.Repeat("x", 100_000), "last"))
	r, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err = os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	_, err = all(t, r, 1)
	formattest.Expect(t, err, pyfeed.Corrupt, "the file shrank while it was read")
	if err = r.CheckTruncated(); err == nil {
		t.Error("expected the file to have shrunk")
	}
	if err = r.Resync(); err != io.EOF {
		t.Errorf("expected no more records, found %v", err)
	}
}

func TestReadingAllocatesNothingPerRecord(t *testing.T) {
	var data []byte
	for range 101 * 256 {
		data = appendRecord(data, goldenExample)
	}
	features := `{"features": [{"name": "a", "dtype": "int64", "shape": [3]}, {"name": "b", "dtype": "float32", "shape": [2]},
		{"name": "c", "kind": "variable", "dtype": "bytes"}, {"name": "d", "dtype": "bytes"}]}`
	for _, options := range []string{"", features} {
		path := formattest.File(t, "a.tfrecord", data)
		if n := tested.Allocations(t, path, config(t, options), 100); n > 12 {
			t.Errorf("%q: %v allocations for 256 records", options, n)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	c := config(t, `{"compression": "snappy"}`)
	_, err := Open("nowhere", c)
	formattest.Expect(t, err, pyfeed.Invalid, `compression: expected none, gzip or zlib, found "snappy"`)
	_, err = Create(filepath.Join(t.TempDir(), "a"), c)
	formattest.Expect(t, err, pyfeed.Invalid, `compression: expected none, gzip or zlib, found "snappy"`)
	c.Options, c.Storage = nil, storage.Options{Compression: "zstd"}
	_, err = Create(filepath.Join(t.TempDir(), "a"), c)
	formattest.Expect(t, err, pyfeed.Invalid, `compression: expected none, gzip or zlib, found "zstd"`)
	r, err := Open(filepath.Join(t.TempDir(), "nowhere"), config(t, ""))
	formattest.Expect(t, err, pyfeed.IO, "no such file")
	if r != nil {
		t.Error("expected nil with an error")
	}
}
