package npy

import (
	"bytes"
	"context"
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
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var tested = formattest.Format{Suffix: ".npy", Open: Open, Begin: open, Create: Create}

// from opens a file in memory.
func from(data []byte, o Options, pool *memory.Pool) (record.Records, error) {
	return tested.Memory(data, &record.Config{Options: &o, Pool: pool})
}

func eachWay(t *testing.T, data []byte, o Options, test func(t *testing.T, r record.Records, err error)) {
	t.Helper()
	tested.EachWay(t, data, record.Config{Options: &o}, test)
}

// instance is an instance that was read.
type instance struct {
	dtype pyfeed.DType
	dims  pyfeed.Dims
	data  []byte
}

// all reads n tuples at a time, to the end or an error.
func all(t testing.TB, r record.Records, n int) (got []instance, err error) {
	t.Helper()
	_, err = formattest.Drain(t, r, n, func(_ int, tuple *pyfeed.Tuple) {
		if len(tuple.Slots) != 1 {
			t.Fatalf("expected 1 slot, found %d", len(tuple.Slots))
		}
		s := &tuple.Slots[0]
		got = append(got, instance{s.DType, slices.Clone(s.Dims()), bytes.Clone(s.Data)})
	})
	if err == io.EOF {
		err = nil
	}
	return got, err
}

// file returns an npy file of that version and dictionary.
func file(version byte, dict string, data []byte) []byte {
	b := append([]byte(magic), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)))
	}
	return append(append(b, dict...), data...)
}

func dict(descr string, fortran bool, shape string) string {
	order := "False"
	if fortran {
		order = "True"
	}
	return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n"
}

func tuple(n pyfeed.Dims) string {
	s := "("
	for _, d := range n {
		s += fmt.Sprint(d, ", ")
	}
	return s + ")"
}

// element returns the k-th element of a test's arrays, in the machine's byte order.
func element(d pyfeed.DType, k int) []byte {
	b := make([]byte, d.Size())
	for i := range b {
		b[i] = byte(k*7 + i*31 + k>>8)
	}
	return b
}

// product returns the product of dims.
func product(dims pyfeed.Dims) int {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	return n
}

// lay returns the data of an array as stored in a file, and as it is read.
func lay(d pyfeed.DType, dims pyfeed.Dims, fortran, swapped bool) (in, want []byte) {
	n := product(dims)
	in, want = make([]byte, n*d.Size()), make([]byte, 0, n*d.Size())
	for k := range n {
		e := element(d, k)
		want = append(want, e...)
		at := k
		if fortran {
			at = 0
			for i, rest, step := len(dims)-1, k, n; i >= 0; i-- {
				step /= int(dims[i])
				at += rest % int(dims[i]) * step
				rest /= int(dims[i])
			}
		}
		if swapped {
			d.Reverse(e)
		}
		copy(in[at*d.Size():], e)
	}
	return in, want
}

var every = []pyfeed.DType{pyfeed.Bool, pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Int64, pyfeed.Uint8, pyfeed.Uint16,
	pyfeed.Uint32, pyfeed.Uint64, pyfeed.Float16, pyfeed.BFloat16, pyfeed.Float32, pyfeed.Float64, pyfeed.Complex64, pyfeed.Complex128}

// names are the values of numpy.dtype(...).str, and ml_dtypes' value for bfloat16.
var names = []string{"|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<V2", "<f4", "<f8", "<c8", "<c16"}

func TestHeaderEqualsNumPys(t *testing.T) {
	// numpy.save of NumPy 2.4.6, with ml_dtypes 0.6.0.
	for _, c := range []struct {
		dtype pyfeed.DType
		dims  pyfeed.Dims
		want  string
	}{
		{pyfeed.BFloat16, pyfeed.Dims{2, 3}, "\x93NUMPY\x01\x00v\x00{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }" + strings.Repeat(" ", 58) + "\n"},
		{pyfeed.Float32, pyfeed.Dims{}, "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (), }" + strings.Repeat(" ", 62) + "\n"},
		{pyfeed.Int64, pyfeed.Dims{3}, "\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }" + strings.Repeat(" ", 60) + "\n"},
	} {
		if got := Header(c.dtype, c.dims); string(got) != c.want {
			t.Errorf("expected\n%q, found\n%q", c.want, got)
		}
	}
	for i, d := range every {
		if nameOf(d) != names[i] {
			t.Errorf("%v: expected %s, found %s", d, names[i], nameOf(d))
		}
		for _, n := range []int64{0, 9, 10, math.MaxInt64} {
			head := Header(d, pyfeed.Dims{n, 1})
			if len(head) != 128 {
				t.Errorf("%v, %d rows: expected 128 bytes, found %d", d, n, len(head))
			}
		}
	}
}

