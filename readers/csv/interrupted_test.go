package csv

import (
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// The search for the end of a field, of a line or of blank lines can be interrupted at any poll. The next call
// continues it.
func TestInterrupted(t *testing.T) {
	size := 100_000
	if testing.Short() {
		size = 70_000 // more than two polls
	}
	long := strings.Repeat("0123456789", size/10)
	data := strings.Join([]string{"a,b", "x,1", strings.Repeat("\n", size), long + ",2", "\"" + strings.ReplaceAll(long, "9", "\"\"") + "\",3",
		"\"" + "bad\"" + long + ",4", "y,5", ""}, "\n")
	doubled := "x,1\n\"" + strings.Repeat("\"\"", size) + "\",2\n"
	if n := tested.Interrupted(t, []byte("a,b\n"+doubled), record.Config{}); n < 15 {
		t.Errorf("doubled quotes: found %d polls", n)
	}
	if n := tested.Interrupted(t, []byte(data), record.Config{}); n < 15 {
		t.Errorf("found %d polls", n)
	}
}
