package npz

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var tested = formattest.Format{Suffix: ".npz", Open: Open, Begin: open, Create: Create}

// from opens a file in memory.
func from(data []byte, c record.Config, pool *memory.Pool) (record.Records, error) {
	c.Pool = pool
	return tested.Memory(data, &c)
}

func options(o Options) record.Config { return record.Config{Options: &o} }

// array is an array of a test: as stored in the file, and as it is read.
type array struct {
	name     string
	dtype    pyfeed.DType
	dims     pyfeed.Dims
	in, want []byte
}

// file returns the member of the array.
func (a array) file() []byte { return a.in }

func npyFile(head string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	return append(append(b, head...), data...)
}

// matrix makes an int16 array of two dimensions, in any order.
func matrix(name string, rows, columns int, fortran, swapped bool) array {
	a := array{name: name, dtype: pyfeed.Int16, dims: pyfeed.Dims{int64(rows), int64(columns)}}
	data := make([]byte, 2*rows*columns)
	a.want = make([]byte, 0, len(data))
	order, word := "<", "False"
	if swapped {
		order = ">"
	}
	if fortran {
		word = "True"
	}
	for i := range rows {
		for j := range columns {
			v := uint16(i*columns+j)*257 ^ uint16(len(name))
			a.want = binary.NativeEndian.AppendUint16(a.want, v)
			at := i*columns + j
			if fortran {
				at = i + j*rows
			}
			if swapped {
				binary.BigEndian.PutUint16(data[2*at:], v)
			} else {
				binary.LittleEndian.PutUint16(data[2*at:], v)
			}
		}
	}
	a.in = npyFile(fmt.Sprintf("{'descr': '%si2', 'fortran_order': %s, 'shape': (%d, %d), }\n", order, word, rows, columns), data)
	return a
}

