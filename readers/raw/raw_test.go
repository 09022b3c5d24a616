package raw

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
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var cifar = []pyfeed.Slot{{DType: pyfeed.Uint8}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{3, 32, 32}}}

var tested = formattest.Format{Suffix: ".raw", Open: Open, Begin: open, Create: Create}

func eachWay(t *testing.T, data []byte, c record.Config, test func(t *testing.T, r record.Records)) {
	t.Helper()
	tested.EachWay(t, data, c, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		test(t, r)
	})
}

func TestCIFAR10(t *testing.T) {
	const n = 700
	data := formattest.Random(n * 3073)
	for _, many := range []int{1, 7, 256, 2000} {
		eachWay(t, data, record.Config{Slots: cifar}, func(t *testing.T, r record.Records) {
			got, err := formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
				label, image := &tuple.Slots[0], &tuple.Slots[1]
				want := data[i*3073 : (i+1)*3073]
				if label.DType != pyfeed.Uint8 || len(label.Dims()) != 0 || !bytes.Equal(label.Data, want[:1]) || !label.ReadOnly {
					t.Fatalf("label %d: %v %v %v", i, label.DType, label.Dims(), label.Data)
				}
				if !slices.Equal(image.Dims(), pyfeed.Dims{3, 32, 32}) || !bytes.Equal(image.Data, want[1:]) || len(image.LoD) != 0 {
					t.Fatalf("image %d: %v", i, image.Dims())
				}
			})
			if got != n || err != io.EOF {
				t.Fatalf("expected %d records and io.EOF, found %d and %v", n, got, err)
			}
		})
	}
}

func TestGoldenBytes(t *testing.T) {
	slots := []pyfeed.Slot{{DType: pyfeed.Uint16}, {DType: pyfeed.Float32, Dims: pyfeed.Dims{2}}, {DType: pyfeed.Int8}, {DType: pyfeed.Complex64}}
	little := "head" + "\x02\x01" + "\x00\x00\x80\x3f\x00\x00\x00\xc0" + "\xff" + "\x00\x00\x80\x3f\x00\x00\x00\xc0"
	big := "head" + "\x01\x02" + "\x3f\x80\x00\x00\xc0\x00\x00\x00" + "\xff" + "\x3f\x80\x00\x00\xc0\x00\x00\x00"
	for order, data := range map[string]string{"": little, "little": little, "big": big} {
		c := record.Config{Slots: slots, Options: &Options{ByteOrder: order, HeaderBytes: 4}}
		eachWay(t, []byte(data), c, func(t *testing.T, r record.Records) {
			n, err := formattest.Drain(t, r, 3, func(_ int, tuple *pyfeed.Tuple) {
				s := tuple.Slots
				if v := binary.NativeEndian.Uint16(s[0].Data); v != 0x0102 {
					t.Errorf("uint16: %x", v)
				}
				for _, j := range []int{1, 3} {
					one := math.Float32frombits(binary.NativeEndian.Uint32(s[j].Data))
					two := math.Float32frombits(binary.NativeEndian.Uint32(s[j].Data[4:]))
					if one != 1 || two != -2 {
						t.Errorf("slot %d: %v %v", j, one, two)
					}
				}
				if s[2].Data[0] != 0xff {
					t.Errorf("int8: %x", s[2].Data)
				}
				if turned := order == "big"; s[1].ReadOnly == turned || !s[2].ReadOnly {
					t.Errorf("expected a view exactly for slots that need no conversion")
				}
			})
			if n != 1 || err != io.EOF {
				t.Fatalf("%d %v", n, err)
			}
		})
	}
}

func TestRoundTripOfEveryDType(t *testing.T) {
	random, count := formattest.Random(50*7*16), 50
	if testing.Short() {
		count = 20 // more than are read at a time
	}
	for d := pyfeed.Bool; d.Valid(); d++ {
		for _, o := range []Options{{}, {ByteOrder: "big"}, {ByteOrder: "little", HeaderBytes: 5000}} {
			for _, compression := range []string{"none", "gzip", "zstd"} {
				formattest.WithPool(t, func(pool *memory.Pool) {
					slots := []pyfeed.Slot{{DType: d, Dims: pyfeed.Dims{2, 3}}, {DType: d}, {DType: d, Dims: pyfeed.Dims{0}}}
					path := filepath.Join(t.TempDir(), "a.raw")
					c := record.Config{Options: &o, Pool: pool}
					c.Storage.Compression = compression
					var all []*pyfeed.Tuple
					for i := range int64(count) {
						data := random[i*7*16:]
						all = append(all, formattest.Tuple(formattest.Tensor(d, slots[0].Dims, data[:6*d.Size()]),
							formattest.Tensor(d, nil, data[6*d.Size():7*d.Size()]), formattest.Zeros(d, 0)))
					}
					if err := tested.Write(t, path, &c, all...); err != nil {
						t.Fatal(err)
					}
					c.Slots, c.Storage.Compression = slots, ""
					r, err := Open(path, &c)
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					n, err := formattest.Drain(t, r, 16, func(i int, tuple *pyfeed.Tuple) {
						if found, want := formattest.FormatTuple(tuple), formattest.FormatTuple(all[i]); found != want || tuple.Slots[0].DType != d {
							t.Fatalf("%v: record %d: expected %s, found %s", d, i, want, found)
						}
					})
					if n != count || err != io.EOF {
						t.Fatalf("%d %v", n, err)
					}
				})
			}
		}
	}
}

