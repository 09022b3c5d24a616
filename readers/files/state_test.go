package files

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// Equal options of a format have equal texts, whatever program has written the JSON.
func TestTextsOfOptions(t *testing.T) {
	for given, expected := range map[string]string{
		"": "", "null": "", "{}": "", `{"a": null}`: "", "[1]": "",
		`{"header": true, "columns": ["b", "a"], "missing": null}`: `{"columns":["b","a"],"header":true}`,
		"{\"columns\":[\"b\",\"a\"],\n\"header\":true}":            `{"columns":["b","a"],"header":true}`,
	} {
		if found := optionsText([]byte(given), nil); found != expected {
			t.Errorf("%s: expected %q, found %q", given, expected, found)
		}
	}
	long := `{"a":"` + strings.Repeat("x", 100) + `"}`
	a, b := optionsText([]byte(long), nil), optionsText([]byte(strings.Replace(long, "x", "y", 1)), nil)
	if _, is := a.(state.Hash); !is || a == b {
		t.Errorf("found %q and %q", a, b)
	}
	c := &record.Config{Names: []string{"x", "y"}, Slots: []pyfeed.Slot{{DType: pyfeed.Float32, Dims: pyfeed.Dims{-1, 3}, LoDLevels: 1}, {DType: pyfeed.Any}}}
	if found := fmt.Sprint(slotsText(c, false), "|", slotsText(c, true)); found != "float32[-1 3] lod 1;any[]|x float32[-1 3] lod 1;y any[]" {
		t.Errorf("found %q", found)
	}
}

// A lane has the same text again after it was parsed, and texts that append has not written are refused.
func TestLanesAsText(t *testing.T) {
	for _, l := range []laneAnchor{
		{file: ended},
		{file: 3, ahead: 7, stamp: fileStamp{10, 1_700_000_000_000_000, 1 << 31}},
		{file: 0, from: filePlace{seeks: true}},
		{file: 9, from: filePlace{true, record.Position{Offset: 5, Inner: 2}, 7, true, 4}},
		{file: 9, from: filePlace{true, record.Position{Offset: 5}, 7, true, 0}},
	} {
		text := string(l.append(nil))
		if found, err := parseLane(text, 10); err != nil || found != l {
			t.Errorf("%q: expected %+v, found %+v, %v", text, l, found, err)
		}
	}
	// Eight lanes leave half of 1 KB for the other readers of a chain.
	large := laneAnchor{file: 9999, ahead: 1023, stamp: fileStamp{1 << 40, 2_000_000_000_000_000, 1<<32 - 1},
		from: filePlace{true, record.Position{Offset: 1 << 40}, 1 << 30, false, 0}}
	if text := large.append(nil); len(text) > 60 {
		t.Errorf("expected at most 60 bytes, found %q", text)
	}
	for _, text := range []string{"", " ", "-1 0", "x", "1", "1 2 3 4", "10 0 0 0 0", "-2 0 0 0 0", "0 -1 0 0 0", "0 0 0 0 0 ", "0 0 0 0 0 0 0 0 0 0 0", "9999999999999999999 0 0 0 0"} {
		if found, err := parseLane(text, 10); err == nil {
			t.Errorf("%q: found %+v", text, found)
		}
	}
}

func FuzzFilesState(f *testing.F) {
	f.Add("0 0 420 1700000000000000 4101060248;-1", 1, 2, 0)
	f.Add("3 7 10 20 30 5 7 2 1 4", 1, 4, 0)
	f.Fuzz(func(t *testing.T, lanes string, count, next, turn int) {
		s := filesState{Lanes: lanes, Count: int64(count), Next: next, Turn: turn}
		a, err := s.parse(5, 3)
		if err != nil {
			return
		}
		if len(a.lanes) > 3 || a.next > 5 || a.turn > 0 && a.turn >= len(a.lanes) ||
			slices.ContainsFunc(a.lanes, func(l laneAnchor) bool { return l.file < ended || l.file >= 5 || l.ahead < 0 }) {
			t.Errorf("found %+v", a)
		}
	})
}