// archive makes a zip archive.
func archive(t testing.TB, method uint16, arrays ...array) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, a := range arrays {
		name := a.name
		if !strings.Contains(name, ".") {
			name += ".npy"
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = w.Write(a.file())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// all reads n tuples at a time, to the end or an error. It returns the concatenated data of each slot.
func all(t testing.TB, r record.Records, n int) (got [][]byte, count int, err error) {
	t.Helper()
	slots, names, err := r.(record.Describer).Describe()
	if err != nil || len(slots) != len(names) {
		t.Fatal(slots, names, err)
	}
	spec, err := pyfeed.NewSpec(slots)
	if err != nil {
		t.Fatal(err)
	}
	got = make([][]byte, len(slots))
	count, err = formattest.Drain(t, r, n, func(_ int, tuple *pyfeed.Tuple) {
		if err := spec.Check(tuple); err != nil {
			t.Fatal(err)
		}
		for i := range tuple.Slots {
			got[i] = append(got[i], tuple.Slots[i].Data...)
		}
	})
	if err == io.EOF {
		err = nil
	}
	return got, count, err
}

// numpy.savez and savez_compressed of NumPy 2.4.6: x=np.arange(6, dtype="i2").reshape(3, 2),
// y=np.asfortranarray(np.arange(6, dtype=">f4").reshape(3, 2))
var golden = []string{
	"UEsDBC0AAAAAAAAAIQB1iCO7//////////8FABQAeC5ucHkBABAAjAAAAAAAAACMAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJzxpMicsICdmb3J0cmFuX29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgzLCAyKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAABAAIAAwAEAAUAUEsDBC0AAAAAAAAAIQBHxKb1//////////8FABQAeS5ucHkBABAAmAAAAAAAAACYAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJz5mNCcsICdmb3J0cmFuX29yZGVyJzogVHJ1ZSwgJ3NoYXBlJzogKDMsIDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAAAAEAAAABAgAAAP4AAAEBAAABAoAAAUEsBAi0DLQAAAAAAAAAhAHWII7uMAAAAjAAAAAUAAAAAAAAAAAAAAIABAAAAAHgubnB5UEsBAi0DLQAAAAAAAAAhAEfEpvWYAAAAmAAAAAUAAAAAAAAAAAAAAIABwwAAAHkubnB5UEsFBgAAAAACAAIAZgAAAJIBAAAAAA==",
	"UEsDBC0AAAAIAAAAIQB1iCO7//////////8FABQAeC5ucHkBABAAjAAAAAAAAABSAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG6TaaSuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GsY6CkaaOgq1CmQDLgYGRgYmBmYGFgZWBgBQSwMELQAAAAgAAAAhAEfEpvX//////////wUAFAB5Lm5weQEAEACYAAAAAAAAAFcAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpdmoq6joJ6WX1RSlJgXn1+UkgoSDykqTQUKF2ckFqQCuRrGOgpGmjoKtQrkAy4GIHAA4QYGBnsgdgByHBYwMAAAUEsBAi0DLQAAAAgAAAAhAHWII7tSAAAAjAAAAAUAAAAAAAAAAAAAAIABAAAAAHgubnB5UEsBAi0DLQAAAAgAAAAhAEfEpvVXAAAAmAAAAAUAAAAAAAAAAAAAAIABiQAAAHkubnB5UEsFBgAAAAACAAIAZgAAABcBAAAAAA==",
}

func TestReadsNumPysFiles(t *testing.T) {
	var x, y []byte
	for i := range 6 {
		x = binary.NativeEndian.AppendUint16(x, uint16(i))
		y = binary.NativeEndian.AppendUint32(y, []uint32{0, 0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000}[i])
	}
	for _, g := range golden {
		data, err := base64.StdEncoding.DecodeString(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {Instances: "file"}} {
			tested.EachWay(t, data, options(o), func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				slots, names, err := r.(record.Describer).Describe()
				if err != nil || fmt.Sprint(names) != "[x y]" || slots[0].DType != pyfeed.Int16 || slots[1].DType != pyfeed.Float32 {
					t.Fatal(slots, names, err)
				}
				got, n, err := all(t, r, 2)
				if want := map[string]int{"": 3, "file": 1}[o.Instances]; err != nil || n != want {
					t.Fatalf("expected %d instances, found %d, %v", want, n, err)
				}
				if !bytes.Equal(got[0], x) || !bytes.Equal(got[1], y) {
					t.Fatalf("found %x, %x", got[0], got[1])
				}
				if err := r.CheckTruncated(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestOrders(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		for _, rows := range []int{0, 1, 5, 6_000} {
			arrays := []array{matrix("a", rows, 15, false, false), matrix("bb", rows, 25, false, true), matrix("ccc", rows, 10, true, false),
				matrix("dddd", rows, 45, true, true), matrix("empty", rows, 0, false, false)}
			data := archive(t, method, arrays...)
			for _, o := range []Options{{}, {Instances: "file"}} {
				if testing.Short() && rows > 5 && (method == zip.Store) == (o.Instances == "file") {
					continue
				}
				t.Run(fmt.Sprint(method, rows, o.Instances), func(t *testing.T) {
					tested.EachWay(t, data, options(o), func(t *testing.T, r record.Records, err error) {
						if err != nil {
							t.Fatal(err)
						}
						got, count, err := all(t, r, 300)
						want := rows
						if o.Instances == "file" {
							want = 1
						}
						if err != nil || count != want {
							t.Fatalf("expected %d instances, found %d, %v", want, count, err)
						}
						for i, a := range arrays {
							if !bytes.Equal(got[i], a.want) {
								t.Fatalf("array %s: other data than was written", a.name)
							}
						}
					})
				})
			}
		}
	}
}

// Stored members of a mapped file are views: they need no memory, and stay valid when the file is closed.
func TestViews(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		arrays := []array{matrix("x", 1000, 3, false, false), matrix("y", 1000, 300, false, false)}
		path := formattest.File(t, "a.npz", archive(t, zip.Store, arrays...))
		r, err := Open(path, &record.Config{Pool: pool, Storage: storage.Options{IO: "map"}})
		if err != nil {
			t.Fatal(err)
		}
		out := make([]*pyfeed.Tuple, 1000)
		pyfeed.NewTuples(out, 2)
		if n, err := r.Read(out); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
		if live := memory.Count().Live[memory.File]; live != 0 {
			t.Errorf("expected no memory for a mapped file, found %d bytes", live)
		}
		r.Close()
		var got [2][]byte
		for _, tuple := range out {
			for i := range got {
				if !tuple.Slots[i].ReadOnly {
					t.Error("expected a read-only view")
				}
				got[i] = append(got[i], tuple.Slots[i].Data...)
			}
		}
		pyfeed.ReleaseAll(out)
		if !bytes.Equal(got[0], arrays[0].want) || !bytes.Equal(got[1], arrays[1].want) {
			t.Error("other data than was written")
		}
	})
}

func TestRowsCostNoAllocation(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			const times, rows = 50, 51 * 256
			path := formattest.File(t, "a.npz", archive(t, method, matrix("x", rows, 30, false, false), matrix("y", rows, 3, false, true)))
			if n := tested.Allocations(t, path, &record.Config{Pool: pool}, times); n > 2 {
				t.Errorf("%d: expected no allocation for each of 256 rows, found %v for all of them", method, n)
			}
		})
	}
}

func TestChoice(t *testing.T) {
	x, y, z := matrix("x", 2, 1, false, false), matrix("y", 2, 2, false, false), matrix("z", 2, 3, false, false)
	note := array{name: "note.txt", in: []byte("hello")}
	data := archive(t, zip.Store, x, note, y, z)
	for _, c := range []struct {
		config record.Config
		want   []array
	}{
		{record.Config{}, []array{x, y, z}},
		{record.Config{Options: &Options{Arrays: []string{"z", "x"}}}, []array{z, x}},
		{record.Config{Names: []string{"y", "x"}, Slots: make([]pyfeed.Slot, 2)}, []array{y, x}},
		{record.Config{Names: []string{"image", "label"}, Options: &Options{Arrays: []string{"z", "x"}}}, []array{z, x}},
		{record.Config{Names: []string{"y", ""}}, []array{x, y, z}},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(data, c.config, pool)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, names, _ := r.(record.Describer).Describe()
			got, n, err := all(t, r, 5)
			if err != nil || n != 2 || len(got) != len(c.want) {
				t.Fatal(n, len(got), err)
			}
			for i, a := range c.want {
				if names[i] != a.name || !bytes.Equal(got[i], a.want) {
					t.Errorf("slot %d: expected %s, found %s", i, a.name, names[i])
				}
			}
		})
	}
}

