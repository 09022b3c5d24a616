package tokens

import (
	"encoding/binary"
	"fmt"
	"io"
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

// lines reads all windows, some at a time, and returns them as text.
func lines(t *testing.T, r record.Records, many int) []string {
	t.Helper()
	all, err := formattest.Lines(t, r, many)
	if err != io.EOF {
		t.Fatal(err)
	}
	if r.Resync() != io.EOF {
		t.Fatal("expected no data after the end")
	}
	return all
}

// Windows are those of a model, for every number of tokens, in every way to read a file.
func TestWindows(t *testing.T) {
	for _, o := range []Options{
		{Length: 4}, {Length: 4, Targets: true}, {Length: 4, Stride: 1}, {Length: 4, Stride: 3, Targets: true}, {Length: 3, Stride: 7},
		{Length: 3, Stride: 7, Targets: true}, {Length: 4, Last: "short"}, {Length: 4, Stride: 1, Last: "short"}, {Length: 1},
		{Length: 4, Targets: true, Last: "short"}, {Length: 3, Stride: 7, Last: "short"}, {Length: 3, Stride: 7, Last: "short", Targets: true},
		{Length: 4, Stride: 3, Last: "short", Targets: true}, {Length: 1, Last: "short", Targets: true},
	} {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 200} {
			o.OutputDType = []string{"", "int64", "int32"}[n%3]
			want := expected([][]uint64{ids(n)}, o)
			tested.EachWay(t, stored(ids(n), 2), config(o), func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				if c := r.(record.Counted).Count(); c != int64(len(want)) && c != -1 {
					t.Errorf("%+v, %d tokens: expected %d windows, found %d", o, n, len(want), c)
				}
				if got := lines(t, r, []int{1, 7, 64, 256}[n%4]); !slices.Equal(got, want) {
					t.Errorf("%+v, %d tokens: expected\n%v\nfound\n%v", o, n, want, got)
				}
			})
		}
	}
}

// Windows lie in several windows of a mapping and several blocks, and are longer than either.
func TestLargeFiles(t *testing.T) {
	all := ids(3 << 20)
	data := stored(all, 2)
	for _, o := range []Options{{Length: 1000, Stride: 300, Targets: true}, {Length: 700_001, Stride: 400_000}, {Length: 1000, Stride: 900_000},
		{Length: 2048, OutputDType: "int32"}, {Length: 1500, Stride: 1499, OutputDType: "int64", Targets: true}} {
		need, stride := int(o.Length), int(o.Stride)
		if stride == 0 {
			stride = need
		}
		if o.Targets {
			need++
		}
		for _, many := range []int{4, 33} {
			tested.EachWay(t, data, config(o), func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				n, err := formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
					for j := range tuple.Slots {
						s := &tuple.Slots[j]
						item := s.DType.Size()
						for k := 0; k < int(o.Length); k += 97 {
							if got, _ := record.Integer(s.DType, s.Data[k*item:]); got != int64(all[i*stride+j+k]) {
								t.Fatalf("%+v: window %d, slot %d, token %d: expected %d, found %d", o, i, j, k, all[i*stride+j+k], got)
							}
						}
					}
				})
				if want := (len(all)-need)/stride + 1; n != want || err != io.EOF {
					t.Fatalf("%+v: expected %d windows, found %d, %v", o, want, n, err)
				}
			})
		}
	}
}

// Windows are views of a mapped file, and Blocks of overlapping windows are too.
func TestViews(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		c := config(Options{Length: 100, Stride: 10, Targets: true})
		c.Pool, c.Storage.IO = pool, "map"
		r, err := Open(formattest.File(t, "a", stored(ids(10_000), 2)), &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b := r.(record.BlockReader).ReadBlock(64)
		if b == nil || b.Len() != 64 {
			t.Fatalf("expected a block of 64 windows, found %v", b)
		}
		var chunk record.Chunk
		chunk.AddBlock(b)
		tuples := make([]*pyfeed.Tuple, 64)
		chunk.Take(tuples)
		for i, tuple := range tuples {
			x, y := tuple.Slots[0].Data, tuple.Slots[1].Data
			if &x[2] != &y[0] || i > 0 && &x[0] != &tuples[i-1].Slots[0].Data[20] || !tuple.Slots[0].ReadOnly || !tuple.Slots[1].ReadOnly {
				t.Fatalf("window %d is a copy", i)
			}
		}
		pyfeed.ReleaseAll(tuples)
	})
}

