package record_test

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

func openNothing(string, *record.Config) (record.Records, error) { return nil, io.EOF }

func formatOfName(name string) *record.Format {
	path, f := record.CutTag(name)
	return cmp.Or(f, record.FormatBySuffix(path))
}

func TestTheFormatOfAName(t *testing.T) {
	for name, want := range map[string]string{
		"a.ids": "ids", "dir.described/a-b.c.ids": "ids", "a.ids.gz": "ids", "a.ids.gz.zst": "ids", "described:a.ids": "described", "cut:a": "cut",
		"a.ids-00000-of-00005": "ids", "a.ids-3-of-5.gz": "ids", "a.ids.gz-00000-of-00005": "ids", "a-0-of-1.ids": "ids",
		"a.ids-00000": "", "a.ids-00000-of-": "", "a.ids--of-00005": "", "a.ids00000-of-00005": "", "a.ids-0-of-5x": "", ".ids-0-of-5": "", "a-0-of-5": "", "-0-of-5": "",
		"ids": "", ".ids": "", ".ids.gz": "", "a.ids.txt": "", "a.ids.gz.txt": "", "a.gz": "", "a.": "", "": "", "x:a.cut": "cut", "a.ids/b": "",
	} {
		f := formatOfName(name)
		if got := f; (got == nil) != (want == "") || got != nil && got.Tag != want {
			t.Errorf("%q: expected %q, found %v", name, want, got)
		}
	}
	longer := record.Format{Tag: "longer", Suffixes: []string{"-more.ids"}, Open: openNothing}
	if !slices.Contains(record.Tags(), "longer") { // with -count, an earlier run has registered it
		record.MustRegister(longer)
	}
	for name, want := range map[string]string{"a-more.ids": "longer", "a.more.ids": "ids", "-more.ids": "ids", "a-more.ids.gz": "longer"} {
		if f := formatOfName(name); f == nil || f.Tag != want {
			t.Errorf("%q: expected %q, found %v", name, want, f)
		}
	}
}

func TestTheErrorForAnUnknownFormat(t *testing.T) {
	for tag, want := range map[string]string{"IDS": `, found "IDS": did you mean "ids"?`, "describe": `found "describe": did you mean "described"?`, "hdf5": `found "hdf5"`} {
		if _, err := record.FormatByTag(tag); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("expected an error that ends with %s, found %v", want, err)
		}
	}
	readertest.Expect(t, record.UnknownFormat("a/train-00000-of-00004"), pyfeed.Invalid,
		`: give format, or put the format before the name, such as "tfrecord:a/train-00000-of-00004"`)
}

func TestSuggestionsForUnknownNames(t *testing.T) {
	type options struct {
		Rows     int    `json:"rows"`
		Place    string `json:"place"`
		Instance bool   `json:"instances"`
	}
	for name, want := range map[string]string{
		"row": "rows", "rosw": "", "palce": "place", "instance": "instances", "instant": "", "rwos": "", "x": "", "column": "", "": "",
		"pLACE!":                      "place",
		strings.Repeat("rows", 1<<20): "",
	} {
		err := record.DecodeAttributes("op", fmt.Appendf(nil, `{%q: 1}`, name), new(options))
		text := "; there are rows, place, instances"
		if want != "" {
			text += fmt.Sprintf(": did you mean %q?", want)
		}
		readertest.Expect(t, err, pyfeed.Invalid, text)
		if want == "" && strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%.20q: expected no suggestion, found %.200s", name, err)
		}
	}
}

func TestAFormatIsRegisteredOnce(t *testing.T) {
	readertest.Expect(t, record.Register(record.Format{Tag: "ids", Open: openNothing}), pyfeed.State, `there is a format "ids" already`)
	readertest.Expect(t, record.Register(record.Format{Tag: "ids2", Suffixes: []string{".ids"}, Open: openNothing}), pyfeed.State, `the suffix .ids is that of format "ids"`)
	readertest.Expect(t, record.Register(record.Format{Tag: "a:b", Open: openNothing}), pyfeed.Invalid, "expected a tag without any of")
}
