package tar

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var threeFields = Options{Fields: []Field{{Name: "cls"}, {Name: "jpg"}, {Name: "json", Kind: "text"}, {Name: "npy"}}}

// both runs a test with data in memory and with mapped files. With files, step is larger, so that fewer cases are run.
func both(t *testing.T, f func(t *testing.T, step int, open func(data []byte) *records)) {
	t.Run("memory", func(t *testing.T) {
		c := config(formattest.Pool(t), threeFields)
		f(t, 1, func(data []byte) *records { return inMemory(t, data, c) })
	})
	t.Run("mapped", func(t *testing.T) {
		c := config(formattest.Pool(t), threeFields)
		path := filepath.Join(t.TempDir(), "test.tar")
		f(t, 61, func(data []byte) *records {
			if err := os.WriteFile(path, data, 0o666); err != nil {
				t.Fatal(err)
			}
			r, err := Open(path, c)
			if err != nil {
				t.Fatal(err)
			}
			return r.(*records)
		})
	})
}

func TestEveryTruncation(t *testing.T) {
	data := ended(three...)
	// The smallest size of the file for so many instances, without the padding of the last member.
	var needs []int
	at := 0
	for i, p := range three {
		at += blockSize
		if i%4 == 3 {
			needs = append(needs, at+len(p.data))
		}
		at += roundToBlocks(len(p.data))
	}
	both(t, func(t *testing.T, step int, open func([]byte) *records) {
		for n := 0; n <= len(data); n += step {
			if testing.Short() && step == 1 && n%7 > 0 && n%blockSize > 0 && !slices.Contains(needs, n) && !slices.Contains(needs, n+1) {
				continue
			}
			whole := 0
			for whole < len(needs) && n >= needs[whole] {
				whole++
			}
			r := open(data[:n])
			rows, errs := drain(t, r, true)
			r.Close()
			if !slices.Equal(rows, threeRows[:whole]) {
				t.Fatalf("%d bytes: expected %d rows, found %q", n, whole, rows)
			}
			if n >= at+blockSize { // the second block of zeros may be missing
				expectErrors(t, "whole", errs)
			} else if len(errs) != 1 || !strings.Contains(errs[0].Error(), "the end of the file") {
				t.Fatalf("%d bytes: expected an error about the end of the file, found %v", n, errs)
			} else if e := errs[0].(*pyfeed.Error); e.Kind != pyfeed.Corrupt || e.At.Offset > int64(n) || e.At.Record != int64(whole) {
				t.Fatalf("%d bytes: found %+v", n, e.At)
			}
		}
	})
}

func TestEveryFlippedByte(t *testing.T) {
	data := ended(three...)
	header := make([]bool, len(data))
	at := 0
	for _, p := range three {
		for i := range blockSize {
			header[at+i] = true
		}
		at += blockSize + roundToBlocks(len(p.data))
	}
	both(t, func(t *testing.T, step int, open func([]byte) *records) {
		if testing.Short() {
			step *= 11
		}
		for i := 0; i < len(data); i += step {
			for _, flip := range []byte{0xff, 0x01} {
				if flip == 0x01 && !header[i] { // outside of headers, one flip is like another
					continue
				}
				data[i] ^= flip
				r := open(data)
				rows, errs := drain(t, r, true)
				r.Close()
				data[i] ^= flip
				lost := 0
				for _, want := range threeRows {
					if !slices.Contains(rows, want) {
						lost++
					}
				}
				switch {
				case header[i]:
					if lost != len(errs) || lost > 1 || len(rows) != 3-lost {
						t.Fatalf("byte %d, header: lost %d, rows %q, errors %v", i, lost, rows, errs)
					}
				case i >= at:
					if lost != 0 || len(errs) > 1 || i < at+blockSize && len(errs) == 0 {
						t.Fatalf("byte %d, end: lost %d, errors %v", i, lost, errs)
					}
				case lost > 1 || len(rows)+len(errs) != 3: // the data of a member, which has no checksum
					t.Fatalf("byte %d, payload: lost %d, rows %q, errors %v", i, lost, rows, errs)
				}
			}
		}
	})
}

func TestAdversarialSizes(t *testing.T) {
	for _, size := range []string{
		"\x80\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00", "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", "\x80\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00",
		"\x80\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x80\x00\x00\x00\x3f\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00",
		"77777777777\x00", "777777777777", "-0000000001\x00", "0000000001x\x00", "9\x00          ",
	} {
		for _, kind := range []byte{typeRegular, typePax, typeLongName, typeGlobalPax, 'Z'} {
			for _, compressed := range []bool{false, true} {
				data := ended(part{"a.x", "1", 0}, part{"b.x", "2", kind}, part{"c.x", "3", 0})
				copy(data[1024+124:], size)
				fixed(data[1024:])
				if compressed {
					data = formattest.Gzip(data)
				}
				rows, errs := read(t, data, Options{Fields: fields("x")}, true)
				if len(errs) != 1 || len(rows) == 0 || rows[0] != `"1"` || errs[0].(*pyfeed.Error).At.Offset < 1024 || errs[0].(*pyfeed.Error).At.Offset > 1536 {
					t.Errorf("%q of type %q: found %q %v", size, kind, rows, errs)
				}
			}
		}
	}
}