func TestScalars(t *testing.T) {
	scalar := array{name: "s", in: npyFile("{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", []byte{9})}
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := from(archive(t, zip.Store, scalar, matrix("x", 1, 2, false, false)), record.Config{}, pool)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, n, err := all(t, r, 2)
		if err != nil || n != 1 || got[0][0] != 9 {
			t.Fatal(got, n, err)
		}
	})
}

// patched overwrites bytes of the n-th entry of the directory, from the offset at in the entry.
func patched(data []byte, n, at int, with ...byte) []byte {
	data = bytes.Clone(data)
	entry := 0
	for range n + 1 {
		entry += 4 + bytes.Index(data[entry+4:], []byte("PK\x01\x02"))
	}
	copy(data[entry+at:], with)
	return data
}

func TestRefused(t *testing.T) {
	x, y := matrix("x", 3, 2, false, false), matrix("yy", 3, 1, false, false)
	stored, deflated := archive(t, zip.Store, x, y), archive(t, zip.Deflate, x, y)
	short := func(a array, n int) array { a.in = a.in[:len(a.in)+n]; return a }
	odd := func(head string) array { return array{name: "o", in: npyFile(head, make([]byte, 8))} }
	u32 := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	for _, c := range []struct {
		data   []byte
		config record.Config
		kind   pyfeed.Kind
		text   string
	}{
		{nil, record.Config{}, pyfeed.Corrupt, "expected a zip archive, which ends with its directory"},
		{stored[:len(stored)-1], record.Config{}, pyfeed.Corrupt, "expected a zip archive"},
		{x.in, record.Config{}, pyfeed.Corrupt, "expected a zip archive"},
		{archive(t, zip.Store), record.Config{}, pyfeed.Slots, "expected members called *.npy, which are arrays, found none"},
		{archive(t, zip.Store, array{name: "a.txt"}), record.Config{}, pyfeed.Slots, "found none"},
		{archive(t, zip.Store, x, x), record.Config{}, pyfeed.Corrupt, `found two called "x.npy"`},
		{stored, options(Options{Arrays: []string{"x", "q"}}), pyfeed.Slots, `expected an array "q", found "x", "yy"`},
		{stored, options(Options{Arrays: []string{"x", "yyy"}}), pyfeed.Slots, `expected an array "yyy", found "x", "yy": did you mean "yy"?`},
		{stored, record.Config{Names: []string{"x", "label"}}, pyfeed.Slots, `slot 1: expected an array with the slot's name, "label", found "x", "yy": other names can be given in the option arrays`},
		{stored, options(Options{Arrays: []string{"x", "x"}}), pyfeed.Invalid, `found "x" twice`},
		{stored, options(Options{Arrays: []string{}}), pyfeed.Invalid, "expected at least 1 name"},
		{stored, options(Options{Arrays: []string{""}}), pyfeed.Invalid, "expected names of 1 to"},
		{stored, options(Options{Instances: "no"}), pyfeed.Invalid, `expected rows or file, found "no"`},
		{stored, options(Options{Compression: "lzma"}), pyfeed.Invalid, `expected none or deflate, found "lzma"`},
		{archive(t, zip.Store, x, matrix("yy", 4, 1, false, false)), record.Config{}, pyfeed.Shape,
			`array "yy": slot 1: first dimension: expected 3, as in array "x", found 4`},
		{archive(t, zip.Store, odd("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n")), record.Config{}, pyfeed.Type, `array "o": dtype: `},
		{archive(t, zip.Deflate, odd("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n")), record.Config{}, pyfeed.Type, `array "o": dtype: `},
		{archive(t, zip.Store, array{name: "o", in: npyFile("{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807, 0), }\n", nil)}), record.Config{}, pyfeed.Corrupt, "without data"},
		{archive(t, zip.Store, array{name: "x", in: []byte("hello")}), record.Config{}, pyfeed.Corrupt, `array "x": expected an npy file`},
		{archive(t, zip.Deflate, array{name: "x", in: []byte("hello")}), record.Config{}, pyfeed.Corrupt, `array "x": expected an npy file`},
		{archive(t, zip.Deflate, array{name: "x"}), record.Config{}, pyfeed.Corrupt, `found the end after 0 bytes`},
		{archive(t, zip.Deflate, array{name: "x", in: []byte("\x93NUMPY\x02\x00\x00\x00\x10\x00")}), record.Config{}, pyfeed.Corrupt, "expected a header of 1048588 bytes, found 12"},
		{archive(t, zip.Store, short(x, -1)), record.Config{}, pyfeed.Corrupt, "expected 12 bytes of data, as shape [3 2] of int16 is, found 11"},
		{archive(t, zip.Deflate, short(x, -1)), record.Config{}, pyfeed.Corrupt, "expected 12 bytes of data, as shape [3 2] of int16 is, found 11"},
		{archive(t, zip.Store, array{name: "x", in: append(bytes.Clone(x.in), 0)}), record.Config{}, pyfeed.Corrupt, "found 13"},
		{patched(stored, 1, 8, 1), record.Config{}, pyfeed.Unsupported, `array "yy": expected a member that is not encrypted`},
		{patched(stored, 0, 10, 14), record.Config{}, pyfeed.Unsupported, `array "x": compression: expected a member that is stored or deflated, found method 14, lzma`},
		{patched(stored, 0, 10, 77), record.Config{}, pyfeed.Unsupported, "found method 77, an unknown one"},
		{patched(stored, 0, 20, u32(0xfffffffe)...), record.Config{}, pyfeed.Corrupt, "expected a member of 4294967294 bytes"},
		{patched(stored, 0, 24, u32(0xfffffffe)...), record.Config{}, pyfeed.Corrupt, "expected two equal sizes of a member that is stored"},
		{patched(deflated, 0, 24, u32(0xfffffffe)...), record.Config{}, pyfeed.Corrupt, "which are more than"},
		{patched(stored, 0, 42, u32(5)...), record.Config{}, pyfeed.Corrupt, "expected a member where the directory says, found none"},
		{patched(stored, 0, 42, u32(0xfffffff0)...), record.Config{}, pyfeed.Corrupt, "expected a member where the directory says, found none"},
		{patched(stored, 1, 42, u32(0)...), options(Options{Instances: "file"}), pyfeed.Corrupt, ""},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(c.data, c.config, pool)
			if err == nil {
				r.Close()
			}
			var e *pyfeed.Error
			if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Text, c.text) || e.Kind != pyfeed.Invalid && (e.At == nil || e.At.File != "a.npz") {
				t.Errorf("expected %d, ...%s..., found %v", c.kind, c.text, err)
			}
		})
	}
	// Two members that are the same bytes of the archive.
	formattest.WithPool(t, func(pool *memory.Pool) {
		double := archive(t, zip.Store, x, array{name: "z", in: x.in})
		at := bytes.LastIndex(double, []byte("PK\x03\x04"))
		if _, err := from(patched(double, 1, 42, u32(0)...), record.Config{}, pool); err == nil || !strings.Contains(err.Error(), "expected members apart from each other") {
			t.Error(at, err)
		}
	})
}