func TestDTypes(t *testing.T) {
	values := []uint64{0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	for d := pyfeed.Int8; d <= pyfeed.Uint64; d++ {
		for out := pyfeed.Int8; out <= pyfeed.Uint64; out++ {
			c := config(Options{Length: 1, DType: d.String(), OutputDType: out.String()})
			tested.EachWay(t, stored(values, d.Size()), c, func(t *testing.T, r record.Records, err error) {
				if !holds(out, d) {
					formattest.Expect(t, err, pyfeed.Type, fmt.Sprintf("tokens: output_dtype: expected an integer dtype that holds all values of %v, found %v", d, out))
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				n, err := formattest.Drain(t, r, 5, func(i int, tuple *pyfeed.Tuple) {
					bits := 64 - 8*d.Size()
					want := int64(values[i] << bits >> bits)
					if isSigned(d) {
						want = int64(values[i]<<bits) >> bits
					}
					if got, _ := record.Integer(out, tuple.Slots[0].Data); got != want {
						t.Errorf("%v to %v: value %d: expected %d, found %d", d, out, i, want, got)
					}
				})
				if n != len(values) || err != io.EOF {
					t.Errorf("%v to %v: %d %v", d, out, n, err)
				}
			})
		}
	}
	for wide, all := range map[pyfeed.DType]string{
		pyfeed.Int8: "int8", pyfeed.Int16: "int8 int16 uint8", pyfeed.Int32: "int8 int16 int32 uint8 uint16", pyfeed.Int64: "int8 int16 int32 int64 uint8 uint16 uint32",
		pyfeed.Uint8: "uint8", pyfeed.Uint16: "uint8 uint16", pyfeed.Uint32: "uint8 uint16 uint32", pyfeed.Uint64: "uint8 uint16 uint32 uint64",
	} {
		var found []string
		for d := pyfeed.Int8; d <= pyfeed.Uint64; d++ {
			if holds(wide, d) {
				found = append(found, d.String())
			}
		}
		if got := strings.Join(found, " "); got != all {
			t.Errorf("%v: expected %s, found %s", wide, all, got)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{}, ""}, {Options{Length: 1, Stride: 2, Last: "short", Documents: "within", Layout: "megatron", DType: "uint8", OutputDType: "int8"}, ""},
		{Options{Length: -1}, "tokens: length: expected 1 to 1099511627776 tokens, found -1"},
		{Options{Length: 1, Stride: -1}, "tokens: stride: expected 1 to 1099511627776 tokens, found -1"},
		{Options{Length: 1 << 41}, "tokens: length: expected 1 to 1099511627776 tokens, found 2199023255552"},
		{Options{Length: 1, Documents: "in"}, `tokens: documents: expected across, within or whole, found "in"`},
		{Options{Length: 1, Last: "pad"}, `tokens: last: expected drop or short, found "pad"`},
		{Options{Length: 1, Layout: "llmc"}, `tokens: layout: expected auto, headerless, llm.c or megatron, found "llmc"`},
		{Options{Length: 1, DType: "float32"}, `tokens: dtype: expected an integer dtype, found "float32"`},
		{Options{Length: 1, DType: "any"}, `tokens: dtype: expected an integer dtype, found "any"`},
		{Options{Length: 1, OutputDType: "bool"}, `tokens: output_dtype: expected an integer dtype, found "bool"`},
		{Options{Documents: "whole", Length: 3}, `tokens: length: expected none, nor stride, because documents is "whole", found 3 and 0`},
		{Options{Documents: "whole", Targets: true}, `tokens: targets: expected false, because documents is "whole", found true`},
	} {
		formattest.ExpectError(t, c.o.Check(), c.text)
	}
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{}, "tokens: length: expected the number of tokens of a window, found none"},
		{Options{Length: 1, Documents: "within"}, `documents: expected "across", because only an index of Megatron-LM tells where documents begin, found "within"`},
		{Options{Documents: "whole"}, `documents: expected "across", because only an index of Megatron-LM tells where documents begin, found "whole"`},
	} {
		tested.EachWay(t, stored(ids(10), 2), config(c.o), func(t *testing.T, _ record.Records, err error) {
			formattest.Expect(t, err, pyfeed.Invalid, c.text)
		})
	}
}