func TestEveryTypeAndOrder(t *testing.T) {
	for i, d := range every {
		for k, dims := range []pyfeed.Dims{{}, {1}, {7}, {5, 3}, {1, 4}, {4, 1}, {3, 2, 5}, {2, 3, 4, 5}, {0}, {0, 3}, {3, 0}, {70, 2, 3}, {130, 8, 8}, {65, 4, 4}, {3, 40}, {66, 2, 40},
			{2, 3, 2, 1, 2, 1, 2, 2}} {
			for w, way := range []string{"<", ">", "F<", "F>", "=", "|", ""} {
				order := strings.TrimPrefix(way, "F")
				fortran := order != way
				swapped := order == ">" && d.Size() > 1
				name := order + names[i][1:]
				if d == pyfeed.BFloat16 {
					if way != "<" && way != "F<" {
						continue
					}
					name = "<V2"
				}
				in, want := lay(d, dims, fortran, swapped)
				f := file(1, dict(name, fortran, tuple(dims)), in)
				for _, o := range []Options{{}, {"file"}} {
					for _, n := range []int{1, 3} {
						if testing.Short() && (i+k+w)%2 == n/2 {
							continue
						}
						formattest.WithPool(t, func(pool *memory.Pool) {
							r, err := from(f, o, pool)
							if err != nil {
								t.Fatal(name, dims, err)
							}
							slots, _, err := r.(record.Describer).Describe()
							got, bad := all(t, r, n)
							r.Close()
							if err != nil || bad != nil {
								t.Fatal(name, dims, err, bad)
							}
							count, inner := 1, dims
							if o.Instances == "" && len(dims) > 0 {
								count, inner = int(dims[0]), dims[1:]
							}
							if slots[0].DType != d || !slices.Equal(slots[0].Dims, inner) || slots[0].LoDLevels != 0 || len(slots) != 1 {
								t.Fatalf("%s %v: described as %+v", name, dims, slots)
							}
							if len(got) != count {
								t.Fatalf("%s %v %v: expected %d instances, found %d", name, dims, o, count, len(got))
							}
							var data []byte
							for _, g := range got {
								if g.dtype != d || !slices.Equal(g.dims, inner) {
									t.Fatalf("%s %v: found %v %v", name, dims, g.dtype, g.dims)
								}
								data = append(data, g.data...)
							}
							if !bytes.Equal(data, want) {
								t.Fatalf("%s %v %v: expected %x, found %x", name, dims, o, want, data)
							}
						})
					}
				}
			}
		}
	}
}

// The arrays are larger than blocks, windows and tiles, so that instances cross their borders.
func TestLarge(t *testing.T) {
	for i, c := range []struct {
		dtype pyfeed.DType
		dims  pyfeed.Dims
		as    []Options
	}{
		{pyfeed.Float32, pyfeed.Dims{25_000, 11}, []Options{{}}},
		{pyfeed.Float64, pyfeed.Dims{2, 140_000}, []Options{{}}},
		{pyfeed.Int32, pyfeed.Dims{19, 150, 100}, []Options{{}, {"file"}}},
	} {
		for k, way := range []string{"<", ">", "F<", "F>"} {
			if testing.Short() && len(c.as) == 1 && (i+k)%2 > 0 {
				continue
			}
			order := strings.TrimPrefix(way, "F")
			in, want := lay(c.dtype, c.dims, order != way, order == ">" && c.dtype.Size() > 1)
			f := file(1, dict(order+nameOf(c.dtype)[1:], order != way, tuple(c.dims)), in)
			for j, o := range c.as {
				if testing.Short() && (i+k+j)%2 > 0 {
					continue
				}
				t.Run(fmt.Sprint(c.dtype, c.dims, way, o), func(t *testing.T) {
					eachWay(t, f, o, func(t *testing.T, r record.Records, err error) {
						if err != nil {
							t.Fatal(err)
						}
						got, err := all(t, r, 777)
						if err != nil {
							t.Fatal(err)
						}
						var data []byte
						for _, g := range got {
							data = append(data, g.data...)
						}
						if !bytes.Equal(data, want) {
							t.Fatal("other data than was written")
						}
						if err := r.CheckTruncated(); err != nil {
							t.Fatal(err)
						}
					})
				})
			}
		}
	}
}

// A view of a mapped file stays valid when the file is closed, and needs no memory.
func TestViews(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		in, want := lay(pyfeed.Float32, pyfeed.Dims{10, 4}, false, false)
		path := formattest.File(t, "a.npy", append(Header(pyfeed.Float32, pyfeed.Dims{10, 4}), in...))
		r, err := Open(path, &record.Config{Pool: pool, Storage: storage.Options{IO: "map"}})
		if err != nil {
			t.Fatal(err)
		}
		out := make([]*pyfeed.Tuple, 10)
		pyfeed.NewTuples(out, 1)
		if n, err := r.Read(out); n != 10 || err != nil {
			t.Fatal(n, err)
		}
		if live := memory.Count().Live[memory.File]; live != 0 {
			t.Errorf("expected no memory for a mapped file, found %d bytes", live)
		}
		r.Close()
		var data []byte
		for _, tuple := range out {
			if s := &tuple.Slots[0]; !s.ReadOnly {
				t.Error("expected a read-only view")
			}
			data = append(data, tuple.Slots[0].Data...)
		}
		pyfeed.ReleaseAll(out)
		if !bytes.Equal(data, want) {
			t.Error("other data than was written")
		}
	})
}

func TestRowsCostNoAllocation(t *testing.T) {
	for _, order := range []string{"<", ">"} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			const times, rows = 100, 101 * 256
			path := formattest.File(t, "a.npy", file(1, dict(order+"f4", false, fmt.Sprintf("(%d, 25)", rows)), make([]byte, rows*100)))
			if n := tested.Allocations(t, path, &record.Config{Pool: pool}, times); n > 2 {
				t.Errorf("%s: expected no allocation for each of 256 rows, found %v for all of them", order, n)
			}
		})
	}
}

