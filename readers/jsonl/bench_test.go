package jsonl

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// sentences returns text of about n bytes, with line ends and quotes as texts have them.
func sentences(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strings.Repeat("word and another ", 1+rng.IntN(8)))
		b.WriteString([]string{`.\n`, `, \"so\" `, "é ", "; "}[rng.IntN(4)])
	}
	return b.String()
}

func BenchmarkRead(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name, options string
		line          func() string
	}{
		{"text of 1 KB and a label", "", func() string {
			return fmt.Sprintf(`{"text": "%s", "label": %d}`, sentences(rng, 1000), rng.IntN(10))
		}},
		{"512 tokens", `{"dtypes": {"tokens": "int32"}}`, func() string {
			ids := make([]string, 512)
			for i := range ids {
				ids[i] = fmt.Sprint(rng.IntN(50257))
			}
			return `{"tokens": [` + strings.Join(ids, ", ") + `]}`
		}},
		{"64 floats", `{"columns": [{"columns": "v", "dtype": "float32", "dims": [64]}]}`, func() string {
			v := make([]string, 64)
			for i := range v {
				v[i] = fmt.Sprint(float32(rng.NormFloat64()))
			}
			return `{"v":[` + strings.Join(v, ",") + `]}`
		}},
		{"3 numbers of 20", `{"columns": ["n1", "n7", "n15"]}`, func() string {
			v := make([]string, 20)
			for i := range v {
				v[i] = fmt.Sprintf(`"n%d":%d`, i, rng.IntN(1e6))
			}
			return "{" + strings.Join(v, ",") + "}"
		}},
	} {
		var data strings.Builder
		for data.Len() < 8<<20 {
			data.WriteString(c.line() + "\n")
		}
		b.Run(c.name, func(b *testing.B) {
			path := formattest.File(b, "a.jsonl", []byte(data.String()))
			tested.Benchmark(b, path, record.Config{Options: formattest.Options[Options](b, c.options)}, nil)
		})
	}
}
