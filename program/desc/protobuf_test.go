package desc

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// The expected bytes were made with Python's protobuf: compile program.proto with "python -m grpc_tools.protoc -I.
// --python_out=OUT program.proto", fill in the same messages, and print SerializeToString().hex().
func TestGoldenBytes(t *testing.T) {
	p := parsed(t, `{"version": 1, "blocks": [{"parent": -1,
		"variables": [{"name": "x", "persistable": true, "dtype": "int64", "dims": [-1, 3], "lod_levels": 1},
		              {"name": "r", "kind": "reader", "slots": [{"name": "s", "dtype": "bool", "dims": []}]}],
		"ops": [{"type": "t", "inputs": ["r"], "outputs": ["x", ""], "where": "w",
		         "attributes": {"b": false, "f": 1.0, "i": -2, "l": ["z"], "m": {}}}]}]}`)
	want := strings.Join([]string{
		"0801", // version
		"128b 01",
		/**/ "08 ffffffffffffffffff01", // parent
		/**/ "12 1f", // variables
		/*  */ "0a0178 1001 1801 2205696e743634", // name, kind, persistable, dtype
		/*  */ "2a0d 0a0b ffffffffffffffffff01 03", // shape: dims, packed
		/*  */ "3001", // lod_levels
		/**/ "12 14 0a0172 1002",
		/*  */ "3a0d 0a0b 0a0173 1204626f6f6c 1a00", // slots: slot: name, dtype, shape
		/**/ "1a 47 0a0174 120172 1a0178 1a00", // ops: type, inputs, outputs
		/*  */ "2207 0a0162 1202 0800", // attributes: name, value
		/*  */ "220e 0a0166 1209 19 000000000000f03f",
		/*  */ "2207 0a0169 1202 1003",
		/*  */ "220c 0a016c 1207 2a05 0a03 22017a",
		/*  */ "2207 0a016d 1202 3200",
		/*  */ "2a0177", // where
	}, "")
	data := Marshal(p)
	if found := hex.EncodeToString(data); found != strings.ReplaceAll(want, " ", "") {
		t.Errorf("expected\n%s, found\n%s", strings.ReplaceAll(want, " ", ""), found)
	}
}

// Messages built by hand: raw joins fields.
func raw(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func nested(n protowire.Number, fields ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), raw(fields...))
}

func str(n protowire.Number, text string) []byte { return nested(n, []byte(text)) }

var version1 = number(1, 1)

func TestUnknownFieldsAreKept(t *testing.T) {
	later := raw(number(77, 5), str(78, "later"), protowire.AppendFixed64(protowire.AppendTag(nil, 79, protowire.Fixed64Type), 9),
		protowire.AppendFixed32(protowire.AppendTag(nil, 80, protowire.Fixed32Type), 9),
		[]byte{0xf8, 0x05, 0x81, 0x00}) // a varint that is longer than necessary
	data := raw(version1, nested(2, number(1, 1<<64-1), nested(2, str(1, "x"), number(2, 1), later), nested(3, str(1, "t"), later), later), later)
	p, err := unmarshal(data)
	if err != nil {
		t.Fatal(err)
	}
	block := p.Blocks[0]
	for i, found := range [][]byte{p.Unknown, block.Unknown, block.Variables[0].Unknown, block.Ops[0].Unknown} {
		if !bytes.Equal(found, later) {
			t.Errorf("level %d: expected %x, found %x", i, later, found)
		}
	}
	if found := Marshal(p); !bytes.Equal(found, data) {
		t.Errorf("expected %x, found %x", data, found)
	}
	if back, err := fromJSON(ToJSON(p)); err != nil || !bytes.Equal(Marshal(back), data) {
		t.Errorf("JSON: expected %x, found %v: %s", data, err, ToJSON(p))
	}

	// In messages that cannot keep them, unknown fields are refused.
	shape := nested(5, later)
	variable := func(fields ...[]byte) []byte {
		return nested(2, nested(2, raw(str(1, "x"), number(2, 1)), raw(fields...)))
	}
	value := func(fields ...[]byte) []byte {
		return nested(2, nested(3, nested(4, str(1, "step"), raw(fields...))))
	}
	for where, b := range map[string][]byte{
		`block 0, variable "x", shape`:                         variable(shape),
		`block 0, variable "x", slots`:                         variable(nested(7, later)),
		`block 0, variable "x", slot 0`:                        variable(nested(7, nested(1, later))),
		`block 0, variable "x", slot 0, shape`:                 variable(nested(7, nested(1, nested(3, later)))),
		`block 0, op 0, attribute "step"`:                      value(nested(2, number(1, 1)), later),
		`block 0, op 0, attribute "step": `:                    value(nested(2, later)),
		`block 0, op 0, attribute "step": expected`:            value(nested(2, nested(5, later))),
		`block 0, op 0, attribute "step", element 0: expected`: value(nested(2, nested(5, nested(1, later)))),
		`block 0, op 0, attribute "step", entry "k": expected`: value(nested(2, nested(6, nested(1, str(1, "k"), later)))),
	} {
		_, err := unmarshal(raw(version1, b))
		refused(t, err, pyfeed.Unsupported, -1, where, "field 77")
	}
}

