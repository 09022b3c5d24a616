package files

import (
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

func TestBraces(t *testing.T) {
	for pattern, want := range map[string]string{
		"a": "a", "{a,b}": "a b", "x{a,b}y": "xay xby", "{a,b}{1,2}": "a1 a2 b1 b2", "{a,{b,c}d}e": "ae bde cde", "{,a}x": "x ax",
		"{08..11}": "08 09 10 11", "{8..11}": "8 9 10 11", "{3..1}": "3 2 1", "{000..10..5}": "000 005 010", "{-1..1}": "-1 0 1",
		"{-01..1}": "-01 000 001", "{a..e..2}": "a c e", "{c..a}": "c b a", "{1..3..-1}": "1 2 3",
		"{a}": "{a}", "{}": "{}", "{{a,b}}": "{a} {b}", "{a,b": "{a,b", "a}": "a}", "{1..a}": "{1..a}", "{1..2..0}": "{1..2..0}", "{..}": "{..}",
		`\{a,b}`: `\{a,b}`, `{a\,b,c}`: `a\,b c`, "{1..2": "{1..2", "{x{a,b}": "{xa {xb", "{é,ü}": "é ü", "{*,?}.x": "*.x ?.x",
	} {
		words, err := expandBraces(pattern)
		if got := strings.Join(words, " "); got != want || err != nil {
			t.Errorf("%q: expected %q, found %q, %v", pattern, want, got, err)
		}
	}
	words, err := expandBraces("part-{000..146}.tfrecord")
	if err != nil || len(words) != 147 || words[7] != "part-007.tfrecord" || words[146] != "part-146.tfrecord" {
		t.Errorf("expected 147 words, found %d, %v", len(words), err)
	}
	for _, pattern := range []string{"{1..9}", "{1..3}{1..3}", "{{1..8},a}", "{0..2305843009213693951}", strings.Repeat("{1..9}", 9)} {
		if words = writeOut(pattern, 8); len(words) != 9 {
			t.Errorf("%q: expected 9 words for a limit of 8, found %d", pattern, len(words))
		}
	}
	patterns := []string{"{1..1025}{1..1024}", "{1..1048577}", "{{1..1048576},a}", "{0..2305843009213693951}", strings.Repeat("{1..9}", 9)}
	if testing.Short() {
		patterns = patterns[:1] // each writes out a million words
	}
	for _, pattern := range patterns {
		_, err = expandBraces(pattern)
		readertest.Expect(t, err, pyfeed.Invalid, "expected braces that stand for at most 1048576 names, found more")
	}
	_, err = expandBraces(strings.Repeat("{", 65))
	readertest.Expect(t, err, pyfeed.Invalid, "expected braces nested at most 64 deep, found more")
}

func FuzzBraces(f *testing.F) {
	for _, seed := range []string{"{a,b}", "{1..3}{x,{y,z}}", `\{{a..c},}`, "{{{", "}}{,}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		words, err := expandBraces(pattern)
		if err == nil && (len(words) == 0 || len(words) > maxWords || !strings.Contains(pattern, "{") && words[0] != pattern) {
			t.Errorf("%q: found %d words", pattern, len(words))
		}
	})
}