// Damage in the data is found before any instance is delivered.
func TestDamaged(t *testing.T) {
	x, y := matrix("x", 100, 20, false, false), matrix("yy", 100, 1, false, false)
	deflated := archive(t, zip.Deflate, x, y)
	entry := func(n int) (at, size int) {
		z, _ := zip.NewReader(bytes.NewReader(deflated), int64(len(deflated)))
		offset, _ := z.File[n].DataOffset()
		return int(offset), int(z.File[n].CompressedSize64)
	}
	stored := archive(t, zip.Store, x, y)
	at := bytes.Index(stored, x.in)
	flipped := bytes.Clone(stored)
	flipped[at+len(x.in)-1] ^= 4
	for _, c := range []struct {
		data []byte
		text string
	}{
		{flipped, `a.npz, byte 39, record 0: array "x": checksum: expected `},
		{patched(stored, 1, 16, 1, 2, 3, 4), `array "yy": checksum: expected 04030201, found `},
		{patched(stored, 1, 16, 0, 0, 0, 0), `array "yy": checksum: expected 00000000, found `},
		{patched(deflated, 0, 16, 1, 2, 3, 4), `a.npz, byte 35, record 0: array "x": checksum: expected 04030201, found `},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(c.data, record.Config{}, pool)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, n, err := all(t, r, 10)
			if n != 0 || err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "byte 35", "byte 39"), strings.ReplaceAll(c.text, "byte 35", "byte 39")) {
				t.Errorf("expected %s, found %d instances, %v", c.text, n, err)
			}
			if r.Resync() != io.EOF {
				t.Error("expected the end")
			}
			if _, _, err = all(t, r, 10); err != nil {
				t.Error(err)
			}
		})
	}
	offset, size := entry(0)
	step := 1
	if testing.Short() {
		step = 3
	}
	for i := 0; i < size; i += step {
		data := bytes.Clone(deflated)
		data[offset+i] ^= 0x10
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(data, record.Config{}, pool)
			n := 0
			if err == nil {
				var got [][]byte
				got, n, err = all(t, r, 10)
				r.Close()
				if err == nil && bytes.Equal(got[0], x.want) { // a bit that is not used
					return
				}
			}
			var e *pyfeed.Error
			if n > 0 || !errors.As(err, &e) || e.Kind == 0 || e.At == nil {
				t.Fatalf("byte %d: %d instances, %v", i, n, err)
			}
		})
	}
}