func llmc(magic, version, count uint32, data []byte) []byte {
	head := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, magic), version)
	head = binary.LittleEndian.AppendUint32(head, count)
	return append(append(head, make([]byte, llmHeader-12)...), data...)
}

func TestHeaderOfLLMC(t *testing.T) {
	for _, layout := range []string{"", "auto", "llm.c"} {
		for _, h := range headers {
			o := Options{Length: 4, Layout: layout}
			data := llmc(h.magic, h.version, 11, stored(ids(11), h.dtype.Size()))
			tested.EachWay(t, data, config(o), func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				slots, _, _ := r.(record.Describer).Describe()
				if slots[0].DType != h.dtype || r.(record.Counted).Count() != 2 {
					t.Errorf("expected 2 windows of %v, found %d of %v", h.dtype, r.(record.Counted).Count(), slots[0].DType)
				}
				if got, want := lines(t, r, 3), expected([][]uint64{ids(11)}, o); !slices.Equal(got, want) {
					t.Errorf("expected %v, found %v", want, got)
				}
			})
			for _, c := range []struct {
				data    []byte
				windows int
				text    string
			}{
				{data[:len(data)-1], 2, ""}, // the damage is in tokens that are no window
				{data[:llmHeader+7*h.dtype.Size()], 1, fmt.Sprintf("expected %d bytes, window 2 of 2, found %d and the end of the file", 4*h.dtype.Size(), 3*h.dtype.Size())},
				{append(slices.Clone(data), 1), 2, "expected the end of the file after 11 tokens, as the header says, found more bytes"},
			} {
				tested.EachWay(t, c.data, config(o), func(t *testing.T, r record.Records, err error) {
					if err != nil {
						t.Fatal(err)
					}
					n, err := formattest.Drain(t, r, 4, nil)
					if n != c.windows {
						t.Errorf("expected %d windows, found %d", c.windows, n)
					}
					if c.text == "" {
						c.text = "expected data up to offset"
					}
					if e := formattest.Expect(t, err, pyfeed.Corrupt, c.text); e.At.File == "" {
						t.Errorf("expected the name of the file, found %v", e)
					}
				})
			}
		}
		if layout == "llm.c" {
			tested.EachWay(t, stored(ids(600), 2), config(Options{Length: 4, Layout: layout}), func(t *testing.T, _ record.Records, err error) {
				formattest.Expect(t, err, pyfeed.Corrupt, "expected the magic number and version of llm.c")
			})
		}
		tested.EachWay(t, llmc(20240520, 1, 3, nil)[:100], config(Options{Length: 4, Layout: layout}), func(t *testing.T, _ record.Records, err error) {
			formattest.Expect(t, err, pyfeed.Corrupt, "expected a header of 1024 bytes, found 100")
		})
	}
	tested.EachWay(t, llmc(20240520, 1, 3, nil), config(Options{Length: 100, Layout: "headerless"}), func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(t, r, 4); len(got) != 5 {
			t.Errorf("expected 5 windows, found %d", len(got))
		}
	})
	o := config(Options{Length: 4, DType: "int32"})
	tested.EachWay(t, llmc(20240520, 1, 3, nil), o, func(t *testing.T, _ record.Records, err error) {
		formattest.Expect(t, err, pyfeed.Type, "tokens: dtype: expected uint16, as the file says, found int32")
	})
}

// A partial token at the end is damage, also if no window would have it.
func TestPartialToken(t *testing.T) {
	for n := range 12 {
		for _, last := range []string{"drop", "short"} {
			o := Options{Length: 4, Last: last}
			data := stored(ids(n+1), 2)[:2*n+1]
			want := expected([][]uint64{ids(n)}, o)
			tested.EachWay(t, data, config(o), func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := formattest.Lines(t, r, 3)
				e := formattest.Expect(t, err, pyfeed.Corrupt, "expected tokens of 2 bytes, found 1 bytes at the end of the file")
				if e.At.Offset != int64(2*n) || e.At.Record != int64(len(want)) || !slices.Equal(got, want) {
					t.Errorf("%d tokens: expected %v, found %v, %v", n, want, got, e)
				}
				if r.Resync() != io.EOF {
					t.Error("expected no data after the end")
				}
			})
		}
	}
}

