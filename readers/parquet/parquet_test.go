package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pierrec/lz4/v4"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// tuples returns instances with a slot of each kind that can be written.
func tuples(n int) (all []*pyfeed.Tuple) {
	for i := range n {
		list := make([]int32, i%5)
		for k := range list {
			list[k] = int32(i * k)
		}
		nested := formattest.TensorOf([]float64{1, 2.5, float64(i)})
		nested.LoD = pyfeed.LoD{{0, 3}, {0, 1, 1, 3}}
		if i%4 == 0 {
			nested = formattest.TensorOf([]float64{})
			nested.LoD = pyfeed.LoD{{0, 0}, {0}}
		}
		texts := formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("abc"), []int64{0, 3}, []int64{0, 2, 2, 3})
		numbers := formattest.TensorOf(list)
		numbers.LoD = pyfeed.LoD{{0, int64(len(list))}}
		all = append(all, formattest.Tuple(
			formattest.TensorOf(float64(i)/3, []int64{}...), formattest.TensorOf([]float32{float32(i), 1, 2, 3, 4, 5}, 2, 3),
			formattest.Text(strings.Repeat("t", i%9)), numbers, formattest.TensorOf(i%3 == 0), formattest.TensorOf(uint8(i)),
			formattest.TensorOf(int16(-i)), formattest.TensorOf(math.MaxUint64-uint64(i)),
			formattest.Tensor(pyfeed.Float16, nil, []byte{byte(i), 0x3c}), nested, texts))
	}
	return all
}

// What is written is read again, whatever the compression and the size of the row groups, and with as many goroutines
// as there are.
func TestRoundTrip(t *testing.T) {
	all := tuples(300)
	for _, options := range []string{`{}`, `{"compression": "zstd", "row_group_records": 70}`, `{"compression": "gzip"}`, `{"compression": "none", "row_group_records": 1}`} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		c := with(t, options)
		c.Pool = formattest.Pool(t)
		if err := tested.Write(t, path, &c, all...); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tested.EachWay(t, data, record.Config{}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			lines, err := formattest.Lines(t, r, 16)
			if err != io.EOF || len(lines) != len(all) {
				t.Fatalf("expected %d instances, found %d, %v", len(all), len(lines), err)
			}
			for i, line := range lines {
				if want := formattest.FormatTuple(all[i]); line != want {
					t.Fatalf("%s, instance %d: expected\n%s\nfound\n%s", options, i, want, line)
				}
			}
		})
	}
}

