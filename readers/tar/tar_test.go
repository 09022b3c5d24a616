package tar

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// part is a member. Its type is kind, or that of a regular file if kind is 0.
type part struct {
	name string
	data string
	kind byte
}

func pack(parts ...part) []byte {
	var all []byte
	for _, p := range parts {
		kind := p.kind
		if kind == 0 {
			kind = typeRegular
		}
		h := newBlock(nil, []byte(p.name), len(p.data), kind)
		all = append(all, h[:]...)
		all = append(all, p.data...)
		all = append(all, zeros[:roundToBlocks(len(p.data))-len(p.data)]...)
	}
	return all
}

// ended adds the end of an archive.
func ended(parts ...part) []byte { return append(pack(parts...), zeros[:2*blockSize]...) }

// fixed corrects a header's checksum.
func fixed(b []byte) []byte {
	h := (*block)(b)
	copy(h[148:], fmt.Sprintf("%06o\x00 ", h.sum()))
	return b
}

// row formats a tuple: the dtypes of slots that are not text, and the slots.
func row(t *pyfeed.Tuple) string {
	var all []string
	for i := range t.Slots {
		text := formattest.FormatTensor(&t.Slots[i])
		if text[0] != '"' {
			text = fmt.Sprint(t.Slots[i].DType, " ", text)
		}
		all = append(all, text)
	}
	return strings.Join(all, " | ")
}

// drain reads to the end, many tuples at a time, and goes on after damage if resync is set. errs does not include
// io.EOF.
func drain(t testing.TB, r *records, resync bool) (rows []string, errs []error) {
	t.Helper()
	for range 10000 {
		_, err := formattest.Drain(t, r, 7, func(_ int, tuple *pyfeed.Tuple) { rows = append(rows, row(tuple)) })
		if err == io.EOF {
			return rows, errs
		}
		errs = append(errs, err)
		if !resync {
			return rows, errs
		}
		if err := r.Resync(); err == io.EOF {
			return rows, errs
		} else if err != nil {
			return rows, append(errs, err)
		}
	}
	return rows, append(errs, errors.New("no end"))
}

var tested = formattest.Format{Suffix: ".tar", Open: Open, Begin: open, Create: Create}

func config(pool *memory.Pool, o Options) *record.Config {
	return &record.Config{Options: &o, Pool: pool}
}

func inMemory(t *testing.T, data []byte, c *record.Config) *records {
	t.Helper()
	r, err := tested.Memory(data, c)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*records)
}

// read reads everything from memory.
func read(t *testing.T, data []byte, o Options, resync bool) ([]string, []error) {
	t.Helper()
	r := inMemory(t, data, config(formattest.Pool(t), o))
	defer r.Close()
	return drain(t, r, resync)
}

func expect(t *testing.T, what string, found []string, rows ...string) {
	t.Helper()
	if len(found) == 0 && len(rows) == 0 {
		return
	}
	if !reflect.DeepEqual(found, rows) {
		t.Errorf("%s: expected\n%s\nfound\n%s", what, strings.Join(rows, "\n"), strings.Join(found, "\n"))
	}
}

func expectErrors(t *testing.T, what string, found []error, texts ...string) {
	t.Helper()
	if len(found) != len(texts) {
		t.Errorf("%s: expected %d errors, found %d: %v", what, len(texts), len(found), found)
		return
	}
	for i, text := range texts {
		if !strings.Contains(found[i].Error(), text) {
			t.Errorf("%s: expected an error with %q, found %q", what, text, found[i])
		}
	}
}

func fields(names ...string) (all []Field) {
	for _, name := range names {
		all = append(all, Field{Name: name})
	}
	return all
}

// array returns an npy file of int32.
func array(dims pyfeed.Dims, values ...int32) string {
	b := npy.Header(pyfeed.Int32, dims)
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	return string(b)
}

var three = []part{
	{"a.cls", "3", 0}, {"a.jpg", "first image", 0}, {"a.json", `{"x": 1}`, 0}, {"a.npy", array(pyfeed.Dims{2}, 1, 2), 0},
	{"b.cls", "-4\n", 0}, {"b.jpg", "", 0}, {"b.json", `[]`, 0}, {"b.npy", array(pyfeed.Dims{2}, 3, 4), 0},
	{"c.cls", " 5", 0}, {"c.jpg", "third", 0}, {"c.json", `7`, 0}, {"c.npy", array(pyfeed.Dims{2}, 5, 6), 0},
}

var threeRows = []string{
	`int64 3 | "first image" | "{\"x\": 1}" | int32 [1 2]`,
	`int64 -4 | "" | "[]" | int32 [3 4]`,
	`int64 5 | "third" | "7" | int32 [5 6]`,
}