func TestTruncation(t *testing.T) {
	slots := []pyfeed.Slot{{DType: pyfeed.Int32, Dims: pyfeed.Dims{2}}, {DType: pyfeed.Uint8}}
	data := []byte(strings.Repeat("012345678", 3))
	for _, order := range []string{"little", "big"} {
		for cut := range len(data) + 1 {
			c := record.Config{Slots: slots, Options: &Options{ByteOrder: order}}
			eachWay(t, data[:cut], c, func(t *testing.T, r record.Records) {
				n, err := formattest.Drain(t, r, 2, nil)
				if n != cut/9 {
					t.Fatalf("cut %d: expected %d records, found %d", cut, cut/9, n)
				}
				if cut%9 == 0 {
					if err != io.EOF || r.Resync() != io.EOF {
						t.Fatalf("cut %d: %v", cut, err)
					}
					return
				}
				var e *pyfeed.Error
				if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At == nil || e.At.Offset != int64(n*9) || e.At.Record != int64(n) {
					t.Fatalf("cut %d: %v", cut, err)
				}
				if want := fmt.Sprintf("expected 9 bytes, a record, found %d and the end of the file", cut%9); e.Text != want {
					t.Fatalf("expected %q, found %q", want, e.Text)
				}
				if err := r.Resync(); err != io.EOF {
					t.Fatal(err)
				}
				if _, err := r.Read(make([]*pyfeed.Tuple, 1)); err != io.EOF {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestHeader(t *testing.T) {
	for _, header := range []int64{1, 10, 1 << 21, 1<<21 + 1, 1 << 40, math.MaxInt64} {
		data := make([]byte, 100)
		if header < 1<<30 {
			data = make([]byte, header+7)
		}
		data[len(data)-1] = 9
		c := record.Config{Slots: cifar[:1], Options: &Options{HeaderBytes: header}}
		if header <= int64(len(data)) {
			eachWay(t, data, c, func(t *testing.T, r record.Records) {
				last := byte(0)
				n, err := formattest.Drain(t, r, 1000, func(_ int, t *pyfeed.Tuple) { last = t.Slots[0].Data[0] })
				if want := len(data) - int(header); n != want || last != 9 || err != io.EOF {
					t.Fatalf("expected %d records, found %d: %v", want, n, err)
				}
			})
			continue
		}
		formattest.WithPool(t, func(pool *memory.Pool) {
			c.Pool = pool
			_, err := Open(formattest.File(t, "a.bin", data), &c)
			if formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), fmt.Sprintf("expected a header of %d bytes, found %d", header, len(data))) {
				t.Fatalf("header of %d: %v", header, err)
			}
		})
	}
}

func TestLargeRecords(t *testing.T) {
	const size = 3<<20 + 5
	data := bytes.Repeat(formattest.Random(10_007), 3*size/10_007+1)[:3*size]
	eachWay(t, data, record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{size}}}}, func(t *testing.T, r record.Records) {
		n, err := formattest.Drain(t, r, 8, func(i int, tuple *pyfeed.Tuple) {
			if !bytes.Equal(tuple.Slots[0].Data, data[i*size:(i+1)*size]) {
				t.Fatalf("record %d differs", i)
			}
		})
		if n != 3 || err != io.EOF {
			t.Fatalf("%d %v", n, err)
		}
	})
}

func TestTuplesOutliveTheFile(t *testing.T) {
	data := make([]byte, 4194*1000)
	for i := range data {
		data[i] = byte(i >> 10)
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{1000}}}, Pool: pool}
		r, err := Open(formattest.File(t, "a.raw", data), &c)
		if err != nil {
			t.Fatal(err)
		}
		all := formattest.ReadAll(t, r, 100)
		if len(all) != len(data)/1000 {
			t.Fatal(len(all))
		}
		for i, tuple := range all {
			if !bytes.Equal(tuple.Slots[0].Data, data[i*1000:(i+1)*1000]) {
				t.Fatalf("record %d differs", i)
			}
		}
		pyfeed.ReleaseAll(all)
	})
}