// eachPair opens the files of Megatron-LM in each way.
func eachPair(t *testing.T, path string, o Options, test func(t *testing.T, r record.Records, err error)) {
	t.Helper()
	for _, how := range []string{"auto", "map", "read", "blocks", ".bin"} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := config(o)
			c.Pool, c.Storage.IO = pool, how
			path := path
			switch how {
			case "blocks":
				c.Storage.IO, c.Storage.Block = "read", 512
			case ".bin":
				c.Storage.IO = ""
				path = strings.TrimSuffix(path, ".idx") + how
				o := o
				o.Layout = "megatron"
				c.Options = &o
			}
			r, err := Open(path, &c)
			if err == nil {
				defer r.Close()
			}
			test(t, r, err)
		})
	}
}

func TestMegatron(t *testing.T) {
	lengths := []int{0, 3, 0, 0, 4, 5, 9, 1, 13, 8, 0}
	for i := range 300 {
		lengths = append(lengths, i%11)
	}
	for _, lengths := range [][]int{nil, {0}, {7}, lengths} {
		documents, flat := texts(lengths...)
		for _, d := range []pyfeed.DType{pyfeed.Uint16, pyfeed.Int32, pyfeed.Int64} {
			path := pair(t, documents, d)
			for _, o := range []Options{
				{Length: 4}, {Length: 4, Stride: 1, Targets: true}, {Length: 3, Last: "short", Documents: "across"}, {Length: 4, Documents: "within"},
				{Length: 2, Documents: "within", Last: "short", Targets: true}, {Length: 4, Stride: 1, Documents: "within", Last: "short"},
				{Length: 2, Stride: 3, Documents: "within"}, {Documents: "whole"}, {Documents: "whole", OutputDType: "int64"},
				{Length: 4, Stride: 1, Documents: "within", OutputDType: "int64"},
			} {
				of := flat
				if o.Documents == "" || o.Documents == "across" {
					of = [][]uint64{join(flat)}
				}
				want := expected(of, o)
				eachPair(t, path, o, func(t *testing.T, r record.Records, err error) {
					if err != nil {
						t.Fatal(err)
					}
					if n := r.(record.Counted).Count(); n != int64(len(want)) {
						t.Errorf("%+v: expected %d windows, found %d", o, len(want), n)
					}
					if got := lines(t, r, 5); !slices.Equal(got, want) {
						t.Errorf("%+v: expected\n%v\nfound\n%v", o, want, got)
					}
					for _, i := range []int{len(want) - 1, 0, len(want) / 2, len(want) / 3, len(want) / 3} {
						if len(want) == 0 {
							break
						}
						if err := r.(record.Seeker).Seek(record.Position{Offset: int64(i)}, int64(i), true); err != nil {
							t.Fatal(err)
						}
						out := []*pyfeed.Tuple{pyfeed.NewTuple(1)}
						if n, err := r.Read(out); n != 1 || err != nil || formattest.FormatTuple(out[0]) != want[i] {
							t.Errorf("%+v: window %d: expected %s, found %v, %v", o, i, want[i], formattest.FormatTuple(out[0]), err)
						}
						pyfeed.ReleaseAll(out)
					}
				})
			}
		}
	}
}

