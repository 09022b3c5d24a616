package jsonl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, also behind damage and blank lines.
func TestSeeks(t *testing.T) {
	var numbers, texts strings.Builder
	lines := 60
	if testing.Short() {
		lines = 25
	}
	for i := range lines {
		fmt.Fprintf(&numbers, "{\"a\": %d, \"b\": [%d.5, 2]}\n", i, -i)
		fmt.Fprintf(&texts, "{\"text\":\"x%d \\\"quoted\\\"\",\"l\":[%d, 5]}\r\n", i, i)
		switch i % 20 {
		case 7:
			numbers.WriteString("\n\n  \n")
		case 11:
			numbers.WriteString("{\"a\": 1, \"b\": [1]}\n")
			texts.WriteString("{\"text\":\"x\n")
		case 15:
			texts.WriteString("\n\n")
		}
	}
	o := formattest.Options[Options](t, `{"columns": ["a", {"columns": "b", "dims": [2]}]}`)
	var blocks strings.Builder
	for i := range lines {
		fmt.Fprintf(&blocks, "{\"text\":\"x%d \\\"quoted\\\"\",\"n\":%d}\n", i, i)
		if i%20 == 9 {
			blocks.WriteString("\n{\"text\":\"x\n")
		}
	}
	for data, c := range map[string]record.Config{blocks.String(): {}, numbers.String(): {Options: o}, texts.String(): {}, strings.TrimSpace(texts.String()): {}, "{\"a\":1}": {}} {
		if n := tested.Seeks(t, []byte(data), c); n < 1 {
			t.Errorf("found %d positions", n)
		}
	}
}