func TestRefusedConfig(t *testing.T) {
	one := []pyfeed.Slot{{DType: pyfeed.Uint8}}
	slot := func(d pyfeed.DType, levels int, dims ...int64) []pyfeed.Slot {
		return []pyfeed.Slot{{DType: d, Dims: dims, LoDLevels: levels}}
	}
	for _, c := range []struct {
		slots   []pyfeed.Slot
		options Options
		text    string
	}{
		{nil, Options{}, "raw: slots: expected those of an instance, because the file does not describe its records, found none"},
		{one, Options{ByteOrder: "native"}, `raw: byte_order: expected little or big, found "native"`},
		{one, Options{HeaderBytes: -1}, "raw: header_bytes: expected 0 or more, found -1"},
		{slot(pyfeed.Any, 0), Options{}, "slot 0: raw: dtype: expected that of the records, found any"},
		{slot(99, 0), Options{}, "slot 0: raw: dtype: expected that of the records, found dtype(99)"},
		{slot(pyfeed.Int8, 0, 3, -1), Options{}, "slot 0: raw: dims: expected sizes without -1, because records are of one size, found [3 -1]"},
		{slot(pyfeed.Int8, 1, -1), Options{}, "slot 0: raw: LoD: expected 0 levels, because records are of one size, found 1"},
		{slot(pyfeed.Int8, 0, 1<<40, 1<<40), Options{}, "slot 0: raw: dims [1099511627776 1099511627776] of int8 are more bytes than there are"},
		{slot(pyfeed.Int64, 0, 1<<60), Options{}, "slot 0: raw: dims [1152921504606846976] of int64 are more bytes than there are"},
		{append(slot(pyfeed.Int8, 0, 1<<62), slot(pyfeed.Int8, 0, 1<<62)...), Options{}, "slot 1: raw: the slots are more bytes than there are"},
		{slot(pyfeed.Int8, 0, 0), Options{}, "raw: slots: expected records of at least 1 byte, found dims with a size of 0"},
		{slot(pyfeed.Int8, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1), Options{}, "slot 0: raw: rank: expected at most 8 dimensions, found 9"},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			_, err := Open(formattest.File(t, "a.raw", nil), &record.Config{Slots: c.slots, Options: &c.options, Pool: pool})
			if formattest.Kind(err) != pyfeed.Invalid || err.Error() != c.text {
				t.Errorf("expected %q, found %v", c.text, err)
			}
		})
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		if _, err := Open(filepath.Join(t.TempDir(), "none.raw"), &record.Config{Slots: one, Pool: pool}); formattest.Kind(err) != pyfeed.IO {
			t.Errorf("no such file: %v", err)
		}
	})
}

func TestHugeRecord(t *testing.T) {
	c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{math.MaxInt64}}}}
	eachWay(t, []byte("short"), c, func(t *testing.T, r record.Records) {
		n, err := formattest.Drain(t, r, 2, nil)
		if n != 0 || formattest.Kind(err) != pyfeed.Corrupt {
			t.Fatalf("%d %v", n, err)
		}
	})
}

func TestWriterRefuses(t *testing.T) {
	zeros := func(d pyfeed.DType, dims ...int64) *pyfeed.Tuple {
		return formattest.Tuple(formattest.Zeros(d, dims...))
	}
	short := zeros(pyfeed.Int16, 2)
	short.Slots[0].Data = short.Slots[0].Data[:3]
	for _, c := range []struct {
		slots  []pyfeed.Slot
		tuples []*pyfeed.Tuple
		kind   pyfeed.Kind
		text   string
	}{
		{nil, []*pyfeed.Tuple{zeros(pyfeed.Int16, 2), zeros(pyfeed.Int16, 3)}, pyfeed.Shape, "slot 0: dimension 0: expected 2, found 3: dims [3] for [2]"},
		{[]pyfeed.Slot{{DType: pyfeed.Any, Dims: pyfeed.Dims{-1}}}, []*pyfeed.Tuple{zeros(pyfeed.Int16, 2), zeros(pyfeed.Int8, 2)}, // the first tuple decides both
			pyfeed.Type, "slot 0: dtype: expected int16, found int8"},
		{nil, []*pyfeed.Tuple{short}, pyfeed.Shape, "slot 0: expected 4 bytes of data, found 3"},
	} {
		path := filepath.Join(t.TempDir(), "a.raw")
		last := len(c.tuples) - 1
		if err := tested.Write(t, path, &record.Config{Slots: c.slots}, c.tuples[:last]...); err != nil {
			t.Fatal(err)
		}
		if err := tested.Write(t, path, &record.Config{Slots: c.slots}, c.tuples...); formattest.Kind(err) != c.kind || err.Error() != c.text {
			t.Errorf("expected %q, found %v", c.text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "a.raw")
	for _, c := range []record.Config{
		{Options: &Options{ByteOrder: "middle"}},
		{Options: &Options{HeaderBytes: -1}},
		{Slots: []pyfeed.Slot{{DType: pyfeed.Int8, Dims: pyfeed.Dims{0}}}},
		{Storage: storage.Options{Compression: "rar"}},
	} {
		if _, err := Create(path, &c); formattest.Kind(err) != pyfeed.Invalid {
			t.Errorf("expected an error, found %v", err)
		}
	}
	if err := tested.Write(t, path, &record.Config{Slots: cifar[:1]}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || len(data) != 0 {
		t.Errorf("expected an empty file without tuples, found %v %v", data, err)
	}
	tested.Abort(t, &record.Config{}, zeros(pyfeed.Uint8))
}

func TestShrinkingFile(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := formattest.File(t, "a.raw", bytes.Repeat([]byte{1}, 8<<20))
		c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{1 << 20}}}, Pool: pool}
		c.Storage.IO = "map"
		r, err := Open(path, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		n, _ := formattest.Drain(t, r, 8, func(_ int, t *pyfeed.Tuple) {
			for _, b := range t.Slots[0].Data {
				_ = b
			}
			_ = bytes.Count(t.Slots[0].Data, []byte{1})
		})
		if n != 8 {
			t.Fatal(n)
		}
		if err := r.CheckTruncated(); formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), "the file shrank while it was read") {
			t.Fatalf("CheckTruncated: found %v", err)
		}
	})
}