func TestFieldsInAnyOrder(t *testing.T) {
	packed := nested(5, nested(1, []byte{2, 3}), number(1, 4))
	data := raw(
		nested(2, number(1, 7), nested(2, packed, number(2, 3), number(2, 1), number(3, 2), str(1, "a"), str(1, "b")), number(1, 0),
			nested(3, nested(4, nested(2, number(1, 5), number(2, 4)), str(1, "z")), nested(4, str(1, "a"), nested(2, number(1, 1))))),
		number(1, 9), version1)
	p, err := unmarshal(data)
	if err != nil {
		t.Fatal(err)
	}
	want := parsed(t, `{"version": 1, "blocks": [{"variables": [{"name": "b", "persistable": true, "dims": [2, 3, 4]}],
		"ops": [{"type": "", "attributes": {"a": true, "z": 2}}]}]}`)
	if !same(p, want) {
		t.Errorf("expected %s, found %s", ToJSON(want), ToJSON(p))
	}
}

func TestRefused(t *testing.T) {
	op := func(fields ...[]byte) []byte { return raw(version1, nested(2, nested(3, fields...))) }
	variable := func(fields ...[]byte) []byte {
		return raw(version1, nested(2, nested(2, raw(str(1, "x"), number(2, 1)), raw(fields...))))
	}
	deep := func(n int, around func([]byte) []byte) []byte {
		b := number(1, 1)
		for range n {
			b = around(b)
		}
		return op(nested(4, str(1, "a"), nested(2, b)))
	}
	list := func(b []byte) []byte { return nested(5, nested(1, b)) }
	entry := func(b []byte) []byte { return nested(6, nested(1, str(1, "k"), nested(2, b))) }
	for _, b := range [][]byte{deep(maxDepth, list), deep(maxDepth, entry)} {
		if p, err := unmarshal(b); err != nil {
			t.Errorf("expected depth %d, found %v", maxDepth, err)
		} else if _, err := fromJSON(ToJSON(p)); err != nil {
			t.Errorf("JSON: expected depth %d, found %v", maxDepth, err)
		}
	}
	unsupported, corrupt := pyfeed.Unsupported, pyfeed.Corrupt
	for _, c := range []struct {
		data  []byte
		kind  pyfeed.Kind
		at    int
		words string
	}{
		{nil, corrupt, 0, "expected a program, found 0 bytes"},
		{nested(2), unsupported, 0, "version: expected 1, found none"},
		{number(1, 2), unsupported, 0, "version: expected 1, found 2"},
		{raw(nested(2, number(1, 1)), number(1, 2)), unsupported, 4, "found 2"},
		// Found before the fault in the block.
		{raw(nested(2, nested(2, str(2, ""))), number(1, 2)), unsupported, 6, "found 2"},
		{number(1, 1<<32), corrupt, 0, "version: expected 32 bits, found 4294967296"},
		{str(1, "1"), corrupt, 0, "version: expected wire type 0, found 2"},
		{raw(version1, []byte{0}), corrupt, 2, "expected the tag of a field, found 00"},
		{raw(version1, []byte{0x12}), corrupt, 3, "field 2: expected its size, found"},
		{raw(version1, []byte{0x12, 5, 8}), corrupt, 4, "field 2: expected 5 bytes, found 1"},
		{raw(version1, []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}), corrupt, 12, "field 2: expected 9223372036854775807 bytes, found 0"},
		{raw(version1, []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}), corrupt, 13, "bytes, found 0"},
		{raw(version1, []byte{0x19, 1, 2}), corrupt, 3, "field 3: expected 8 bytes, found 2"},
		{raw(version1, []byte{0x1d, 1, 2}), corrupt, 3, "field 3: expected 4 bytes, found 2"},
		{raw(version1, []byte{0x1b, 8, 1}), corrupt, 3, "field 3: expected a group and its end"},
		{raw(version1, []byte{0x1c}), corrupt, 2, "expected a wire type"},
		{raw(version1, []byte{0x1f}), corrupt, 2, "expected a wire type"},
		{raw(version1, []byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}), corrupt, 3, "expected a varint"},
		{raw(version1, []byte{0x80, 0x80, 0x80, 0x80, 0x10, 1}), corrupt, 2, "expected the number of a field"},
		{raw(version1, number(2, 1)), corrupt, 2, "blocks: expected wire type 2, found 0"},
		{raw(version1, nested(2, number(1, 1<<31))), corrupt, 4, "block 0: parent: expected 32 bits, found 2147483648"},
		{raw(version1, nested(2), nested(2, nested(2))), corrupt, 8, "block 1, variable 0: kind: expected 1 to 3, found none"},
		{variable(number(2, 4)), corrupt, 11, `block 0, variable "x": kind: expected 1 to 3, found 4`},
		{variable(str(1, "\xff")), corrupt, -1, `name: expected UTF-8, found "\xff"`},
		{variable(str(4, "float33")), corrupt, 11, `dtype: expected the name of one, found "float33"`},
		{variable(number(6, pyfeed.MaxLoDLevels+1)), corrupt, 11, "lod_levels: expected 0 to 8, found 9"},
		{variable(nested(5, nested(1, make([]byte, 9)))), corrupt, 23, "shape: dims: expected at most 8, found more"},
		{variable(nested(5, nested(1, protowire.AppendVarint(nil, 1<<64-2)))), corrupt, 15, "shape: dimension 0: expected a size or -1, found -2"},
		{variable(nested(5, nested(1, []byte{0x80}))), corrupt, 15, "shape: dimension 0: expected a varint, found 80"},
		{variable(nested(5, str(1, ""), []byte{0x09, 1, 1, 1, 1, 1, 1, 1, 1})), corrupt, 15, "dims: expected wire type 0 or 2, found 1"},
		{variable(nested(7, nested(1, str(2, "x")))), corrupt, 15, "slot 0: dtype: expected the name of one"},
		{op(str(5, "\xff")), corrupt, 8, "block 0, op 0: where: expected UTF-8"},
		{op(number(2, 1)), corrupt, 6, "block 0, op 0: inputs: expected wire type 2, found 0"},
		{op(nested(4)), corrupt, 6, "block 0, op 0, attribute: expected a value, found none"},
		{op(nested(4, str(1, "step"), str(2, ""))), corrupt, 16, `block 0, op 0, attribute "step": expected a value, found none`},
		{op(nested(4, str(1, "step"), nested(2, str(2, "x")))), corrupt, 16, `attribute "step": int: expected wire type 0, found 2`},
		{op(nested(4, str(1, "step"), nested(2, number(3, 1)))), corrupt, 16, `attribute "step": float: expected wire type 1, found 0`},
		{op(nested(4, str(1, "a"), nested(2, number(1, 1))), nested(4, str(1, "a"), nested(2, number(1, 1)))), corrupt, -1, `expected each attribute once, found two of "a"`},
		{op(nested(4, str(1, "a"), nested(2, nested(6, nested(1, str(1, "$float"), nested(2, number(1, 1))))))), corrupt, -1, "$float"},
		{deep(maxDepth+1, list), corrupt, -1, "nested at most 32 deep"},
		{deep(maxDepth+1, entry), corrupt, -1, "nested at most 32 deep"},
		{deep(2000, list), corrupt, -1, "nested at most 32 deep"},
	} {
		_, err := unmarshal(c.data)
		refused(t, err, c.kind, c.at, c.words)
	}
}