func TestGoodHeaders(t *testing.T) {
	data := []byte{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}
	for _, c := range []struct {
		name    string
		version byte
		dict    string
	}{
		{"numpy's", 1, "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }          \n"},
		{"version 2", 2, "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }          \n"},
		{"version 3", 3, "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }          \n"},
		{"another order of keys", 1, "{'shape': (3, 2), 'fortran_order': False, 'descr': '<i2'}\n"},
		{"and another", 1, "{'fortran_order': False, 'descr': '<i2', 'shape': (3, 2)}\n"},
		{"double quotes", 1, `{"descr": "<i2", "fortran_order": False, "shape": (3, 2)}` + "\n"},
		{"no spaces, no end of line", 1, "{'descr':'<i2','fortran_order':False,'shape':(3,2)}"},
		{"many spaces", 1, "  { 'descr' :\t'<i2' ,\n'fortran_order' : False , 'shape' : ( 3 , 2 , ) , } \n\n"},
		{"Python 2", 1, "{'descr': '<i2', 'fortran_order': False, 'shape': (3L, 2L), }\n"},
		{"a name", 1, "{'descr': 'int16', 'fortran_order': False, 'shape': (3, 2), }\n"},
		{"no order", 1, "{'descr': 'i2', 'fortran_order': False, 'shape': (3, 2), }\n"},
		{"a long one", 2, "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }" + strings.Repeat(" ", 100_000) + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWay(t, file(c.version, c.dict, data), Options{}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := all(t, r, 2)
				want := []instance{{pyfeed.Int16, pyfeed.Dims{2}, data[0:4]}, {pyfeed.Int16, pyfeed.Dims{2}, data[4:8]}, {pyfeed.Int16, pyfeed.Dims{2}, data[8:12]}}
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("expected %v, found %v, %v", want, got, err)
				}
			})
		})
	}
}