// A damaged instance is counted once, whatever is left of it.
func TestResync(t *testing.T) {
	var all []part
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		for _, ext := range []string{"x", "y", "z"} {
			all = append(all, part{key + "." + ext, key + ext, 0})
		}
	}
	good := ended(all...)
	at := func(member int) int { return member * 1024 }
	for _, c := range []struct {
		broken []int // members
		rows   string
		errors int
	}{
		{[]int{0}, "bcde", 1}, {[]int{1}, "bcde", 1}, {[]int{2}, "bcde", 1}, {[]int{0, 1, 2}, "bcde", 1},
		{[]int{3}, "acde", 1}, {[]int{4}, "acde", 1}, {[]int{5}, "acde", 1}, {[]int{5, 6}, "ade", 1}, {[]int{4, 5, 6, 7, 8, 9}, "ae", 1},
		{[]int{12}, "abcd", 1}, {[]int{13}, "abcd", 1}, {[]int{14}, "abcd", 1}, {[]int{12, 13, 14}, "abcd", 1}, {[]int{3, 9}, "ace", 2},
	} {
		data := bytes.Clone(good)
		for _, m := range c.broken {
			data[at(m)] ^= 1
		}
		rows, errs := read(t, data, Options{Fields: fields("x", "y", "z")}, true)
		found := ""
		for _, row := range rows {
			found += row[1:2]
			if want := strings.ReplaceAll(`"kx" | "ky" | "kz"`, "k", row[1:2]); row != want {
				t.Errorf("expected %s, found %s", want, row)
			}
		}
		if found != c.rows || len(errs) != c.errors {
			t.Errorf("%v broken: expected %s with %d errors, found %s with %v", c.broken, c.rows, c.errors, found, errs)
		}
		// Without fields, the first instance that is certainly complete gives the fields.
		rows, errs = read(t, data, Options{}, true)
		if len(rows) == 0 || strings.Count(rows[0], "|") != 2 || len(errs) == 0 {
			t.Errorf("%v broken, no fields: found %q with %v", c.broken, rows, errs)
		}
	}
	// A member with an extension that no field has does not begin another instance.
	data := bytes.Clone(good)
	data[at(1)] ^= 1
	rows, errs := read(t, data, Options{Fields: fields("x")}, true)
	expect(t, "one field", rows, `"ax"`, `"bx"`, `"cx"`, `"dx"`, `"ex"`)
	expectErrors(t, "one field", errs, "byte 1024, record 1: expected the header of a member, with its checksum, found")
}

func TestErrorsStay(t *testing.T) {
	data := ended(three...)
	data[4096] ^= 1
	r := inMemory(t, data, config(formattest.Pool(t), threeFields))
	defer r.Close()
	_, errs := drain(t, r, false)
	for range 3 {
		out := []*pyfeed.Tuple{pyfeed.NewTuple(4)}
		n, err := r.Read(out)
		if n != 0 || len(errs) != 1 || err != errs[0] {
			t.Errorf("expected %v, found %d %v", errs, n, err)
		}
		pyfeed.ReleaseAll(out)
	}
}

func TestBrokenCompression(t *testing.T) {
	data := formattest.Gzip(ended(three...))
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"cut", data[:len(data)-4]}, {"checksum", append(bytes.Clone(data[:len(data)-8]), "\x00\x00\x00\x00\x00\x00\x00\x00"...)}, {"half", data[:len(data)/2]},
	} {
		rows, errs := read(t, c.data, threeFields, true)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "decompressing") || c.name != "half" && len(rows) != 3 {
			t.Errorf("%s: found %q %v", c.name, rows, errs)
		}
	}
}

func TestFileThatShrinks(t *testing.T) {
	var all []part
	for i := range 300 {
		all = append(all, part{string(rune('a'+i%26)) + strings.Repeat("k", i) + ".x", strings.Repeat("data", 2000), 0})
	}
	var data []byte
	for _, p := range all {
		data = append(data, pack(part{"x", string(appendPax(nil, "path", []byte(p.name))), typePax}, part{"y", p.data, 0})...)
	}
	path := formattest.File(t, "a.tar", append(data, zeros[:1024]...))
	c := config(formattest.Pool(t), Options{Fields: fields("x")})
	c.Storage = storage.Options{IO: "map"}
	r, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := make([]*pyfeed.Tuple, 10)
	pyfeed.NewTuples(out, 1)
	defer func() { pyfeed.ReleaseAll(out) }()
	if n, err := r.Read(out); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	if err := os.Truncate(path, 200000); err != nil {
		t.Fatal(err)
	}
	for {
		pyfeed.ReleaseAll(out)
		pyfeed.NewTuples(out, 1)
		n, err := r.Read(out)
		for i := range n {
			for _, c := range out[i].Slots[0].Data {
				_ = c
			}
		}
		if shrunk := r.CheckTruncated(); shrunk != nil {
			if !strings.Contains(shrunk.Error(), "the file shrank") || r.Resync() != io.EOF && err != nil {
				t.Errorf("found %v", shrunk)
			}
			return
		}
		if err != nil {
			t.Fatalf("expected an error that the file shrank, found %v", err)
		}
	}
}