// numbersFile returns a file of n rows: x with the number of the row as float64, id with it as int32, or with other names.
func numbersFile(t testing.TB, n int, options string, names ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.parquet")
	c := with(t, options)
	if c.Names = names; names == nil {
		c.Names = []string{"x", "id"}
	}
	w, err := Create(path, &c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Write(formattest.Tuple(formattest.TensorOf(float64(i)), formattest.TensorOf(int32(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Many row groups are decoded at the same time, and their rows come in order, as blocks too.
func TestRowGroupsComeInOrder(t *testing.T) {
	const rows = 200_000
	data := numbersFile(t, rows, `{"row_group_records": 7000}`)
	for _, way := range []string{"map", "read"} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := record.Config{Pool: pool}
			c.Storage.IO = way
			r, err := Open(formattest.File(t, "a.parquet", data), &c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if width := r.(*records).ahead.width; width < 2 && numDecoders() > 1 {
				t.Errorf("expected row groups to be decoded in goroutines, found %d", width)
			}
			next := 0
			_, err = formattest.Drain(t, r, 301, func(i int, tuple *pyfeed.Tuple) {
				if id, _ := record.Integer(pyfeed.Int32, tuple.Slots[1].Data); int(id) != next {
					t.Fatalf("instance %d: found %d", next, id)
				}
				next++
			})
			if next != rows || err != io.EOF {
				t.Errorf("expected %d rows, found %d, %v", rows, next, err)
			}
		})
	}
}

// A reader that is closed or goes elsewhere while goroutines decode releases their memory.
func TestSeekWhileRowGroupsAreDecoded(t *testing.T) {
	const rows = 200_000
	data := numbersFile(t, rows, `{"row_group_records": 7000}`)
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := Open(formattest.File(t, "a.parquet", data), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		out := make([]*pyfeed.Tuple, 3)
		for _, at := range []int64{150_000, 3, 6_999, 7_000, 199_999, 13_500, 13_501, 0} {
			if err := r.(record.Seeker).Seek(record.Position{Offset: at}, at, true); err != nil {
				t.Fatal(err)
			}
			pyfeed.NewTuples(out, 2)
			if n, err := r.Read(out); n == 0 || err != nil {
				t.Fatal(n, err)
			}
			if id, _ := record.Integer(pyfeed.Int32, out[0].Slots[1].Data); int64(id) != at {
				t.Errorf("expected row %d, found %d", at, id)
			}
			pyfeed.ReleaseAll(out)
		}
	})
}

// Damage of a page costs the rest of its row group, and is found by the checksum.
func TestDamageCostsARowGroup(t *testing.T) {
	data := numbersFile(t, 1000, `{"row_group_records": 100, "compression": "none"}`)
	bad := bytes.Clone(data)
	at := bytes.Index(data, []byte{0, 0, 0, 0, 0, 0, 0x69, 0x40}) // the float 200
	bad[at+100] ^= 1
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := Open(formattest.File(t, "a.parquet", bad), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var ids []int64
		see := func(_ int, tuple *pyfeed.Tuple) {
			id, _ := record.Integer(pyfeed.Int32, tuple.Slots[1].Data)
			ids = append(ids, id)
		}
		n, err := formattest.Drain(t, r, 7, see)
		var e *pyfeed.Error
		if n != 200 || !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || !strings.Contains(err.Error(), `column "x", row group 2: expected a page with the checksum`) {
			t.Fatalf("found %d rows, %v", n, err)
		}
		if e.At.Record != 200 {
			t.Errorf("expected the error at record 200, found %d", e.At.Record)
		}
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		if number, exact := r.(record.Numberer).Number(); number != 300 || !exact {
			t.Errorf("expected record 300 next, found %d, %v", number, exact)
		}
		if n, err = formattest.Drain(t, r, 7, see); n != 700 || err != io.EOF {
			t.Errorf("found %d rows behind the damage, %v", n, err)
		}
		if len(ids) != 900 || ids[199] != 199 || ids[200] != 300 || ids[899] != 999 {
			t.Errorf("found the rows %v", ids)
		}
	})
}

// Columns of one name are read, also when the slots and names of the first file are given for the next one.
func TestColumnsOfOneName(t *testing.T) {
	data := bytes.ReplaceAll(numbersFile(t, 3, "{}", "column_a", "column_b"), []byte("column_b"), []byte("column_a"))
	formattest.WithPool(t, func(pool *memory.Pool) {
		c := record.Config{Pool: pool}
		for range 2 {
			r, err := tested.Memory(data, &c)
			if err != nil {
				t.Fatal(err)
			}
			c.Slots, c.Names, _ = r.(record.Describer).Describe()
			lines, err := formattest.Lines(t, r, 2)
			r.Close()
			if err != io.EOF || !slices.Equal(lines, []string{"0 0", "1 1", "2 2"}) {
				t.Errorf("found %q, %v", lines, err)
			}
		}
		if !slices.Equal(c.Names, []string{"column_a", "column_a"}) {
			t.Errorf("found the names %q", c.Names)
		}
	})
}

// The shapes that the writer noted belong to names: another program may have exchanged the columns, and kept the note.
func TestNotedShapesOfOtherColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	c := record.Config{Names: []string{"column_a", "column_b"}}
	numbers := []float32{1, 2, 3, 4, 5, 6}
	if err := tested.Write(t, path, &c, formattest.Tuple(formattest.TensorOf(numbers, 2, 3), formattest.TensorOf(numbers, 3, 2))); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	note := bytes.Index(data, []byte(`[{"name":`))
	if note < 0 {
		t.Fatal("found no note of the shapes")
	}
	exchange := strings.NewReplacer("column_a", "column_b", "column_b", "column_a")
	data = slices.Concat([]byte(exchange.Replace(string(data[:note]))), data[note:])
	tested.EachWay(t, data, record.Config{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		slots, names, _ := r.(record.Describer).Describe()
		if names[0] != "column_b" || !slices.Equal(slots[0].Dims, pyfeed.Dims{3, 2}) || !slices.Equal(slots[1].Dims, pyfeed.Dims{2, 3}) {
			t.Errorf("found the slots %v", slots)
		}
	})
}

// A page with fewer values than it says costs its rows: none is delivered with what the memory held before.
func TestPageWithoutItsValues(t *testing.T) {
	data := numbersFile(t, 50, `{"compression": "none"}`)
	for _, kind := range []byte{0x15, 0x16} { // the numbers 50 in headers and footer, as i32 and i64 of Thrift
		data = bytes.ReplaceAll(data, []byte{kind, 100}, []byte{kind, 102})
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := Open(formattest.File(t, "a.parquet", data), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		n, err := formattest.Drain(t, r, 7, func(int, *pyfeed.Tuple) {})
		if n != 0 || err == nil || !strings.Contains(err.Error(), "expected more values in the page") {
			t.Errorf("found %d rows, %v", n, err)
		}
	})
}

// No damaged byte makes reading panic, or lose memory.
func TestDamagedBytes(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.DeleteFunc(paths, func(p string) bool {
		return !strings.Contains(p, "v2") && !strings.Contains(p, "delta") && !strings.Contains(p, "types") && !strings.Contains(p, "go.")
	}) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := with(t, `{"default": -1}`)
			c.Pool = pool
			refused := 0
			for at := 0; at < len(data); at += step {
				bad := bytes.Clone(data)
				bad[at] ^= byte(1 << (at % 8))
				if readDamaged(t, bad, &c) != nil {
					refused++
				}
				if at%16 == 0 && readDamaged(t, data[:at], &c) == nil {
					t.Errorf("%s: expected an error about the first %d bytes, found none", path, at)
				}
			}
			if refused == 0 {
				t.Errorf("%s: no damage was found", path)
			}
		})
	}
}