func TestDamagedHeaders(t *testing.T) {
	d := func(descr string) []byte { return file(1, dict(descr, false, "(2,)"), make([]byte, 64)) }
	s := func(shape string) []byte { return file(1, dict("<f4", false, shape), make([]byte, 64)) }
	raw := func(text string) []byte { return file(1, text, make([]byte, 64)) }
	for _, c := range []struct {
		data   []byte
		kind   pyfeed.Kind
		offset int64
		text   string
	}{
		{nil, pyfeed.Corrupt, 0, "found the end after 0 bytes"},
		{[]byte("\x93NUM"), pyfeed.Corrupt, 4, "found the end after 4 bytes"},
		{[]byte("\x89PNG...."), pyfeed.Corrupt, 0, `expected an npy file, which begins with "\x93NUMPY", found "\x89PNG.."`},
		{[]byte("\x93NUMPY\x02\x00\x01\x00"), pyfeed.Corrupt, 10, "found the end after 10 bytes"},
		{file(4, "{}", nil), pyfeed.Corrupt, 6, "expected version 1.0, 2.0 or 3.0 of npy, found 4.0"},
		{file(0, "{}", nil), pyfeed.Corrupt, 6, "found 0.0"},
		{[]byte("\x93NUMPY\x01\x01\x00\x00"), pyfeed.Corrupt, 6, "found 1.1"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), pyfeed.Corrupt, 8, "at most 1048576 bytes, found one of 4294967295"},
		{[]byte("\x93NUMPY\x02\x00\x00\x00\x00\x80"), pyfeed.Corrupt, 8, "found one of 2147483648"},
		{[]byte("\x93NUMPY\x01\x00\xff\xff{"), pyfeed.Corrupt, 11, "expected a header of 65545 bytes, found 11"},
		{file(3, "{'descr': '\xff'}", nil), pyfeed.Corrupt, 12, "UTF-8"},

		{d("|O"), pyfeed.Type, 20, "Python objects"},
		{d("<U7"), pyfeed.Type, 20, "strings"},
		{d("|S3"), pyfeed.Type, 20, "strings"},
		{d("<M8[ns]"), pyfeed.Type, 20, "dates or times: save a.view(numpy.int64)"},
		{d("<m8[s]"), pyfeed.Type, 20, "dates or times"},
		{d("|V2"), pyfeed.Type, 20, "bytes of no known type"},
		{d(">V2"), pyfeed.Type, 20, "bytes of no known type"},
		{d("<V1"), pyfeed.Type, 20, "bytes of no known type"},
		{d("<f16"), pyfeed.Type, 20, "not supported"},
		{d("<c32"), pyfeed.Type, 20, "not supported"},
		{d("<f1"), pyfeed.Type, 20, "not supported"},
		{d(""), pyfeed.Type, 20, `found ""`},
		{d("<12"), pyfeed.Type, 20, `found "<12"`},
		{d("<"), pyfeed.Type, 20, `found "<"`},
		{d("<any"), pyfeed.Type, 20, `found "<any"`},
		{d("any"), pyfeed.Type, 20, `found "any"`},
		{d("<float32"), pyfeed.Type, 20, `found "<float32"`},
		{d(strings.Repeat("x", 100)), pyfeed.Type, 20, strings.Repeat("x", 64) + `..."`},
		{raw("{'descr': [('a', '<i4'), ('b', '<f8')], 'fortran_order': False, 'shape': (2,), }\n"), pyfeed.Type, 20, "structured one"},
		{raw("{'descr': ('<i4', (2,)), 'fortran_order': False, 'shape': (2,), }\n"), pyfeed.Type, 20, "structured one"},
		{raw("{'descr': '<f\\x34', 'fortran_order': False, 'shape': (2,), }\n"), pyfeed.Corrupt, 20, "plain characters"},
		{raw("{'descr': '<f4"), pyfeed.Corrupt, 20, "no second quote"},
		{raw("{'descr': 4}"), pyfeed.Corrupt, 20, "expected a string in quotes, found \"4}\""},

		{s("(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), pyfeed.Shape, 60, "at most 9 dimensions, found 10"},
		{s("(" + strings.Repeat("1, ", 10_000) + ")"), pyfeed.Shape, 60, "at most 9 dimensions, found 10000"},
		{file(2, dict("<f4", false, "("+strings.Repeat("1, ", 100_000)+")"), nil), pyfeed.Shape, 62, "at most 9 dimensions, found 100000"},
		{s("(-1,)"), pyfeed.Corrupt, 60, "dimension 0: expected a size, found -1"},
		{s("(2147483648, 2147483648, 2147483648)"), pyfeed.Corrupt, 60, "that a file can hold"},
		{s("(9223372036854775807,)"), pyfeed.Corrupt, 60, "that a file can hold"},
		{s("(4611686018427387904, 2)"), pyfeed.Corrupt, 60, "that a file can hold"},
		{s("(9223372036854775808,)"), pyfeed.Corrupt, 10, "value out of range"},
		{s("(18446744073709551615,)"), pyfeed.Corrupt, 10, "value out of range"},
		{s("(18446744073709551616000000000,)"), pyfeed.Corrupt, 61, "expected an integer"},
		{s("(1152921504606846976, 0)"), pyfeed.Corrupt, 0, "at most 16777216 instances without data, found 1152921504606846976"},
		{s("(9223372036854775807, 0)"), pyfeed.Corrupt, 60, "that a file can hold"},
		{s("(0, 9223372036854775807)"), pyfeed.Corrupt, 60, "that a file can hold"},
		{s("3"), pyfeed.Corrupt, 60, "expected '('"},
		{s("(3)"), pyfeed.Corrupt, 62, "found an integer in parentheses"},
		{s("(3 4)"), pyfeed.Corrupt, 63, "expected ',' or ')'"},
		{s("(,)"), pyfeed.Corrupt, 61, "expected an integer"},
		{s("(3,, 4)"), pyfeed.Corrupt, 63, "expected an integer"},
		{s("(3.0,)"), pyfeed.Corrupt, 62, "expected ',' or ')'"},
		{s("(-,)"), pyfeed.Corrupt, 61, "expected an integer"},
		{raw("{'descr': '<f4', 'fortran_order': False, 'shape': (3, "), pyfeed.Corrupt, 64, "expected an integer, found the end"},
		{raw("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }"), pyfeed.Corrupt, 44, "expected True or False"},
		{raw("{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (3,), }"), pyfeed.Corrupt, 49, "expected ','"},
		{raw("{'descr': '<f4', 'shape': (3,), }"), pyfeed.Corrupt, 43, "expected a key 'fortran_order', found none"},
		{raw("{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }"), pyfeed.Corrupt, 27, "once each"},
		{raw("{'descr': '<f4', 'order': 'C'}"), pyfeed.Corrupt, 27, "expected the keys"},
		{raw("{'descr' '<f4'}"), pyfeed.Corrupt, 19, "expected ':'"},
		{raw("{}"), pyfeed.Corrupt, 12, "expected a key 'descr', found none"},
		{raw("[]"), pyfeed.Corrupt, 10, "expected '{'"},
		{raw(""), pyfeed.Corrupt, 10, "expected '{', found the end"},
		{raw("\x00"), pyfeed.Corrupt, 10, "expected '{'"},
		{raw("{"), pyfeed.Corrupt, 11, "found the end"},
		{raw(dict("<f4", false, "(2,)") + "x"), pyfeed.Corrupt, 68, "nothing after the dictionary"},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			_, err := from(c.data, Options{}, pool)
			var e *pyfeed.Error
			if !errors.As(err, &e) {
				t.Fatalf("%.80q: expected an error, found %v", c.data, err)
			}
			if e.Kind != c.kind || e.At == nil || e.At.File != "a.npy" || e.At.Offset != c.offset || !strings.Contains(e.Text, c.text) {
				t.Errorf("%.80q: expected %d at %d, ...%s..., found %d, %v", c.data, c.kind, c.offset, c.text, e.Kind, e)
			}
		})
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		_, err := from(s("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), Options{"file"}, pool)
		if err == nil || !strings.Contains(err.Error(), "instances of at most 8 dimensions, found 9") {
			t.Error(err)
		}
		if _, err = from(nil, Options{"all"}, pool); err == nil || !strings.Contains(err.Error(), `expected rows or file, found "all"`) {
			t.Error(err)
		}
		if _, err = Open(filepath.Join(t.TempDir(), "none.npy"), &record.Config{Pool: pool}); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

// readHeader is the only function that calls npyio. It also handles npyio's panics.
func TestReadHeader(t *testing.T) {
	for _, text := range []string{"", "{'descr': ", "'descr': 'fortran_order': 'shape': \n", "'shape': 'fortran_order': 'descr': }\n", "'descr': 'fortran_order': True, 'shape': }\n"} {
		if h, err := readHeader(file(1, text, nil)); err == nil {
			t.Errorf("%q: expected an error, found %v", text, h)
		}
	}
}

func TestParser(t *testing.T) {
	var p Parser
	head := Header(pyfeed.Int16, pyfeed.Dims{3, 2})
	first, err := p.Parse(append(head, 1, 2, 3))
	if err != nil || first.Begin != 128 || first.Size != 12 || first.DType != pyfeed.Int16 {
		t.Fatal(first, err)
	}
	if again, err := p.Parse(head); again != first || err != nil {
		t.Error("expected the same Array again", again, err)
	}
	if _, err = p.Parse(head[:100]); err == nil {
		t.Error("expected an error about a header cut short")
	}
	other, err := p.Parse(Header(pyfeed.Int16, pyfeed.Dims{4, 2}))
	if err != nil || other.Shape[0] != 4 || first.Shape[0] != 3 {
		t.Error(other, first, err)
	}
	in, want := lay(pyfeed.Int16, pyfeed.Dims{3, 2}, true, true)
	a, err := Parse(file(1, dict(">i2", true, "(3, 2)"), nil))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, a.Size)
	if err := a.Decode(got, in, nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("expected %x, found %x", want, got)
	}
}

// The file may end at any byte.
func TestTruncated(t *testing.T) {
	for _, fortran := range []bool{false, true} {
		for _, order := range []string{"<", ">"} {
			dims := pyfeed.Dims{5, 3}
			in, want := lay(pyfeed.Int16, dims, fortran, order == ">")
			whole := file(1, dict(order+"i2", fortran, tuple(dims)), in)
			begin := len(whole) - len(in)
			for cut := range whole {
				for _, o := range []Options{{}, {"file"}} {
					formattest.WithPool(t, func(pool *memory.Pool) {
						r, err := from(whole[:cut], o, pool)
						if cut < begin {
							if err == nil {
								t.Fatalf("cut at %d: expected an error", cut)
							}
							return
						}
						if err != nil {
							t.Fatal(cut, err)
						}
						defer r.Close()
						got, err := all(t, r, 2)
						n := (cut - begin) / 6
						if fortran {
							n = max(0, (cut-begin)/2-10)
						}
						if o.Instances == "file" {
							n = 0
						}
						var e *pyfeed.Error
						if len(got) != n || !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At.Record != int64(n) {
							t.Fatalf("cut at %d: expected %d instances and an error, found %d, %v", cut, n, len(got), err)
						}
						if text := fmt.Sprintf("expected 30 bytes of data, as shape [5 3] of int16 is, found %d", cut-begin); e.Text != text {
							t.Fatalf("expected %q, found %q", text, e.Text)
						}
						for i, g := range got {
							if !bytes.Equal(g.data, want[i*6:i*6+6]) {
								t.Fatalf("cut at %d: row %d: found %x", cut, i, g.data)
							}
						}
						if err := r.Resync(); err != io.EOF {
							t.Fatal(err)
						}
						if _, err := all(t, r, 2); err != nil {
							t.Fatal(err)
						}
					})
				}
			}
		}
	}
}

// The same for a compressed file, whose checksum comes after the rows.
func TestTruncatedGzip(t *testing.T) {
	in, want := lay(pyfeed.Int16, pyfeed.Dims{50_000, 3}, false, false)
	whole := formattest.Gzip(file(1, dict("<i2", false, "(50000, 3)"), in))
	for _, cut := range []int{30, len(whole) / 2, len(whole) - 1} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := from(whole[:cut], Options{}, pool)
			var got []instance
			if err == nil {
				got, err = all(t, r, 100)
				r.Close()
			}
			var e *pyfeed.Error
			if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt {
				t.Fatal(cut, err)
			}
			for i, g := range got {
				if !bytes.Equal(g.data, want[i*6:i*6+6]) {
					t.Fatalf("cut at %d: row %d: found %x", cut, i, g.data)
				}
			}
		})
	}
}

