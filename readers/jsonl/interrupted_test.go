package jsonl

import (
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A search for the end of a line, and each part of a long line, can be interrupted at any poll.
func TestInterrupted(t *testing.T) {
	size := 100_000
	if testing.Short() {
		size = 70_000 // more than two polls
	}
	long := strings.Repeat("0123456789", size/10)
	columns := `{"columns": ["t", "n", "l", {"columns": "w", "dtype": "bytes"}]}`
	for name, line := range map[string]string{
		"text":    `{"t":"` + long + `","n":1,"l":[],"w":[]}`,
		"escapes": `{"t":"` + strings.ReplaceAll(long, "9", `\n`) + `","n":1,"l":[],"w":[]}`,
		"unicode": `{"t":"` + strings.ReplaceAll(long, "89", "東") + `","n":1,"l":[],"w":["` + strings.Repeat("é", size/2) + `"]}`,
		"list":    `{"t":"","n":1,"l":[` + strings.Repeat("1,22,333333333, ", size/16) + `1],"w":["` + strings.Repeat(`x","\n`, size/6) + `"]}`,
		"skipped": `{"s":[` + strings.Repeat(`{"a":[1.5]},`, size/12) + `{}],"d":` + strings.Repeat("1", size) + `,"t":"","n":1,"l":[],"w":[]}`,
		"number":  `{"t":"","n":` + strings.Repeat("1", size) + `,"l":[],"w":[]}`,
		"blank":   strings.Repeat("\n", size) + `{"t":"","n":1,"l":[],"w":[]}`,
		"damage":  `{"t":"` + long + "\n" + `{"t":"` + long + `","n":1,"l":[],"w":["x"]`,
	} {
		data := `{"t":"x","n":1,"l":[1],"w":["y"]}` + "\n" + line + "\n" + `{"t":"y","n":2,"l":[],"w":[]}` + "\n"
		if n := tested.Interrupted(t, []byte(data), record.Config{Options: formattest.Options[Options](t, columns)}); n < 4 {
			t.Errorf("%s: found %d polls", name, n)
		}
		inBlocks := formattest.Options[Options](t, `{"columns": ["t", "n"]}`)
		if n := tested.Interrupted(t, []byte(data), record.Config{Options: inBlocks}); n < 4 {
			t.Errorf("%s in blocks: found %d polls", name, n)
		}
	}
}