func TestReads(t *testing.T) {
	data := ended(three...)
	zipped := formattest.Gzip(data)
	var packed bytes.Buffer
	s, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write(data)
	s.Close()
	for _, c := range []struct {
		name string
		data []byte
		o    storage.Options
	}{
		{"map.tar", data, storage.Options{IO: "map"}}, {"read.tar", data, storage.Options{IO: "read"}},
		{"a.tar.gz", zipped, storage.Options{}}, {"a.tgz", zipped, storage.Options{}},
		{"a.tar.zst", packed.Bytes(), storage.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := formattest.File(t, c.name, c.data)
			pool := formattest.Pool(t)
			// First without options, then with the slots of Describe.
			c := &record.Config{Options: new(Options), Storage: c.o, Pool: pool}
			for range 2 {
				got, err := Open(path, c)
				if err != nil {
					t.Fatal(err)
				}
				r := got.(*records)
				if c.Slots, c.Names, err = r.Describe(); err != nil {
					t.Fatal(err)
				}
				want := []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{}}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1},
					{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}, {DType: pyfeed.Int32, Dims: pyfeed.Dims{2}}}
				if !reflect.DeepEqual(c.Slots, want) || !reflect.DeepEqual(c.Names, []string{"cls", "jpg", "json", "npy"}) {
					t.Errorf("expected %v, found %v %v", want, c.Slots, c.Names)
				}
				rows, errs := drain(t, r, false)
				expect(t, "rows", rows, threeRows...)
				expectErrors(t, "end", errs)
				r.Close()
			}
			// Another file, with members in another order.
			other := ended(part{"x.npy", array(pyfeed.Dims{2}, 7, 8), 0}, part{"x.json", "1", 0}, part{"x.JPG", "j", 0}, part{"x.cls", "+9", 0})
			got, err := Open(formattest.File(t, "other.tar", other), c)
			if err != nil {
				t.Fatal(err)
			}
			rows, _ := drain(t, got.(*records), false)
			expect(t, "other order", rows, `int64 9 | "j" | "1" | int32 [7 8]`)
			got.Close()
		})
	}
}

func TestInstanceBoundaries(t *testing.T) {
	data := ended(
		part{"./", "", '5'}, part{"./dir/a.jpg", "1", 0}, part{"link.jpg", "", '2'}, part{"./dir/a.seg.png", "2", '7'},
		part{"dir/a.jpg", "3", 0}, part{"dir/.hidden.jpg", "no", 0}, part{"dir/.jpg", "no", 0}, part{"README", "no", 0},
		part{"dir/a.Seg.PNG", "4", 0}, part{"x.y/b.jpg", "5", 0}, part{"x.y/b.seg.png", "6", 0}, part{"__meta__.jpg/", "", 0},
		part{"__meta__/b.jpg", "no", 0}, part{"__m.j__", "no", 0}, part{"x.y/b.other", "unread", 0},
		part{"__m_.jpg", "7", 0}, part{"fifo.jpg", "", '6'}, part{"unknown.jpg", "what", 'Z'}, part{"__m_.seg.png", "8", 0},
		part{"a.seg.png", "9", 0}, part{"a.jpg", "10", 0},
	)
	rows, errs := read(t, data, Options{Fields: fields("__key__", "jpg", "seg.png")}, false)
	expect(t, "instances", rows, `"./dir/a" | "1" | "2"`, `"dir/a" | "3" | "4"`, `"x.y/b" | "5" | "6"`, `"__m_" | "7" | "8"`, `"a" | "10" | "9"`)
	expectErrors(t, "instances", errs)

	old := ended(part{"a.jpg", "old", 0}, part{"a.d/", "", 0}, part{"a.cls", "1", 0})
	old[156], old[1024+156] = 0, 0 // before member types existed: a slash marks a folder
	fixed(old)
	fixed(old[1024:])
	rows, errs = read(t, old, Options{}, false)
	expect(t, "old", rows, `"old" | int64 1`)
	expectErrors(t, "old", errs)
}