func FuzzTar(f *testing.F) {
	for _, n := range []int{0, 1, 2} {
		f.Add(ended(three...), byte(n))
	}
	names := ended(part{"././@LongLink", strings.Repeat("n", 300) + ".cls\x00", typeLongName}, part{"x", "1", 0},
		part{"p", string(appendPax(appendPax(nil, "path", []byte("k.npy")), "size", []byte("0"))), typePax}, part{"y", "", 0})
	f.Add(names, byte(1))
	// Inputs that the fuzzer found, as changes of names: without an end and with invalid padding; the second also with
	// a wrong size; the third with a wrong time and another name.
	found := bytes.Clone(names[:len(names)-2*blockSize])
	copy(found[915:], "\xf6\xff\xff\xff\xff\xff\xff\xff")
	f.Add(bytes.Clone(found), byte(0x57))
	found[2581] = 0x93
	f.Add(bytes.Clone(found), byte(0xc3))
	found[2581], found[393], found[694], found[1555] = '0', 0xe0, '.', 0x14
	copy(found[141:], "\x00\x00\x00\x00\x00\x00\x00\x00")
	f.Add(found, byte(0xae))
	f.Add(ended(part{"dir/", "", '5'}, part{"dir/a.json", `{"a":[1,{"b":2.5}]}`, 0}, part{"dir/a.jpg", "\xff\xd8", 0}), byte(2))
	f.Add(append(pack(three[:4]...), ended(three[4:]...)...), byte(4))
	f.Add(append(ended(three[:4]...), ended(three[4:]...)...), byte(5))
	f.Add(ended(part{"a.x", "", typeSparse}), byte(0))
	options := []Options{
		{}, threeFields, {Fields: []Field{{Name: "__key__"}, {Name: "png;jpg;cls"}, {Name: "json", Path: []string{"a", "1", "b"}}}},
		{Fields: []Field{{Name: "npy"}}}, {End: "file"}, {End: "file", Fields: []Field{{Name: "cls", DType: "int8"}}},
	}
	pool := memory.NewPool(memory.File)
	out := make([]*pyfeed.Tuple, 4)
	f.Fuzz(func(t *testing.T, data []byte, which byte) {
		// The fuzzer cannot make checksums. It marks headers by the beginning of the magic, and the checksums are
		// corrected here.
		for at := 0; which&0x80 != 0 && at+blockSize <= len(data); at += blockSize {
			if string(data[at+257:at+260]) == "ust" {
				data = bytes.Clone(data)
				fixed(data[at:])
			}
		}
		c := config(pool, options[int(which&0x7f)%len(options)])
		defer formattest.CheckLeaks(t)()
		c.Storage.Compression = "none"
		opened, err := tested.Memory(data, c)
		if err != nil {
			t.Fatal(err)
		}
		r := opened.(*records)
		if slots, names, err := r.Describe(); err == nil {
			if len(slots) != len(names) || len(slots) == 0 {
				t.Fatalf("slots %v, names %v", slots, names)
			}
			if _, err := pyfeed.NewSpec(slots); err != nil {
				t.Fatal(err)
			}
		}
		pyfeed.NewTuples(out, 1)
		last := int64(-1)
		for resyncs := 0; resyncs <= len(data)/blockSize+1; {
			n, err := r.Read(out)
			for _, tuple := range out[:n] {
				for i := range tuple.Slots {
					s := &tuple.Slots[i]
					size, err := s.Measure()
					if err != nil || size != len(s.Data) || s.CheckLoD() != nil || !s.DType.Valid() {
						t.Fatalf("slot %d: %v, %d bytes of %v%v, LoD %v", i, err, len(s.Data), s.DType, s.Dims(), s.LoD)
					}
				}
				for i := range tuple.Slots {
					tuple.Slots[i].Drop()
				}
			}
			if n > 0 {
				continue
			}
			if err == nil || err == io.EOF {
				break
			}
			at := r.f.Offset()
			if r.Resync() != nil {
				break
			}
			if r.f.Offset() < at || r.f.Offset() == at && at == last {
				t.Fatalf("no progress from byte %d: %v", at, err)
			}
			last = at
			resyncs++
		}
		pyfeed.ReleaseAll(out)
		r.Close()
	})
}