// A changed byte results in an error or in other data, never in a crash.
func TestFlipped(t *testing.T) {
	in, _ := lay(pyfeed.Float32, pyfeed.Dims{4, 2}, true, true)
	whole := file(1, dict(">f4", true, "(4, 2)"), in)
	for i := range whole {
		for _, flip := range []byte{1, 2, 8, 0x20, 0x80, 0xff} {
			data := bytes.Clone(whole)
			data[i] ^= flip
			formattest.WithPool(t, func(pool *memory.Pool) {
				r, err := from(data, Options{}, pool)
				if err == nil {
					_, err = all(t, r, 3)
					r.Close()
				}
				var e *pyfeed.Error
				if err != nil && (!errors.As(err, &e) || e.At == nil) {
					t.Fatal(i, err)
				}
			})
		}
	}
}

func TestTrailingData(t *testing.T) {
	in, _ := lay(pyfeed.Int16, pyfeed.Dims{3}, false, false)
	one := file(1, dict("<i2", false, "(3,)"), in)
	eachWay(t, append(bytes.Clone(one), one...), Options{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		got, err := all(t, r, 10)
		var e *pyfeed.Error
		if len(got) != 3 || !errors.As(err, &e) || e.At.Offset != int64(len(one)) || e.At.Record != 3 || !strings.Contains(e.Text, "only the first of several") {
			t.Fatal(len(got), err)
		}
		if r.Resync() != io.EOF {
			t.Fatal("expected the end")
		}
	})
}