// raw makes an archive of a deflated member with a wrong size.
func raw(t *testing.T, deflated []byte, claimed uint64, sum uint32) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "x.npy", Method: zip.Deflate, CRC32: sum, CompressedSize64: uint64(len(deflated)), UncompressedSize64: claimed})
	if err == nil {
		_, err = w.Write(deflated)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFalseSizes(t *testing.T) {
	x := matrix("x", 100_000, 10, false, false)
	var b bytes.Buffer
	d, _ := flate.NewWriter(&b, 1)
	_, _ = d.Write(x.in)
	_ = d.Close()
	// The header claims more data than there is, and so does the directory.
	more := bytes.Replace(x.in, []byte("(100000, 10)"), []byte("(200000, 10)"), 1)
	var c bytes.Buffer
	d, _ = flate.NewWriter(&c, 1)
	_, _ = d.Write(more)
	_ = d.Close()
	sum := crc32.ChecksumIEEE(x.in)
	for _, c := range []struct {
		data []byte
		text string
	}{
		{raw(t, b.Bytes(), uint64(len(x.in)), sum), ""},
		{raw(t, b.Bytes(), uint64(len(x.in))+1, sum), "expected 2000000 bytes of data, as shape [100000 10] of int16 is, found 2000001"},
		{raw(t, c.Bytes(), uint64(len(x.in))+2_000_000, sum), fmt.Sprintf("expected %d bytes when inflated, as the directory says, found %d", len(x.in)+2_000_000, len(x.in))},
		{raw(t, c.Bytes(), 1<<63, sum), "which are more than"},
		{raw(t, append(bytes.Clone(b.Bytes()), 0), uint64(len(x.in)), sum), "found bytes after it"},
		{raw(t, b.Bytes()[:b.Len()-3], uint64(len(x.in)), sum), fmt.Sprintf("expected %d bytes when inflated", len(x.in))},
		{raw(t, b.Bytes()[:3], uint64(100), sum), "expected 100 bytes when inflated"},
		{raw(t, []byte{7, 7, 7}, 100, sum), "inflating, after 0 bytes"},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(c.data, record.Config{}, pool)
			if err == nil {
				_, _, err = all(t, r, 100)
				r.Close()
			}
			if c.text == "" && err != nil || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("expected ...%s..., found %v", c.text, err)
			}
		})
	}
}

