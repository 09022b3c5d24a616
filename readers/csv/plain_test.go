package csv

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/formattest"
)

var padding = strings.Repeat("7", plainRoom)

func TestPlainFloatsRoundAsStrconv(t *testing.T) {
	plain := 0
	all := hardNumbers(60000)
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

func TestQuotientRoundsAsStrconv(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	check := func(m uint64, k int) {
		s := fmt.Sprintf("%de-%d", m, k)
		if want, _ := strconv.ParseFloat(s, 64); quotient[float64](m, k) != want {
			t.Fatalf("%s: expected %v, found %v", s, want, quotient[float64](m, k))
		}
		if want, _ := strconv.ParseFloat(s, 32); quotient[float32](m, k) != float32(want) {
			t.Fatalf("%s: expected the float32 %v, found %v", s, want, quotient[float32](m, k))
		}
	}
	for k := range powers {
		for _, m := range []uint64{0, 1, 9, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 63, 1<<63 + 1, 1<<63 + 1<<10, math.MaxUint64, powers[k], powers[k] - 1, powers[k] + 1} {
			check(m, k)
		}
		for range 20000 {
			check(rng.Uint64()>>rng.IntN(64), k)
		}
		// In the middle of two floats, and next to it: what is odd there, times a power of five, divided by one of ten.
		for _, width := range []int{24, 53} {
			five := new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(k)), nil)
			for range 1000 {
				middle := new(big.Int).SetUint64(rng.Uint64()>>(64-width)<<1 | 1<<width | 1)
				if middle.Mul(middle, five); middle.BitLen() > 64 {
					break
				}
				m := middle.Uint64()
				for _, n := range []uint64{m - 1, m, m + 1} {
					check(n, k)
					check(n<<(64-middle.BitLen()), k)
				}
			}
		}
	}
}

func TestWhatIsPlain(t *testing.T) {
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
		// Nothing is read that is not there.
		if k, next := plainFloats([]byte(s+","+padding[:plainRoom-len(s)-2]), 0, out[:], ',', ','); k != 0 || next != 0 {
			t.Errorf("%q: found %d before the end", s, k)
		}
	}
	for s, want := range map[string]bool{
		"0": true, "-0": true, "7": true, "12345678": true, "-128": true, "123456789012345": true, "1234567890123456": false, "000000000000001": true,
		"": false, "-": false, "+1": false, "1.": false, "1e5": false, "--1": false, "1-": false, "1\r": false, "1\xb1": false, "12345678\xb1": false,
	} {
		r := runs([]column{{kind: integer, dtype: pyfeed.Int64, size: 8, below: 1 << 63, above: 1<<63 - 1}})[0]
		var out [8]byte
		k, next := r.plainIntegers([]byte(s+","+padding), 0, out[:], 1, ',', ',')
		v, err := strconv.ParseInt(s, 10, 64)
		if (k == 1) != want || want && (err != nil || int64(binary.NativeEndian.Uint64(out[:])) != v || next != len(s)+1) || !want && next != 0 {
			t.Errorf("%q: expected it to be plain: %v, found %d of %v, next %d", s, want, k, out, next)
		}
	}
}

func TestRuns(t *testing.T) {
	config := readers.Config{Options: formattest.Options[Options](t, `{"header": false, "columns": [{"columns": ["0:2", 4], "dtype": "float32"},
		{"columns": 3, "dtype": "float32"}, {"columns": 5, "dtype": "bytes"}, {"columns": ["6:7"], "dtype": "int8"}, {"columns": 9, "dtype": "int8"},
		{"columns": 10, "dtype": "int64"}, {"columns": 11, "dtype": "uint64"}]}`)}
	tested.EachWay(t, []byte("1,2,3,4,5,x,6,7,8,9,-10,9223372036854775811\n"), config, func(t *testing.T, r readers.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, run := range r.(*records).runs {
			found = append(found, fmt.Sprint(run.first, run.behind, run.last))
		}
		if want := []string{"0 3 false", "3 4 false", "4 5 false", "5 6 false", "6 8 false", "8 9 false", "9 10 false", "10 11 false", "11 12 true"}; !slices.Equal(found, want) {
			t.Errorf("expected runs %v, found %v", want, found)
		}
		if got, err := formattest.Lines(t, r, 2); err != io.EOF || !slices.Equal(got, []string{`[1 2 3 5] 4 "x" [6 7] 9 -10 9223372036854775811`}) {
			t.Errorf("found %v, %v", got, err)
		}
	})
}