// The end is known together with the last instance if all data is in memory.
func TestEnded(t *testing.T) {
	in, _ := lay(pyfeed.Int16, pyfeed.Dims{3}, false, false)
	one := file(1, dict("<i2", false, "(3,)"), in)
	large := file(1, dict("|u1", false, "(200000,)"), make([]byte, 200000))
	for _, c := range []struct {
		name      string
		data      []byte
		instances string
		o         storage.Options
		want      bool
	}{
		{"whole", one, "file", storage.Options{}, true}, {"rows", one, "", storage.Options{}, true},
		{"empty", file(1, dict("<i2", false, "(0,)"), nil), "file", storage.Options{}, true},
		{"mapped", large, "file", storage.Options{IO: "map"}, true}, {"in blocks", large, "file", storage.Options{IO: "read"}, false},
		{"more behind", append(bytes.Clone(one), 0), "file", storage.Options{}, false},
		{"compressed", formattest.Gzip(one), "file", storage.Options{}, false},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := Open(formattest.File(t, "a.npy", c.data), &record.Config{Options: &Options{c.instances}, Storage: c.o, Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ended := r.(record.EndReporter).AtEnd
			if ended() {
				t.Errorf("%s: ended before the first instance", c.name)
			}
			out := []*pyfeed.Tuple{{}, {}, {}, {}}
			if n, err := r.Read(out); n == 0 || ended() != c.want {
				t.Errorf("%s: %d instances, %v, ended %v", c.name, n, err, ended())
			}
			pyfeed.ReleaseAll(out)
		})
	}
}

// A file with a single instance that is used in place returns the signature of similar files.
func TestSignature(t *testing.T) {
	in, _ := lay(pyfeed.Int16, pyfeed.Dims{2, 3}, false, false)
	one := file(1, dict("<i2", false, "(2, 3)"), in)
	for _, c := range []struct {
		name      string
		data      []byte
		instances string
		o         storage.Options
		dims      pyfeed.Dims
		want      bool
	}{
		{"whole", one, "file", storage.Options{}, pyfeed.Dims{2, 3}, true},
		{"rows", one, "", storage.Options{}, nil, false},
		{"one row", file(1, dict("<i2", false, "(1, 6)"), in), "", storage.Options{}, pyfeed.Dims{6}, true},
		{"without dimensions", file(1, dict("<i2", false, "()"), in[:2]), "", storage.Options{}, pyfeed.Dims{}, true},
		{"Fortran order", file(1, dict("<i2", true, "(2, 3)"), in), "file", storage.Options{}, nil, false},
		{"another byte order", file(1, dict(">i2", false, "(2, 3)"), in), "file", storage.Options{}, nil, false},
		{"empty", file(1, dict("<i2", false, "(0,)"), nil), "file", storage.Options{}, nil, false},
		{"large", file(1, dict("<i2", false, "(100000,)"), make([]byte, 200000)), "file", storage.Options{}, nil, false},
		{"mapped", one, "file", storage.Options{IO: "map"}, nil, false},
		{"more behind", append(bytes.Clone(one), 0), "file", storage.Options{}, nil, false},
		{"compressed", formattest.Gzip(one), "file", storage.Options{}, nil, false},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := Open(formattest.File(t, "a.npy", c.data), &record.Config{Options: &Options{c.instances}, Storage: c.o, Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			signature := r.(record.SingleRecord).Signature
			if found, _ := signature(); found != nil {
				t.Errorf("%s: %q before the first instance", c.name, found)
			}
			out := []*pyfeed.Tuple{{}, {}, {}, {}}
			if n, err := r.Read(out); n == 0 {
				t.Errorf("%s: %v", c.name, err)
			}
			pyfeed.ReleaseAll(out)
			found, slot := signature()
			if c.want != (found != nil) || c.want && (string(found) != string(c.data[:len(c.data)-2*product(c.dims)]) ||
				slot.DType != pyfeed.Int16 || !slices.Equal(slot.Dims, c.dims)) {
				t.Errorf("%s: found %q, %+v", c.name, found, slot)
			}
		})
	}
}