// Any byte of the index is changed, and both files are cut anywhere.
func TestDamagedIndex(t *testing.T) {
	documents, flat := texts(3, 0, 8, 2)
	path := pair(t, documents, pyfeed.Uint16)
	data := strings.TrimSuffix(path, ".idx") + ".bin"
	index, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Length: 2, Documents: "within"}, {Documents: "whole"}, {Length: 2}} {
		of := flat
		if o.Documents == "" {
			of = [][]uint64{join(flat)}
		}
		want := expected(of, o)
		check := func(what string, at int) {
			t.Helper()
			formattest.WithPool(t, func(pool *memory.Pool) {
				c := config(o)
				c.Pool = pool
				r, err := Open(path, &c)
				if err != nil {
					if k := formattest.Kind(err); k != pyfeed.Corrupt && k != pyfeed.Unsupported {
						t.Errorf("%+v, %s %d: %v", o, what, at, err)
					}
					return
				}
				defer r.Close()
				if got := lines(t, r, 4); !slices.Equal(got, want) && at != 17 && o.Documents != "whole" && at < megatronHeader+12*4 {
					t.Errorf("%+v, %s %d: expected\n%v\nfound\n%v", o, what, at, want, got)
				}
			})
		}
		for at := range index {
			for bit := range 8 {
				bad := slices.Clone(index)
				bad[at] ^= 1 << bit
				write(t, path, bad)
				check("byte", at)
			}
			write(t, path, index[:at])
			check("cut", at)
		}
		write(t, path, append(slices.Clone(index), 0))
		check("longer", len(index))
		write(t, path, index)
		for _, n := range []int{0, 1, 25, 27} {
			write(t, data, make([]byte, n))
			formattest.WithPool(t, func(pool *memory.Pool) {
				c := config(o)
				c.Pool = pool
				_, err := Open(path, &c)
				formattest.Expect(t, err, pyfeed.Corrupt, "expected ")
			})
		}
		write(t, data, stored(join(flat), 2))
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestIndexErrors(t *testing.T) {
	documents, _ := texts(3, 8)
	path := pair(t, documents, pyfeed.Uint16)
	index, _ := os.ReadFile(path)
	for _, c := range []struct {
		at   int
		with string
		kind pyfeed.Kind
		text string
	}{
		{0, "X", pyfeed.Corrupt, `byte 0: expected "MMIDIDX\x00\x00", with which an index of Megatron-LM begins, found "XMIDIDX\x00\x00"`},
		{9, "\x02", pyfeed.Corrupt, "byte 9: expected version 1, found 2"},
		{17, "\x06", pyfeed.Unsupported, "dtype: expected that of tokens, an integer dtype, found float64 or float32 (code 6)"},
		{17, "\x00", pyfeed.Corrupt, "byte 17: expected the code of a dtype, 1 to 8, found 0"},
		{18, "\xff\xff\xff\xff\xff\xff\xff\xff", pyfeed.Corrupt, "byte 18: expected a file of 34 bytes and 12 for each sequence and 8 for each document, found 94 bytes for 18446744073709551615 sequences and 3 documents"},
		{34, "\xff\xff\xff\xff", pyfeed.Corrupt, "byte 34: sequence 0: expected a number of tokens, found -1"},
		{34, "\x04", pyfeed.Corrupt, "byte 54: sequence 1: expected it behind the one before, at byte 8, found byte 6"},
		{62, "\x00\x00\x00\x00\x00\x00\x00\x80", pyfeed.Corrupt, "byte 62: expected the last sequence within the 22 bytes of tokens, found 3 tokens at byte -9223372036854775808"},
		{42, "\x02", pyfeed.Corrupt, "byte 34: expected sequences up to the end of the tokens, byte 22, found byte 20"},
		{70, "\x01", pyfeed.Corrupt, "byte 70: expected the first document to begin with sequence 0, found 1"},
		{78, "\x09", pyfeed.Corrupt, "byte 78: expected the number of a sequence, 0 to 3, found 9"},
		{86, "\x02", pyfeed.Corrupt, "byte 86: expected the number of all 3 sequences, found 2"},
	} {
		bad := slices.Clone(index)
		copy(bad[c.at:], c.with)
		write(t, path, bad)
		eachPair(t, path, Options{Length: 2, Documents: "within"}, func(t *testing.T, _ record.Records, err error) {
			formattest.Expect(t, err, c.kind, c.text)
			if !strings.HasPrefix(err.Error(), path) {
				t.Errorf("expected the name of the index, found %v", err)
			}
		})
	}
	write(t, path, index)
	bin := strings.TrimSuffix(path, ".idx") + ".bin"
	c := config(Options{Length: 2})
	_, err := Open(bin, &c)
	formattest.Expect(t, err, pyfeed.Invalid, "expected tokens without an index, found those of Megatron-LM, with the index "+path)
	formattest.WithPool(t, func(pool *memory.Pool) {
		c := config(Options{Length: 2, Layout: "headerless"})
		c.Pool = pool
		r, err := Open(bin, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if n := len(lines(t, r, 2)); n != 5 {
			t.Errorf("expected 5 windows, found %d", n)
		}
		c = config(Options{Length: 2, Compression: "gzip"})
		_, err = Open(path, &c)
		formattest.Expect(t, err, pyfeed.Invalid, `compression: expected none for tokens of Megatron-LM, found "gzip"`)
		c = config(Options{Length: 2, DType: "int32"})
		c.Pool = pool
		_, err = Open(path, &c)
		formattest.Expect(t, err, pyfeed.Type, bin+": tokens: dtype: expected uint16, as the file says, found int32")
	})
	if err := os.Remove(bin); err != nil {
		t.Fatal(err)
	}
	eachPair(t, path, Options{Length: 2}, func(t *testing.T, _ record.Records, err error) {
		formattest.Expect(t, err, pyfeed.IO, bin+": no such file or directory")
	})
}

// The count of windows can be interrupted.
func TestInterruptedIndex(t *testing.T) {
	every := storage.PollEvery
	storage.PollEvery = 32
	defer func() { storage.PollEvery = every }()
	documents, flat := texts(3, 0, 8, 2, 20)
	path := pair(t, documents, pyfeed.Uint16)
	formattest.WithPool(t, func(pool *memory.Pool) {
		for at := 1; ; at++ {
			c := config(Options{Length: 2, Documents: "within"})
			stop, polls := new(storage.Interrupt), 0
			stop.SetLimit(func() bool { polls++; return polls == at })
			c.Pool, c.Storage.Interrupt = pool, stop
			r, err := Open(path, &c)
			if err == storage.ErrInterrupted {
				r, err = Open(path, &c)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := lines(t, r, 4)
			r.Close()
			if want := expected(flat, Options{Length: 2}); !slices.Equal(got, want) {
				t.Fatalf("expected %v, found %v", want, got)
			}
			if polls < at {
				if at < 4 {
					t.Errorf("found %d polls", polls)
				}
				break
			}
		}
	})
}

func TestShrinkingFile(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := formattest.File(t, "a", make([]byte, 8<<20))
		c := config(Options{Length: 1 << 19, OutputDType: "uint16"})
		c.Pool, c.Storage.IO = pool, "map"
		r, err := Open(path, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		sum := 0
		n, _ := formattest.Drain(t, r, 8, func(_ int, t *pyfeed.Tuple) {
			for _, b := range t.Slots[0].Data {
				sum += int(b)
			}
		})
		if n != 8 || sum != 0 {
			t.Fatal(n, sum)
		}
		formattest.Expect(t, r.CheckTruncated(), pyfeed.Corrupt, "the file shrank while it was read")
	})
}

func TestNoAllocationPerRecord(t *testing.T) {
	for _, o := range []Options{{Length: 100}, {Length: 100, Targets: true}, {Length: 100, OutputDType: "int64"}} {
		c := config(o)
		c.Pool = formattest.Pool(t)
		if n := tested.Allocations(t, formattest.File(t, "a", make([]byte, 1<<24)), &c, 100); n > 12 {
			t.Errorf("%+v: expected a few allocations for 256 windows, found %v", o, n)
		}
	}
}

func TestCompression(t *testing.T) {
	c := config(Options{Length: 10})
	say := func(c *record.Config, compression string) {
		c.Options = &Options{Length: 10, Compression: compression}
	}
	tuple := formattest.Tuple(formattest.TensorOf([]uint16{1, 2, 3, 4, 5, 6, 7, 8, 9, 65535}))
	tested.Compressions(t, c, say, tuple, "none", "gzip", "zlib", "zstd", "snappy")
}

// Reading goes on from every position, and finds the same damage at the end.
func TestSeeks(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 200
	}
	for _, o := range []Options{{Length: 10}, {Length: 10, Stride: 3, Targets: true}, {Length: 10, Stride: 3, Last: "short"}, {Length: 2, Stride: 9, OutputDType: "int64"}} {
		for _, data := range [][]byte{stored(ids(n), 2), stored(ids(n), 2)[:2*n-5]} {
			if n := tested.Seeks(t, data, config(o)); n < 10 {
				t.Errorf("found %d positions", n)
			}
		}
	}
}

// The reading and the conversion of long windows can be interrupted at any poll.
func TestInterrupted(t *testing.T) {
	for _, o := range []Options{{Length: 20_000, OutputDType: "int64"}, {Length: 20_000, Stride: 50_000}, {Length: 20_000, Stride: 15_000, Last: "short"}} {
		if n := tested.Interrupted(t, stored(ids(110_000), 2), config(o)); n < 5 {
			t.Errorf("%+v: found %d polls", o, n)
		}
	}
}

func TestWriter(t *testing.T) {
	tuples := []*pyfeed.Tuple{
		formattest.Tuple(formattest.TensorOf([]int64{1, 2, 65535})),
		formattest.Tuple(formattest.TensorOf([]int64{}, 0)),
		formattest.Tuple(formattest.TensorOf([]int64{7})),
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.bin")
	c := config(Options{})
	if err := tested.Write(t, path, &c, tuples...); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "\x01\x00\x02\x00\xff\xff\x07\x00" {
		t.Errorf("found %x", data)
	}
	for _, d := range []pyfeed.DType{pyfeed.Int64, pyfeed.Int32, pyfeed.Uint16} {
		path = filepath.Join(t.TempDir(), "a.idx")
		c = config(Options{DType: d.String()})
		if d == pyfeed.Int64 {
			c = config(Options{}) // the dtype of the tuples
		}
		w, err := Create(path, &c)
		if err != nil {
			t.Fatal(err)
		}
		for _, tuple := range tuples {
			if err := w.Write(tuple); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want := pair(t, [][][]uint64{{{1, 2, 65535}}, {{}}, {{7}}}, d)
		for _, suffix := range []string{".idx", ".bin"} {
			wrote, _ := os.ReadFile(strings.TrimSuffix(path, ".idx") + suffix)
			if model, _ := os.ReadFile(strings.TrimSuffix(want, ".idx") + suffix); string(wrote) != string(model) || len(wrote) == 0 {
				t.Errorf("%v: expected\n%x\nfound\n%x", d, model, wrote)
			}
		}
		formattest.ExpectError(t, w.Close(), "expected an open writer, found one that is closed")
		formattest.ExpectError(t, w.Write(tuples[0]), "expected an open writer, found one that is closed")
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Options
		tuple *pyfeed.Tuple
		text  string
	}{
		{"a", Options{}, formattest.Tuple(formattest.TensorOf([]int64{1, 65536})), "slot 0: tokens: expected values of uint16, found 65536 at element 1: dtype sets that of the file"},
		{"a", Options{}, formattest.Tuple(formattest.TensorOf([]int8{-1})), "slot 0: tokens: expected values of uint16, found -1 at element 0: dtype sets that of the file"},
		{"a", Options{DType: "int64"}, formattest.Tuple(formattest.TensorOf([]uint64{1 << 63})), "slot 0: tokens: expected values of int64, found 9223372036854775808 at element 0: dtype sets that of the file"},
		{"a", Options{DType: "uint64"}, formattest.Tuple(formattest.TensorOf([]int64{-5})), "slot 0: tokens: expected values of uint64, found -5 at element 0: dtype sets that of the file"},
		{"a", Options{DType: "int8"}, formattest.Tuple(formattest.TensorOf([]int16{-128, 127, -129})), "slot 0: tokens: expected values of int8, found -129 at element 2: dtype sets that of the file"},
		{"a", Options{}, formattest.Tuple(formattest.TensorOf([]float32{1})), "slot 0: tokens: dtype: expected an integer dtype, found float32"},
		{"a", Options{}, formattest.Tuple(formattest.TensorOf([]int64{1}), formattest.TensorOf([]int64{1})), "tokens: slots: expected 1, found 2"},
		{"a.idx", Options{}, formattest.Tuple(formattest.TensorOf([]uint32{1})), "tokens: dtype: expected uint8, int8, int16, int32, int64 or uint16 for Megatron-LM, found uint32"},
		{"a.idx", Options{DType: "uint32"}, nil, "tokens: dtype: expected uint8, int8, int16, int32, int64 or uint16 for Megatron-LM, found uint32"},
		{"a.idx", Options{Compression: "gzip"}, nil, `compression: expected none for tokens of Megatron-LM, found "gzip"`},
		{"a", Options{Layout: "llm.c"}, nil, `tokens: layout: expected headerless or megatron for writing, found "llm.c"`},
	} {
		config := config(c.o)
		var tuples []*pyfeed.Tuple
		if c.tuple != nil {
			tuples = append(tuples, c.tuple)
		}
		formattest.ExpectError(t, tested.Write(t, filepath.Join(t.TempDir(), c.name), &config, tuples...), c.text)
	}
	two := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int8}, {DType: pyfeed.Int8}}}
	formattest.ExpectError(t, tested.Write(t, filepath.Join(t.TempDir(), "a"), &two), "tokens: slots: expected 1, found 2")
	one := formattest.Tuple(formattest.TensorOf([]uint16{1}))
	for _, layout := range []string{"headerless", "megatron"} {
		c := config(Options{Layout: layout})
		tested.Abort(t, &c, one)
	}
}

