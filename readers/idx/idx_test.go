package idx

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

var tested = formattest.Format{Suffix: ".idx", Open: Open, Begin: open, Create: Create}

func eachWay(t *testing.T, data []byte, test func(t *testing.T, r record.Records, err error)) {
	t.Helper()
	tested.EachWay(t, data, record.Config{}, test)
}

// drain reads to the end, many tuples at a time, and passes the slot of each tuple to see.
func drain(t testing.TB, r record.Records, many int, see func(i int, s *pyfeed.LoDTensor)) (int, error) {
	t.Helper()
	return formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
		if see != nil {
			see(i, &tuple.Slots[0])
		}
	})
}

func TestMNIST(t *testing.T) {
	const n = 3000
	images := append([]byte("\x00\x00\x08\x03\x00\x00\x0b\xb8\x00\x00\x00\x1c\x00\x00\x00\x1c"), formattest.Random(n*28*28)...)
	labels := append([]byte("\x00\x00\x08\x01\x00\x00\x0b\xb8"), formattest.Random(n)...)
	for _, many := range []int{1, 7, 256} {
		eachWay(t, images, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			slots, names, err := r.(record.Describer).Describe()
			if err != nil || names != nil || len(slots) != 1 || slots[0].DType != pyfeed.Uint8 || !slices.Equal(slots[0].Dims, pyfeed.Dims{28, 28}) {
				t.Fatalf("%v %v %v", slots, names, err)
			}
			got, err := drain(t, r, many, func(i int, s *pyfeed.LoDTensor) {
				if s.DType != pyfeed.Uint8 || !slices.Equal(s.Dims(), pyfeed.Dims{28, 28}) || !s.ReadOnly || !bytes.Equal(s.Data, images[16+i*784:16+(i+1)*784]) {
					t.Fatalf("image %d", i)
				}
			})
			if got != n || err != io.EOF {
				t.Fatalf("%d %v", got, err)
			}
		})
		eachWay(t, labels, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			got, err := drain(t, r, many, func(i int, s *pyfeed.LoDTensor) {
				if len(s.Dims()) != 0 || !bytes.Equal(s.Data, labels[8+i:9+i]) {
					t.Fatalf("label %d", i)
				}
			})
			if got != n || err != io.EOF || r.Resync() != io.EOF {
				t.Fatalf("%d %v", got, err)
			}
		})
	}
}