// Many files of one array each, several of which are read as a group, return the data that was written, whole and in
// batches.
func TestManyFilesOfOneArray(t *testing.T) {
	dir := t.TempDir()
	var want []byte
	for i := range 300 {
		data := bytes.Repeat([]byte{byte(i), byte(i >> 8), 1}, 1+i/250) // the last files are longer
		want = append(want, data...)
		path := filepath.Join(dir, fmt.Sprintf("%03d.npy", i))
		if err := os.WriteFile(path, file(1, dict("|u1", false, tuple(pyfeed.Dims{int64(len(data))})), data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 32, 250} {
		scope := pyfeed.NewScope(nil)
		r, err := ops.MakeNow(scope, "open_files", nil, fmt.Appendf(nil, `{"filenames": [%q], "num_threads": 2,
			"options": {"instances": "file"}, "slots": [{"dtype": "uint8", "dims": [-1]}]}`, dir))
		if err != nil {
			t.Fatal(err)
		}
		h := readers.NewHolder(r)
		if size > 0 {
			if r, err = ops.MakeNow(scope, "create_batch_reader", []*readers.ReaderHolder{h}, fmt.Appendf(nil, `{"batch_size": %d}`, size)); err != nil {
				t.Fatal(err)
			}
			h = readers.NewHolder(r)
		}
		var got []byte
		out := make([]*pyfeed.Tuple, 40)
		for err == nil {
			var n int
			n, err = h.ReadMany(context.Background(), out)
			for _, tuple := range out[:n] {
				got = append(got, tuple.Slots[0].Data...)
			}
			pyfeed.ReleaseAll(out[:n])
		}
		if err != io.EOF || !bytes.Equal(got, want) {
			t.Errorf("batches of %d: expected %d bytes, found %d, %v", size, len(want), len(got), err)
		}
		h.Drop()
		scope.Drop()
	}
}

func TestShrinks(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := formattest.File(t, "a.npy", file(1, dict("<f4", true, "(1000, 1000)"), make([]byte, 4_000_000)))
		r, err := Open(path, &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := os.Truncate(path, 8192); err != nil {
			t.Fatal(err)
		}
		out := []*pyfeed.Tuple{pyfeed.NewTuple(1)}
		_, _ = r.Read(out)
		pyfeed.ReleaseAll(out)
		if err := r.CheckTruncated(); err == nil || !strings.Contains(err.Error(), "shrank") {
			t.Error(err)
		}
	})
}

// tuples returns tuples of one slot with the given dims.
func tuples(d pyfeed.DType, dims pyfeed.Dims, data []byte) (all []*pyfeed.Tuple) {
	size := d.Size() * product(dims)
	for n := range max(1, len(data)/max(1, size)) {
		all = append(all, formattest.Tuple(formattest.Tensor(d, dims, data[n*size:(n+1)*size])))
	}
	return all
}

func TestWriter(t *testing.T) {
	for _, d := range every {
		for _, dims := range []pyfeed.Dims{{}, {3}, {2, 2}, {0}, {1, 1, 1, 1, 1, 1, 1, 2}} {
			for _, o := range []Options{{}, {"rows"}, {"file"}} {
				count := 11
				if o.Instances == "file" || product(dims) == 0 {
					count = 1
				}
				_, data := lay(d, append(pyfeed.Dims{int64(count)}, dims...), false, false)
				path := filepath.Join(t.TempDir(), "a.npy")
				if err := tested.Write(t, path, &record.Config{Options: &o}, tuples(d, dims, data)...); err != nil {
					t.Fatal(err)
				}
				shape := dims
				if o.Instances != "file" {
					shape = append(pyfeed.Dims{int64(count)}, dims...)
				}
				found, err := os.ReadFile(path)
				if want := append(Header(d, shape), data...); err != nil || !bytes.Equal(found, want) {
					t.Fatalf("expected %q, found %q, %v", want, found, err)
				}
				formattest.WithPool(t, func(pool *memory.Pool) {
					r, err := Open(path, &record.Config{Options: &o, Pool: pool})
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					got, err := all(t, r, 4)
					if err != nil || len(got) != count || !slices.Equal(got[0].dims, dims) {
						t.Fatal(err, got)
					}
				})
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	f4 := func(dims ...int64) *pyfeed.Tuple { return formattest.Tuple(formattest.Zeros(pyfeed.Float32, dims...)) }
	lod := f4(3)
	lod.Slots[0].LoD = pyfeed.LoD{{0, 3}}
	two, long, device := pyfeed.NewTuple(2), f4(3), f4(3)
	long.Slots[0].Data = make([]byte, 13)
	device.Slots[0].Place = pyfeed.CUDAPlace(1)
	strange := f4(3)
	strange.Slots[0].DType = 99
	for _, c := range []struct {
		config record.Config
		tuples []*pyfeed.Tuple
		text   string
	}{
		{text: "expected rows or file", config: record.Config{Options: &Options{"x"}}},
		{text: `compression: expected none, gzip, zlib, zstd or snappy, found "rar"`, config: record.Config{Storage: storage.Options{Compression: "rar"}}},
		{text: "slots: expected 1, because a file holds one array, found 2", config: record.Config{Slots: make([]pyfeed.Slot, 2)}},
		{text: "LoD: expected 0 levels", config: record.Config{Slots: []pyfeed.Slot{{Dims: pyfeed.Dims{-1}, LoDLevels: 1}}}},
		{text: "expected a dtype", config: record.Config{Slots: []pyfeed.Slot{{DType: 77}}}},
		{text: "expected at least one tuple, found none"},
		{text: "expected at least one tuple, found none", config: record.Config{Slots: []pyfeed.Slot{{Dims: pyfeed.Dims{2}}}}},
		{text: "expected at least one tuple, found none", config: record.Config{Options: &Options{"file"}, Slots: []pyfeed.Slot{{DType: pyfeed.Int8}}}},
		{tuples: []*pyfeed.Tuple{two}, text: "slots: expected 1"},
		{tuples: []*pyfeed.Tuple{lod}, text: "slot 0: LoD: expected 0 levels"},
		{tuples: []*pyfeed.Tuple{f4(3), lod}, text: "slot 0: LoD: expected 0 levels"},
		{tuples: []*pyfeed.Tuple{strange}, text: "expected a dtype, found number 99"},
		{tuples: []*pyfeed.Tuple{f4(3), f4(4)}, text: "slot 0: dims: expected [3], as in the tuples before, because the rows of an array are of one size, found [4]"},
		{tuples: []*pyfeed.Tuple{f4(3), formattest.Tuple(formattest.Zeros(pyfeed.Int32, 3))}, text: "slot 0: dtype: expected float32, as in the tuples before, found int32"},
		{tuples: []*pyfeed.Tuple{long}, text: "expected 12 bytes, dims [3] of float32, found 13"},
		{tuples: []*pyfeed.Tuple{device}, text: "place: expected memory of the host, found CUDAPlace(1)"},
		{tuples: []*pyfeed.Tuple{f4(3)}, text: "dtype: expected int8, found float32", config: record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int8, Dims: pyfeed.Dims{3}}}}},
		{tuples: []*pyfeed.Tuple{f4(3), f4(3)}, text: "expected one tuple, which is the whole file, found a second", config: record.Config{Options: &Options{"file"}}},
	} {
		path := filepath.Join(t.TempDir(), "a.npy")
		if len(c.tuples) > 1 {
			formattest.ExpectError(t, tested.Write(t, path, &c.config, c.tuples[:len(c.tuples)-1]...), "")
		}
		formattest.ExpectError(t, tested.Write(t, path, &c.config, c.tuples...), c.text)
	}

	// With slots, an array without rows has a dtype and dims.
	path := filepath.Join(t.TempDir(), "a.npy")
	formattest.ExpectError(t, tested.Write(t, path, &record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int8, Dims: pyfeed.Dims{4}}}}), "")
	if got, _ := os.ReadFile(path); !bytes.Equal(got, Header(pyfeed.Int8, pyfeed.Dims{0, 4})) {
		t.Errorf("found %q", got)
	}
	tested.Abort(t, &record.Config{}, f4(3))
}

