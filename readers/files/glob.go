package files

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/internal/async"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// ListFiles are the files that names stand for, as open_files takes them, each with its format's tag and a colon. With
// [wait.NonBlocking] it answers wait.ErrWouldBlock where that may take long.
func ListFiles(ctx context.Context, names []string, format string) ([]string, error) {
	all, err := list(ctx, names, format)
	if err != nil {
		return nil, err
	}
	l := &lister{ctx: ctx}
	files := make([]string, len(all))
	for i, ref := range all {
		path := ref.Path
		for l.exists(ref.Format.Tag + ":" + path) { // which would be that file
			path = "./" + path
		}
		files[i] = ref.Format.Tag + ":" + path
	}
	return files, nil
}

// list finds the files that names stand for: each a path, a pattern or a directory, with a format's tag and a colon
// before it if format does not say and its suffix does not. What exists is that file, whatever its name looks like. The
// files of a glob or directory come sorted, those of braces in their order; those whose names begin with a dot are left
// out.
func list(ctx context.Context, names []string, format string) ([]record.FileRef, error) {
	if len(names) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "filenames: expected at least 1, found 0")
	}
	var given *record.Format
	if format != "" {
		var err error
		if given, err = record.FormatByTag(format); err != nil {
			return nil, err
		}
	}
	l := &lister{ctx: ctx}
	var all []record.FileRef
	for _, name := range names {
		path, f := record.CutTag(name)
		if given != nil && f != given || f != nil && l.exists(name) {
			path, f = name, nil
		}
		f = cmp.Or(given, f)
		found, err := l.expand(path)
		if err != nil {
			return nil, err
		}
		all = slices.Grow(all, len(found))
		for _, path := range found {
			of := f
			if of == nil {
				if of = record.FormatBySuffix(path); of == nil {
					return nil, record.UnknownFormat(path)
				}
			}
			all = append(all, record.FileRef{Path: path, Format: of})
		}
	}
	return all, nil
}

// lister finds files, as long as ctx goes on.
type lister struct {
	ctx      context.Context
	heads    map[string]bool // whether there is something of a name's first part
	count    int             // of names and entries seen
	patience patience        // of a caller that does not wait
}

// maxListing is how long a caller that does not wait is kept: about as long as a caller that waits sleeps between two looks
// at its signals. Only tests change it.
var maxListing = 100 * time.Millisecond

// pollEvery is how many names and entries are gone through between two polls of ctx, or of the clock.
const pollEvery = 64

// poll is called for each name and entry: on a network's file system each may be a message to a server. It is an error if
// ctx has ended, wait.ErrWouldBlock if a caller that does not wait was kept for long enough.
func (l *lister) poll() error {
	l.count++
	switch {
	case l.count%pollEvery != 0:
	case l.ctx != wait.NonBlocking:
		return l.ctx.Err()
	case l.patience.longerThan(maxListing):
		return wait.ErrWouldBlock
	}
	return nil
}

// exists says whether there is a file, or anything else, of a name with a colon. Most begin alike and do not exist: of
// those the system is asked once.
func (l *lister) exists(name string) bool {
	head, _, more := strings.Cut(name, "/")
	there, known := l.heads[head]
	if !known {
		_, err := os.Lstat(head)
		there = err == nil
		if l.heads == nil {
			l.heads = make(map[string]bool)
		}
		l.heads[head] = there
	}
	if there && more {
		_, err := os.Lstat(name)
		there = err == nil
	}
	return there
}