// readDamaged reads a file, and goes on behind damage. It returns the first error.
func readDamaged(t testing.TB, data []byte, c *record.Config) (first error) {
	t.Helper()
	r, err := tested.Memory(data, c)
	if err != nil {
		return err
	}
	defer r.Close()
	for range 100 {
		out := make([]*pyfeed.Tuple, 64)
		for range 1000 { // a few bytes can claim any number of rows
			pyfeed.NewTuples(out, 1)
			var n int
			n, err = r.Read(out)
			for _, tuple := range out[:n] {
				for i := range tuple.Slots {
					s := &tuple.Slots[i]
					if size, wrong := s.Measure(); wrong != nil || size != len(s.Data) || s.CheckLoD() != nil {
						t.Fatalf("slot %d: %v %v with %d bytes, LoD %v", i, s.DType, s.Dims(), len(s.Data), s.LoD)
					}
				}
			}
			pyfeed.ReleaseAll(out)
			if err != nil {
				break
			}
		}
		if first == nil && err != io.EOF {
			first = err
		}
		if e := (*pyfeed.Error)(nil); !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || r.Resync() != nil {
			return first
		}
	}
	return first
}

// Files that are refused, and what the error says.
func TestRefusedFiles(t *testing.T) {
	good := numbersFile(t, 3, "{}")
	encrypted := bytes.Clone(good)
	copy(encrypted[len(encrypted)-4:], "PARE")
	for want, data := range map[string][]byte{
		"found 0 bytes":                         nil,
		"expected a Parquet file, which begins": []byte("not a Parquet file at all"),
		"the file may be cut off":               good[:len(good)-3],
		"found an encrypted footer":             encrypted,
		"expected a footer of at most":          slices.Concat(good[:len(good)-8], []byte{255, 255, 255, 127}, magic),
		"footer: expected more data":            slices.Concat(good[:len(good)-8], []byte{0, 0, 0, 0}, magic),
		"footer: ":                              slices.Concat(good[:len(good)-8], []byte{3, 0, 0, 0}, magic),
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			if _, err := tested.Memory(data, &record.Config{Pool: pool}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("expected %q, found %v", want, err)
			}
		})
	}
}

