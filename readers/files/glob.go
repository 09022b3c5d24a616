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

// ListFiles returns the files that names stand for, as open_files takes names, each in the form "tag:path". With
// [wait.NonBlocking] it returns wait.ErrWouldBlock if the search takes long.
func ListFiles(ctx context.Context, names []string, format string) ([]string, error) {
	all, err := list(ctx, names, format)
	if err != nil {
		return nil, err
	}
	l := &lister{ctx: ctx}
	files := make([]string, len(all))
	for i, ref := range all {
		path := ref.Path
		for l.exists(ref.Format.Tag + ":" + path) { // "tag:path" would mean that file
			path = "./" + path
		}
		files[i] = ref.Format.Tag + ":" + path
	}
	return files, nil
}

// list finds the files that names stand for. A name is a path, a pattern or a directory; "tag:" before it gives the
// format, if neither the format argument nor the suffix does. A name that exists as a file is that file, even if it
// looks like a pattern or has a tag. The files of a glob or of a directory are sorted; those of braces keep the order
// of the braces. Files whose names begin with a dot are left out.
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
		l.format = f
		found, err := l.expand(path)
		if err != nil {
			return nil, err
		}
		all = slices.Grow(all, len(found))
		for _, path := range found {
			of := cmp.Or(f, l.claimed[path])
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

// lister finds files until ctx is done.
type lister struct {
	ctx           context.Context
	format        *record.Format            // of the current name, if it was given
	claimed       map[string]*record.Format // the formats of files that belong to data sets
	knownPrefixes map[string]bool           // whether a file or directory with the name's part before the first slash exists
	count         int                       // of names and directory entries seen
	callBudget    timeBudget                // of a caller that does not wait
}

// maxListing is the time after which a search returns ErrWouldBlock to a caller that does not wait. A caller that waits
// checks for signals about as often. Only tests change it.
var maxListing = 100 * time.Millisecond

// pollEvery is the number of names and entries between two polls of ctx, or of the clock.
const pollEvery = 64

// poll is called for each name and entry, since on a network file system each may cost a message to the server. It
// returns an error if ctx is done, and wait.ErrWouldBlock if a caller that does not wait has spent maxListing.
func (l *lister) poll() error {
	l.count++
	switch {
	case l.count%pollEvery != 0:
	case l.ctx != wait.NonBlocking:
		return l.ctx.Err()
	case l.callBudget.exceeds(maxListing):
		return wait.ErrWouldBlock
	}
	return nil
}

// exists reports whether there is a file or directory of a name with a colon. Such names mostly share their part before
// the first slash, which mostly does not exist: its existence is looked up once.
func (l *lister) exists(name string) bool {
	head, _, more := strings.Cut(name, "/")
	there, known := l.knownPrefixes[head]
	if !known {
		_, err := os.Lstat(head)
		there = err == nil
		if l.knownPrefixes == nil {
			l.knownPrefixes = make(map[string]bool)
		}
		l.knownPrefixes[head] = there
	}
	if there && more {
		_, err := os.Lstat(name)
		there = err == nil
	}
	return there
}

// expand returns the files that a path, a pattern or a directory stands for.
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
	files, f, err := record.FolderOf(path, l.format, info.IsDir())
	if err != nil {
		return nil, err
	}
	if f != nil {
		if l.claimed == nil {
			l.claimed = make(map[string]*record.Format)
		}
		for _, file := range files {
			l.claimed[file] = f
		}
		return files, l.poll()
	}
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

// word returns the files that a path without braces stands for.
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
			e.Text += ", in the search for " + path
		}
		return nil, err
	}
	if len(found) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected files that match, found none", path)
	}
	slices.Sort(found)
	return found, nil
}

// isPattern reports whether a path that does not exist is a pattern. Escaped braces count, since filepath.Match
// unescapes them.
func isPattern(path string) bool {
	return strings.ContainsAny(path, "*?[") || strings.Contains(path, `\{`) || strings.Contains(path, `\}`) || strings.Contains(path, `\,`)
}

// glob returns the files that match. Unlike filepath.Glob, it returns an error for a directory that cannot be read.
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
			dirs, err = l.descendants(dirs)
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

// each returns all that find finds in dirs.
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

// directory returns the path if it is that of a directory.
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

// descendants returns dirs and the directories in them, at any depth. Each directory is visited once. Symbolic links
// are followed last, so that a directory has the path without a link if there is one; cycles of links are harmless.
func (l *lister) descendants(dirs []string) (all []string, err error) {
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
			continue // a link to nothing is not a directory
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

// directoriesIn returns the directories in dir whose names fit, and links to directories.
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

// fitting is matcher for names that do not begin with a dot, unless the pattern begins with one.
func fitting(pattern string) func(name string) bool {
	fits := matcher(pattern)
	return func(name string) bool { return fits(name) && (name[0] != '.' || pattern[0] == '.') }
}

// matcher returns filepath.Match for one pattern, for the names in a directory. Most patterns have one star and no
// other special character; for those it compares the prefix and the suffix, which is faster.
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

// filesIn returns the files of a directory that are wanted by name and type. The directory entry has both, so only
// links cost a further call: they count as the file that they point to. A link to nothing is an error.
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

// entries calls each for every entry of a directory, until each returns an error or ctx is done.
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

// StartListing runs ListFiles in a goroutine.
func StartListing(names []string, format string) *Listing {
	l := new(Listing)
	l.Start("looks for files", func(ctx context.Context) ([]string, error) { return ListFiles(ctx, names, format) }, func([]string) {})
	return l
}