func TestNames(t *testing.T) {
	long := strings.Repeat("long/", 40) + "key"
	prefixed := newBlock([]byte("a/prefix"), []byte("n.txt"), 1, typeRegular)
	gnu := newBlock([]byte("what GNU tar has here"), []byte("g.txt"), 1, typeRegular)
	copy(gnu[257:], "ustar  \x00")
	signed := newBlock(nil, []byte("s\xff.txt"), 1, typeRegular)
	copy(signed[148:], fmt.Sprintf("%6o\x00 ", signed.signedSum()))
	var data []byte
	add := func(parts ...[]byte) {
		for _, p := range parts {
			data = append(data, p...)
		}
	}
	one := append([]byte("1"), zeros[:511]...)
	add(prefixed[:], one, fixed(gnu[:]), one, signed[:], one)
	add(pack(part{"././@LongLink", long + ".txt\x00", typeLongName}, part{long[:100], "L", 0}))
	add(pack(part{"././@LongLink", "wherever", typeLongLink}, part{"k.txt", "K", 0}))
	add(pack(part{"x", string(appendPax(appendPax(nil, "mtime", []byte("1.5")), "path", []byte(long+"x.txt"))), typePax}, part{"y", "x", 0}))
	add(pack(part{"x", string(appendPax(nil, "path", []byte("both.txt"))), typePax}, part{"L", "no.txt", typeLongName}, part{"y", "x+L", 0}))
	add(pack(part{"x", string(appendPax(nil, "path", nil)), typeSolarisPax}, part{"unset.txt", "unset", 0}))
	add(pack(part{"g", string(appendPax(nil, "comment", []byte("path=of all"))), typeGlobalPax}, part{"global.txt", "g", 0}))
	big := pack(part{"size.txt", "base 256", 0})
	copy(big[124:136], "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08")
	add(fixed(big))
	wrong := pack(part{"pax.txt", "pax", 0})
	copy(wrong[124:136], "77777777777\x00")
	add(pack(part{"x", string(appendPax(nil, "size", []byte("3"))), typePax}), fixed(wrong))
	spaces := pack(part{"spaces.txt", "spaces", 0})
	copy(spaces[124:136], "         6  ")
	copy(spaces[148:156], "        ")
	copy(spaces[148:156], fmt.Sprintf(" %5o \x00", (*block)(spaces).sum()))
	add(spaces, zeros[:1024])
	rows, errs := read(t, data, Options{Fields: fields("__key__", "txt")}, false)
	expect(t, "names", rows, `"a/prefix/n" | "1"`, `"g" | "1"`, `"s\xff" | "1"`, fmt.Sprintf(`%q | "L"`, long), `"k" | "K"`,
		fmt.Sprintf(`%q | "x"`, long+"x"), `"both" | "x+L"`, `"unset" | "unset"`, `"global" | "g"`, `"size" | "base 256"`, `"pax" | "pax"`, `"spaces" | "spaces"`)
	expectErrors(t, "names", errs)
}

func TestFields(t *testing.T) {
	data := ended(
		part{"a.png", "png", 0}, part{"a.json", `{"label": 3, "box": [1.5, 2], "a\tb": true}`, 0}, part{"a.score", "0.25", 0},
		part{"b.jpeg", "jpeg", 0}, part{"b.jpg", "jpg", 0}, part{"b.json", `{"label": 1, "box": [0, -2e3], "a\u0009b": false, "label": 4}`, 0}, part{"b.score", "1e3", 0},
	)
	var o Options
	err := json.Unmarshal([]byte(`{"fields": ["jpg;png;jpeg", {"name": "json", "path": ["label"], "dtype": "int32"}, {"name": "json", "path": ["box", "1"]},
		{"name": "json", "path": ["a\tb"], "dtype": "bool"}, {"name": "score", "kind": "float", "dtype": "float32"}, {"name": ".JSON", "kind": "text"}]}`), &o)
	if err != nil {
		t.Fatal(err)
	}
	r := inMemory(t, data, config(formattest.Pool(t), o))
	defer r.Close()
	slots, names, err := r.Describe()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"jpg", "json.label", "json.box.1", "json.a\tb", "score", "json"}; !reflect.DeepEqual(names, want) {
		t.Errorf("names: expected %q, found %q", want, names)
	}
	for i, want := range []pyfeed.DType{pyfeed.Uint8, pyfeed.Int32, pyfeed.Float64, pyfeed.Bool, pyfeed.Float32, pyfeed.Uint8} {
		if slots[i].DType != want {
			t.Errorf("slot %d: expected %v, found %v", i, want, slots[i])
		}
	}
	rows, errs := drain(t, r, false)
	expect(t, "fields", rows,
		`"png" | int32 3 | float64 2 | bool true | float32 0.25 | "{\"label\": 3, \"box\": [1.5, 2], \"a\\tb\": true}"`,
		`"jpg" | int32 4 | float64 -2000 | bool false | float32 1000 | "{\"label\": 1, \"box\": [0, -2e3], \"a\\u0009b\": false, \"label\": 4}"`)
	expectErrors(t, "fields", errs)

	for text, want := range map[string]string{
		`{"fields": [{"nome": "jpg"}]}`:                                 `fields: unknown field "nome"; there are name, kind, path, dtype, optional, default: did you mean "name"?`,
		`{"fields": [{"name": "jpg", "kind": "image"}]}`:                `expected bytes, text, int, float, json or npy, found "image"`,
		`{"fields": [{"name": "jpg", "path": ["a"]}]}`:                  "path: expected one for kind json only",
		`{"fields": [{"name": "jpg", "dtype": "int8"}]}`:                "dtype: expected one for kinds int, float and json only",
		`{"fields": [{"name": "cls", "dtype": "int9"}]}`:                `expected the name of one, found "int9"`,
		`{"fields": [{"name": "cls", "dtype": "float16"}]}`:             "found float16",
		`{"fields": ["jpg", "JPG"]}`:                                    "field 0 has the same name",
		`{"fields": ["jpg;png;jpg"]}`:                                   "extension jpg is given twice",
		`{"fields": ["jpg;;png"]}`:                                      "expected extensions",
		`{"fields": [{"name": "__key__", "kind": "int"}]}`:              "the key is text",
		`{"end": "never"}`:                                              `end: expected blocks or file, found "never"`,
		`{"compression": "xz"}`:                                         `expected none, gzip or zstd, found "xz"`,
		`{"fields": ["a/b"]}`:                                           "expected extensions",
		`{"fields": ["__key__", {"name": "__key__", "kind": "text"}]}`:  "field 0 has the same name",
		`{"fields": [{"name": "npy", "kind": "npy", "dtype": "int8"}]}`: "dtype: expected one for kinds",
	} {
		var o Options
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			_, err = tested.Memory(nil, config(nil, o))
		}
		var e *pyfeed.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.Kind != pyfeed.Invalid {
			t.Errorf("%s: expected an error with %q, found %v", text, want, err)
		}
	}
}