// A footer of a few bytes for each column does not make as many slots. Some of the columns can be read.
func TestTooManySlots(t *testing.T) {
	var c record.Config
	tuple := &pyfeed.Tuple{}
	for i := range columns.MaxSlots + 1 {
		c.Names = append(c.Names, fmt.Sprint("c", i))
		tuple.Slots = append(tuple.Slots, formattest.TensorOf(int32(i)))
	}
	path := filepath.Join(t.TempDir(), "a.parquet")
	if err := tested.Write(t, path, &c, tuple); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tested.EachWay(t, data, record.Config{}, func(t *testing.T, _ record.Records, err error) {
		formattest.Expect(t, err, pyfeed.Invalid, "parquet: expected at most 4096 columns where each is a slot, found 4097: give columns")
	})
	tested.EachWay(t, data, with(t, `{"columns": [{"columns": "c4094:"}, "c7"]}`), func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if lines, err := formattest.Lines(t, r, 2); err != io.EOF || !slices.Equal(lines, []string{"[4094 4095 4096] 7"}) {
			t.Errorf("found %q, %v", lines, err)
		}
	})
}

// A file that is compressed as a whole, and a pipe, are refused.
func TestRefusedWays(t *testing.T) {
	good := numbersFile(t, 3, "{}")
	pipe := filepath.Join(t.TempDir(), "a.parquet")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that the reader need not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	for path, want := range map[string]string{
		formattest.File(t, "a.parquet.gz", formattest.Gzip(good)): "expected a file that is not compressed as a whole",
		pipe: "found a pipe or a device",
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			_, err := Open(path, &record.Config{Pool: pool})
			if formattest.Kind(err) != pyfeed.Unsupported || !strings.Contains(err.Error(), want) {
				t.Errorf("expected %q, found %v", want, err)
			}
		})
	}
}

// Writers refuse what Parquet does not have.
func TestRefusedTuples(t *testing.T) {
	for _, c := range []struct {
		options string
		tuple   *pyfeed.Tuple
		want    string
	}{
		{`{"compression": "lzo"}`, nil, "expected snappy, zstd, gzip or none"},
		{`{"columns": ["x"]}`, nil, "are for reading"},
		{`{}`, formattest.Tuple(formattest.Zeros(pyfeed.BFloat16)), "found bfloat16, which Parquet does not have"},
		{`{}`, formattest.Tuple(formattest.Zeros(pyfeed.Complex64)), "found complex64, which Parquet does not have"},
		{`{}`, formattest.Tuple(formattest.Zeros(pyfeed.Float32, 0)), "expected at least 1 element"},
	} {
		config := with(t, c.options)
		err := tested.Write(t, filepath.Join(t.TempDir(), "a.parquet"), &config, c.tuple)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected %q, found %v", c.options, c.want, err)
		}
	}
	config := with(t, "{}")
	if err := tested.Write(t, filepath.Join(t.TempDir(), "a.parquet"), &config); formattest.Kind(err) != pyfeed.State {
		t.Errorf("without tuples: found %v", err)
	}
	config.Slots = []pyfeed.Slot{{DType: pyfeed.Int64}}
	path := filepath.Join(t.TempDir(), "a.parquet")
	if err := tested.Write(t, path, &config); err != nil {
		t.Errorf("without tuples, with slots: %v", err)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "a.parquet.gz"), &config); formattest.Kind(err) != pyfeed.Invalid {
		t.Errorf("a.parquet.gz: found %v", err)
	}
	tested.Abort(t, &config, formattest.Tuple(formattest.TensorOf(int64(3))))
}

