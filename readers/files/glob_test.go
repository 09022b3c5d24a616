package files

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
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// tree makes files in a temporary directory, and links for paths with an arrow, and changes to that directory.
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

func TestExactFileNamesAreNotPatterns(t *testing.T) {
	tree(t, "y.ids", "ids:y.ids", "cut:z.ids", "a{1,2}.ids", "b*.ids", "bc.ids", "{1..3}.ids", "described:/a.ids", "cut:q/w.ids", "q/w.ids")
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
		"**/go*":           "a/gone: no such file or directory, in the search for **/go*",
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
		if _, err := ListFiles(wait.NonBlocking, []string{name}, ""); (err == wait.ErrWouldBlock) != long || !long && err != nil {
			t.Errorf("%s: expected that it would block: %v, found %v", name, long, err)
		}
	}
	l := StartListing([]string{"**/*.ids"}, "")
	files, err := l.Wait(background)
	if l.Stop(); err != nil || strings.Join(files, " ") != "ids:a/1.ids ids:a/b/2.ids" {
		t.Errorf("expected two files, found %q, %v", files, err)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := ListFiles(ended, []string{"**/*.ids"}, ""); err != context.Canceled {
		t.Errorf("expected the search to end with its context, found %v", err)
	}
}

// Many names or entries may take long even if there is nothing to search, on a network file system.
func TestALongListOfFilesEndsWithItsCaller(t *testing.T) {
	var files, names []string
	for i := range pollEvery {
		name := fmt.Sprintf("a/%d.ids", i)
		files, names = append(files, name), append(names, name)
	}
	tree(t, files...)
	defer func(before time.Duration) { maxListing = before }(maxListing)
	ended, cancel := context.WithCancel(background)
	cancel()
	refs, err := list(wait.NonBlocking, names, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, look := range map[string]func(ctx context.Context) error{
		"names": func(ctx context.Context) error { _, err := ListFiles(ctx, names, ""); return err },
		"braces": func(ctx context.Context) error {
			_, err := ListFiles(ctx, []string{fmt.Sprintf("a/{0..%d}.ids", pollEvery-1)}, "")
			return err
		},
		"directory": func(ctx context.Context) error { _, err := ListFiles(ctx, []string{"a"}, ""); return err },
		"glob":      func(ctx context.Context) error { _, err := ListFiles(ctx, []string{"a/*.ids"}, ""); return err },
		"verified":  func(ctx context.Context) error { return checkReadableTwice(ctx, refs) },
	} {
		maxListing = -1 // every poll finds that the time is over
		if err := look(wait.NonBlocking); err != wait.ErrWouldBlock {
			t.Errorf("%s: expected wait.ErrWouldBlock, found %v", what, err)
		}
		if err := look(ended); err != context.Canceled {
			t.Errorf("%s: expected the end of the context, found %v", what, err)
		}
		maxListing = time.Hour
		if err := look(wait.NonBlocking); err != nil {
			t.Errorf("%s: expected the files, found %v", what, err)
		}
	}
}

func TestADirectoryThatCannotBeRead(t *testing.T) {
	if os.Getuid() == 0 { // root can read all directories, so this test uses a link to itself
		tree(t, "a/1.ids", "b/loop -> loop")
		_, err := expand("b/loop/*.ids")
		readertest.Expect(t, err, pyfeed.IO, "too many levels of symbolic links")
		return
	}
	tree(t, "a/1.ids")
	if err := os.Chmod("a", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod("a", 0o755) })
	_, err := expand("**/*.ids")
	readertest.Expect(t, err, pyfeed.IO, "permission denied")
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

func TestNamesOfFilesAndFormats(t *testing.T) {
	counted(t)
	dir := t.TempDir()
	for _, name := range []string{"b.ids", "a.ids", "c.ids.gz", ".hidden.ids", "tagged", "other.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		names  []string
		format string
		want   string
	}{
		{[]string{"a.ids", "b.ids"}, "", "a.ids b.ids"},
		{[]string{"b.ids", "a.ids"}, "", "b.ids a.ids"},
		{[]string{"*.ids"}, "", "a.ids b.ids"},
		{[]string{"*.ids*"}, "", "a.ids b.ids c.ids.gz"},
		{[]string{"ids:tagged"}, "", "tagged"},
		{[]string{"ids:t*"}, "", "tagged"},
		{[]string{"tagged"}, "ids", "tagged"},
		{[]string{"ids:tagged"}, "ids", "tagged"},
		{[]string{"."}, "ids", "a.ids b.ids c.ids.gz other.txt tagged"},
	} {
		var names []string
		for _, n := range c.names {
			tag, rest, tagged := strings.Cut(n, ":")
			if !tagged {
				tag, rest = "", n
			} else {
				tag += ":"
			}
			names = append(names, tag+filepath.Join(dir, rest))
		}
		refs, err := list(background, names, c.format)
		var got []string
		for _, ref := range refs {
			got = append(got, filepath.Base(ref.Path))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%v as %q: expected %s, found %v, %v", c.names, c.format, c.want, got, err)
		}
	}
	in := func(name string) string { return `{"filenames": ["` + filepath.Join(dir, name) + `"]}` }
	readertest.Expect(t, openError(in("other.txt")), pyfeed.Invalid, "the formats are cut, described, ids")
	readertest.Expect(t, openError(in(".")), pyfeed.Invalid, "other.txt: expected a name with the prefix or suffix")
	readertest.Expect(t, openError(in("none*.ids")), pyfeed.Invalid, "expected files that match, found none")
	readertest.Expect(t, openError(`{"filenames": []}`), pyfeed.Invalid, "expected at least 1")
	readertest.Expect(t, openError(`{"filenames": ["x"], "interleave": "2"}`), pyfeed.Invalid, "attributes: interleave: expected integer, found string")
	readertest.Expect(t, openError(`{"filenames": {"x": 1}}`), pyfeed.Invalid, "attributes: filenames: expected array, found object")
	readertest.Expect(t, openError(`{"filename": "x"}`), pyfeed.Invalid, `unknown field "filename"; there are filenames, format, slots, num_threads`)
	readertest.Expect(t, openError(in("a.ids")), pyfeed.Invalid, `format "ids" does not say what its instances look like: give slots`)
	readertest.Expect(t, openError(`{"filenames": ["x"], "format": "none"}`), pyfeed.Invalid, "expected one of cut, described, ids")
	readertest.Expect(t, openError(`{"filenames": ["x"], "format": "none"}`), pyfeed.Invalid, `found "none"`)
	readertest.Expect(t, openError(`{"filenames": ["x"], "format": "IDS"}`), pyfeed.Invalid, `found "IDS": did you mean "ids"?`)
	err := openError(in("missing.ids"))
	readertest.Expect(t, err, pyfeed.IO, "no such file")
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("expected ENOENT in the chain of %v", err)
	}
}

