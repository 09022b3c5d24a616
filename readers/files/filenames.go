package files

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// The name of a file is a string of bytes without NUL; attributes, saved programs and results are text. In text, a byte
// of a name that is not valid UTF-8 is written as U+0000 and two hexadecimal digits. Since no name has a NUL, the text
// is unambiguous.

// TextOfName returns the text of a file's name.
func TextOfName(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "\x00%02x", name[0])
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// nameOfText returns the name that text is written for.
func nameOfText(text string) (string, error) {
	if strings.IndexByte(text, 0) < 0 {
		return text, nil
	}
	var b strings.Builder
	rest := text
	for {
		before, after, escape := strings.Cut(rest, "\x00")
		b.WriteString(before)
		if !escape {
			return b.String(), nil
		}
		value, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8)
		if err != nil || value < 0x80 {
			return "", pyfeed.Errorf(pyfeed.Invalid, "filenames: expected two hexadecimal digits, from 80 to ff, behind a NUL, found %q", text)
		}
		b.WriteByte(byte(value))
		rest = after[2:]
	}
}

// namesOf returns the names that texts are written for.
func namesOf(texts []string) ([]string, error) {
	names := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if names[i], err = nameOfText(text); err != nil {
			return nil, err
		}
	}
	return names, nil
}
