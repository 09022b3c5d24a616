package tfrecord

import (
	"fmt"
	"testing"

	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			count := max(64, (64<<20)/size)
			var file []byte
			for i := range count {
				data := make([]byte, size)
				for j := range data {
					data[j] = byte(i * j)
				}
				file = appendRecord(file, data)
			}
			tested.Benchmark(b, formattest.File(b, "a.tfrecord", file), record.Config{}, nil)
		})
	}
}

func BenchmarkExample(b *testing.B) {
	var table []Feature
	var row [][]byte
	for i := range 39 {
		name := fmt.Sprintf("column_%02d", i)
		if i < 13 {
			table, row = append(table, Feature{Name: name, DType: "float32"}), append(row, entry(name, floatList(float32(i))))
		} else {
			table, row = append(table, Feature{Name: name, DType: "int64"}), append(row, entry(name, intList(int64(i)<<(i/2))))
		}
	}
	ids := make([]int64, 200)
	for i := range ids {
		ids[i] = int64(i * i * i)
	}
	for _, c := range []struct {
		name     string
		features []Feature
		example  string
	}{
		{"image", []Feature{{Name: "image", DType: "uint8", Raw: true, Shape: []int64{150_528}}, {Name: "label", DType: "int64"}},
			example(entry("image", strs(string(make([]byte, 150_528)))), entry("label", intList(7)))},
		{"columns", table, example(row...)},
		{"sequence", []Feature{{Name: "ids", DType: "int64", Kind: "variable"}, {Name: "weights", DType: "float32", Kind: "variable"}},
			example(entry("ids", intList(ids...)), entry("weights", floatList(make([]float32, 200)...)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			count := max(64, (32<<20)/len(c.example))
			var file []byte
			for range count {
				file = appendRecord(file, []byte(c.example))
			}
			tested.Benchmark(b, formattest.File(b, "a.tfrecord", file), record.Config{Options: &Options{Features: c.features}}, nil)
		})
	}
}
