package csv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
)

var padding = strings.Repeat("7", plainReach)

func TestPlainFloatsRoundAsStrconv(t *testing.T) {
	plain := 0
	all := formattest.HardNumbers(60000)
	for _, s := range all {
		var double [1]float64
		k, next := plainFloats([]byte(s+","+padding), 0, double[:], ',', ',')
		want, err := strconv.ParseFloat(s, 64)
		plain += k
		if k == 1 && (err != nil || math.Float64bits(double[0]) != math.Float64bits(want) || next != len(s)+1) {
			t.Fatalf("%s: expected %v, %v, found %v and the next field at %d", s, want, err, double[0], next)
		}
		var single [1]float32
		k, next = plainFloats([]byte(s+"\r\n"+padding), 0, single[:], ',', '\n')
		want, err = strconv.ParseFloat(s, 32)
		if k == 1 && (err != nil || math.Float32bits(single[0]) != math.Float32bits(float32(want)) || next != len(s)+2) {
			t.Fatalf("%s: expected the float32 %v, %v, found %v and the next field at %d", s, want, err, single[0], next)
		}
	}
	if plain < len(all)/3 {
		t.Errorf("expected a third of the numbers to be plain at least, found %d of %d", plain, len(all))
	}
}

func TestPlainFields(t *testing.T) {
	for s, want := range map[string]bool{
		"0": true, "-0": true, "0.": true, "1.5": true, "-1.5": true, "123456789.5": true, "0.1234567890123456789": false, "0.123456789012345678": true,
		"1234567890.5": false, "1e5": true, "1.5E-05": true, "1e+005": true, "1e0005": false, "1.5e22": true, "1e23": false, "9007199254740993e1": false,
		"": false, "-": false, ".5": false, "-.5": false, "--1": false, "+1": false, "1e": false, "1e-": false, "1e+ ": false, "1 ": false, " 1": false, "1..": false,
		"1.-5": false, "nan": false, "-inf": false, "1\r": false, "1-": false, "\"1\"": false, "1.5\x00": false, "1\xb1": false, "1.\xb1": false,
	} {
		var out [1]float64
		k, next := plainFloats([]byte(s+","+padding), 0, out[:], ',', ',')
		f, err := strconv.ParseFloat(s, 64)
		if (k == 1) != want || want && (err != nil || out[0] != f || next != len(s)+1) || !want && next != 0 {
			t.Errorf("%q: expected it to be plain: %v, found %d of %v, next %d", s, want, k, out, next)
		}
		// Bytes after the end of the data are not read.
		if k, next := plainFloats([]byte(s+","+padding[:plainReach-len(s)-2]), 0, out[:], ',', ','); k != 0 || next != 0 {
			t.Errorf("%q: found %d before the end", s, k)
		}
	}
	for s, want := range map[string]bool{
		"0": true, "-0": true, "7": true, "12345678": true, "-128": true, "123456789012345": true, "1234567890123456": false, "000000000000001": true,
		"": false, "-": false, "+1": false, "1.": false, "1e5": false, "--1": false, "1-": false, "1\r": false, "1\xb1": false, "12345678\xb1": false,
	} {
		r := runs([]column{{kind: number.Integer, dtype: pyfeed.Int64, size: 8, below: 1 << 63, above: 1<<63 - 1}})[0]
		var out [8]byte
		k, next := r.plainIntegers([]byte(s+","+padding), 0, out[:], 1, ',', ',')
		v, err := strconv.ParseInt(s, 10, 64)
		if (k == 1) != want || want && (err != nil || int64(binary.NativeEndian.Uint64(out[:])) != v || next != len(s)+1) || !want && next != 0 {
			t.Errorf("%q: expected it to be plain: %v, found %d of %v, next %d", s, want, k, out, next)
		}
	}
}

func TestRuns(t *testing.T) {
	config := record.Config{Options: formattest.Options[Options](t, `{"header": false, "columns": [{"columns": ["0:2", 4], "dtype": "float32"},
		{"columns": 3, "dtype": "float32"}, {"columns": 5, "dtype": "bytes"}, {"columns": ["6:7"], "dtype": "int8"}, {"columns": 9, "dtype": "int8"},
		{"columns": 10, "dtype": "int64"}, {"columns": 11, "dtype": "uint64"}]}`)}
	tested.EachWay(t, []byte("1,2,3,4,5,x,6,7,8,9,-10,9223372036854775811\n"), config, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, run := range r.(*records).runs {
			found = append(found, fmt.Sprint(run.first, run.end, run.last))
		}
		if want := []string{"0 3 false", "3 4 false", "4 5 false", "5 6 false", "6 8 false", "8 9 false", "9 10 false", "10 11 false", "11 12 true"}; !slices.Equal(found, want) {
			t.Errorf("expected runs %v, found %v", want, found)
		}
		if got, err := formattest.Lines(t, r, 2); err != io.EOF || !slices.Equal(got, []string{`[1 2 3 5] 4 "x" [6 7] 9 -10 9223372036854775811`}) {
			t.Errorf("found %v, %v", got, err)
		}
	})
}