func TestSeeks(t *testing.T) {
	for name, data := range map[string][]byte{"numbers": numbersFile(t, 50, `{"row_group_records": 17}`), "lists": nil} {
		c := with(t, `{"default": -1}`)
		if data == nil {
			var err error
			if data, err = os.ReadFile("testdata/pyarrow_v2.parquet"); err != nil {
				t.Fatal(err)
			}
		}
		if n := tested.Seeks(t, data, c); n < 8 {
			t.Errorf("%s: found %d positions", name, n)
		}
		bad := bytes.Clone(data)
		bad[len(bad)/3] ^= 0x55
		tested.Seeks(t, bad, c)
	}
}

// Reading can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	for _, name := range []string{"pyarrow_v2", "pyarrow_gzip", "types"} {
		data, err := os.ReadFile("testdata/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		if n := tested.Interrupted(t, data, with(t, `{"default": -1}`)); n < 20 {
			t.Errorf("%s: found %d polls", name, n)
		}
	}
}

// Decimals become the nearest floats.
func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		stored string
		scale  int
		want   float64
	}{
		{"00", 2, 0}, {"01", 1, 0.1}, {"ff", 1, -0.1}, {"0fffffffffffffffffffffffffffffff", 20, 212676479325586539.66},
		{"f0000000000000000000000000000000", 0, -math.Ldexp(1, 124)}, {"000000000000000000000000000000000000ff", 0, 255},
		{"7fffffffffffffff", 18, 9.223372036854775807}, {"01", -2, 100}, {"03", 23, 3e-23},
	} {
		l := &leaf{schemaElement: schemaElement{typ: typeByteArray, annotation: annotatedDecimal, scale: c.scale}}
		var out [8]byte
		if err := decimal(l, pyfeed.Float64)(out[:], formattest.Hex(c.stored)); err != nil {
			t.Fatal(err)
		}
		if found := float(pyfeed.Float64, out[:]); found != c.want {
			t.Errorf("%s, scale %d: expected %v, found %v", c.stored, c.scale, c.want, found)
		}
	}
	l := &leaf{schemaElement: schemaElement{typ: typeByteArray, annotation: annotatedDecimal}}
	if err := decimal(l, pyfeed.Int64)(make([]byte, 8), formattest.Hex("0fffffffffffffffff")); err == nil {
		t.Error("expected an error about digits that int64 cannot hold")
	}
}

// LZ4 with and without the sizes of Hadoop, and damaged blocks.
func TestLZ4(t *testing.T) {
	never := func() error { return nil }
	block := []byte{0x35, 'a', 'b', 'c', 3, 0, 0x10, 'd'} // abc, 9 bytes from 3 before, d
	want := "abcabcabcabcd"
	hadoop := slices.Concat([]byte{0, 0, 0, 13, 0, 0, 0, byte(len(block))}, block)
	for codec, data := range map[int32][]byte{codecLZ4Raw: block, codecLZ4: hadoop} {
		to := make([]byte, len(want))
		if err := decompress(codec, to, data, never); err != nil || string(to) != want {
			t.Errorf("codec %d: found %q, %v", codec, to, err)
		}
		for n := range data {
			if err := decompress(codec, make([]byte, len(want)), data[:n], never); err == nil {
				t.Errorf("codec %d: expected an error about the first %d bytes", codec, n)
			}
		}
	}
	to := make([]byte, len(want))
	if err := decompress(codecLZ4, to, block, never); err != nil || string(to) != want {
		t.Errorf("without sizes: found %q, %v", to, err)
	}
}

