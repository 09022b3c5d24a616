package formattest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// HardNumbers returns texts of numbers that are hard to round or to parse, and random numbers.
func HardNumbers(n int) []string {
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
