package number

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

func TestFloatsRoundAsStrconv(t *testing.T) {
	numbers := 60_000
	if testing.Short() {
		numbers = 10_000
	}
	for _, s := range formattest.HardNumbers(numbers) {
		if strings.ContainsAny(s, "NI") {
			continue
		}
		want, err := strconv.ParseFloat(s, 64)
		for _, behind := range []string{"", ",", "\n", ",12345678"} {
			f, q := ScanFloat64([]byte(s+behind), 0)
			if q == 0 {
				bits, flaw := Parse([]byte(s), pyfeed.Float64, Float64)
				if err != nil {
					if flaw != OutOfRange {
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
		n, q := ScanFloat32([]byte(s), 0)
		if q == 0 {
			bits, flaw := Parse([]byte(s), pyfeed.Float32, Float32)
			if err != nil {
				if flaw != OutOfRange {
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
		if _, f := Parse([]byte(s), pyfeed.Float64, Float64); f != NotNumber {
			t.Errorf("%q: expected no number, found %v", s, f)
		}
		if _, q := ScanFloat64([]byte(s+",5"), 0); q == len(s) && s != "" {
			t.Errorf("%q: scanned as a number", s)
		}
		if _, f := Parse([]byte(s), pyfeed.Int64, Integer); f != NotNumber {
			t.Errorf("%q: expected no integer, found %v", s, f)
		}
	}
	for _, s := range []string{"1.0", "1e3", "nan", "inf"} {
		if _, f := Parse([]byte(s), pyfeed.Int64, Integer); f != NotNumber {
			t.Errorf("%q: expected no integer, found %v", s, f)
		}
	}
	for _, s := range []string{"2", "yes", "truth", "tru", "-1", "00", "1.0", ""} {
		if _, f := Parse([]byte(s), pyfeed.Bool, Boolean); f != NotNumber {
			t.Errorf("%q: expected no bool, found %v", s, f)
		}
	}
}

func TestSpecialFloats(t *testing.T) {
	for s, want := range map[string]float64{"inf": math.Inf(1), "+Inf": math.Inf(1), "-INF": math.Inf(-1), "infinity": math.Inf(1), " -Infinity\t": math.Inf(-1), "+1.5": 1.5, " 2 ": 2} {
		bits, f := Parse([]byte(s), pyfeed.Float64, Float64)
		if f != OK || math.Float64frombits(bits) != want {
			t.Errorf("%q: %v", s, math.Float64frombits(bits))
		}
	}
	for s, want := range map[string]uint64{"nan": 0x7ff8000000000000, "NaN": 0x7ff8000000000000, "-NAN": 0x7ff8000000000000} {
		if bits, f := Parse([]byte(s), pyfeed.Float64, Float64); f != OK || bits != want {
			t.Errorf("%q: %x", s, bits)
		}
	}
	if bits, f := Parse([]byte("nan"), pyfeed.Float32, Float32); f != OK || bits != 0x7fc00000 {
		t.Errorf("nan as float32: %x", bits)
	}
	if bits, f := Parse([]byte("nan"), pyfeed.Float16, Half); f != OK || bits != 0x7e00 {
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
			below, above := Bounds(c.d)
			v, negative, q := ScanInteger([]byte(s+"\n"), 0)
			fast := q == len(s) && (!negative && v <= above || negative && v <= below)
			bits, f := Parse([]byte(s), c.d, Integer)
			inside := f == OK
			if want := contains(c.in, s); inside != want || fast && !want || f != OK && f != OutOfRange {
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
			f := record.FromHalf(uint16(h), d)
			if d == pyfeed.BFloat16 {
				if want := math.Float32frombits(uint32(h) << 16); float64(want) != f && f == f {
					t.Fatalf("bfloat16 %04x: expected %v, found %v", h, want, f)
				}
			}
			if f != f {
				continue
			}
			back, ok := record.Halve(f, d)
			if back != uint16(h) || !ok {
				t.Fatalf("%v %04x is %v, and then %04x, %v", d, h, f, back, ok)
			}
			// In the middle, the even number is taken; close to the middle, the nearer one.
			next := record.FromHalf(uint16(h)+1, d)
			if next != next || math.IsInf(next, 0) || h&0x7fff == 0x7fff {
				continue
			}
			middle := (f + next) / 2
			even := uint16(h) + uint16(h)&1
			below, _ := record.Halve(math.Nextafter(middle, f), d)
			at, _ := record.Halve(middle, d)
			above, _ := record.Halve(math.Nextafter(middle, next), d)
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
		bits, f := Parse([]byte(c.s), c.d, Half)
		if c.in && (f != OK || bits != c.h) || !c.in && f != OutOfRange {
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
				ScanFloat64(data, 0)
			}
		})
		b.Run("float32/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				ScanFloat32(data, 0)
			}
		})
	}
}