// The memory for a page grows until its data fits, in all codecs, and no further than the size that the page claims.
func TestMemoryOfPagesGrows(t *testing.T) {
	const size = 5 << 20
	zeros := make([]byte, size)
	block := make([]byte, lz4.CompressBlockBound(size))
	var c lz4.Compressor
	n, err := c.CompressBlock(zeros, block)
	if err != nil {
		t.Fatal(err)
	}
	block = block[:n]
	hadoop := binary.BigEndian.AppendUint32(nil, size)
	hadoop = append(binary.BigEndian.AppendUint32(hadoop, uint32(n)), block...)
	zstd, err := newCompressor("zstd")
	if err != nil {
		t.Fatal(err)
	}
	page, err := zstd.compress(zeros)
	if err != nil {
		t.Fatal(err)
	}
	for codec, data := range map[int32][]byte{codecLZ4Raw: block, codecLZ4: hadoop, codecZstd: page, codecGzip: formattest.Gzip(zeros)} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := tested.Memory(numbersFile(t, 3, "{}"), &record.Config{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			rs := r.(*records)
			c := rs.newReader(rs.groups[0], 0, func() error { return nil }).chunks[0]
			c.meta.codec = codec
			to, b, err := c.inflate(data, size, true, true)
			if err != nil || !bytes.Equal(to, zeros) {
				t.Fatalf("%s: found %d bytes, %v", codecName(codec), len(to), err)
			}
			b.Release()
			if _, _, err := c.inflate(data, size-1, true, true); formattest.Kind(err) != pyfeed.Corrupt {
				t.Errorf("%s: expected an error about a page with more data than it claims, found %v", codecName(codec), err)
			}
		})
	}
}

func TestLevels(t *testing.T) {
	for most := 1; most < 6; most++ {
		var levels []uint8
		for i := range 1000 {
			v := uint8(0)
			if i%(7*most) < 3*most {
				v = uint8(i % (most + 1))
			}
			levels = append(levels, v)
		}
		for n := range 100 {
			data := appendLevels(nil, levels[:n*10], most)
			var h hybrid
			width := 1
			for 1<<width <= most {
				width++
			}
			h.begin(data[4:], width)
			found := make([]uint8, n*10)
			if _, err := h.levels(found, most); err != nil || !bytes.Equal(found, levels[:n*10]) {
				t.Fatalf("levels to %d, %d of them: %v", most, n*10, err)
			}
			h.begin(data[4:], width)
			wide := make([]uint32, n*10)
			if err := h.indices(wide); err != nil || fmt.Sprint(wide) != fmt.Sprint(levels[:n*10]) {
				t.Fatalf("indices to %d, %d of them: %v", most, n*10, err)
			}
		}
	}
}

// A default is parsed as the other formats parse numbers: floats are rounded to the dtype, and it has to be in its range.
// The errors of a footer name the column by its number, because the columns of a row group are those of the schema.
func TestMetadataOfColumns(t *testing.T) {
	for want, fields := range map[string]func(w *thriftWriter){
		"column 1: expected the metadata of a column, found none": func(w *thriftWriter) { w.i64(2, 0) },
		"column 1: expected sizes and offsets of at least 0, found -3 values": func(w *thriftWriter) {
			w.structure(3, func() { w.i64(5, -3) })
		},
		"expected a field of type 12, found type 6": func(w *thriftWriter) { w.i64(3, 0) },
		"expected a field of type 6, found type 5":  func(w *thriftWriter) { w.structure(3, func() { w.i32(5, 0) }) },
	} {
		w := &thriftWriter{}
		w.begin()
		w.list(1, thriftStruct, 2)
		w.begin()
		w.structure(3, func() {})
		w.end()
		w.begin()
		fields(w)
		w.end()
		w.i64(3, 0)
		w.end()
		r := &thriftReader{data: w.data}
		if parseGroup(r); r.err == nil || !strings.HasPrefix(r.err.Error(), want) {
			t.Errorf("expected %q, found %v", want, r.err)
		}
	}
}