// notPlain makes all fields be parsed as if none were plain.
func notPlain(r record.Records) {
	for i := range r.(*records).runs {
		run := &r.(*records).runs[i]
		c := *run.column
		c.kind = number.None
		run.column = &c
	}
}

// everything reads a file and skips damage. It returns a line for each slot and error, and how many instances were read
// by ReadBlock, which it calls only if rows is set. next returns how many instances to request at a time.
func everything(t *testing.T, r record.Records, next func() int, rows bool) (all []string, asRows int) {
	t.Helper()
	out := make([]*pyfeed.Tuple, 64)
	for {
		n := next()
		pyfeed.NewTuples(out[:n], 1)
		var err error
		k := 0
		if rows {
			k, err = formattest.ReadBlock(r, out[:n])
			asRows += k
		}
		if k == 0 {
			k, err = r.Read(out[:n])
		}
		for _, tuple := range out[:k] {
			for i := range tuple.Slots {
				s := &tuple.Slots[i]
				all = append(all, fmt.Sprintf("%v %v %v %v %x", s.DType, s.Dims(), s.LoD, s.ReadOnly, s.Data))
			}
		}
		pyfeed.ReleaseAll(out[:n])
		if err == io.EOF {
			return all, asRows
		}
		if err == nil {
			continue
		}
		e := err.(*pyfeed.Error)
		all = append(all, fmt.Sprintf("%d %d %s: %s, byte %d, record %d", e.Kind, e.Slot, e.Text, strings.TrimSuffix(filepath.Base(e.At.File), ".gz"), e.At.Offset, e.At.Record))
		if err = r.Resync(); err == io.EOF {
			return all, asRows
		}
	}
}

func same(t *testing.T, found, want []string) {
	t.Helper()
	for i := range max(len(found), len(want)) {
		if i >= len(found) || i >= len(want) || found[i] != want[i] {
			t.Fatalf("line %d of %d: expected %q, found %q", i, len(want), want[min(i, len(want)):min(i+1, len(want))], found[min(i, len(found)):min(i+1, len(found))])
		}
	}
}

// randomTable returns a file with fields of all kinds, mostly plain ones, and some damage.
func randomTable(rng *rand.Rand, numbers []string, width int, crlf bool) []byte {
	var b bytes.Buffer
	usual := max(0, rng.IntN(12)-6) // a kind of integer in half of the tables, which fits every dtype
	end := "\n"
	if crlf {
		end = "\r\n"
	}
	for i := range rng.IntN(200) {
		w := width
		switch rng.IntN(60) {
		case 0:
			b.WriteString(end)
		case 1:
			b.WriteString("# a comment, 5" + end)
		case 2:
			w += rng.IntN(3) - 1
		case 3:
			b.WriteString("1,\"unclosed\n")
		}
		for j := range w {
			if j > 0 {
				b.WriteByte(',')
			}
			kind := usual
			if rng.IntN(50) == 0 {
				kind = rng.IntN(12)
			}
			switch kind {
			case 0:
				fmt.Fprint(&b, rng.IntN(128))
			case 1:
				fmt.Fprintf(&b, "%.6f", rng.Float64())
			case 2:
				fmt.Fprint(&b, rng.NormFloat64())
			case 3:
				fmt.Fprintf(&b, "%.18e", rng.NormFloat64())
			case 4:
				fmt.Fprint(&b, rng.Uint64()>>rng.IntN(64))
			case 5:
				b.WriteString(numbers[rng.IntN(len(numbers))])
			case 6:
				fmt.Fprintf(&b, " %d\t", -i)
			case 7:
				fmt.Fprintf(&b, "\"%d\"", i)
			case 8: // missing
			case 9:
				b.WriteString([]string{"nan", "-inf", "+1.5", "true", ".5", "1e", "-", "x", "\"a\"\"b\"", "\"1\n2\"", "1\r", "300", "1e39", "1e-46"}[rng.IntN(14)])
			case 10:
				b.WriteString(strings.Repeat("0", rng.IntN(30)) + "1." + strings.Repeat("3", rng.IntN(30)))
			case 11:
				b.WriteByte(byte(rng.Uint32()))
			}
		}
		if i < 199 || rng.IntN(2) == 0 {
			b.WriteString(end)
		}
	}
	return b.Bytes()
}