// Members with headers longer than the first read.
func TestLongHeader(t *testing.T) {
	head := "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }" + strings.Repeat(" ", 5000) + "\n"
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(archive(t, method, array{name: "x", in: npyFile(head, []byte{1, 2, 3})}), record.Config{}, pool)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got, n, err := all(t, r, 2); n != 3 || err != nil || string(got[0]) != "\x01\x02\x03" {
				t.Fatal(got, n, err)
			}
		})
	}
}

// The checksum of a large stored member is computed as it is read: if it is wrong, the last rows are not delivered.
func TestLargeChecksum(t *testing.T) {
	const rows, size = 1100, 64_000
	path := filepath.Join(t.TempDir(), "a.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f) // which needs no memory for the large array
	zeros := make([]byte, size)
	x, err := z.CreateHeader(&zip.FileHeader{Name: "x.npy", Method: zip.Store})
	if err == nil {
		_, err = x.Write(npy.Header(pyfeed.Uint8, pyfeed.Dims{rows, size}))
	}
	for i := 0; err == nil && i < rows; i++ {
		_, err = x.Write(zeros)
	}
	if err != nil {
		t.Fatal(err)
	}
	y, err := z.CreateHeader(&zip.FileHeader{Name: "y.npy", Method: zip.Store})
	if err == nil {
		_, err = y.Write(matrix("y", rows, 1, false, false).in)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []byte{0, 1} {
		if _, err := f.WriteAt([]byte{damage}, 1000); err != nil {
			t.Fatal(err)
		}
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := Open(path, &record.Config{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			out, n := make([]*pyfeed.Tuple, 256), 0
			for err == nil {
				pyfeed.NewTuples(out, 2)
				var k int
				k, err = r.Read(out)
				n += k
				pyfeed.ReleaseAll(out)
			}
			var e *pyfeed.Error
			if damage == 0 {
				if n != rows || err != io.EOF {
					t.Fatal(n, err)
				}
			} else if n == 0 || n >= rows || !errors.As(err, &e) || e.At.Record != int64(n) || !strings.Contains(e.Text, "checksum") {
				t.Fatal(n, err)
			}
		})
	}
}

func TestFlipped(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		whole := archive(t, method, matrix("x", 4, 2, true, false), matrix("y", 4, 1, false, true))
		for i := range whole {
			for _, flip := range []byte{1, 8, 0x80, 0xff} {
				data := bytes.Clone(whole)
				data[i] ^= flip
				formattest.WithPool(t, func(pool *memory.Pool) {
					r, err := from(data, record.Config{}, pool)
					if err == nil {
						_, _, err = all(t, r, 3)
						r.Close()
					}
					var e *pyfeed.Error
					if err != nil && (!errors.As(err, &e) || e.At == nil) {
						t.Fatal(i, err)
					}
				})
			}
		}
		for cut := range whole {
			formattest.WithPool(t, func(pool *memory.Pool) {
				if _, err := from(whole[:cut], record.Config{}, pool); err == nil {
					t.Fatalf("cut at %d: expected an error", cut)
				}
			})
		}
	}
}

func TestShrinks(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			a := matrix("x", 20_000, 10, false, false)
			for i := range a.in[200:] { // so that the file is not deflated to one page
				a.in[200+i] ^= byte(i * i >> 7)
			}
			path := formattest.File(t, "a.npz", archive(t, method, a))
			r, err := Open(path, &record.Config{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
			if _, n, err := all(t, r, 10); n != 0 || err == nil || !strings.Contains(err.Error(), "shrank") {
				t.Error(n, err)
			}
		})
	}
}

func tuple(fields ...any) *pyfeed.Tuple {
	var slots []pyfeed.LoDTensor
	for _, f := range fields {
		slots = append(slots, formattest.TensorOf(f))
	}
	return formattest.Tuple(slots...)
}