func FuzzTokens(f *testing.F) {
	documents, _ := texts(3, 0, 8, 2)
	path := pair(f, documents, pyfeed.Uint16)
	index, _ := os.ReadFile(path)
	data, _ := os.ReadFile(strings.TrimSuffix(path, ".idx") + ".bin")
	f.Add(index, data, int64(2), int64(0), uint8(0))
	f.Add(index, data, int64(2), int64(1), uint8(1))
	f.Add(index, data, int64(0), int64(0), uint8(2))
	f.Add([]byte{}, llmc(20240520, 1, 11, stored(ids(11), 2)), int64(4), int64(3), uint8(12))
	f.Add([]byte{}, stored(ids(50), 2), int64(4), int64(9), uint8(20))
	f.Add([]byte{}, []byte("\x1f\x8b\x08garbage"), int64(1), int64(1), uint8(4))
	pool := memory.NewPool(memory.File)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, index, data []byte, length, stride int64, how uint8) {
		defer formattest.CheckLeaks(t)()
		o := Options{Length: length, Stride: stride, Documents: []string{"across", "within", "whole"}[how%4%3], Targets: how&8 > 0,
			Last: []string{"drop", "short"}[how>>4&1], OutputDType: []string{"", "int64"}[how>>5&1]}
		c := record.Config{Pool: pool, Options: &o}
		if o.Check() != nil || length > 1<<30 {
			return
		}
		var r record.Records
		var err error
		if len(index) == 0 {
			r, err = tested.Memory(data, &c)
		} else {
			write(t, filepath.Join(dir, "a.idx"), index)
			write(t, filepath.Join(dir, "a.bin"), data)
			r, err = Open(filepath.Join(dir, "a.idx"), &c)
		}
		if err != nil {
			switch formattest.Kind(err) {
			case pyfeed.Corrupt, pyfeed.Unsupported, pyfeed.Invalid, pyfeed.Type:
				return
			}
			t.Fatal(err)
		}
		defer r.Close()
		count := r.(record.Counted).Count()
		if count > 1<<16 {
			return
		}
		n, err := formattest.Drain(t, r, 17, nil)
		if err != io.EOF && formattest.Kind(err) != pyfeed.Corrupt || err == io.EOF && count >= 0 && int64(n) != count {
			t.Fatalf("%d of %d windows, %v", n, count, err)
		}
		if r.Resync() != io.EOF {
			t.Fatal("expected no data after the end")
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for name, o := range map[string]Options{"views": {Length: 1024}, "targets": {Length: 1024, Targets: true}, "int64": {Length: 1024, OutputDType: "int64"}, "overlap": {Length: 1024, Stride: 64}} {
		b.Run(name, func(b *testing.B) {
			tested.Benchmark(b, formattest.File(b, "a", make([]byte, 64<<20)), config(o), nil)
		})
	}
}