func TestOptionalMembers(t *testing.T) {
	var o Options
	err := json.Unmarshal([]byte(`{"fields": ["__key__", "jpg", {"name": "cls", "default": -1}, {"name": "txt", "optional": true},
		{"name": "score", "kind": "float", "default": "nan"}, {"name": "jpeg;png", "default": "none"}]}`), &o)
	if err != nil {
		t.Fatal(err)
	}
	data := ended(
		part{"a.jpg", "1", 0},
		part{"b.txt", "b", 0}, part{"b.jpg", "2", 0}, part{"b.cls", "7", 0}, part{"b.png", "png", 0}, part{"b.score", "0.5", 0},
		part{"c.cls", "3", 0}, part{"c.txt", "", 0}, // its jpg is not optional
		part{"d.jpg", "4", 0}, part{"d.cls", "x", 0}, // its cls cannot be parsed: the default does not replace it
		part{"e.jpg", "5", 0}, part{"e.cls", "5", 0},
	)
	rows, errs := read(t, data, o, true)
	expect(t, "optional", rows, `"a" | "1" | int64 -1 | "" | float64 NaN | "none"`, `"b" | "2" | int64 7 | "b" | float64 0.5 | "png"`,
		`"e" | "5" | int64 5 | "" | float64 NaN | "none"`)
	expectErrors(t, "optional", errs, `instance "c": expected a member .jpg, found .cls .txt`, `instance "d", member .cls: expected an integer`)

	// Unrelated files do not become instances with only defaults.
	optional := Options{Fields: []Field{{Name: "txt", Optional: true}}}
	rows, errs = read(t, ended(part{"README.md", "x", 0}, part{"a.txt", "a", 0}), optional, true)
	expect(t, "none there", rows, `"a"`)
	expectErrors(t, "none there", errs, `instance "README": expected a member .txt, found .md`)

	// An extension that is near a missing one is suggested, unless another field has it.
	near := ended(part{"a.cls", "1", 0}, part{"a.JPG", "1", 0})
	_, errs = read(t, near, Options{Fields: fields("cls", "jpeg")}, true)
	expectErrors(t, "near", errs, `expected a member .jpeg, found .cls .JPG: did you mean "JPG"?`)
	_, errs = read(t, near, Options{Fields: fields("jpg", "jpeg")}, true)
	expectErrors(t, "of another field", errs, `expected a member .jpeg, found .cls .JPG`)
	if strings.Contains(errs[0].Error(), "did you mean") {
		t.Errorf("expected no suggestion, found %v", errs[0])
	}

	// A broken header may have been that of a member of the instance before it, and the members after it the rest of
	// another instance. Neither instance gets defaults, nor is delivered. The next instances are.
	lost := ended(part{"a.jpg", "1", 0}, part{"b.jpg", "2", 0}, part{"b.cls", "7", 0}, part{"c.jpg", "3", 0}, part{"d.jpg", "4", 0})
	lost[2*blockSize+148] ^= 1 // the header of b.jpg
	rows, errs = read(t, lost, Options{Fields: []Field{{Name: "jpg", Optional: true}, {Name: "cls", Default: json.RawMessage("0")}}}, true)
	expect(t, "torn", rows, `"3" | int64 0`, `"4" | int64 0`)
	if len(errs) != 1 {
		t.Errorf("torn: expected an error, found %v", errs)
	}

	// The last instance of an archive that is cut off is incomplete, even if the missing members are optional.
	both := Options{Fields: []Field{{Name: "jpg"}, {Name: "txt", Optional: true}}}
	rows, errs = read(t, pack(part{"a.jpg", "1", 0}, part{"a.txt", "a", 0}, part{"b.jpg", "2", 0}), both, true)
	expect(t, "cut", rows, `"1" | "a"`)
	if len(errs) != 1 {
		t.Errorf("cut: expected an error, found %v", errs)
	}
}