func TestWriter(t *testing.T) {
	many := 30_000
	if testing.Short() {
		many = 10_000
	}
	for _, o := range []Options{{}, {Compression: "none", Arrays: []string{"image", "ümlaut"}}, {Compression: "deflate"},
		{Instances: "file"}, {Instances: "file", Compression: "deflate", Arrays: []string{"a/b", "c.npy"}}} {
		for _, rows := range []int{1, 3, many} {
			if o.Instances == "file" && rows > 1 {
				continue
			}
			path := filepath.Join(t.TempDir(), "a.npz")
			var images, labels []byte
			var tuples []*pyfeed.Tuple
			for i := range rows {
				in := tuple([]float32{float32(i), 2, -float32(i)}, int64(i))
				images, labels = append(images, in.Slots[0].Data...), append(labels, in.Slots[1].Data...)
				tuples = append(tuples, in)
			}
			if err := tested.Write(t, path, &record.Config{Options: &o}, tuples...); err != nil {
				t.Fatal(err)
			}
			formattest.WithPool(t, func(pool *memory.Pool) {
				r, err := Open(path, &record.Config{Pool: pool, Options: &Options{Instances: o.Instances}})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				_, names, _ := r.(record.Describer).Describe()
				want := o.Arrays
				if want == nil {
					want = []string{"arr_0", "arr_1"}
				}
				got, n, err := all(t, r, 64)
				if err != nil || n != rows || !slices.Equal(names, want) || !bytes.Equal(got[0], images) || !bytes.Equal(got[1], labels) {
					t.Fatal(n, names, err)
				}
				for _, m := range r.(*records).members {
					if o.Compression != "deflate" && m.at%alignment != 0 {
						t.Errorf("array %s: expected aligned data, found it at byte %d", m.name, m.at)
					}
				}
			})
			z, err := zip.OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range z.File { // Go's reader verifies the checksums
				in, err := f.Open()
				if err == nil {
					_, err = io.Copy(io.Discard, in)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			z.Close()
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	x, xs := []float32{1, 2}, []*pyfeed.Tuple{tuple([]float32{1, 2})}
	lod := tuple(x, int64(1))
	lod.Slots[0].LoD = pyfeed.LoD{{0, 2}}
	for _, c := range []struct {
		config record.Config
		tuples []*pyfeed.Tuple
		text   string
	}{
		{text: "expected rows or file", config: options(Options{Instances: "x"})},
		{text: `expected none or deflate, found "gzip"`, config: options(Options{Compression: "gzip"})},
		{text: "expected none around a zip archive", config: record.Config{Storage: storage.Options{Compression: "gzip"}}},
		{text: "slots: expected 1, because as many arrays are named, found 2", config: record.Config{Options: &Options{Arrays: []string{"a"}}, Slots: make([]pyfeed.Slot, 2)}},
		{text: "slot 1: LoD: expected 0 levels", config: record.Config{Slots: []pyfeed.Slot{{}, {Dims: pyfeed.Dims{-1}, LoDLevels: 1}}}},
		{text: "slot 0: expected a dtype", config: record.Config{Slots: []pyfeed.Slot{{DType: 77}}}},
		{text: "expected at least one tuple, found none"},
		{text: "expected at least one tuple, found none", config: record.Config{Slots: []pyfeed.Slot{{Dims: pyfeed.Dims{2}}}}},
		{tuples: []*pyfeed.Tuple{tuple()}, text: "slots: expected at least 1, found 0"},
		{tuples: xs, text: "slots: expected 2, because as many arrays are named, found 1", config: options(Options{Arrays: []string{"a", "b"}})},
		{tuples: []*pyfeed.Tuple{tuple(x, int64(1)), xs[0]}, text: "slots: expected 2, as in the tuples before, found 1"},
		{tuples: []*pyfeed.Tuple{lod}, text: "slot 0: LoD: expected 0 levels"},
		{tuples: []*pyfeed.Tuple{tuple(int64(1), x), tuple(int64(1), []float32{1})}, text: "slot 1: dims: expected [2], as in the tuples before"},
		{tuples: xs, text: "dtype: expected int8, found float32", config: record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int8, Dims: pyfeed.Dims{2}}}}},
		{tuples: []*pyfeed.Tuple{xs[0], xs[0]}, text: "expected one tuple, which is the whole file, found a second", config: options(Options{Instances: "file"})},
	} {
		path := filepath.Join(t.TempDir(), "a.npz")
		if len(c.tuples) > 1 {
			formattest.ExpectError(t, tested.Write(t, path, &c.config, c.tuples[:len(c.tuples)-1]...), "")
		}
		formattest.ExpectError(t, tested.Write(t, path, &c.config, c.tuples...), c.text)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none", "a.npz"), &record.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none", "a.npz"), &record.Config{Slots: make([]pyfeed.Slot, 1)}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}

	// With slots, arrays without rows have a dtype and dims. Abort leaves no file.
	dir := t.TempDir()
	c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int8, Dims: pyfeed.Dims{4}}, {DType: pyfeed.Float64}}, Names: []string{"a", "b"}}
	formattest.ExpectError(t, tested.Write(t, filepath.Join(dir, "a.npz"), &c), "")
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := Open(filepath.Join(dir, "a.npz"), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		slots, names, _ := r.(record.Describer).Describe()
		if _, n, err := all(t, r, 1); n != 0 || err != nil || fmt.Sprint(names) != "[a b]" || slots[0].DType != pyfeed.Int8 || slots[1].DType != pyfeed.Float64 {
			t.Error(n, err, slots, names)
		}
	})
	tested.Abort(t, &record.Config{}, xs[0])
}

