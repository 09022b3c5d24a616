package files

import (
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

func TestTextOfNames(t *testing.T) {
	for name, text := range map[string]string{
		"a.npy": "a.npy", "\xff": "\x00ff", "a\xc3\xbc\x80b": "a\u00fc\x0080b", `a\u0000ff`: `a\u0000ff`,
		"\xed\xb2\x80": "\x00ed\x00b2\x0080", "\ufffd": "\ufffd", "\xe2\x82": "\x00e2\x0082", "ff\xff00": "ff\x00ff00",
	} {
		back, err := nameOfText(text)
		if got := TextOfName(name); got != text || back != name || err != nil {
			t.Errorf("%q: expected %q, found %q and back %q, %v", name, text, got, back, err)
		}
	}
	every := make([]byte, 0, 255*256)
	for a := range 255 {
		for b := range 255 {
			every = append(every, byte(a+1), byte(b+1))
		}
	}
	if back, err := nameOfText(TextOfName(string(every))); err != nil || back != string(every) {
		t.Errorf("expected every pair of bytes to be converted back, %v", err)
	}
	for _, text := range []string{"\x00", "a\x00f", "\x00fg", "\x007f", "\x00+f", "\x00\x00ff"} {
		_, err := nameOfText(text)
		readertest.Expect(t, err, pyfeed.Invalid, "expected two hexadecimal digits, from 80 to ff, behind a NUL, found")
	}
}

// openError returns the error of opening files.
func openError(attributes string) error {
	r, err := withAttributes(attributes, Open)
	if err == nil {
		r.Close()
	}
	return err
}

func TestNamesOfBytes(t *testing.T) {
	tree(t, "a\xff.ids", "b\u00fc.ids", "dir\x80/c\xc3.ids")
	files, err := ListFiles(background, []string{"*.ids", "dir\x80", "d*/**", "cut:a\xff.ids"}, "")
	if want := []string{"ids:a\xff.ids", "ids:b\u00fc.ids", "ids:dir\x80/c\xc3.ids", "ids:dir\x80/c\xc3.ids", "cut:a\xff.ids"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("expected %q, found %q, %v", want, files, err)
	}
	attributes := `{"filenames": ["a\u0000ff.ids", "dir\u0000\u0038\u0030/*"], "slots": [{"dtype": "int64", "dims": []}], "num_threads": 1}`
	openMany(counted(t), attributes)
	readertest.Expect(t, openError(`{"filenames": ["missing\u0000ff.ids"]}`), pyfeed.IO, "no such file")
	readertest.Expect(t, openError(`{"filenames": ["\u0000zz"]}`), pyfeed.Invalid, "behind a NUL")
	readertest.Expect(t, openError("{\"filenames\": [\"a\xff.ids\"]}"), pyfeed.Invalid, `attributes: expected UTF-8, found "\xff"`)
}