func TestWrongDefaults(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "cls", "optional": true}`:                  "default: expected an integer, int64, for an instance without the member, found nothing",
		`{"name": "cls", "default": true}`:                   `expected an integer, int64, for an instance without the member, found "true"`,
		`{"name": "cls", "dtype": "uint8", "default": 256}`:  `expected an integer that fits into uint8, for an instance without the member, found "256"`,
		`{"name": "txt", "default": 3}`:                      "default: expected a string for bytes and text, found 3",
		`{"name": "npy", "optional": true}`:                  "optional: expected false for the key and for arrays",
		`{"name": "__key__", "default": "a"}`:                "optional: expected false for the key and for arrays",
		`{"name": "txt", "optional": 1}`:                     "optional",
		`{"name": "json", "path": ["a"], "default": [1, 2]}`: "expected a number, float64",
	} {
		var o Options
		err := json.Unmarshal([]byte(`{"fields": [`+text+`]}`), &o)
		if err == nil {
			_, err = tested.Memory(nil, config(nil, o))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error with %q, found %v", text, want, err)
		}
	}
}

// The slots override the dtypes and kinds of the extensions.
func TestSlotsDecide(t *testing.T) {
	data := ended(part{"a.cls", "7", 0}, part{"a.json", "5", 0}, part{"a.npy", array(pyfeed.Dims{2, 1}, 1, 2), 0}, part{"a.bin", "raw", 0})
	c := config(formattest.Pool(t), Options{})
	c.Names = []string{"json", "cls", "npy", "bin"}
	c.Slots = []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}, {DType: pyfeed.Int16, Dims: pyfeed.Dims{1}},
		{DType: pyfeed.Int32, Dims: pyfeed.Dims{-1, 1}, LoDLevels: 1}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{3}}}
	r := inMemory(t, data, c)
	defer r.Close()
	spec, err := pyfeed.NewSpec(c.Slots)
	if err != nil {
		t.Fatal(err)
	}
	again := inMemory(t, data, c)
	defer again.Close()
	if n, err := formattest.Drain(t, again, 1, func(_ int, tuple *pyfeed.Tuple) {
		if err := spec.Check(tuple); err != nil {
			t.Error(err)
		}
	}); n != 1 || err != io.EOF {
		t.Errorf("expected one instance as the slots say, found %d, %v", n, err)
	}
	rows, errs := drain(t, r, false)
	expect(t, "rows", rows, `"5" | int16 [7] | int32 [1 2]dims[2 1] | uint8 [114 97 119]`)
	expectErrors(t, "rows", errs)
	if slots, _, err := r.Describe(); err == nil { // at the end of the file
		t.Errorf("expected the end, found %v", slots)
	}

	c.Names = []string{"json", "image", "npy", "bin"}
	wrong := inMemory(t, data, c)
	defer wrong.Close()
	_, errs = drain(t, wrong, true)
	expectErrors(t, "a name that is none", errs, `instance "a": expected a member .image, found .cls .json .npy .bin`)

	c.Options = &Options{Fields: fields("jpg")}
	if _, err := tested.Memory(nil, c); err == nil || !strings.Contains(err.Error(), "expected 4, one for each slot, found 1") {
		t.Errorf("found %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		kind, dtype, text, want string // "" or what is found
	}{
		{"int", "", "0", "0"}, {"int", "", "-9223372036854775808", "-9223372036854775808"}, {"int", "", "9223372036854775807\r\n", "9223372036854775807"},
		{"int", "", "9223372036854775808", ""}, {"int", "", "99999999999999999999", ""}, {"int", "", "", ""}, {"int", "", "-", ""}, {"int", "", "1 2", ""},
		{"int", "", "1.0", ""}, {"int", "", "0x10", ""}, {"int", "uint64", "18446744073709551615", "18446744073709551615"}, {"int", "uint64", "18446744073709551616", ""},
		{"int", "uint64", "-1", ""}, {"int", "int8", "-128", "-128"}, {"int", "int8", "128", ""}, {"int", "int8", "-129", ""}, {"int", "uint8", "255", "255"},
		{"int", "uint8", "256", ""}, {"int", "int16", "-32768", "-32768"}, {"int", "int32", "2147483647", "2147483647"}, {"int", "int32", "2147483648", ""},
		{"int", "bool", "1", "true"}, {"int", "bool", "2", ""}, {"int", "float32", "5", "5"}, {"int", "", "\v\f 12 \t", "12"},
		{"float", "", "1.5", "1.5"}, {"float", "", "nan", "NaN"}, {"float", "", "-inf", "-Inf"}, {"float", "", "1e999", ""}, {"float", "", "0x1p4", ""}, {"float", "", "1_0", ""},
		{"float", "", "", ""}, {"float", "float32", "1e39", ""}, {"float", "float32", "0.1", "0.1"}, {"float", "", "one", ""}, {"float", "int64", "3", "3"},
		{"json", "", " 1.5e1 ", "15"}, {"json", "", "-0", "-0"}, {"json", "", "01", ""}, {"json", "", "+1", ""}, {"json", "", "1.", ""}, {"json", "", ".5", ""}, {"json", "", "1e", ""},
		{"json", "", "NaN", "NaN"}, {"json", "", "-Infinity", "-Inf"}, {"json", "", "true", ""}, {"json", "bool", "true", "true"}, {"json", "bool", "null", ""}, {"json", "", `"1"`, ""},
		{"json", "int64", "12", "12"}, {"json", "int64", "1.5", ""}, {"json", "", "[1]", ""}, {"json", "", "", ""}, {"json", "", "1 2", ""}, {"json", "", "nul", ""},
	} {
		data := ended(part{"a.x", c.text, 0}, part{"b.x", "1", 0})
		rows, errs := read(t, data, Options{Fields: []Field{{Name: "x", Kind: c.kind, DType: c.dtype}}}, true)
		if c.want == "" {
			if len(errs) != 1 || len(rows) != 1 || !strings.Contains(errs[0].Error(), `a.tar, byte 512, record 0: instance "a", member .x: expected`) {
				t.Errorf("%+v: expected an error and the next instance, found %v %v", c, rows, errs)
			}
		} else if len(rows) != 2 || !strings.HasSuffix(rows[0], " "+c.want) {
			t.Errorf("%+v: found %v %v", c, rows, errs)
		}
	}
}

func TestJSON(t *testing.T) {
	texts := []string{`{}`, `[]`, `[1,2,{"a":[]}]`, `{"a":1,}`, `[1,]`, `[,1]`, `{"a" 1}`, `{a:1}`, `{"a":}`, `"\u12"`, `"\u12ZZ"`, `"\ud800"`, `"\x"`, `"`, `"\`, "\"\n\"", `1e5`, `-`, `--1`, `1e+`,
		`{"a":{"b":{"c":[0,1,2]}}}`, strings.Repeat("[", 1000) + strings.Repeat("]", 1000), `[`, `{`, `{"`, `tru`, `truer`, ` 1 `, "\x001", `0x1`, `[1 2]`, `{"a":1 "b":2}`, `"\/\b\f\n\r\t\"\\"`, `00`, `-01`, `0.0e-0`}
	for _, text := range texts {
		if _, _, ok := jsonAt([]byte(text), nil); ok != json.Valid([]byte(text)) {
			t.Errorf("%.40q: expected %v, found %v", text, !ok, ok)
		}
	}
	if _, _, ok := jsonAt([]byte(strings.Repeat("[", 100000)), nil); ok {
		t.Error("expected an error for JSON nested too deeply")
	}
	for _, c := range []struct{ text, path, want string }{
		{`{"a":{"b":[0,{"c":5}]}}`, "a.b.1.c", "5"}, {`{"a":1}`, "b", ""}, {`{"a":1}`, "a.b", ""}, {`[1,2]`, "2", ""}, {`[1,2]`, "01", ""},
		{`{"a":1,"a":2}`, "a", "2"}, {`{"a":{"b":1},"a":{}}`, "a.b", ""}, {`{"\u0061":1}`, "a", "1"}, {`{"1":[7]}`, "1.0", "7"},
	} {
		found, _, ok := jsonAt([]byte(c.text), strings.Split(c.path, "."))
		if !ok || string(found) != c.want {
			t.Errorf("%s at %s: expected %q, found %q", c.text, c.path, c.want, found)
		}
	}
}

func TestArrays(t *testing.T) {
	npyOf := func(descr, order, shape, data string) string {
		text := "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }"
		text += strings.Repeat(" ", 117-len(text)) + "\n"
		return "\x93NUMPY\x01\x00\x76\x00" + text + data
	}
	for _, c := range []struct{ npy, want string }{
		{npyOf("'<i2'", "False", "(3,)", "\x01\x00\x02\x00\xff\xff"), "int16 [1 2 -1]"},
		{npyOf("'>i2'", "False", "(3,)", "\x00\x01\x00\x02\xff\xff"), "int16 [1 2 -1]"},
		{npyOf("'|u1'", "True", "(2, 3)", "\x01\x04\x02\x05\x03\x06"), "uint8 [1 2 3 4 5 6]dims[2 3]"},
		{npyOf("'|u1'", "True", "(2, 2, 2)", "\x01\x05\x03\x07\x02\x06\x04\x08"), "uint8 [1 2 3 4 5 6 7 8]dims[2 2 2]"},
		{npyOf("'>f4'", "True", "(2, 2)", "\x3f\x80\x00\x00\x40\x40\x00\x00\x40\x00\x00\x00\x40\x80\x00\x00"), "float32 [1 2 3 4]dims[2 2]"},
		{npyOf("'<f8'", "False", "()", "\x00\x00\x00\x00\x00\x00\xf8\x3f"), "float64 1.5"},
		{npyOf("'<f8'", "False", "(0, 3)", ""), "float64 []dims[0 3]"},
		{npyOf("'|b1'", "False", "(2,)", "\x01\x00"), "bool [true false]"},
		{npyOf("'<c8'", "False", "(1,)", "abcdefgh"), "complex64 [6162636465666768]"},
		{npyOf("'<i2'", "False", "(3,)", "\x01\x00\x02\x00\xff"), `byte 640, record 0: instance "a", member .npy: expected 6 bytes, dims [3] of int16, found 5`},
		{npyOf("'<i2'", "False", "(3,)", "\x01\x00\x02\x00\xff\xff\x00"), "found 7"},
		{npyOf("'<U5'", "False", "(3,)", ""), "strings"},
		{npyOf("'|O'", "False", "(3,)", ""), "objects"},
		{npyOf("'|u1'", "False", "(1,1,1,1,1,1,1,1,1)", "x"), "at most 8 dimensions, found 9"},
		{npyOf("'|u1'", "False", "(99999999999,99999999999)", "x"), `member .npy: shape: expected one that a file can hold`},
		{"", "expected an npy"},
		{"\x93NUMPY\x01\x00\xff\xff", "expected a header"},
		{"not npy at all", "expected an npy file"},
	} {
		data := ended(part{"a.npy", c.npy, 0}, part{"a.txt", "x", 0}, part{"b.npy", c.npy, 0}, part{"b.txt", "y", 0})
		rows, errs := read(t, data, Options{Fields: fields("npy", "txt")}, false)
		if len(errs) == 0 {
			expect(t, c.want, rows, c.want+` | "x"`, c.want+` | "y"`)
		} else {
			expect(t, c.want, rows)
			expectErrors(t, "array", errs, c.want)
			kind := pyfeed.Corrupt
			switch c.want {
			case "strings", "objects":
				kind = pyfeed.Type
			case "at most 8 dimensions, found 9":
				kind = pyfeed.Shape
			}
			if found := errs[0].(*pyfeed.Error).Kind; found != kind {
				t.Errorf("%s: expected kind %d, found %d", c.want, kind, found)
			}
		}
	}
}

func TestIncompleteInstances(t *testing.T) {
	data := ended(part{"a.jpg", "1", 0}, part{"a.cls", "1", 0}, part{"b.jpg", "2", 0}, part{"b.txt", "", 0}, part{"c.jpg", "3", 0}, part{"c.cls", "3", 0}, part{"c.jpg", "4", 0}, part{"c.txt", "", 0},
		part{"d.cls", "x", 0}, part{"d.jpg", "", 0}, part{"e.jpg", "5", 0}, part{"e.cls", "5", 0}, part{"f.cls", "6", 0})
	o := Options{Fields: fields("jpg", "cls")}
	rows, errs := read(t, data, o, true)
	expect(t, "rows", rows, `"1" | int64 1`, `"5" | int64 5`)
	expectErrors(t, "rows", errs,
		`a.tar, byte 2048, record 1: instance "b": expected a member .cls, found .jpg .txt`,
		`a.tar, byte 5632, record 2: instance "c": expected one member .jpg, found two`,
		`a.tar, byte 7680, record 3: instance "d", member .cls: expected an integer, int64, found "x"`,
		`byte 10752, record 5: instance "f": expected a member .jpg, found .cls`)
	for _, err := range errs {
		if e := err.(*pyfeed.Error); e.Kind != pyfeed.Corrupt {
			t.Errorf("expected kind corrupt, found %v of %v", e.Kind, e)
		}
	}
	rows, errs = read(t, data, o, false)
	expect(t, "up to the first", rows, `"1" | int64 1`)
	expectErrors(t, "up to the first", errs, `instance "b"`)

	_, errs = read(t, data[2048:], Options{Fields: fields("jpg", "png;cls")}, false)
	expectErrors(t, "alternatives", errs, `expected a member of the extensions png;cls, found .jpg .txt`)
	// Without options, the first instance is checked too.
	_, errs = read(t, ended(part{"a.x", "", 0}, part{"a.x", "", 0}), Options{}, false)
	expectErrors(t, "twice", errs, `byte 512, record 0: instance "a": expected one member .x, found two`)
	_, errs = read(t, ended(part{"none", "", 0}), Options{}, false)
	expectErrors(t, "none", errs, "expected an instance to infer the fields from")
}

func TestEnds(t *testing.T) {
	a, b := pack(part{"a.x", "1", 0}), pack(part{"b.x", "2", 0})
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	z := zeros[:512]
	const cut = "found the end of the file: it may have been cut"
	for name, c := range map[string]struct {
		data      []byte
		rows      string
		err       string
		file      string // with end "file"
		fileError string
	}{
		"two":          {join(a, b, z, z), "12", "", "12", ""},
		"twenty":       {join(a, b, zeros[:]), "12", "", "12", ""},
		"one":          {join(a, b, z), "12", "", "12", ""},
		"one and more": {join(a, z, z[:100]), "1", "", "1", ""},
		"none":         {join(a, b), "12", cut, "12", ""},
		"empty":        {nil, "", cut, "", ""},
		"only zeros":   {join(z, z), "", "", "", ""},
		"appended":     {join(a, z, z, b, z, z), "1", "found a member after them, at byte 2048", "12", ""},
		"a hole":       {join(a, z, b, z, z), "1", "byte 1536, record 1: expected a second block of zeros", "12", ""},
		"garbage":      {join(a, z, z, bytes.Repeat([]byte("x"), 700)), "1", "", "1", "byte 2048, record 1: expected the header of a member"},
		"tail":         {join(a, z, z, []byte("x")), "1", "", "1", "expected a header of 512 bytes, found 1"},
	} {
		rows, errs := read(t, c.data, Options{Fields: fields("x")}, false)
		found := strings.ReplaceAll(strings.Join(rows, ""), `"`, "")
		if found != c.rows || (c.err == "") != (len(errs) == 0) || c.err != "" && !strings.Contains(errs[0].Error(), c.err) {
			t.Errorf("%s: expected %s and %q, found %s and %v", name, c.rows, c.err, found, errs)
		}
		rows, errs = read(t, c.data, Options{Fields: fields("x"), End: "file"}, false)
		found = strings.ReplaceAll(strings.Join(rows, ""), `"`, "")
		if found != c.file || (c.fileError == "") != (len(errs) == 0) || c.fileError != "" && !strings.Contains(errs[0].Error(), c.fileError) {
			t.Errorf("%s, end file: expected %s and %q, found %s and %v", name, c.file, c.fileError, found, errs)
		}
		if c.err != "" && c.rows != c.file { // the members after the error are read
			rows, errs = read(t, c.data, Options{Fields: fields("x")}, true)
			expect(t, name, rows, `"1"`, `"2"`)
			expectErrors(t, name, errs, c.err)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, data := range map[string][]byte{
		"GNU's sparse": ended(part{"a.x", "", typeSparse}),
		"pax sparse":   ended(part{"x", string(appendPax(nil, "GNU.sparse.map", []byte("0,1"))), typePax}, part{"a.x", "1", 0}),
		"continued":    ended(part{"a.x", "1", typeContinued}),
	} {
		_, errs := read(t, data, Options{Fields: fields("x")}, false)
		expectErrors(t, name, errs, `member "a.x": expected a whole file, found a sparse one or a part of one`)
		if len(errs) == 1 && errs[0].(*pyfeed.Error).Kind != pyfeed.Unsupported {
			t.Errorf("%s: found %v", name, errs[0].(*pyfeed.Error).Kind)
		}
	}
	for text, want := range map[string]string{
		"x":                             "the length of a record and a space",
		"5":                             "the length of a record and a space",
		"999 a=b\n":                     "a record of the length that it gives",
		"7 a=bcd\n":                     "a record of the length that it gives",
		"0 a=b\n":                       "a record of the length that it gives",
		"5 ab\n":                        "key=value",
		"5 =b\n":                        "key=value",
		"9 size=x\n":                    "a size in bytes",
		"28 size=9999999999999999999\n": "a size in bytes",
		"999999999999 a=b":              "the length of a record and a space",
	} {
		data := ended(part{"p", text, typePax}, part{"a.x", "1", 0}, part{"b.x", "2", 0})
		rows, errs := read(t, data, Options{Fields: fields("x")}, true)
		expectErrors(t, text, errs, "pax header: expected "+want)
		expect(t, text, rows, `"1"`, `"2"`) // these instances are complete
	}
	for _, record := range []string{"12 path=a.x\n", "10 size=1\n"} {
		_, errs := read(t, ended(part{"g", record, typeGlobalPax}, part{"a.x", "1", 0}), Options{Fields: fields("x")}, false)
		expectErrors(t, record, errs, "expected nothing about the name and size of all members")
	}
}

// Members larger than a block and a window, in files that are mapped, read and decompressed; all tuples are held to the
// end.
func TestLargeFiles(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 501
	}
	value := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), i*3) }
	large := strings.Repeat("0123456789abcdef", 200000)
	var data []byte
	for i := range n {
		name := fmt.Sprintf("folder/%s%d", strings.Repeat("n", i%200), i)
		for _, p := range []part{{".jpg", value(i), 0}, {".npy", array(pyfeed.Dims{2}, int32(i), -1), 0}, {".cls", fmt.Sprint(i), 0}, {".pass", "over", 0}} {
			if i%500 == 499 && (p.name == ".jpg" || p.name == ".pass") {
				p.data = large
			}
			data = append(data, pack(part{"x", string(appendPax(nil, "path", []byte(name+p.name))), typePax}, part{"y", p.data, 0})...)
		}
	}
	data = append(data, zeros[:1024]...)
	packed := formattest.Gzip(data)
	path := filepath.Join(t.TempDir(), "a.tar")
	for _, io := range []string{"map", "read", "gzip"} {
		c := config(formattest.Pool(t), Options{Fields: fields("npy", "__key__", "cls", "jpg")})
		content := data
		if io == "gzip" {
			content = packed
		} else {
			c.Storage.IO = io
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path, c)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.(*records).Describe(); err != nil {
			t.Fatal(err)
		}
		tuples := formattest.ReadAll(t, r, n+1)
		if len(tuples) != n {
			t.Errorf("%s: expected %d, found %d", io, n, len(tuples))
		}
		for i, tuple := range tuples {
			want := value(i)
			if i%500 == 499 {
				want = large
			}
			head := fmt.Sprintf(`int32 [%d -1] | "folder/%s%d" | int64 %d`, i, strings.Repeat("n", i%200), i, i)
			jpg := &tuple.Slots[3]
			if found := row(&pyfeed.Tuple{Slots: tuple.Slots[:3]}); found != head || string(jpg.Data) != want || jpg.LoD[0][1] != int64(len(want)) {
				t.Fatalf("%s, %d: expected %s and %d bytes, found %s and %d", io, i, head, len(want), found, len(jpg.Data))
			}
		}
		pyfeed.ReleaseAll(tuples)
	}
}