func TestGoldenBytes(t *testing.T) {
	for _, c := range []struct {
		data   string
		dtype  pyfeed.DType
		native []uint64
	}{
		{"\x00\x00\x09\x01\x00\x00\x00\x02\xff\x02", pyfeed.Int8, []uint64{0xff, 2}},
		{"\x00\x00\x0b\x01\x00\x00\x00\x02\xff\xfe\x00\x02", pyfeed.Int16, []uint64{0xfffe, 2}},
		{"\x00\x00\x0c\x01\x00\x00\x00\x01\xff\xff\xff\xfe", pyfeed.Int32, []uint64{0xfffffffe}},
		{"\x00\x00\x0d\x01\x00\x00\x00\x01\x3f\x80\x00\x00", pyfeed.Float32, []uint64{uint64(math.Float32bits(1))}},
		{"\x00\x00\x0e\x01\x00\x00\x00\x01\xc0\x00\x00\x00\x00\x00\x00\x00", pyfeed.Float64, []uint64{math.Float64bits(-2)}},
	} {
		eachWay(t, []byte(c.data), func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			n, err := drain(t, r, 10, func(i int, s *pyfeed.LoDTensor) {
				var got uint64
				switch len(s.Data) {
				case 1:
					got = uint64(s.Data[0])
				case 2:
					got = uint64(binary.NativeEndian.Uint16(s.Data))
				case 4:
					got = uint64(binary.NativeEndian.Uint32(s.Data))
				case 8:
					got = binary.NativeEndian.Uint64(s.Data)
				}
				if s.DType != c.dtype || got != c.native[i] || s.ReadOnly != (len(s.Data) == 1) {
					t.Errorf("%v: expected %x, found %x", c.dtype, c.native[i], got)
				}
			})
			if n != len(c.native) || err != io.EOF {
				t.Fatalf("%d %v", n, err)
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	random := formattest.Random(100 * 10 * 8)
	for number, d := range types {
		for j, dims := range []pyfeed.Dims{{}, {3}, {2, 5}, {1, 1, 1, 1, 1, 1, 1, 2}} {
			for k, compression := range []string{"", "none", "gzip", "zstd", "snappy", "zlib"} {
				if testing.Short() && k > 0 && (j+k)%4 > 0 { // each compression with some dims
					continue
				}
				for _, given := range []bool{false, true} {
					for _, count := range []int{0, 1, 100} {
						if count == 0 && !given {
							continue
						}
						formattest.WithPool(t, func(pool *memory.Pool) {
							path := filepath.Join(t.TempDir(), "a.idx")
							c := record.Config{Pool: pool}
							if given {
								c.Slots = []pyfeed.Slot{{DType: d, Dims: dims}}
							}
							c.Storage.Compression = compression
							one := formattest.Zeros(d, dims...)
							size := len(one.Data)
							all := random[:count*size]
							var tuples []*pyfeed.Tuple
							for i := range count {
								tuples = append(tuples, formattest.Tuple(formattest.Tensor(d, dims, all[i*size:(i+1)*size])))
							}
							if err := tested.Write(t, path, &c, tuples...); err != nil {
								t.Fatal(err)
							}
							if compression == "" && size > 0 {
								raw, _ := os.ReadFile(path)
								if raw[2] != number || int(raw[3]) != 1+len(dims) || len(raw) != 4+4*(1+len(dims))+len(all) {
									t.Fatalf("%x", raw[:8])
								}
							}
							c.Storage.Compression = ""
							if compression == "zlib" {
								c.Storage.Compression = compression
							}
							r, err := Open(path, &c)
							if err != nil {
								t.Fatal(err)
							}
							defer r.Close()
							n, err := drain(t, r, 16, func(i int, s *pyfeed.LoDTensor) {
								if s.DType != d || !slices.Equal(s.Dims(), dims) || !bytes.Equal(s.Data, all[i*size:(i+1)*size]) {
									t.Fatalf("%v %v: instance %d differs", d, dims, i)
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
	}
}

// A file of three instances is cut anywhere, and any byte is changed.
func TestDamage(t *testing.T) {
	data := []byte("\x00\x00\x0b\x03\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x01aAbBcCdDeEfF")
	const head = 16
	for cut := range len(data) {
		eachWay(t, data[:cut], func(t *testing.T, r record.Records, err error) {
			if cut < head {
				if formattest.Kind(err) != pyfeed.Corrupt {
					t.Fatalf("cut %d: %v", cut, err)
				}
				return
			}
			n, err := drain(t, r, 2, func(i int, s *pyfeed.LoDTensor) {
				if want := []byte{data[head+4*i+1], data[head+4*i], data[head+4*i+3], data[head+4*i+2]}; !bytes.Equal(s.Data, want) {
					t.Fatalf("instance %d: %s", i, s.Data)
				}
			})
			var e *pyfeed.Error
			if n != (cut-head)/4 || !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At.Offset != int64(head+4*n) || e.At.Record != int64(n) {
				t.Fatalf("cut %d: %d records, %v", cut, n, err)
			}
			want := fmt.Sprintf("expected 4 bytes, instance %d of 3, found %d and the end of the file", n+1, (cut-head)%4)
			if e.Text != want {
				t.Fatalf("expected %q, found %q", want, e.Text)
			}
			if r.Resync() != io.EOF {
				t.Fatal("expected no data after the end")
			}
		})
	}
	for at := range data {
		for bit := range 8 {
			bad := slices.Clone(data)
			bad[at] ^= 1 << bit
			formattest.WithPool(t, func(pool *memory.Pool) {
				r, err := tested.Memory(bad, &record.Config{Pool: pool})
				if err != nil {
					if at >= head || formattest.Kind(err) != pyfeed.Corrupt {
						t.Fatalf("byte %d, bit %d: %v", at, bit, err)
					}
					return
				}
				defer r.Close()
				n, err := drain(t, r, 2, nil)
				if at >= head && (n != 3 || err != io.EOF) || at < head && formattest.Kind(err) != pyfeed.Corrupt && at != 2 {
					t.Fatalf("byte %d, bit %d: %d records, %v", at, bit, n, err)
				}
			})
		}
	}
}

func TestAdversarialHeaders(t *testing.T) {
	for _, c := range []struct{ data, text string }{
		{"", "expected a header of 4 bytes and more, found 0"},
		{"\x00\x00\x08", "expected a header of 4 bytes and more, found 3"},
		{"PK\x03\x04", "expected two zero bytes, with which an idx file begins, found 0x50 0x4b"},
		{"MMIDIDX\x00\x00\x01\x00", "expected two zero bytes, with which an idx file begins, found the index of tokens of Megatron-LM: the format \"tokens\" reads it"},
		{"MMIDIDX\x00", "expected two zero bytes, with which an idx file begins, found 0x4d 0x4d"},
		{"\x00\x00\x0a\x01", "expected a type of 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, found 0x0a"},
		{"\x00\x00\x08\x00", "expected 1 to 9 dimensions, the first of them the instances, found 0"},
		{"\x00\x00\x08\xff", "expected 1 to 9 dimensions, the first of them the instances, found 255"},
		{"\x00\x00\x08\x03\x00\x00\x00\x01\x00\x00\x00\x01", "expected a header of 16 bytes, for 3 dimensions, found 12"},
		{"\x00\x00\x08\x04" + strings.Repeat("\xff", 16), "expected dimensions that memory can hold, found [4294967295 4294967295 4294967295] of uint8 an instance"},
		{"\x00\x00\x0e\x03" + strings.Repeat("\xff", 12), "expected dimensions that memory can hold, found [4294967295 4294967295] of float64 an instance"},
		{"\x00\x00\x08\x02\xff\xff\xff\xff\x00\x00\x00\x00", "expected instances with elements, found 4294967295 of dims [0]"},
	} {
		eachWay(t, []byte(c.data), func(t *testing.T, _ record.Records, err error) {
			var e *pyfeed.Error
			if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.Text != c.text || e.At.File == "" {
				t.Errorf("expected %q, found %v", c.text, err)
			}
		})
	}
	// The dimensions are possible, but the file has no data: no memory may be allocated for them.
	for _, head := range []string{
		"\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x00\x08\x03\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x00\x0e\x02\x00\x00\x00\x01\xff\xff\xff\xff",
	} {
		eachWay(t, []byte(head+"few"), func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			n, err := drain(t, r, 4, nil)
			if n != 0 || formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), "found 3 and the end of the file") {
				t.Errorf("%d %v", n, err)
			}
		})
	}
	eachWay(t, []byte("\x00\x00\x08\x01\x00\x00\x00\x01ab"), func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := drain(t, r, 4, nil)
		if n != 1 || formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), "byte 9, record 1: expected the end of the file after 1 instances, found more bytes") {
			t.Errorf("%d %v", n, err)
		}
	})
	eachWay(t, []byte("\x00\x00\x08\x02\x00\x00\x00\x00\x00\x00\x00\x00"), func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if n, err := drain(t, r, 4, nil); n != 0 || err != io.EOF {
			t.Errorf("%d %v", n, err)
		}
	})
}

func zeros(d pyfeed.DType, dims ...int64) *pyfeed.Tuple {
	return formattest.Tuple(formattest.Zeros(d, dims...))
}

func TestWriterRefuses(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		path := filepath.Join(t.TempDir(), "a.idx")
		for _, c := range []struct {
			slots  []pyfeed.Slot
			tuples []*pyfeed.Tuple
			text   string
		}{
			{nil, []*pyfeed.Tuple{pyfeed.NewTuple(2)}, "idx: slots: expected 1, because a file holds one array, found 2"},
			{nil, []*pyfeed.Tuple{zeros(pyfeed.Int64, 2)}, "slot 0: idx: dtype: expected uint8, int8, int16, int32, float32 or float64, found int64"},
			{nil, []*pyfeed.Tuple{zeros(pyfeed.Uint8, 2, 0)}, "slot 0: idx: dimension 1: expected 1 to 4294967295, found 0"},
			{nil, []*pyfeed.Tuple{zeros(pyfeed.Uint8, 2), zeros(pyfeed.Uint8, 3)}, "slot 0: dimension 0: expected 2, found 3: dims [3] for [2]"},
			{nil, []*pyfeed.Tuple{zeros(pyfeed.Uint8, 2), zeros(pyfeed.Int8, 2)}, "slot 0: dtype: expected uint8, found int8"},
			{[]pyfeed.Slot{{DType: pyfeed.Any, Dims: pyfeed.Dims{-1}}}, []*pyfeed.Tuple{zeros(pyfeed.Uint8, 2), zeros(pyfeed.Uint8)}, "slot 0: shape: expected [2], found []"},
		} {
			err := tested.Write(t, path, &record.Config{Slots: c.slots, Storage: storage.Options{Compression: compression}}, c.tuples...)
			if err == nil || err.Error() != c.text {
				t.Errorf("expected %q, found %v", c.text, err)
			}
		}
		for _, c := range []struct {
			slots []pyfeed.Slot
			kind  pyfeed.Kind
		}{
			{[]pyfeed.Slot{{DType: pyfeed.Uint64}}, pyfeed.Type},
			{[]pyfeed.Slot{{DType: pyfeed.Uint8}, {DType: pyfeed.Uint8}}, pyfeed.Slots},
			{[]pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{1 << 32}}}, pyfeed.Shape},
			{[]pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{math.MaxUint32, math.MaxUint32, 2}}}, pyfeed.Shape},
		} {
			if _, err := Create(path, &record.Config{Slots: c.slots}); formattest.Kind(err) != c.kind {
				t.Errorf("expected kind %d, found %v", c.kind, err)
			}
		}
		c := record.Config{Slots: []pyfeed.Slot{record.BytesSlot}}
		if err := tested.Write(t, path, &c, formattest.Tuple(formattest.Text("ab"))); formattest.Kind(err) != pyfeed.Shape {
			t.Error(err)
		}
		c = record.Config{Storage: storage.Options{Compression: compression}}
		tested.Abort(t, &c, zeros(pyfeed.Uint8, 2))
		if err := tested.Write(t, path, &c); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHugeCountIsWritten(t *testing.T) {
	w := &writer{header: header{dtype: pyfeed.Uint8, size: 1, count: math.MaxUint32}, headerSet: true, headerWritten: true}
	if err := w.encode(zeros(pyfeed.Uint8)); formattest.Kind(err) != pyfeed.TooLarge {
		t.Errorf("one instance too many: %v", err)
	}
	if b := w.header.bytes(); string(b) != "\x00\x00\x08\x01\xff\xff\xff\xff" {
		t.Errorf("%x", b)
	}
}

func TestCompression(t *testing.T) {
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, record.Config{}, say, zeros(pyfeed.Int16, 100), "none", "gzip", "zlib", "zstd", "snappy")
}

func FuzzIdx(f *testing.F) {
	f.Add([]byte("\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02abcd"))
	f.Add([]byte("\x00\x00\x0b\x02\x00\x00\x00\x02\x00\x00\x00\x01abcd"))
	f.Add([]byte("\x00\x00\x0e\x01\x00\x00\x00\x0112345678"))
	f.Add([]byte("\x00\x00\x0d\x02\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x08\x02\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte(""))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte) {
		defer formattest.CheckLeaks(t)()
		r, err := tested.Memory(data, &record.Config{Pool: pool})
		if err == nil {
			slots, _, err := r.(record.Describer).Describe()
			if err != nil || len(slots) != 1 {
				t.Fatal(slots, err)
			}
			sum := 0
			_, err = drain(t, r, 3, func(_ int, s *pyfeed.LoDTensor) {
				want, err := s.Measure()
				if err != nil || want != len(s.Data) || s.DType != slots[0].DType || !slices.Equal(s.Dims(), slots[0].Dims) {
					t.Fatalf("%v %v: %d bytes, found %d: %v", s.DType, s.Dims(), want, len(s.Data), err)
				}
				sum += want
			})
			if !r.(*records).file.IsCompressed() && sum > len(data)-8 {
				t.Fatalf("%d bytes from %d", sum, len(data))
			}
			if err != io.EOF && formattest.Kind(err) != pyfeed.Corrupt {
				t.Fatal(err)
			}
			if r.Resync() != io.EOF {
				t.Fatal("expected no data after the end")
			}
			r.Close()
		} else if formattest.Kind(err) != pyfeed.Corrupt {
			t.Fatal(err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	run := func(name, head string, size int) {
		b.Run(name, func(b *testing.B) {
			count := int(binary.BigEndian.Uint32([]byte(head[4:])))
			tested.Benchmark(b, formattest.File(b, "a.idx", append([]byte(head), make([]byte, count*size)...)), record.Config{}, nil)
		})
	}
	run("100B/uint8", "\x00\x00\x08\x02\x00\x10\x00\x00\x00\x00\x00\x64", 100)
	run("100B/float32", "\x00\x00\x0d\x02\x00\x10\x00\x00\x00\x00\x00\x19", 100)
	run("1MiB/uint8", "\x00\x00\x08\x02\x00\x00\x01\x00\x00\x10\x00\x00", 1<<20)
	run("1MiB/float32", "\x00\x00\x0d\x02\x00\x00\x01\x00\x00\x04\x00\x00", 1<<20)
	run("MNIST", "\x00\x00\x08\x03\x00\x00\xea\x60\x00\x00\x00\x1c\x00\x00\x00\x1c", 784)
}
