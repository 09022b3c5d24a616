package csv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// hardNumbers returns texts of numbers that are hard to round or to parse, and random numbers.
func hardNumbers(n int) []string {
	all := []string{
		"0", "-0", "0.0", "-0.0", "00012", "1.", ".5", "-.5", "1e5", "1E5", "1e+5", "1e-5", "12345678901234567890", "0.1", "0.2", "0.3",
		"9007199254740992", "9007199254740993", "9007199254740994", "9007199254740995", "1e22", "1e23", "8.5e22", "9007199254740993e22",
		"123456789012345678e5", "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "4.9e-324", "2.4e-324", "2.5e-324",
		"2.2250738585072011e-308", "2.2250738585072014e-308", "1e-400", "1e-99999", "0e99999", "0e999999", "1e00005", "1e000005",
		"3.4028234663852886e38", "3.4028235677973366e38", "3.4028235677973365e38", "3.4028235e38", "1.401298464324817e-45", "7.006492321624085e-46",
		"7.006492321624086e-46", "1.1754943508222875e-38", "1.1754942807573643e-38", "16777217", "16777217.0000001", "16777216.9999999",
		"16777219", "1.00000005960464477539", "1.000000059604644775390625", "1.00000005960464477539062501", "33554434.0", "33554435",
		"0.000000000000000000000000000001", "0.12345678901234567890123456789", "123456789.12345678", "1234567812345678.12345678",
		"1" + strings.Repeat("0", 50), "0." + strings.Repeat("0", 50) + "1", strings.Repeat("9", 25), strings.Repeat("0", 30) + "7",
		"6.02214076e23", "5e-324", "1e-23", "1.5e-45", "9.5e-46", "1e-46",
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for len(all) < n {
		f := math.Float64frombits(rng.Uint64())
		switch rng.IntN(10) {
		case 0:
			all = append(all, strconv.FormatFloat(f, 'g', -1, 64))
		case 1:
			all = append(all, strconv.FormatFloat(rng.NormFloat64(), 'g', -1, 64))
		case 2:
			all = append(all, strconv.FormatFloat(float64(float32(rng.NormFloat64())), 'g', -1, 32))
		case 3:
			all = append(all, fmt.Sprintf("%.*f", rng.IntN(20), rng.NormFloat64()*1000))
		case 4:
			all = append(all, fmt.Sprintf("%d.%0*de%d", rng.IntN(100), 1+rng.IntN(18), rng.IntN(1e9), rng.IntN(60)-30))
		case 5:
			all = append(all, fmt.Sprint(rng.Uint64()>>rng.IntN(64)))
		case 6: // close to the middle of two float32s
			middle := math.Float64frombits(math.Float64bits(float64(math.Float32frombits(rng.Uint32()&0x7f7fffff))) | 1<<28)
			all = append(all, strconv.FormatFloat(middle, 'e', 8+rng.IntN(30), 64))
		case 7:
			all = append(all, fmt.Sprintf("%de%d", rng.Uint64()>>rng.IntN(64), rng.IntN(100)-50))
		case 8:
			all = append(all, strconv.FormatFloat(f, 'e', rng.IntN(25), 64))
		case 9: // so close that its nearest float64 is the middle
			middle := math.Float64frombits(math.Float64bits(float64(float32(rng.ExpFloat64()))) | 1<<28)
			all = append(all, strconv.FormatFloat(middle, 'g', 15+rng.IntN(3), 64))
		}
	}
	return all
}

func TestFloatsRoundAsStrconv(t *testing.T) {
	numbers := 60_000
	if testing.Short() {
		numbers = 10_000
	}
	for _, s := range hardNumbers(numbers) {
		if strings.ContainsAny(s, "NI") {
			continue
		}
		want, err := strconv.ParseFloat(s, 64)
		for _, behind := range []string{"", ",", "\n", ",12345678"} {
			f, q := scanFloat64([]byte(s+behind), 0)
			if q == 0 {
				bits, flaw := parseNumber([]byte(s), pyfeed.Float64, float64s)
				if err != nil {
					if flaw != outOfRange {
						t.Fatalf("%s: expected it to be out of range, found %v", s, flaw)
					}
					continue
				}
				f, q = math.Float64frombits(bits), len(s)
			}
			if err != nil || math.Float64bits(f) != math.Float64bits(want) || q != len(s) {
				t.Fatalf("%s: expected %v, %v, found %v and %d of %d bytes", s, want, err, f, q, len(s))
			}
		}
		want, err = strconv.ParseFloat(s, 32)
		n, q := scanFloat32([]byte(s), 0)
		if q == 0 {
			bits, flaw := parseNumber([]byte(s), pyfeed.Float32, float32s)
			if err != nil {
				if flaw != outOfRange {
					t.Fatalf("%s: expected it to be out of range, found %v", s, flaw)
				}
				continue
			}
			n = math.Float32frombits(uint32(bits))
		}
		if err != nil || math.Float32bits(n) != math.Float32bits(float32(want)) {
			t.Fatalf("%s: expected the float32 %v, %v, found %v", s, want, err, n)
		}
	}
}

func TestNotANumber(t *testing.T) {
	for _, s := range []string{"", "-", "+", ".", "-.", "e5", "1e", "1e+", "1e-", "1.2.3", "0x10", "0x1p4", "1_000", "1,5", "--1", "+-1", "1-", "1e5.5",
		"infin", "nano", "i", "abc", "1 2", "1a", "٣", "1e5e5", "\x00", "1\x00", "Inf1"} {
		if _, f := parseNumber([]byte(s), pyfeed.Float64, float64s); f != noNumber {
			t.Errorf("%q: expected no number, found %v", s, f)
		}
		if _, q := scanFloat64([]byte(s+",5"), 0); q == len(s) && s != "" {
			t.Errorf("%q: scanned as a number", s)
		}
		if _, f := parseNumber([]byte(s), pyfeed.Int64, integer); f != noNumber {
			t.Errorf("%q: expected no integer, found %v", s, f)
		}
	}
	for _, s := range []string{"1.0", "1e3", "nan", "inf"} {
		if _, f := parseNumber([]byte(s), pyfeed.Int64, integer); f != noNumber {
			t.Errorf("%q: expected no integer, found %v", s, f)
		}
	}
	for _, s := range []string{"2", "yes", "truth", "tru", "-1", "00", "1.0", ""} {
		if _, f := parseNumber([]byte(s), pyfeed.Bool, boolean); f != noNumber {
			t.Errorf("%q: expected no bool, found %v", s, f)
		}
	}
}

func TestSpecialFloats(t *testing.T) {
	for s, want := range map[string]float64{"inf": math.Inf(1), "+Inf": math.Inf(1), "-INF": math.Inf(-1), "infinity": math.Inf(1), " -Infinity\t": math.Inf(-1), "+1.5": 1.5, " 2 ": 2} {
		bits, f := parseNumber([]byte(s), pyfeed.Float64, float64s)
		if f != none || math.Float64frombits(bits) != want {
			t.Errorf("%q: %v", s, math.Float64frombits(bits))
		}
	}
	for s, want := range map[string]uint64{"nan": 0x7ff8000000000000, "NaN": 0x7ff8000000000000, "-NAN": 0x7ff8000000000000} {
		if bits, f := parseNumber([]byte(s), pyfeed.Float64, float64s); f != none || bits != want {
			t.Errorf("%q: %x", s, bits)
		}
	}
	if bits, f := parseNumber([]byte("nan"), pyfeed.Float32, float32s); f != none || bits != 0x7fc00000 {
		t.Errorf("nan as float32: %x", bits)
	}
	if bits, f := parseNumber([]byte("nan"), pyfeed.Float16, halves); f != none || bits != 0x7e00 {
		t.Errorf("nan as float16: %x", bits)
	}
}

func TestIntegersAtTheirLimits(t *testing.T) {
	for _, c := range []struct {
		d       pyfeed.DType
		in, out []string
	}{
		{pyfeed.Int8, []string{"-128", "127", "+127", "-0", "000127"}, []string{"-129", "128", "99999999999999999999999"}},
		{pyfeed.Uint8, []string{"0", "255", "-0", "+255"}, []string{"256", "300", "-1"}},
		{pyfeed.Int16, []string{"-32768", "32767"}, []string{"-32769", "32768"}},
		{pyfeed.Uint16, []string{"65535"}, []string{"65536", "-1"}},
		{pyfeed.Int32, []string{"-2147483648", "2147483647"}, []string{"-2147483649", "2147483648"}},
		{pyfeed.Uint32, []string{"4294967295"}, []string{"4294967296"}},
		{pyfeed.Int64, []string{"-9223372036854775808", "9223372036854775807"}, []string{"-9223372036854775809", "9223372036854775808", "18446744073709551616"}},
		{pyfeed.Uint64, []string{"18446744073709551615", "9999999999999999999", "0000000000000000000000018446744073709551615"}, []string{"18446744073709551616", "-1", "99999999999999999999"}},
	} {
		for _, s := range append(c.in, c.out...) {
			r := new(records)
			below, above := bounds(c.d)
			r.columns = []column{{kind: integer, dtype: c.d, size: c.d.Size(), below: below, above: above}}
			r.rowBytes = make([]byte, 8)
			v, negative, q := scanInteger([]byte(s+"\n"), 0)
			fast := q == len(s) && (!negative && v <= above || negative && v <= below)
			bits, f := parseNumber([]byte(s), c.d, integer)
			inside := f == none
			if want := contains(c.in, s); inside != want || fast && !want || f != none && f != outOfRange {
				t.Errorf("%v of %s: expected it inside: %v, found %v and %v", c.d, s, want, inside, fast)
			}
			if want, err := strconv.ParseInt(s, 10, 64); inside && err == nil && int64(bits) != want {
				t.Errorf("%v of %s: found %d", c.d, s, int64(bits))
			}
			if want, err := strconv.ParseUint(strings.TrimLeft(s, "0"), 10, 64); inside && err == nil && bits != want {
				t.Errorf("%v of %s: found %d", c.d, s, bits)
			}
		}
	}
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

func TestHalves(t *testing.T) {
	for _, d := range []pyfeed.DType{pyfeed.Float16, pyfeed.BFloat16} {
		for h := range 1 << 16 {
			f := halfToFloat(uint16(h), d)
			if d == pyfeed.BFloat16 {
				if want := math.Float32frombits(uint32(h) << 16); float64(want) != f && f == f {
					t.Fatalf("bfloat16 %04x: expected %v, found %v", h, want, f)
				}
			}
			if f != f {
				continue
			}
			back, ok := halve(f, d)
			if back != uint16(h) || !ok {
				t.Fatalf("%v %04x is %v, and then %04x, %v", d, h, f, back, ok)
			}
			// In the middle, the even number is taken; close to the middle, the nearer one.
			next := halfToFloat(uint16(h)+1, d)
			if next != next || math.IsInf(next, 0) || h&0x7fff == 0x7fff {
				continue
			}
			middle := (f + next) / 2
			even := uint16(h) + uint16(h)&1
			below, _ := halve(math.Nextafter(middle, f), d)
			at, _ := halve(middle, d)
			above, _ := halve(math.Nextafter(middle, next), d)
			if below != uint16(h) || at != even || above != uint16(h)+1 {
				t.Fatalf("%v between %04x and the next: found %04x, %04x and %04x", d, h, below, at, above)
			}
		}
	}
	for _, c := range []struct {
		s  string
		d  pyfeed.DType
		h  uint64
		in bool
	}{
		{"1", pyfeed.Float16, 0x3c00, true}, {"0.1", pyfeed.Float16, 0x2e66, true}, {"65504", pyfeed.Float16, 0x7bff, true},
		{"65519.99", pyfeed.Float16, 0x7bff, true}, {"65520", pyfeed.Float16, 0, false}, {"1e9", pyfeed.Float16, 0, false},
		{"-5.9604645e-08", pyfeed.Float16, 0x8001, true}, {"1e-30", pyfeed.Float16, 0, true}, {"-inf", pyfeed.Float16, 0xfc00, true},
		{"1", pyfeed.BFloat16, 0x3f80, true}, {"3.14159", pyfeed.BFloat16, 0x4049, true}, {"3.4e38", pyfeed.BFloat16, 0, false},
		{"1e39", pyfeed.BFloat16, 0, false}, {"inf", pyfeed.BFloat16, 0x7f80, true},
	} {
		bits, f := parseNumber([]byte(c.s), c.d, halves)
		if c.in && (f != none || bits != c.h) || !c.in && f != outOfRange {
			t.Errorf("%v of %s: found %04x, %v", c.d, c.s, bits, f)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for name, s := range map[string]string{"int3": "123", "short": "3.14159", "price": "1234.56", "shortest64": "0.12345678901234568", "shortest32": "0.12345679", "exponent": "1.2345e-07"} {
		data := []byte(s + "\n")
		b.Run("float64/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				scanFloat64(data, 0)
			}
		})
		b.Run("float32/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				scanFloat32(data, 0)
			}
		})
	}
}
