package readers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

func TestTextOfNames(t *testing.T) {
	for name, text := range map[string]string{
		"a.npy": "a.npy", "\xff": "\x00ff", "a\xc3\xbc\x80b": "a\u00fc\x0080b", `a\u0000ff`: `a\u0000ff`,
		"\xed\xb2\x80": "\x00ed\x00b2\x0080", "\ufffd": "\ufffd", "\xe2\x82": "\x00e2\x0082", "ff\xff00": "ff\x00ff00",
	} {
		back, err := NameOfText(text)
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
	if back, err := NameOfText(TextOfName(string(every))); err != nil || back != string(every) {
		t.Errorf("expected every byte beside every other to come back, %v", err)
	}
	for _, text := range []string{"\x00", "a\x00f", "\x00fg", "\x007f", "\x00+f", "\x00\x00ff"} {
		_, err := NameOfText(text)
		expect(t, err, pyfeed.Invalid, "expected two hexadecimal digits, from 80 to ff, behind a NUL, found")
	}
}

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
	for _, pattern := range []string{"{1..1048577}", "{1..1025}{1..1024}", "{{1..1048576},a}", "{0..2305843009213693951}", strings.Repeat("{1..9}", 9)} {
		_, err = expandBraces(pattern)
		expect(t, err, pyfeed.Invalid, "expected braces that stand for at most 1048576 names, found more")
	}
	_, err = expandBraces(strings.Repeat("{", 65))
	expect(t, err, pyfeed.Invalid, "expected braces nested at most 64 deep, found more")
}

func FuzzBraces(f *testing.F) {
	for _, seed := range []string{"{a,b}", "{1..3}{x,{y,z}}", `\{{a..c},}`, "{{{", "}}{,}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		words, err := expandBraces(pattern)
		if err == nil && (len(words) == 0 || len(words) > mostWords || !strings.Contains(pattern, "{") && words[0] != pattern) {
			t.Errorf("%q: %d words", pattern, len(words))
		}
	})
}