func TestNoAllocationPerRecord(t *testing.T) {
	c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Float32, Dims: pyfeed.Dims{25}}}, Pool: formattest.Pool(t), Options: &Options{ByteOrder: "big"}}
	if n := tested.Allocations(t, formattest.File(t, "a.raw", make([]byte, 1<<22)), &c, 100); n > 8 {
		t.Errorf("expected a few allocations for 256 records, found %v", n)
	}
}

func TestCompression(t *testing.T) {
	c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{100}}}}
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, c, say, formattest.Tuple(formattest.Zeros(pyfeed.Uint8, 100)), "none", "gzip", "zlib", "zstd", "snappy")
}

func FuzzRaw(f *testing.F) {
	f.Add([]byte("0123456789"), uint8(0), uint8(2), int64(0))
	f.Add([]byte("0123456789"), uint8(1), uint8(12), int64(3))
	f.Add([]byte(""), uint8(1), uint8(1), int64(0))
	f.Add([]byte("\x1f\x8b\x08garbage"), uint8(0), uint8(1), int64(0))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, size, dtype uint8, header int64) {
		defer formattest.CheckLeaks(t)()
		d := pyfeed.DType(dtype%15) + pyfeed.Bool
		order := "little"
		if dtype >= 128 {
			order = "big"
		}
		c := record.Config{Pool: pool, Options: &Options{ByteOrder: order, HeaderBytes: header},
			Slots: []pyfeed.Slot{{DType: d, Dims: pyfeed.Dims{int64(size)}}, {DType: pyfeed.Uint8}}}
		if r, err := tested.Memory(data, &c); err == nil {
			r := r.(*records)
			sum := 0
			n, err := formattest.Drain(t, r, 5, func(_ int, tuple *pyfeed.Tuple) {
				for j := range tuple.Slots {
					want, err := tuple.Slots[j].Measure()
					if err != nil || want != len(tuple.Slots[j].Data) {
						t.Fatalf("slot %d: %v, %d bytes, found %d", j, err, want, len(tuple.Slots[j].Data))
					}
					sum += want
				}
			})
			if sum != n*r.size || !r.file.IsCompressed() && int64(sum) > max(int64(len(data))-header, 0) {
				t.Fatalf("%d records of %d bytes from %d", n, r.size, len(data))
			}
			if err != io.EOF && formattest.Kind(err) != pyfeed.Corrupt {
				t.Fatal(err)
			}
			if r.Resync() != io.EOF {
				t.Fatal("expected no data after the end")
			}
			r.Close()
		}
	})
}

func BenchmarkRead(b *testing.B) {
	floats := func(n int64) []pyfeed.Slot { return []pyfeed.Slot{{DType: pyfeed.Float32, Dims: pyfeed.Dims{n}}} }
	run := func(name string, slots []pyfeed.Slot, o *Options, total int) {
		b.Run(name, func(b *testing.B) {
			tested.Benchmark(b, formattest.File(b, "a.raw", make([]byte, total)), record.Config{Slots: slots, Options: o}, nil)
		})
	}
	for _, order := range []string{"little", "big"} {
		run("100B/"+order, floats(25), &Options{ByteOrder: order}, 100<<20)
		run("1MiB/"+order, floats(256<<10), &Options{ByteOrder: order}, 256<<20)
	}
	run("CIFAR10", cifar, nil, 3073*30000)
}