// Plain fields and ReadBlock give the same results as parsing without them, errors included.
func TestFastPathsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	numbers := formattest.HardNumbers(5000)
	dtypes := append(everyDType(), slices.Repeat([]pyfeed.Slot{numberSlot(pyfeed.Float32), numberSlot(pyfeed.Float64)}, 4)...)
	asRows, tables := 0, 150
	if testing.Short() {
		tables = 15
	}
	for range tables {
		slots := []pyfeed.Slot{numberSlot(dtypes[rng.IntN(len(dtypes))].DType, int64(rng.IntN(20)+1)), numberSlot(pyfeed.Float64), numberSlot(pyfeed.Int32, 2)}
		slots = slots[:rng.IntN(3)+1]
		if rng.IntN(8) == 0 {
			slots = append(slots, record.BytesSlot)
		}
		width := 0
		for _, s := range slots {
			n, _ := take(s)
			width += n
		}
		data := randomTable(rng, numbers, width, rng.IntN(2) == 0)
		c := record.Config{Slots: slots, Options: &Options{Header: &no, Comment: "#"}}
		if rng.IntN(2) == 0 {
			seven := columns.Value("7")
			c.Options.(*Options).Missing = &seven
		}
		several := func() int { return rng.IntN(64) + 1 }
		var want []string
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := c
			c.Pool = pool
			r, err := tested.Memory(data, &c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			notPlain(r)
			want, _ = everything(t, r, several, false)
		})
		tested.EachWay(t, data, c, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			found, n := everything(t, r, several, true)
			asRows += n
			same(t, found, want)
		})
	}
	if asRows == 0 {
		t.Error("expected blocks, found none")
	}
}

// Blocks end at the end of a block of the file, of a window, of the memory for numbers, and of the file.
func TestRowsOfALargeFile(t *testing.T) {
	var data bytes.Buffer
	count, zeros := 100000, ""
	if testing.Short() {
		count, zeros = 25000, "0000000000" // as many bytes in fewer records
	}
	for i := range count {
		fmt.Fprintf(&data, "%d,%d.5%s,-%d.25%s,%d\n", i, i, zeros, i, zeros, i%256)
	}
	slots := []pyfeed.Slot{numberSlot(pyfeed.Int64), numberSlot(pyfeed.Float32, 2), numberSlot(pyfeed.Uint8)} // 17 bytes
	tested.EachWay(t, data.Bytes(), record.Config{Options: noHeader, Slots: slots}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		var all []*pyfeed.Tuple
		asRows := 0
		for {
			out := make([]*pyfeed.Tuple, 256)
			pyfeed.NewTuples(out, 3)
			n, _ := formattest.ReadBlock(r, out)
			if asRows += n; n == 0 {
				n, err = r.Read(out)
			}
			all = append(all, out[:n]...)
			pyfeed.ReleaseAll(out[n:])
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(all) != count || asRows < count*9/10 {
			t.Errorf("expected %d instances, most of them in blocks, found %d, %d of them so", count, len(all), asRows)
		}
		for i, tuple := range all {
			integer, floats, small := tuple.Slots[0].Data, tuple.Slots[1].Data, tuple.Slots[2].Data
			a, b := math.Float32frombits(binary.NativeEndian.Uint32(floats)), math.Float32frombits(binary.NativeEndian.Uint32(floats[4:]))
			if binary.NativeEndian.Uint64(integer) != uint64(i) || a != float32(i)+0.5 || b != -float32(i)-0.25 || small[0] != byte(i) {
				t.Fatalf("instance %d: found %v, %v, %v, %v", i, integer, a, b, small)
			}
			if at := uintptr(unsafe.Pointer(&integer[0])); at%8 != 0 {
				t.Fatalf("instance %d: expected an int64 at a multiple of 8, found it at %d", i, at)
			}
		}
		pyfeed.ReleaseAll(all)
	})
}

func FuzzPlain(f *testing.F) {
	for _, data := range []string{"1,2\n3,4\n", "0.5,-1.25\r\n1e5,1.5E-3\r\n", "\"1\",2\n3\n4,5,6\n7,8", "123456789012345678,1\n0.12345678901234567,16777217\n",
		"nan,\n-inf,.5\n\n1,1 \n", "1.000000059604644775390625,1\n"} {
		for d := range uint8(6) {
			f.Add([]byte(data+strings.Repeat(data, 3)), d, uint8(2))
		}
	}
	pool := memory.NewPool(memory.File)
	dtypes := everyDType()
	f.Fuzz(func(t *testing.T, data []byte, dtype, width uint8) {
		defer formattest.CheckLeaks(t)()
		slots := []pyfeed.Slot{numberSlot(dtypes[int(dtype)%len(dtypes)].DType, 1+int64(width%8)), numberSlot(pyfeed.Float32)}[:1+width>>7]
		var all [2][]string
		for k := range all {
			r, err := tested.Memory(data, &record.Config{Pool: pool, Options: noHeader, Slots: slots})
			if err != nil {
				return
			}
			if k == 0 {
				notPlain(r)
			}
			all[k], _ = everything(t, r, func() int { return 20 }, k > 0)
			r.Close()
		}
		same(t, all[1], all[0])
	})
}