// tree makes files, and links where there is an arrow, and goes there.
func tree(t *testing.T, paths ...string) {
	t.Chdir(t.TempDir())
	for _, path := range paths {
		link, to, is := strings.Cut(path, " -> ")
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if is {
			err = os.Symlink(to, link)
		} else if !strings.HasSuffix(path, "/") {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func listed(t *testing.T, names string, format string) string {
	t.Helper()
	files, err := ListFiles(background, strings.Fields(names), format)
	if err != nil {
		return err.Error()
	}
	again, err := ListFiles(background, files, "")
	if err != nil || !slices.Equal(files, again) {
		t.Errorf("%s: expected what was listed to list itself, %q, found %q, %v", names, files, again, err)
	}
	return strings.Join(files, " ")
}

func TestAFileIsFoundByItsNameWhateverItLooksLike(t *testing.T) {
	tree(t, "y.ids", "ids:y.ids", "cut:z.ids", "a{1,2}.ids", "b*.ids", "bc.ids", "{1..3}.ids", "told:/a.ids", "cut:q/w.ids", "q/w.ids")
	for _, c := range []struct{ names, format, want string }{
		{"ids:y.ids", "", "ids:ids:y.ids"},
		{"ids:y.ids", "ids", "ids:ids:y.ids"},
		{"y.ids", "", "ids:./y.ids"}, // since ids:y.ids is another file
		{"./y.ids", "", "ids:./y.ids"},
		{"cut:z.ids", "", "ids:cut:z.ids"},
		{"cut:*.ids", "", "cut:a{1,2}.ids cut:b*.ids cut:bc.ids cut:cut:z.ids cut:ids:y.ids cut:y.ids cut:{1..3}.ids"},
		{"cut*.ids", "", "ids:cut:z.ids"},
		{"a{1,2}.ids", "", "ids:a{1,2}.ids"},
		{"b*.ids", "", "ids:b*.ids"},
		{"{1..3}.ids", "", "ids:{1..3}.ids"},
		{"cut:q/w.ids", "", "ids:cut:q/w.ids"},
		{"cut:q/w*", "", "cut:./q/w.ids"},
		{`a\{*`, "", "ids:a{1,2}.ids"},
		{"cut:missing", "", "missing: no such file or directory"},
	} {
		if got := listed(t, c.names, c.format); got != c.want {
			t.Errorf("%s as %q: expected %s, found %s", c.names, c.format, c.want, got)
		}
	}
}

func TestNamesOfBytes(t *testing.T) {
	tree(t, "a\xff.ids", "b\u00fc.ids", "dir\x80/c\xc3.ids")
	files, err := ListFiles(background, []string{"*.ids", "dir\x80", "d*/**", "cut:a\xff.ids"}, "")
	if want := []string{"ids:a\xff.ids", "ids:b\u00fc.ids", "ids:dir\x80/c\xc3.ids", "ids:dir\x80/c\xc3.ids", "cut:a\xff.ids"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("expected %q, found %q, %v", want, files, err)
	}
	scope := counted(t)
	attributes := `{"filenames": ["a\u0000ff.ids", "dir\u0000\u0038\u0030/*"], "slots": [{"dtype": "int64", "dims": []}], "thread_num": 1}`
	create(t, scope, "open_files", "files", nil, attributes)
	expect(t, Create(scope, "open_files", "x", nil, []byte(`{"filenames": ["missing\u0000ff.ids"]}`)), pyfeed.IO, "no such file")
	expect(t, Create(scope, "open_files", "x", nil, []byte(`{"filenames": ["\u0000zz"]}`)), pyfeed.Invalid, "behind a NUL")
	expect(t, Create(scope, "open_files", "x", nil, []byte("{\"filenames\": [\"a\xff.ids\"]}")), pyfeed.Invalid, `attributes: expected UTF-8, found "\xff"`)
}

func TestBracesOfFiles(t *testing.T) {
	tree(t, "p-08.ids", "p-09.ids", "p-10.ids", "a/1.ids", "b/1.ids", "b/2.ids")
	for names, want := range map[string]string{
		"p-{08..10}.ids":     "ids:p-08.ids ids:p-09.ids ids:p-10.ids",
		"p-{10,08}.ids":      "ids:p-10.ids ids:p-08.ids",
		"cut:p-{08..09}.ids": "cut:p-08.ids cut:p-09.ids",
		"{b,a}/*.ids":        "ids:b/1.ids ids:b/2.ids ids:a/1.ids",
		"{b,a}":              "ids:b/1.ids ids:b/2.ids ids:a/1.ids",
		"p-{10..11}.ids":     "p-11.ids: no such file or directory",
		"{a,c}/*":            "c/*: expected files that match, found none",
	} {
		if got := listed(t, names, ""); got != want {
			t.Errorf("%s: expected %s, found %s", names, want, got)
		}
	}
}

func TestDirectoriesBelow(t *testing.T) {
	tree(t, "0.ids", "a/1.ids", "a/b/2.ids", "a/b/c/3.ids", "a/.hidden/4.ids", "a/.5.ids", "a/other.txt", "d/b/6.ids",
		"a/b/up -> ../..", "a/self -> self", "a/gone -> nowhere", "a/aside -> ../d", "z -> a/b", "linked/only -> ../../"+"outside")
	outside := filepath.Join(filepath.Dir(must(os.Getwd())), "outside")
	if err := errors.Join(os.MkdirAll(outside, 0o755), os.WriteFile(filepath.Join(outside, "7.ids"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	for names, want := range map[string]string{
		"**/*.ids":         "ids:0.ids ids:a/1.ids ids:a/b/2.ids ids:a/b/c/3.ids ids:d/b/6.ids ids:linked/only/7.ids",
		"a/**/*.ids":       "ids:a/1.ids ids:a/aside/b/6.ids ids:a/b/2.ids ids:a/b/c/3.ids ids:a/b/up/0.ids ids:a/b/up/linked/only/7.ids",
		"d/**":             "ids:d/b/6.ids",
		"d/**/6.ids":       "ids:d/b/6.ids",
		"**/b/*.ids":       "ids:a/b/2.ids ids:d/b/6.ids",
		"**/b/**/*.ids":    "ids:a/b/2.ids ids:a/b/c/3.ids ids:a/b/up/0.ids ids:a/b/up/a/1.ids ids:a/b/up/linked/only/7.ids ids:d/b/6.ids",
		"z/*.ids":          "ids:z/2.ids",
		"{a,d}/**/[26].*":  "ids:a/aside/b/6.ids ids:a/b/2.ids ids:d/b/6.ids",
		"**/.*.ids":        "ids:a/.5.ids",
		"**/.hidden/*.ids": "ids:a/.hidden/4.ids",
		"**/**/6.ids":      "ids:d/b/6.ids",
		"**/none":          "**/none: expected files that match, found none",
		"none/**":          "none/**: expected files that match, found none",
		"**/go*":           "a/gone: no such file or directory, among what **/go* stands for",
		"a/b**s":           "a/b**s: expected files that match, found none",
	} {
		if got := listed(t, names, ""); got != want {
			t.Errorf("%s:\nexpected %s\nfound    %s", names, want, got)
		}
	}
	if found, err := expand(must(os.Getwd()) + "/d/**"); err != nil || len(found) != 1 || !filepath.IsAbs(found[0]) {
		t.Errorf("expected one absolute path, found %q, %v", found, err)
	}
}

func TestALongSearchForFilesIsASide(t *testing.T) {
	tree(t, "a/1.ids", "a/b/2.ids")
	for name, long := range map[string]bool{"a/*.ids": false, "a": false, "a/1.ids": false, "**/*.ids": true, "*/1.ids": true} {
		if _, err := ListFiles(wait.Never, []string{name}, ""); (err == wait.ErrWouldBlock) != long || !long && err != nil {
			t.Errorf("%s: expected that it would block: %v, found %v", name, long, err)
		}
	}
	l := List([]string{"**/*.ids"}, "")
	files, err := l.Wait(background)
	if l.Stop(); err != nil || strings.Join(files, " ") != "ids:a/1.ids ids:a/b/2.ids" {
		t.Errorf("expected two files, found %q, %v", files, err)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := ListFiles(ended, []string{"**/*.ids"}, ""); err != context.Canceled {
		t.Errorf("expected the search to end with its context, found %v", err)
	}
	scope := counted(t)
	attributes := []byte(`{"filenames": ["**/*.ids"], "slots": [{"dtype": "int64", "dims": []}]}`)
	if err := CreateNow(scope, "open_files", "x", nil, attributes); err != wait.ErrWouldBlock {
		t.Errorf("expected it to be put aside, found %v", err)
	}
	o := Open(scope, "open_files", attributes)
	r, err := o.Wait(background)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	o.Stop()
}

// Many names or entries take long even where there is nothing to search: on a network's file system.
func TestALongListOfFilesEndsWithItsCaller(t *testing.T) {
	var files, names []string
	for i := range listedPerLook {
		name := fmt.Sprintf("a/%d.ids", i)
		files, names = append(files, name), append(names, name)
	}
	tree(t, files...)
	defer func(before time.Duration) { listedNow = before }(listedNow)
	ended, cancel := context.WithCancel(background)
	cancel()
	sources, err := list(wait.Never, names, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, look := range map[string]func(ctx context.Context) error{
		"names": func(ctx context.Context) error { _, err := ListFiles(ctx, names, ""); return err },
		"braces": func(ctx context.Context) error {
			_, err := ListFiles(ctx, []string{fmt.Sprintf("a/{0..%d}.ids", listedPerLook-1)}, "")
			return err
		},
		"directory": func(ctx context.Context) error { _, err := ListFiles(ctx, []string{"a"}, ""); return err },
		"glob":      func(ctx context.Context) error { _, err := ListFiles(ctx, []string{"a/*.ids"}, ""); return err },
		"verified":  func(ctx context.Context) error { return allTwice(ctx, sources) },
	} {
		listedNow = -1 // each look finds the time over
		if err := look(wait.Never); err != wait.ErrWouldBlock {
			t.Errorf("%s: expected to be put aside, found %v", what, err)
		}
		if err := look(ended); err != context.Canceled {
			t.Errorf("%s: expected the end of the context, found %v", what, err)
		}
		listedNow = time.Hour
		if err := look(wait.Never); err != nil {
			t.Errorf("%s: expected the files, found %v", what, err)
		}
	}
}

func TestADirectoryThatCannotBeRead(t *testing.T) {
	if os.Getuid() == 0 { // who reads all of them; a link in a circle is told as well
		tree(t, "a/1.ids", "b/loop -> loop")
		_, err := expand("b/loop/*.ids")
		expect(t, err, pyfeed.IO, "too many levels of symbolic links")
		return
	}
	tree(t, "a/1.ids")
	if err := os.Chmod("a", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod("a", 0o755) })
	_, err := expand("**/*.ids")
	expect(t, err, pyfeed.IO, "permission denied")
	if !errors.Is(err, syscall.EACCES) {
		t.Errorf("expected EACCES in the chain of %v", err)
	}
}

func must(path string, err error) string {
	if err != nil {
		panic(err)
	}
	return path
}
