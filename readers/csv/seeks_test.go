package csv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, also behind damage.
func TestSeeks(t *testing.T) {
	var numbers, texts strings.Builder
	numbers.WriteString("a,b\n")
	texts.WriteString("text,n\n")
	lines := 60
	if testing.Short() {
		lines = 25
	}
	for i := range lines {
		fmt.Fprintf(&numbers, "%d,%d.5\n", i, -i)
		fmt.Fprintf(&texts, "\"x%d \"\"quoted\"\"\nline\",%d\r\n", i, i)
		switch i % 20 {
		case 7:
			numbers.WriteString("\n\n# no comment\n")
		case 11:
			numbers.WriteString("1,2,3\n")
			texts.WriteString("\"open,1\n")
		case 15:
			texts.WriteString("\n\n")
		}
	}
	for _, data := range []string{numbers.String(), texts.String(), strings.TrimSpace(texts.String()), "a\n1"} {
		if n := tested.Seeks(t, []byte(data), record.Config{}); n < 1 {
			t.Errorf("found %d positions", n)
		}
	}
}