func expand(path string) ([]string, error) { return (&lister{ctx: background}).expand(path) }

func TestNamesThatLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub.ids", "a.ids"), 0o755), os.Mkdir(real, 0o755),
		os.WriteFile(filepath.Join(real, "a.ids"), nil, 0o644), os.WriteFile(filepath.Join(real, ".b.ids"), nil, 0o644),
		os.Symlink(filepath.Join(real, "a.ids"), filepath.Join(dir, "link.ids")), os.Symlink(real, filepath.Join(dir, "linked")),
		syscall.Mkfifo(filepath.Join(real, "pipe.ids"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"*.ids":        "link.ids",
		"":             "link.ids",
		"real":         "real/a.ids",
		"real/*":       "real/a.ids real/pipe.ids",
		"real/.*":      "real/.b.ids",
		"*/a.ids":      "linked/a.ids real/a.ids",
		"*/[a]*.ids":   "linked/a.ids real/a.ids",
		"linked/?.ids": "linked/a.ids",
		"link.ids/*":   "",
		"none/*":       "",
		"*/":           "",
	} {
		found, err := expand(filepath.Join(dir, "") + "/" + pattern)
		for i, path := range found {
			found[i], _ = filepath.Rel(dir, path)
		}
		if got := strings.Join(found, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: expected %q, found %q, %v", pattern, want, got, err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(real, "c.ids")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{real, filepath.Join(real, "*.ids"), filepath.Join(dir, "*", "c*")} {
		_, err := expand(name)
		readertest.Expect(t, err, pyfeed.IO, "no such file")
		if at := new(pyfeed.Error); !errors.As(err, &at) || filepath.Base(at.At.File) != "c.ids" {
			t.Errorf("expected c.ids to be named, found %v", err)
		}
	}
	if found, err := expand(filepath.Join(real, "[ab]*")); err != nil || len(found) != 1 {
		t.Errorf("expected links that do not match to be left alone, found %v, %v", found, err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	_, err := expand(filepath.Join(dir, "g*", "x*"))
	readertest.Expect(t, err, pyfeed.IO, "no such file or directory, in the search for "+filepath.Join(dir, "g*", "x*"))
	_, err = expand(filepath.Join(dir, "[", "x*"))
	readertest.Expect(t, err, pyfeed.Invalid, "not a glob")
}

func TestGlobMatches(t *testing.T) {
	names := []string{"", "a", "ab", "b", "aab", "abb", "a.b", ".a", "*", "a*b", "[a]", "\\*", "ä", "aä", "\xff", "a\xffb", "a/b"}
	patterns := append(slices.Clone(names), "a*", "*a", "*b*", "a*a", "aa*ab", "**", "?", "a?b", "[ab]*", `\**`, "*[", "*.b", "ä*", "*\xff")
	for _, pattern := range patterns {
		if _, bad := filepath.Match(pattern, ""); bad != nil {
			continue // list refuses such a pattern
		}
		for _, name := range names[:len(names)-1] { // no name in a directory has a slash
			if want, _ := filepath.Match(pattern, name); matcher(pattern)(name) != want {
				t.Errorf("%q: %q: expected %v", pattern, name, want)
			}
		}
	}
}