// A prefix of a file is refused, unless it ends after a block or a field of the program. Then it is a shorter program
// with exactly those bytes.
func TestEveryTruncation(t *testing.T) {
	data := append(Marshal(parsed(t, loop)), number(77, 1)...)
	whole := 0
	for n := range data {
		if p, err := unmarshal(data[:n]); err == nil {
			whole++
			if !bytes.Equal(Marshal(p), data[:n]) {
				t.Errorf("%d bytes: expected them back, found %x", n, Marshal(p))
			}
		} else {
			refused(t, err, pyfeed.Corrupt, -1, "expected")
		}
	}
	if whole != 5 { // after the version, and after each of four blocks
		t.Errorf("expected 5 prefixes that are programs, found %d", whole)
	}
}

func TestEveryFlippedByte(t *testing.T) {
	data := Marshal(parsed(t, loop))
	for i := range data {
		for k, bits := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
			if testing.Short() && (i+k)%3 > 0 {
				continue
			}
			b := bytes.Clone(data)
			b[i] ^= bits
			if p, err := unmarshal(b); err == nil {
				again, err := unmarshal(Marshal(p))
				if err != nil || !same(p, again) {
					t.Fatalf("byte %d: expected the same again, found %v", i, err)
				}
			}
		}
	}
}

