package number

import (
	"encoding/hex"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

func TestElements(t *testing.T) {
	for _, c := range []struct {
		text  string
		dtype pyfeed.DType
		want  string // "": there is none
	}{
		{"true", pyfeed.Bool, "01"}, {"0", pyfeed.Bool, "00"}, {"2", pyfeed.Bool, ""},
		{"-1", pyfeed.Int8, "ff"}, {"128", pyfeed.Int8, ""}, {"-1", pyfeed.Uint8, ""}, {"1.5", pyfeed.Int32, ""},
		{"18446744073709551615", pyfeed.Uint64, "ffffffffffffffff"},
		{"0.1", pyfeed.Float16, "662e"}, {"-2", pyfeed.Float16, "00c0"}, {"nan", pyfeed.Float16, "007e"}, {"1e6", pyfeed.Float16, ""},
		{"0.1", pyfeed.Float32, "cdcccc3d"}, {"1e39", pyfeed.Float32, ""}, {"0.1", pyfeed.Float64, "9a9999999999b93f"}, {"x", pyfeed.Float64, ""},
	} {
		element, ok := Element(c.text, c.dtype)
		if ok != (c.want != "") || ok && hex.EncodeToString(element) != c.want {
			t.Errorf("%s as %v: expected %q, found %x, %v", c.text, c.dtype, c.want, element, ok)
		}
	}
}