// The number of rows is written at the end, whether the file is compressed or not.
func TestCompression(t *testing.T) {
	say := func(c *record.Config, compression string) { c.Storage.Compression = compression }
	tested.Compressions(t, record.Config{}, say, formattest.Tuple(formattest.Zeros(pyfeed.Float32, 100)), "none", "gzip", "zlib", "zstd", "snappy")
}

func TestRegistered(t *testing.T) {
	if !slices.Contains(record.Tags(), "npy") {
		t.Error("npy is not registered")
	}
}

func FuzzNpy(f *testing.F) {
	add := func(data []byte) { f.Add(data, false); f.Add(data, true) }
	for _, order := range []string{"<", ">"} {
		for _, fortran := range []bool{false, true} {
			in, _ := lay(pyfeed.Int16, pyfeed.Dims{4, 3}, fortran, order == ">")
			add(file(1, dict(order+"i2", fortran, "(4, 3)"), in))
		}
	}
	add(file(2, dict("|u1", false, "()"), []byte{7}))
	add(file(3, dict("<c16", true, "(0, 3)"), nil))
	add(file(1, "{'shape': (2,), 'descr': '<V2', 'fortran_order': False}", []byte{1, 2, 3, 4}))
	add(file(1, dict("<f4", false, "(4611686018427387904, 4)"), nil))
	add(file(1, dict("<f4", false, "(9223372036854775807, 0)"), nil))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		defer formattest.CheckLeaks(t)()
		o := Options{}
		if whole {
			o.Instances = "file"
		}
		r, err := from(data, o, pool)
		if err != nil {
			return
		}
		if r.(*records).in.Count < 1<<16 { // larger counts are of instances without data
			if _, err = formattest.Lines(t, r, 64); err != io.EOF && r.Resync() != io.EOF {
				t.Fatal("expected the end after damage")
			}
		}
		r.Close()
	})
}

func benchmark(b *testing.B, name string, dims pyfeed.Dims, fortran, copied bool, c record.Config) {
	path := formattest.File(b, "a.npy", file(1, dict(name, fortran, tuple(dims)), make([]byte, product(dims)*4)))
	to := make([]byte, 2<<20)
	use := func(t *pyfeed.Tuple) { copy(to, t.Slots[0].Data) } // like a batch
	if !copied {
		use = nil
	}
	tested.Benchmark(b, path, c, use)
}

// Rows of 100 bytes and of 1 MiB: in place, in the other byte order, and in Fortran order.
func BenchmarkRows(b *testing.B) {
	for _, way := range []string{"<f4", ">f4", "F<f4", "F>f4"} {
		name := strings.TrimPrefix(way, "F")
		b.Run(way+"/small", func(b *testing.B) {
			benchmark(b, name, pyfeed.Dims{1 << 20, 25}, name != way, false, record.Config{})
		})
		b.Run(way+"/large", func(b *testing.B) {
			benchmark(b, name, pyfeed.Dims{100, 512, 512}, name != way, false, record.Config{})
		})
	}
	for _, size := range []int64{25, 512 * 512} {
		for _, way := range []string{"map", "read"} {
			b.Run(fmt.Sprint("copied/", way, size*4), func(b *testing.B) {
				benchmark(b, "<f4", pyfeed.Dims{25 << 20 / size, size}, false, true, record.Config{Storage: storage.Options{IO: way}})
			})
		}
	}
}

// One file for each instance: opened, read, copied and closed.
func BenchmarkFiles(b *testing.B) {
	for _, size := range []int64{1, 600} {
		for _, way := range []string{"map", "read"} {
			b.Run(fmt.Sprint(way, size, "KiB"), func(b *testing.B) {
				benchmark(b, "<f4", pyfeed.Dims{size, 256}, false, true, record.Config{Storage: storage.Options{IO: way}, Options: &Options{"file"}})
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	head := Header(pyfeed.Float32, pyfeed.Dims{600, 256})
	for b.Loop() {
		if _, err := Parse(head); err != nil {
			b.Fatal(err)
		}
	}
}