// expand is what a path, a pattern or a directory stands for.
func (l *lister) expand(path string) ([]string, error) {
	if err := l.poll(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil {
		return l.existing(path, info)
	}
	words, err := expandBraces(path)
	if err != nil {
		return nil, err
	}
	if len(words) == 1 {
		return l.word(words[0])
	}
	var all []string
	for _, word := range words {
		found, err := l.word(word)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (l *lister) existing(path string, info os.FileInfo) ([]string, error) {
	if !info.IsDir() {
		return []string{path}, nil
	}
	found, err := l.filesIn(path, func(name string, kind os.FileMode) bool { return name[0] != '.' && kind.IsRegular() })
	if err == nil && len(found) == 0 {
		err = pyfeed.Errorf(pyfeed.Invalid, "%s: expected files in the directory, found none", path)
	}
	slices.Sort(found)
	return found, err
}

// word is what a path without braces stands for.
func (l *lister) word(path string) ([]string, error) {
	if err := l.poll(); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil {
		return l.existing(path, info)
	}
	if !isPattern(path) {
		return nil, unreadable(path, err)
	}
	found, err := l.glob(path)
	if err != nil {
		if e := (*pyfeed.Error)(nil); errors.As(err, &e) && e.Kind == pyfeed.IO {
			e.Text += ", among what " + path + " stands for"
		}
		return nil, err
	}
	if len(found) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected files that match, found none", path)
	}
	slices.Sort(found)
	return found, nil
}

// isPattern says whether a path that does not exist has to match: an escaped brace is for filepath.Match, too.
func isPattern(path string) bool {
	return strings.ContainsAny(path, "*?[") || strings.Contains(path, `\{`) || strings.Contains(path, `\}`) || strings.Contains(path, `\,`)
}

// glob is the files that match. What filepath.Glob says nothing of, such as a directory that cannot be read, is an error.
func (l *lister) glob(path string) ([]string, error) {
	parts := strings.Split(path, "/")
	for _, part := range parts {
		if _, err := filepath.Match(part, ""); err != nil {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: not a glob: %v", path, err)
		}
	}
	dirs := []string{""}
	if parts[0] == "" {
		dirs[0] = "/"
	}
	last := parts[len(parts)-1]
	if last == "**" {
		parts, last = append(parts, "*"), "*"
	}
	for _, part := range parts[:len(parts)-1] {
		if l.ctx == wait.NonBlocking && isPattern(part) {
			return nil, wait.ErrWouldBlock
		}
		var err error
		switch {
		case part == "":
		case part == "**":
			dirs, err = l.below(dirs)
		case isPattern(part):
			dirs, err = l.each(dirs, func(dir string) ([]string, error) { return l.directoriesIn(dir, fitting(part)) })
		default:
			dirs, err = l.each(dirs, func(dir string) ([]string, error) { return directory(filepath.Join(dir, part)) })
		}
		if err != nil {
			return nil, err
		}
	}
	fits := fitting(last)
	return l.each(dirs, func(dir string) ([]string, error) {
		return l.filesIn(dir, func(name string, kind os.FileMode) bool { return fits(name) && !kind.IsDir() })
	})
}

// each is all that is found in some directories.
func (l *lister) each(dirs []string, find func(dir string) ([]string, error)) (all []string, err error) {
	for _, dir := range dirs {
		found, err := find(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// directory is the path, if it is that of a directory.
func directory(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return []string{path}, nil
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	}
	return nil, unreadable(path, err)
}

// below is directories and those in them, at any depth. Each is gone into once, by links only where it is not found
// otherwise, so that links may lead in circles.
func (l *lister) below(dirs []string) (all []string, err error) {
	type identity struct{ device, inode uint64 }
	seen := make(map[identity]bool)
	var links []string
	for todo := slices.Clone(dirs); ; {
		if len(todo) == 0 {
			if len(links) == 0 {
				return all, nil
			}
			slices.Sort(links)
			todo, links = append(todo, links[0]), links[1:]
		}
		dir := todo[0]
		todo = todo[1:]
		info, err := os.Stat(cmp.Or(dir, "."))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
			continue // a link that leads nowhere is no directory
		}
		if err != nil {
			return nil, unreadable(dir, err)
		}
		if !info.IsDir() {
			continue
		}
		if s, is := info.Sys().(*syscall.Stat_t); is {
			id := identity{uint64(s.Dev), s.Ino}
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		all = append(all, dir)
		within := len(todo)
		err = l.entries(dir, func(path, name string, kind os.FileMode) error {
			switch {
			case name[0] == '.':
			case kind.IsDir():
				todo = append(todo, path)
			case kind&os.ModeSymlink != 0:
				links = append(links, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(todo[within:])
	}
}

// directoriesIn are those in a directory whose names fit, and links to such.
func (l *lister) directoriesIn(dir string, fits func(name string) bool) (found []string, err error) {
	err = l.entries(dir, func(path, name string, kind os.FileMode) error {
		if !kind.IsDir() && kind&os.ModeSymlink == 0 || !fits(name) {
			return nil
		}
		if kind&os.ModeSymlink != 0 {
			info, err := os.Stat(path)
			if err != nil {
				return unreadable(path, err)
			}
			if !info.IsDir() {
				return nil
			}
		}
		found = append(found, path)
		return nil
	})
	return found, err
}

// fitting is matcher for names that do not begin with a dot, unless the pattern does.
func fitting(pattern string) func(name string) bool {
	fits := matcher(pattern)
	return func(name string) bool { return fits(name) && (name[0] != '.' || pattern[0] == '.') }
}

// matcher is filepath.Match for one pattern and the names in a directory. Most patterns have one star and no more to
// them, which takes no look at each byte.
func matcher(pattern string) func(name string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if star && !strings.ContainsAny(pattern, `?[\`) && !strings.Contains(after, "*") {
		return func(name string) bool {
			return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
		}
	}
	return func(name string) bool {
		fits, _ := filepath.Match(pattern, name)
		return fits
	}
}

// filesIn are the files of a directory that are wanted by their name and type. The directory tells both: there is
// a call a file only for links, which are taken for what they lead to, and it is an error if that is not there.
func (l *lister) filesIn(dir string, wanted func(name string, kind os.FileMode) bool) ([]string, error) {
	var found []string
	err := l.entries(dir, func(path, name string, kind os.FileMode) error {
		if kind&os.ModeSymlink != 0 && wanted(name, 0) {
			info, err := os.Stat(path)
			if err != nil {
				return unreadable(path, err)
			}
			kind = info.Mode().Type()
		}
		if kind&os.ModeSymlink == 0 && wanted(name, kind) {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// entries calls each for what is in a directory, until that answers an error or ctx ends.
func (l *lister) entries(dir string, each func(path, name string, kind os.FileMode) error) error {
	if err := l.ctx.Err(); err != nil && l.ctx != wait.NonBlocking {
		return err
	}
	err := storage.List(cmp.Or(dir, "."), func(path, name string, kind os.FileMode) error {
		if err := l.poll(); err != nil {
			return err
		}
		return each(path, name, kind)
	})
	if system, is := err.(*os.PathError); is {
		err = unreadable(system.Path, err)
	}
	return err
}

func unreadable(path string, err error) error {
	text := err.Error()
	if p, is := err.(*os.PathError); is {
		text = p.Err.Error()
	}
	return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, Text: text, Cause: err, At: &pyfeed.Location{File: path, Offset: -1, Record: -1}}
}

// A Listing is a search for files in a goroutine.
type Listing struct{ async.Task[[]string] }

// StartListing is ListFiles in a goroutine.
func StartListing(names []string, format string) *Listing {
	l := new(Listing)
	l.Start("looks for files", func(ctx context.Context) ([]string, error) { return ListFiles(ctx, names, format) }, func([]string) {})
	return l
}