// Reading allocates memory in proportion to the file, and counts are limited.
func TestAdversarialCounts(t *testing.T) {
	many := func(b []byte, n int) []byte { return bytes.Repeat(b, n) }
	type adversarial struct {
		data  []byte
		words string
	}
	cases := []adversarial{
		{raw(version1, many(nested(2), MaxBlocks+1)), "expected at most 65536 blocks"},
		{raw(version1, nested(2, many(nested(3), MaxOps)), nested(2, nested(3))), "block 1: expected at most 1048576 ops"},
		{raw(version1, nested(2, nested(2, number(2, 1), nested(7, many(nested(1), maxSlots+1))))), "expected at most 1048576 slots"},
	}
	if !testing.Short() {
		cases = append(cases,
			adversarial{raw(version1, nested(2, many(nested(2, number(2, 1)), MaxVariables+1))), "expected at most 1048576 variables"},
			adversarial{raw(version1, nested(2, nested(3, nested(4, nested(2, nested(5, many(nested(1, number(1, 1)), maxValues))))))), "expected at most 4194304 values"})
	}
	for _, c := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := unmarshal(c.data)
		runtime.ReadMemStats(&after)
		refused(t, err, pyfeed.Corrupt, -1, c.words)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(c.data))*200 {
			t.Errorf("%s: %d bytes were allocated to read %d bytes", c.words, took, len(c.data))
		}
	}
}

func FuzzProtobuf(f *testing.F) {
	for seed := range int64(8) {
		f.Add(Marshal(randomProgram(seed)))
	}
	f.Add(Marshal(parsed(f, loop)))
	f.Add(raw(version1, nested(2, nested(3, nested(4, str(1, "a"), nested(2, nested(5, nested(1, number(2, 3)))))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := unmarshal(data)
		if err != nil {
			if _, is := err.(*pyfeed.Error); !is || p != nil {
				t.Fatalf("expected a *pyfeed.Error and no program, found %T and %v", err, p)
			}
			return
		}
		checkInvariants(t, p)
	})
}

// checkInvariants checks what must hold for every program that can be read.
func checkInvariants(t *testing.T, p *Program) {
	data := Marshal(p)
	again, err := unmarshal(data)
	if err != nil || !bytes.Equal(Marshal(again), data) {
		t.Fatalf("protobuf: %v\n%x", err, data)
	}
	text := ToJSON(p)
	if again, err = fromJSON(text); err != nil || !bytes.Equal(Marshal(again), data) {
		t.Fatalf("JSON: %v\n%s", err, text)
	}
	if !bytes.Equal(Marshal(p.Clone()), data) {
		t.Fatal("the copy is not an equal program")
	}
	for _, form := range []string{"mermaid", "graphviz"} {
		if _, err := Draw(p, form); err != nil {
			t.Fatal(err)
		}
	}
}