// An archive is not compressed as a whole: its members are compressed one by one.
func TestCompression(t *testing.T) {
	tested.Compressions(t, record.Config{}, nil, tuple([]float32{1, 2}, int64(3)), "none", "gzip", "zlib", "zstd", "snappy")
}

// wrapped returns an archive of two members with one half of data each: stored, as deflated data in one stored block,
// or as the output of deflate.
func wrapped(data []byte, method byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	half := len(data) / 2
	for i, in := range [][]byte{data[:half], data[half:]} {
		h := &zip.FileHeader{Name: []string{"x.npy", "y.npy"}[i], CRC32: crc32.ChecksumIEEE(in), UncompressedSize64: uint64(len(in))}
		switch method {
		case 2:
			h.Method = zip.Deflate
			n := uint16(len(in))
			in = append([]byte{1, byte(n), byte(n >> 8), byte(^n), byte(^n >> 8)}, in[:n]...)
		case 3:
			h.Method, h.UncompressedSize64 = zip.Deflate, 140
		}
		h.CompressedSize64 = uint64(len(in))
		if w, err := z.CreateRaw(h); err == nil {
			_, _ = w.Write(in)
		}
	}
	_ = z.Close()
	return b.Bytes()
}

// The byte says what data is: 0 an archive, else members as in wrapped. 4 is added for the option instances.
func FuzzNpz(f *testing.F) {
	for _, g := range golden {
		data, _ := base64.StdEncoding.DecodeString(g)
		f.Add(data, byte(0))
		f.Add(data, byte(4))
		if z, err := zip.NewReader(bytes.NewReader(data), int64(len(data))); err == nil && z.File[0].Method == zip.Deflate {
			in, _ := z.File[0].OpenRaw()
			x, _ := io.ReadAll(in)
			f.Add(append(x, x...), byte(3))
		}
	}
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(archive(f, method, matrix("x", 3, 2, true, true), matrix("y", 3, 0, false, false)), byte(0))
		f.Add(archive(f, method, matrix("x", 3, 2, false, false), matrix("y", 2, 1, false, true)), byte(4))
	}
	f.Add(archive(f, zip.Store), byte(0))
	for _, a := range []array{matrix("x", 3, 2, true, true), matrix("x", 2, 2, false, false), {in: npy.Header(pyfeed.Float64, pyfeed.Dims{0})}} {
		for _, how := range []byte{1, 2, 5, 6} {
			f.Add(append(bytes.Clone(a.in), a.in...), how)
		}
	}
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, how byte) {
		defer formattest.CheckLeaks(t)()
		o := Options{}
		if how&4 != 0 {
			o.Instances = "file"
		}
		if how&3 > 0 && len(data) < 1<<16 {
			data = wrapped(data, how&3)
		}
		r, err := from(data, options(o), pool)
		if err != nil {
			return
		}
		slots, names, err := r.(record.Describer).Describe()
		if err != nil || len(slots) != len(names) || len(slots) == 0 {
			t.Fatal(slots, names, err)
		}
		if r.(*records).count < 1<<16 { // larger counts are of instances without data
			if _, _, err = all(t, r, 64); err != nil && r.Resync() != io.EOF {
				t.Fatal("expected the end after damage")
			}
		}
		r.Close()
	})
}

// Instances of two slots, of 100 bytes and of 1 MiB.
func BenchmarkRows(b *testing.B) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		for _, size := range []int{100, 1 << 20} {
			b.Run(fmt.Sprint(map[uint16]string{zip.Store: "stored", zip.Deflate: "deflated"}[method], size), func(b *testing.B) {
				rows := 100 << 20 / size
				a := array{name: "x", in: append(npy.Header(pyfeed.Uint8, pyfeed.Dims{int64(rows), int64(size - 8)}), make([]byte, rows*(size-8))...)}
				for i := range a.in[200:] { // so that the data deflates like ordinary data
					a.in[200+i] = byte(i*i>>7) & 0xf
				}
				y := array{name: "y", in: append(npy.Header(pyfeed.Int64, pyfeed.Dims{int64(rows)}), make([]byte, rows*8)...)}
				path := formattest.File(b, "a.npz", archive(b, method, a, y))
				tested.Benchmark(b, path, record.Config{}, nil)
			})
		}
	}
}
